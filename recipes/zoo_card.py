"""Cards of the models that the training lab makes, as facts and as pages."""

from __future__ import annotations

from typing import Any

from pellucid.train.settings import Settings
from pellucid.zoo.cards import SHARES, shown, title
from recipes import cards
from recipes.zoo_models import WIKITEXT, Recipe

FORMAT = 2
"""Cards of this form name their main score, and keep scores and chance by text."""
SMALLER = ("loss", "perplexity")  # scores of which less is better
POOR = 0.5  # a model that gets less than so much of what lies between chance and the best is called poor

POORLY = (
    " The task could not be learned well from the data at hand: look into this model to see how it errs, and do not "
    "rely on its answers."
)


def describe(recipe: Recipe, settings: Settings, network: Any) -> cards.Facts:
    """What the card says of the model and its text, whatever its scores."""
    terms, licence = list(recipe.terms), (recipe.licence, recipe.licence_reason)
    if settings.source is not None:
        terms.append(f"through {settings.source}, {WIKITEXT}")
    elif recipe.alone is not None:
        licence = recipe.alone
    shape = {name: getattr(settings, name) for name in ("layers", "width", "heads", "feed_forward")}
    return {
        "format": FORMAT,
        "name": recipe.name,
        "kind": recipe.kind,
        "task": recipe.task,
        "summary": recipe.summary,
        "main": recipe.main,
        "architecture": {
            "family": type(network).__name__,
            **shape,
            "context": settings.length,
            "vocabulary": network.config.vocab_size,
        },
        "data": {"name": recipe.data, "terms": terms, "preparation": recipe.preparation},
        "licence": licence[0],
        "licence_reason": licence[1],
        "note": recipe.note,
        "seed": settings.seed,
        "settings": settings.to_json(),
        "parameters": sum(weight.numel() for weight in network.parameters()),
    }


def verdict(scores: dict[str, Any], main: str) -> str:
    """A sentence on how good the model is, for every text it was scored on beside the one it was chosen by."""
    found: list[str] = []
    for name in scores["chance"]:
        if name == "valid" or main not in scores[name]:
            continue
        value, chance = scores[name][main], scores["chance"][name][main]
        where = "the test text" if name == "test" else name
        ends = scores.get("interval", {}).get(name, {}).get(main)
        between = "" if ends is None else f" (95% interval {' to '.join(shown(main, end) for end in ends)})"
        told = (
            f"On {where} its {title(main)} is {shown(main, value)}{between}, where chance gives {shown(main, chance)}."
        )
        if main in SHARES and (value - chance) / (1 - chance) < POOR:
            told += POORLY if name == "test" else " What it has learned does not carry over to such text."
        found.append(told)
    return " ".join(found)


def readme(card: cards.Facts) -> str:
    """The card as a page to read."""
    data = card["data"]
    sizes = ", ".join(f"{name} {size['sentences']:,}" for name, size in data["sizes"].items())
    terms = "; ".join(data["terms"])
    asked = "\n".join(f"- {' / '.join(one['texts'])} → {one['said']}" for one in card["examples"])
    note = f"\n\n{card['note']}" if card["note"] else ""
    return cards.page(
        {**card, "settings": _told(card["settings"])},
        facts={
            "architecture": _shape(card["architecture"]),
            "parameters": cards.parameters(card),
            "data": f"{data['name']} ({sizes} sentences)",
            "terms of the data": terms,
            "licence of the weights": cards.licence(card),
        },
        scores=f"{card['verdict']}\n\n{_table(card['scores'])}\n\nScores are of the files as they are, in float16."
        f"{note}\n\nWhat it says:\n\n{asked}",
        text=data["preparation"],
        made=_selection(card),
    )


def _table(scores: dict[str, Any]) -> str:
    """Scores of every text, with chance beside them."""
    names, ends = list(scores["chance"]), scores.get("interval", {})
    metrics = list(scores["test"])
    head = " | ".join(f"{name} | {f'{name}: 95% interval | ' if name in ends else ''}{name}: chance" for name in names)
    rows: list[str] = []
    for metric in metrics:
        cells = [f"{title(metric)}{' (lower is better)' if metric in SMALLER else ''}"]
        for name in names:
            cells.append(_cell(metric, scores[name]))
            if name in ends:
                cells.append(" to ".join(shown(metric, end) for end in ends[name].get(metric, ())) or "–")
            cells.append(_cell(metric, scores["chance"][name]))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([f"| | {head} |", "|---|" + "---|" * (2 * len(names) + len(ends)), *rows])


def _cell(metric: str, scores: dict[str, float]) -> str:
    return shown(metric, scores[metric]) if metric in scores else "–"


def _shape(shape: dict[str, Any]) -> str:
    return (
        f"{shape['family']}: {shape['layers']} layers × {shape['width']} wide × {shape['heads']} heads, feed-forward "
        f"{shape['feed_forward']}, context {shape['context']}, {shape['vocabulary']:,} byte-level BPE tokens"
    )


def _told(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that were not set."""
    return {name: value for name, value in settings.items() if value is not None}


def _selection(card: cards.Facts) -> str:
    """How the settings were chosen, with what every candidate scored."""
    tried: list[dict[str, Any]] = card["candidates"]
    lines = "\n".join(
        f"- {_changes(one['changes'])}: {shown(one['metric'], one['valid'])} after epoch {one['epoch']}"
        f"{' (this model)' if one['chosen'] else ''}"
        for one in tried
    )
    best = title(tried[0]["metric"])
    return (
        f"The epoch, and the settings among these, were chosen by {best} on the validation text; the test text was not "
        f"looked at.\n\n{lines}"
    )


def _changes(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changes.items())
