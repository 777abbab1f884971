"""What a model predicts, as tables: next tokens, masked tokens, tags, answers or classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.cli._print import console, print_table

if TYPE_CHECKING:
    from pellucid.model import Model, Run

Predictions = dict[str, list[tuple[str, float]]]
"""For each place of the text, the best labels with their probabilities."""


def predictions(model: Model, run: Run, top: int) -> Predictions:
    """The best predictions at the places that matter for the model's head; none for a model without one."""
    import torch

    if "start_logits" in run.output:
        return {name: _best_places(model, run, run.output[f"{name}_logits"][0], top) for name in ("start", "end")}
    if "logits" not in run.output:
        return {}
    chances = torch.softmax(run.output["logits"][0].float(), dim=-1)  # [T, V] or [C]
    names = _names(model, chances.shape[-1])
    if chances.dim() == 1:
        return {"class": _best(chances, names, top)}
    return {label: _best(chances[place], names, top) for label, place in _places(model, run, chances.shape[0])}


def _best_places(model: Model, run: Run, scores: Any, top: int) -> list[tuple[str, float]]:
    """The tokens at which an answer most likely starts or ends."""
    assert run.batch is not None
    ids = run.batch.ids[0]
    return _best(scores.float().softmax(-1), lambda place: f"{place} {model.tokenizer.decode([int(ids[place])])}", top)


def _best(chances: Any, names: Any, top: int) -> list[tuple[str, float]]:
    best = chances.topk(min(top, chances.shape[-1]))
    return [(names(int(index)), round(float(value), 4)) for value, index in zip(best.values, best.indices, strict=True)]


def _names(model: Model, count: int) -> Any:
    """A function from a class or token number to its name."""
    config: Any = model.hf.config
    labels = getattr(config, "id2label", None) or {}
    if len(labels) == count and "Classification" in type(model.hf).__name__:
        return lambda index: str(labels[index])
    tokenizer = model.tokenizer
    return (lambda index: tokenizer.decode([index])) if tokenizer is not None else str


def _places(model: Model, run: Run, length: int) -> list[tuple[str, int]]:
    """Which positions to show: masked ones, every word for a tagger, else the last real one."""
    assert run.batch is not None
    ids = run.batch.ids[0]
    mask = getattr(model.tokenizer, "mask_token_id", None)
    if "MaskedLM" in type(model.hf).__name__ and mask is not None and bool((ids == mask).any()):
        return [(f"position {place}", place) for place in (ids == mask).nonzero()[:, 0].tolist()]
    if "TokenClassification" in type(model.hf).__name__:
        real = (run.batch.mask[0].bool() & ~run.batch.special[0]).nonzero()[:, 0].tolist()
        return [(f"{place} {model.tokenizer.decode([int(ids[place])])}", place) for place in real]
    if "MaskedLM" in type(model.hf).__name__:
        return [(f"position {length - 1} (the text holds no {model.tokenizer.mask_token})", length - 1)]
    return [("next token", length - 1)]


def compared(before: Predictions, after: Predictions | None, edits: list[Any]) -> None:
    """Prints predictions, beside those under edits where there are any."""
    if not before:
        console().print("This model has no head, so it predicts nothing; read its sites with --sites.")
        return
    for place, best in before.items():
        if after is None:
            rows = [(repr(label), f"{chance:.2%}") for label, chance in best]
            print_table([place, "probability"], rows, right=["probability"])
            continue
        changed = after[place]
        rows = [
            (repr(old), f"{old_chance:.2%}", repr(new), f"{new_chance:.2%}")
            for (old, old_chance), (new, new_chance) in zip(best, changed, strict=True)
        ]
        title = f"{place}, before and after {', '.join(map(str, edits))}"
        print_table(["before", "p before", "after", "p after"], rows, title=title, right=["p before", "p after"])
