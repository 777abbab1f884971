"""Blocks of a model in the trace of a probe pass: which calls belong to each, where its stream enters and leaves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from pellucid.errors import ModelError, listing
from pellucid.model.probe import Attention, Call, Trace
from pellucid.model.taps import Layout, Tap


@dataclass
class Span:
    """One block: its calls in order, its attention calls, and the stream entering and leaving it ([B, T, d])."""

    layer: int
    stack: str | None
    module: nn.Module
    calls: list[Call]
    attention: list[Attention]
    entry_tap: Tap
    entry: Tensor
    exit_tap: Tap
    exit: Tensor
    layout: Layout
    last: bool = False
    loose: bool = False  # the model has no module for the whole block
    entry_edit: Tap | None = None
    exit_edit: Tap | None = None

    @property
    def width(self) -> int:
        return self.entry.shape[-1]


def find_spans(trace: Trace, *, encoder_decoder: bool) -> list[Span]:
    """The blocks of every stack, in order."""
    groups: dict[int, list[Attention]] = {}
    for attention in trace.attention:
        groups.setdefault(_block_of(trace, attention), []).append(attention)
    stacks: dict[str | None, list[int]] = {}
    for place in groups:
        stacks.setdefault(_stack_of(trace.calls[place].name) if encoder_decoder else None, []).append(place)
    spans: list[Span] = []
    for stack, places in stacks.items():
        _refuse_hybrids(trace, places)
        length = trace.inputs["decoder_input_ids" if stack == "decoder" else "input_ids"].shape[1]
        made = [_span(trace, place, groups[place], layer, stack, length) for layer, place in enumerate(places)]
        if _is_loose(trace, places[0]):
            made = _loose_spans(trace, places, groups, stack)
        made[-1].last = True
        spans.extend(made)
    return spans


def _block_of(trace: Trace, attention: Attention) -> int:
    """The outermost numbered module call around an attention call that holds no other self-attention."""
    around = (*trace.calls[attention.owner].parents, attention.owner)
    numbered = [place for place in around if trace.calls[place].name.rpartition(".")[2].isdigit()]
    for place in numbered:
        call = trace.calls[place]
        inside = [other for other in trace.attention if not other.crossed and call.start <= other.order <= call.end]
        if len(inside) <= 1:
            return place
    return attention.owner


def _refuse_hybrids(trace: Trace, places: list[int]) -> None:
    """Raises where some blocks of a list have no attention: numbering only the others would mislead."""
    listed = trace.calls[places[0]].name.rpartition(".")[0]
    known = {trace.calls[place].name for place in places}
    without = {
        call.name: call for call in trace.calls if call.name.rpartition(".")[0] == listed and call.name not in known
    }
    numbered = {name: call for name, call in without.items() if name.rpartition(".")[2].isdigit()}
    if numbered:
        kinds = sorted({type(part).__name__ for call in numbered.values() for part in call.module.children()})
        raise ModelError(
            f"This model cannot be opened: {len(numbered)} of its blocks, such as {next(iter(numbered))}, have no "
            f"attention that Pellucid knows (they are made of {listing(kinds)}). Recurrent and state-space layers are "
            "not supported; name places of your own with Model.wrap(module, tokenize=…, sites=…)."
        )


def _stack_of(name: str) -> str:
    return "decoder" if "decoder" in name.split(".") else "encoder"


def _span(trace: Trace, place: int, attention: list[Attention], layer: int, stack: str | None, length: int) -> Span:
    """A block that is a module: the stream is its first input and first output."""
    call = trace.calls[place]
    entering, leaving = call.input, call.result
    entry_slot, exit_slot = call.input_slot, call.output_slot
    assert entering is not None and leaving is not None and entry_slot is not None and exit_slot is not None
    time_first = entering.shape[0] != trace.batch
    layout = Layout(time_first=time_first, crop=not time_first and entering.shape[1] > length)
    return Span(
        layer,
        stack,
        call.module,
        trace.inside(place),
        attention,
        Tap(call.name, "input", entry_slot, call.number, layout),
        layout.read(entering, trace.batch, None),
        Tap(call.name, "output", exit_slot, call.number, layout),
        layout.read(leaving, trace.batch, None),
        layout,
    )


def _is_loose(trace: Trace, place: int) -> bool:
    """Whether the numbered module around attention is attention alone, the rest of the block lying beside it."""
    return any(attention.owner == place for attention in trace.attention)


def _loose_spans(trace: Trace, places: list[int], groups: dict[int, list[Attention]], stack: str | None) -> list[Span]:
    """Blocks written out in the model's own loop (XLM, FlauBERT): each runs from one attention module to the next."""
    parent = trace.calls[trace.calls[places[0]].parents[-1]]
    siblings = [call for call in trace.calls if call.parents and trace.calls[call.parents[-1]] is parent]
    starts = [_first_of_block(trace, siblings, place) for place in places]
    spans: list[Span] = []
    before = max(
        (call for call in siblings if call.end < starts[0].start and call.result is not None),
        key=lambda call: call.end,
    )
    for layer, (place, start) in enumerate(zip(places, starts, strict=True)):
        final = layer == len(places) - 1
        stop = parent.end if final else starts[layer + 1].start
        calls = [call for call in trace.calls if start.start <= call.start and call.end < stop]
        exit_call, exit_slot = (
            (parent, parent.output_slot) if final else (starts[layer + 1], starts[layer + 1].input_slot)
        )
        entry_slot = start.input_slot
        assert start.input is not None and entry_slot is not None and exit_slot is not None
        leaving = parent.result if final else exit_call.input
        assert leaving is not None
        layout = Layout()
        span = Span(
            layer,
            stack,
            parent.module,
            calls,
            groups[place],
            Tap(start.name, "input", entry_slot, start.number, layout),
            start.input,
            Tap(exit_call.name, "output", exit_slot, exit_call.number, layout),
            leaving,
            layout,
            loose=True,
            entry_edit=Tap(before.name, "output", (), before.number, layout, clone=True),
        )
        spans.append(span)
        before = max((call for call in calls if call.parents[-1] == start.parents[-1]), key=lambda call: call.end)
        span.exit_edit = Tap(before.name, "output", (), before.number, layout, clone=True)
    return spans


def _first_of_block(trace: Trace, siblings: list[Call], place: int) -> Call:
    """The first call of a loose block: its attention, or the norm right before it that feeds it."""
    import torch

    attention = trace.calls[place]
    for call in siblings:
        if call.end < attention.start and isinstance(call.output, Tensor) and attention.input is not None:
            feeds = call.output.shape == attention.input.shape and torch.equal(call.output, attention.input)
            if (
                feeds
                and call.name.rpartition(".")[2].isdigit()
                and call.name.rpartition(".")[2] == attention.name.rpartition(".")[2]
            ):
                return call
    return attention
