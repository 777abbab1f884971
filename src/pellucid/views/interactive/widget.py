"""A view as a notebook widget (anywidget): the page's script asks for chunks, the kernel answers with bytes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pellucid.errors import PellucidError
from pellucid.views.interactive.page import bundle

if TYPE_CHECKING:
    from pellucid.views.interactive.view import View


def widget(view: View) -> Any:
    """A widget with the traits `header`, `state` and `live`; its state follows what is done in it."""
    if find_spec("anywidget") is None:
        raise PellucidError("A view in a notebook needs anywidget: install it with pip install 'pellucid[notebook]'.")
    made = _widget_class()(header=dict(view.header), state=view.state, live=view.live is not None)
    made.on_msg(lambda own, content, _: reply(view, own, content))
    return made


def reply(view: View, own: Any, content: Any) -> None:
    """Answers one question of the page: {kind: "chunk", id, name} or {kind: "exact", id, panel, …, query}."""
    number = content.get("id") if isinstance(content, dict) else None
    try:
        kind, answer = _answer(view, content)
    except PellucidError as error:
        own.send({"kind": "error", "id": number, "message": str(error)})
        return
    own.send({"kind": kind, "id": number}, buffers=[answer])


def _answer(view: View, content: Any) -> tuple[str, bytes]:
    match content:
        case {"kind": "chunk", "name": str(name)}:
            return "chunk", view.chunk(name).stored
        case {
            "kind": "exact",
            "panel": panel,
            "block": block,
            "weighting": weighting,
            "layer": layer,
            "head": head,
            "query": query,
        }:
            if view.live is None:
                raise PellucidError("There is no model behind this view, so it has no exact weights.")
            return "exact", view.live.exact(panel, block, weighting, layer, head, query).astype("<f4").tobytes()
        case _:
            raise PellucidError(f"The page asked for {content!r}, which a view does not know.")


@cache
def _widget_class() -> Any:
    """The widget's class, made when it is first needed: anywidget is an extra."""
    anywidget: Any = import_module("anywidget")
    traitlets: Any = import_module("traitlets")
    traits = {name: traitlets.Dict().tag(sync=True) for name in ("header", "state")}
    members = {"_esm": bundle().decode(), "live": traitlets.Bool(False).tag(sync=True), **traits}
    return type("ViewWidget", (anywidget.AnyWidget,), {"__doc__": "A view of a model.", **members})
