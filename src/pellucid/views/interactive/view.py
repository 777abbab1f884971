"""`View`: an interactive picture of one input, for a notebook, a single HTML file or a local server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import PellucidError, listing
from pellucid.views.interactive.payload import FORMAT, Chunk, Payload
from pellucid.views.interactive.state import merged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.model import Model
    from pellucid.views.interactive.live import Live
    from pellucid.views.interactive.server import Server

_FIGURES = (".svg", ".png", ".pdf")
SUFFIXES = (".html", *_FIGURES)


@dataclass(frozen=True, eq=False)
class View:
    """An interactive picture: `show()` in a notebook, `save("x.html")`, or `serve()`.

    `payload` holds its data, `live` the model behind it, where there is one: it gives exact weights, and the weights of
    long texts.
    """

    payload: Payload
    live: Live | None = None

    @property
    def header(self) -> Mapping[str, Any]:
        """Titles, tokens, blocks of heads and notes, as the page reads them."""
        return self.payload.header

    @property
    def notes(self) -> tuple[str, ...]:
        """What was cut, and what the numbers mean."""
        return tuple(self.header["notes"])

    @property
    def state(self) -> dict[str, Any]:
        """What the picture depends on beside its data: layer, heads, units …; names left out have their defaults."""
        return dict(self.header["state"])

    def with_state(self, **changes: Any) -> View:
        """The same view in another state: `view.with_state(layer=3, unit="words")`; `from` needs `**{"from": 0}`."""
        header = {**self.header, "state": merged(self.header, changes)}
        return replace(self, payload=replace(self.payload, header=header))

    def __repr__(self) -> str:
        header = self.header
        return f"View({header['title']!r}, {header['kind']}, {len(self.payload.chunks)} chunks)"

    # -- showing -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Writes one file: .html is interactive and needs nothing else; .svg, .png and .pdf are still figures."""
        from pellucid.saving import write_file

        place = Path(path)
        kind = check_place(place)
        write_file(place, self._html() if kind == ".html" else self._figure(kind.removeprefix(".")))
        return place

    def figure(self, *, width: float | None = None) -> Figure:
        """The view's still figure (matplotlib), `width` inches wide or as wide as it likes."""
        from pellucid.views.interactive.figures import draw

        return draw(self, width=width)

    def widget(self) -> Any:
        """A notebook widget of this view; its `state` follows what is done in it."""
        from pellucid.views.interactive.widget import widget

        return widget(self)

    def show(self) -> None:
        """Shows the view in a notebook; without anywidget, its still figure."""
        if not _in_notebook():
            raise PellucidError(
                "show() needs a notebook; here, write the view to a file with save('view.html') or look at it with "
                "serve()."
            )
        display: Any = import_module("IPython.display").display
        display(self)

    def serve(self, *, port: int = 0) -> Server:
        """A server for this machine alone that shows the view with its model behind it: `serve().url`, `.close()`."""
        from pellucid.views.interactive.server import serve

        return serve(self, port=port)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if find_spec("anywidget") is not None:
            return self.widget()._repr_mimebundle_(**options)
        from pellucid.views.style import figure_svg

        told = f"{self!r}: install anywidget (pip install 'pellucid[notebook]') to use it here, or save('view.html')."
        return {"text/plain": told, "image/svg+xml": figure_svg(self.figure())}

    # -- what its hosts read -----------------------------------------------------------------------------------------

    def chunk(self, name: str) -> Chunk:
        """A chunk by its name: one that is held, or one that the model behind it makes."""
        held = self.payload.chunks.get(name)
        if held is not None:
            return held
        if self.live is None or not self.live.large:
            raise PellucidError(f"There is no chunk {name!r} in this view.")
        return self.live.chunk(name)

    def _html(self) -> bytes:
        from pellucid.views.interactive.page import page

        if self.live is not None and self.live.large:
            raise PellucidError(
                "The weights of so long a text are made when they are looked at, and no file holds them: use serve() "
                "(--serve), fewer layers=, or a shorter text."
            )
        return page(self.payload)

    def _figure(self, kind: str) -> bytes:
        from pellucid.views.style import figure_bytes

        return figure_bytes(self.figure(), kind)


def check_place(place: Path) -> str:
    """The ending of a file that a view can be written to; others raise, before anything is drawn."""
    kind = place.suffix.lower()
    if kind not in SUFFIXES:
        raise PellucidError(f"A view cannot be saved as {place.name!r}; the endings are {listing(SUFFIXES)}.")
    if not place.absolute().parent.is_dir():
        raise PellucidError(f"There is no folder {str(place.absolute().parent)!r} to write {place.name!r} in.")
    return kind


def shown_name(model: Model) -> str:
    """A model's name for readers: of a long path, its last two parts."""
    parts = Path(model.name).parts
    return "/".join(parts[-2:]) if Path(model.name).is_absolute() else model.name


def shown_text(text: str, *others: str | None) -> str:
    """A text as the title of its view: one line in quotation marks, cut to about 90 characters; so for several."""
    texts = [text, *(other for other in others if other is not None)]
    return " · ".join(f"“{_cut(each, 90 // len(texts))}”" for each in texts)


def _cut(text: str, most: int) -> str:
    """A text on one line, and of a long one its beginning up to the end of a word."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    start, _, _ = line[: most + 1].rpartition(" ")
    return (start if len(start) > most // 2 else line[:most]) + "…"


def make(
    kind: str,
    title: str,
    panels: list[dict[str, Any]],
    chunks: Mapping[str, Chunk],
    *,
    notes: list[str],
    first: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    live: Live | None,
) -> View:
    """A view of panels and chunks, opened in the state `first` with the user's changes."""
    from pellucid import __version__

    header: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "title": title,
        "notes": notes,
        "panels": panels,
        "chunks": {name: {"stored": len(chunk.stored), "raw": chunk.raw} for name, chunk in chunks.items()},
        "state": dict(first),
        "pellucid": __version__,
    }
    header["state"] = merged(header, state or {})
    return View(Payload(header, dict(chunks)), live)


def _in_notebook() -> bool:
    """Whether this runs under a notebook's kernel."""
    if find_spec("IPython") is None:
        return False
    shell = import_module("IPython").get_ipython()
    return shell is not None and hasattr(shell, "kernel")
