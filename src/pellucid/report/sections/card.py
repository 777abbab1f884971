"""The model's card: what it is, how large, and which places in it can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.model.sites import MEANINGS
from pellucid.report.html import Cell, Html, element
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.model import Model, Site


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Facts, notes, sites and what is missing."""
    model = subject.model
    sheet.facts(_facts(model, found.models[0].fingerprint))
    for note in model.notes:
        sheet.text(f"Note: {note}.")
    rows = [
        (Cell(element("code", name), name), MEANINGS.get(kind, "named by you"), count, size)
        for name, kind, count, size in _rows(model)
    ]
    sheet.heading("What can be read")
    sheet.table(
        ["sites", "what it is", "layers", "size at each token"],
        rows,
        caption="Places of the model with a name, first to last; each can be read and most can be edited.",
        name="sites",
        right=["layers"],
    )
    if model.missing:
        reasons = [element("li", element("code", name), f": {reason}.") for name, reason in model.missing.items()]
        sheet.text("Not available in this model:")
        sheet.html(element("ul", *reasons))


def _facts(model: Model, fingerprint: str) -> list[tuple[str, str | Html]]:
    config: Any = getattr(model.hf, "config", None)
    count = sum(parameter.numel() for parameter in model.hf.parameters())
    forms = ", ".join(f"{stack}: {form}" if stack else form for stack, form in model.forms.items())
    layers, heads, width = _shape(model)
    vocabulary = model.hf.get_input_embeddings().num_embeddings if config is not None else None  # pyright: ignore
    told: list[tuple[str, object]] = [
        ("Name", model.name),
        ("Family", getattr(config, "model_type", None)),
        ("Class", type(model.hf).__name__),
        ("Parameters", f"{count:,}"),
        ("Layers", layers),
        ("Attention heads per layer", heads),
        ("Width of the stream", width),
        ("Vocabulary", None if vocabulary is None else f"{vocabulary:,} tokens"),
        ("Longest text", "no limit" if model.limit is None else f"{model.limit:,} tokens"),
        ("Reads", "what stands before each token only (causal)" if model.causal else "the whole text at once"),
        ("Blocks", forms or None),
        ("Attention computed", model.attention),
        ("Numbers", f"{str(next(model.hf.parameters()).dtype).removeprefix('torch.')} on {model.device}"),
        ("Fingerprint", element("code", fingerprint)),
    ]
    return [(name, value if isinstance(value, Html) else str(value)) for name, value in told if value is not None]


def _shape(model: Model) -> tuple[str | None, str | None, str | None]:
    """Layers, heads and width, by stack where there are several."""
    stacks = dict.fromkeys(site.stack for site in model.sites if site.stack != "cross")
    layers: list[str] = []
    heads: list[str] = []
    widths: list[str] = []
    for stack in stacks:
        named = f" ({stack})" if stack else ""
        mine = [site for site in model.sites if site.stack == stack]
        blocks = {site.layer for site in mine if site.kind in ("attn", "mlp", "heads")}
        layers += [f"{len(blocks)}{named}"] if blocks else []
        heads += [f"{number}{named}" for number in _sizes(model, mine, "heads")]
        widths += [f"{number}{named}" for number in _sizes(model, mine, "resid")]
    return tuple(" + ".join(part) or None for part in (layers, heads, widths))  # type: ignore[return-value]


def _sizes(model: Model, sites: list[Site], kind: str) -> list[str]:
    """The different first sizes of a kind's sites, smallest to largest."""
    sizes = sorted({model.size(site)[0] for site in sites if site.kind == kind})
    if not sizes:
        return []
    return [f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"]


def _rows(model: Model) -> list[tuple[str, str, int, str]]:
    """One row per stack, kind and size: sites in short form, kind, how many, size."""
    groups: dict[tuple[str | None, str, tuple[int, ...]], list[Site]] = {}
    for site in model.sites:
        groups.setdefault((site.stack, site.kind, model.size(site)), []).append(site)
    return [
        (_short(members), kind, len(members), _size(kind, stack, size))
        for (stack, kind, size), members in groups.items()
    ]


def _short(members: list[Site]) -> str:
    first, last = members[0], members[-1]
    numbers = [site.layer for site in members]
    if (
        isinstance(first.layer, int)
        and numbers == list(range(first.layer, first.layer + len(members)))
        and last != first
    ):
        return f"{first}-{last.layer}"
    return ", ".join(str(site) for site in members)


def _size(kind: str, stack: str | None, size: tuple[int, ...]) -> str:
    if kind == "pattern":
        return f"{size[0]:,} heads × tokens" + (" of the source" if stack == "cross" else "")
    return f"{size[0]:,} heads × {size[1]:,}" if len(size) == 2 else f"{size[0]:,}"


SECTION = Section(
    title="The model",
    order=10,
    explanation="What was opened: its architecture, its size, and every place inside it that has a name.",
    render=render,
)
