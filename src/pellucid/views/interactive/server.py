"""A small web server, for this machine alone, that shows one view with its model behind it."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pellucid.errors import PellucidError
from pellucid.views.interactive.page import SERVED_POLICY, bundle, header_json, served_page

if TYPE_CHECKING:
    from pellucid.views.interactive.view import View

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")


class Server:
    """A running server: look at `url`, end it with `close()` or at the end of a `with` block."""

    def __init__(self, view: View, port: int) -> None:
        try:
            self._http = ThreadingHTTPServer((HOST, port), _handler(view))
        except (OSError, OverflowError) as error:
            raise PellucidError(f"Port {port} of this machine cannot be used ({error}); choose another one.") from error
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, name="pellucid view", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        return f"http://{HOST}:{self.port}/"

    def wait(self) -> None:
        """Returns when the server was closed."""
        self._thread.join()

    def close(self) -> None:
        """Ends the server."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(view: View, *, port: int = 0) -> Server:
    """A server of one view at a free port, or at the one given."""
    bundle()  # says at once where it is missing
    return Server(view, port)


def answer(view: View, path: str) -> tuple[str, bytes]:
    """The kind and the bytes of what an address means; one that means nothing raises."""
    match [unquote(part) for part in urlsplit(path).path.split("/")[1:]]:
        case [""]:
            return "text/html; charset=utf-8", served_page(str(view.header["title"]))
        case ["header.json"]:
            return "application/json", header_json(view.header)
        case ["bundle.js"]:
            return "text/javascript; charset=utf-8", bundle()
        case ["chunk", *name] if name:
            return "application/octet-stream", view.chunk("/".join(name)).stored
        case ["exact", panel, block, weighting, layer, head, query]:
            if view.live is None:
                raise PellucidError("There is no model behind this view, so it has no exact weights.")
            row = view.live.exact(panel, block, weighting, layer, head, query)
            return "application/octet-stream", row.astype("<f4").tobytes()
        case _:
            raise PellucidError(f"There is nothing at {path!r}; see /, header.json, chunk/NAME and exact/….")


def _handler(view: View) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"  # no connection outlives its answer, nor the server

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in _NAMES:  # a page from elsewhere whose name was made to mean this machine
                self._send(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", b"This server answers this machine only.")
                return
            try:
                kind, content = answer(view, self.path)
                status = HTTPStatus.OK
            except PellucidError as error:
                status, kind, content = HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", str(error).encode()
            self._send(status, kind, content)

        def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            if kind.startswith("text/html"):
                self.send_header("Content-Security-Policy", SERVED_POLICY)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing: the page shows what goes wrong."""

    return Handler
