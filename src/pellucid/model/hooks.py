"""The recorder: scoped hooks that read and change a model's tensors during a pass, and leave nothing behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError, SiteError, listing
from pellucid.model.attention import NAMES, attention_name, listening, windowed_pattern
from pellucid.model.edits import Edit, View
from pellucid.model.experts import ExpertsRecorder
from pellucid.model.frame import Frame, Wiring
from pellucid.model.gradient import exactly
from pellucid.model.sites import Site
from pellucid.model.taps import Located, Slot, Tap, Window, find_slot, get_slot, put_slot
from pellucid.model.watch import AttentionOps

Reduce = Callable[[Site, Tensor], Any]


class Recorder:
    """Passes every tensor of interest through `through`, which edits it and keeps what was asked for.

    `steps` holds one dictionary of values per forward pass (several during generation). A site is `touched` where it is
    read or changed, and `rewritten` where the model must go on with the tensor that `through` returns.
    """

    def __init__(
        self,
        wiring: Wiring,
        located: Located,
        frame: Frame,
        *,
        sites: Sequence[Site] = (),
        edits: Mapping[Site, Sequence[Edit]] | None = None,
        gradients: bool = False,
        generating: bool = False,
        reduce: Reduce | None = None,
    ) -> None:
        self.wiring, self.located, self.frame = wiring, located, frame
        self.wanted, self.edits = frozenset(sites), dict(edits or {})
        self.gradients, self.generating, self.reduce = gradients, generating, reduce
        self.touched = self.wanted | self.edits.keys()
        self.rewritten = frozenset(self.edits) | (self.wanted if gradients else frozenset())
        self._step: dict[Site, Any] = {}  # of the forward pass now running
        self.steps = [self._step]
        self._forwards = 0
        self._prompt = self._seen = 0  # tokens of the first forward pass, and of all so far
        self._applied: set[Site] = set()
        self._calls: dict[str, int] = defaultdict(int)
        self._scope: list[tuple[str, int, int]] = []
        self._versions: list[tuple[Site, Tensor, int]] = []
        self._versioned = not torch.is_inference_mode_enabled()  # inference tensors count no versions
        self._attention = {place: AttentionSites(self, site) for place, site in located.attention.items()}
        self._totals: dict[Site, tuple[Site, Site]] = {}  # site → (the sum it completes, the sum's other part)
        self._parts: set[Site] = set()  # sites that a sum or a windowed pattern is made of
        self._latest: dict[Site, Tensor] = {}

    # -- what passes at a site ---------------------------------------------------------------------------------------

    def next_call(self, key: str) -> int:
        """How often `key` has been counted in this forward pass, counting it once more."""
        number = self._calls[key]
        self._calls[key] = number + 1
        return number

    def through(self, site: Site, tensor: Tensor, *, clone: bool = False) -> Tensor:
        """Edits and keeps the tensor passing at a site; returns what the model goes on with."""
        if site in self.edits:
            tensor = self.edited(site, tensor)
        return self.keep(site, tensor, clone=clone)

    def keep(self, site: Site, tensor: Tensor, *, clone: bool = False) -> Tensor:
        """Keeps a tensor where its site was asked for; returns what the model goes on with."""
        if site not in self.wanted:
            return tensor
        if not self.gradients:
            self._store(site, tensor.clone() if clone else tensor)
            return tensor
        if tensor.is_floating_point() and not tensor.requires_grad:
            tensor = tensor.detach().requires_grad_()
        self._store(site, tensor)
        return tensor.clone() if clone else tensor

    def through_pattern(self, site: Site, pattern: Tensor) -> Tensor:
        """The same for attention weights, whose padded query rows are shown as zero and given back untouched."""
        rows = self.frame.rows(site, pattern.shape[2])
        if rows is None:
            return self.through(site, pattern)
        padded = ~rows[:, None, :, None]
        new = self.through(site, pattern.masked_fill(padded, 0))
        return torch.where(padded, pattern.detach(), new) if site in self.rewritten else pattern

    def edited(self, site: Site, tensor: Tensor) -> Tensor:
        """The tensor after the edits asked for at its site."""
        self._applied.add(site)
        length = tensor.shape[2 if site.per_head else 1] if tensor.dim() > 2 else 0
        real = self.frame.rows(site, length)
        growing = self.generating and self.frame.source(site) != "encoder"
        # a tensor of a later step ends where the text now ends: keys and values cover all of it, the rest one token
        view = View(self._seen - length, self._prompt, True, real) if growing else View(0, length, False, real)
        for edit in self.edits.get(site, ()):
            tensor = edit.apply(tensor, site, view=view)
        return tensor

    def _store(self, site: Site, tensor: Tensor) -> None:
        if self.reduce is not None:
            self._step[site] = self.reduce(site, tensor)
            return
        if tensor.requires_grad and not self.gradients:
            tensor = tensor.detach()
        self._step[site] = tensor
        if self._versioned:
            self._versions.append((site, tensor, tensor._version))

    def changed_in_place(self) -> list[Site]:
        """Sites whose kept tensor the model changed after it was kept."""
        return [site for site, tensor, version in self._versions if tensor._version != version]

    def attend(self, module: nn.Module) -> AttentionSites | None:
        """The recorder of this call of an attention module (see `attention.Listener`)."""
        name = self.wiring.names.get(id(module), "")
        return self._attention.get((name, self.next_call(name) if name in self.located.repeated else 0))

    # -- installation ------------------------------------------------------------------------------------------------

    @contextmanager
    def installed(self, attention: str) -> Generator[Recorder]:
        """Hooks in place for the block, once, and every trace of them removed at its end, whatever happens."""
        parts = self.wiring.parts
        with ExitStack() as stack:
            module = self.wiring.module
            stack.callback(module.register_forward_pre_hook(self._begin, prepend=True, with_kwargs=True).remove)
            for name, points in self._points().items():
                self._hook_module(stack, name, parts[name], points)
            for (name, call), site in self.located.experts.items():
                if site.beside("neurons") in self.touched or site.beside("routing") in self.touched:
                    layer = ExpertsRecorder(self, site, call, self.located.shared.get(site.beside("neurons")))
                    layer.install(stack, parts, name)
            for site, window in self.located.windows.items():
                if site in self.touched:
                    hook = self._window_hook(site, window)
                    stack.callback(parts[window.module].register_forward_hook(hook, with_kwargs=True).remove)
            if any(call.active for call in self._attention.values()):
                self._listen(stack, attention)
            stack.callback(self._latest.clear)
            stack.callback(self._attention.clear)  # each holds this recorder, and it what `reduce` holds
            yield self

    def taken(self) -> list[dict[Site, Any]]:
        """What was recorded, handed over: the recorder lets go of it, so that dropping a run frees its tensors."""
        changed = self.changed_in_place()
        if changed:
            raise ModelError(
                f"The model changed {changed[0]} in place after it was recorded; this is a fault in Pellucid, please "
                "report it."
            )
        steps, self.steps, self._step = self.steps, [], {}
        self._versions.clear()
        silent = [site for site in self.wanted if not any(site in step for step in steps)]
        silent += [site for site in self.edits if site not in self._applied]
        if silent:
            raise SiteError(
                f"Nothing passed at {listing(silent)} in this pass, so it could be neither read nor changed."
            )
        return steps

    def _listen(self, stack: ExitStack, attention: str) -> None:
        """Connects attention: through the interface, or by watching the operations inside attention modules."""
        if self.located.interface:
            stack.enter_context(attention_name(self.wiring.configs, NAMES[attention]))
            stack.enter_context(listening(self))
            return
        for name in {name for name, _ in self.located.attention}:
            part = self.wiring.parts[name]
            stack.callback(part.register_forward_pre_hook(self._enter(name)).remove)
            stack.callback(part.register_forward_hook(self._leave, always_call=True).remove)
        stack.enter_context(
            AttentionOps(
                lambda: self._scope[-1] if self._scope else None,
                lambda scope: self._attention[scope[:2]],  # type: ignore[index]
                lambda: self.frame.size,
            )
        )

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A new forward pass starts: calls are counted afresh, and in generation a new step is opened."""
        if self._forwards:
            self._step = {}
            self.steps.append(self._step)
        self._forwards += 1
        self._calls.clear()
        ids = kwargs.get("decoder_input_ids", kwargs.get("input_ids", args[0] if args else None))
        self._seen += ids.shape[1] if isinstance(ids, Tensor) and ids.dim() > 1 else 0
        self._prompt = self._prompt or self._seen

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._scope.append((name, self.next_call(f"attend:{name}"), self._forwards))

        return enter

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._scope.pop()

    def _points(self) -> dict[str, list[tuple[Tap, Site]]]:
        """The taps this pass needs, by module."""
        taps, edit_taps = self.located.taps, self.located.edit_taps
        needed = {site: taps[site] for site in self.touched if site in taps}
        needed.update({site: edit_taps[site] for site in self.edits if site in edit_taps})
        for site in self.located.windows:
            if site in self.touched:
                self._parts.update((site.beside("query"), site.beside("key")))
        open_sums = [site for site in self.located.sums if site in self.touched]
        while open_sums:
            total = open_sums.pop()
            base, added = self.located.sums[total]
            self._totals[added] = (total, base)
            self._parts.update((base, added))
            if base in self.located.sums:
                open_sums.append(base)
        needed.update({site: taps[site] for site in self._parts if site in taps and site not in needed})
        points: dict[str, list[tuple[Tap, Site]]] = defaultdict(list)
        for site, tap in needed.items():
            points[tap.module].append((tap, site))
        return points

    def _hook_module(self, stack: ExitStack, name: str, module: nn.Module, points: list[tuple[Tap, Site]]) -> None:
        if len(points) == 1 and self._only_read(*points[0]):
            self._hook_reader(stack, module, *points[0])
            return
        before = [(tap, site) for tap, site in points if tap.end == "input"]
        after = [(tap, site) for tap, site in points if tap.end == "output"]

        def pre(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call = self.next_call(f"in:{name}")
            given: Any = {"args": args, "kwargs": kwargs}
            passed = given
            for tap, site in before:
                if tap.call == call:
                    passed = self._pass(tap, site, passed)
            return None if passed is given else (passed["args"], passed["kwargs"])

        def post(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            call = self.next_call(f"out:{name}")
            for tap, site in after:
                if tap.call == call:
                    output = self._pass(tap, site, output)
            return output

        if before:
            stack.callback(module.register_forward_pre_hook(pre, with_kwargs=True).remove)
        if after:
            stack.callback(module.register_forward_hook(post).remove)

    def _only_read(self, tap: Tap, site: Site) -> bool:
        """Whether a tap is read and nothing else: the common case, which must cost next to nothing."""
        direct = tap.slot is not None and (tap.end == "output" or len(tap.slot) == 2)
        plain = direct and tap.scale == 1.0 and not tap.clone and tap.module not in self.located.repeated
        return plain and site not in self.rewritten and site not in self._parts

    def _hook_reader(self, stack: ExitStack, module: nn.Module, tap: Tap, site: Site) -> None:
        slot: Any = tap.slot
        layout, size, store = tap.layout, self.frame.size, self._store
        length = self.frame.length(site) if layout.crop else None

        def read_argument(module: nn.Module, args: tuple[Any, ...]) -> None:
            store(site, layout.read(args[slot[1]], size, length))

        def read_keyword(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            store(site, layout.read(kwargs[slot[1]], size, length))

        def read_output(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            store(site, layout.read(get_slot(output, slot), size, length))

        if tap.end == "output":
            stack.callback(module.register_forward_hook(read_output).remove)
        elif slot[0] == "args":
            stack.callback(module.register_forward_pre_hook(read_argument).remove)
        else:
            stack.callback(module.register_forward_pre_hook(read_keyword, with_kwargs=True).remove)

    def _pass(self, tap: Tap, site: Site, container: Any) -> Any:
        """Takes the tensor at a tap through its site (and a sum it completes); gives the container to go on with."""
        slot = find_slot(container, dims=(1, 2, 3, 4)) if tap.slot is None else tap.slot
        if slot is None:
            raise SiteError(f"No floating-point tensor passes at {site} ({tap.module}, {tap.end}).")
        native = _tensor_at(container, slot, site)
        value = tap.layout.read(native, self.frame.size, self.frame.length(site) if tap.layout.crop else None)
        if tap.scale != 1.0:
            value = value * tap.scale
        new = self.through(site, value, clone=tap.clone)
        rewritten, edited = site in self.rewritten, site in self.edits
        if site in self._parts:
            self._latest[site] = new
        if site in self._totals:
            total, base = self._totals[site]
            stream = self._latest[base]
            whole = self.through(total, stream + new)
            self._latest[total] = whole
            if total in self.edits:
                new, rewritten, edited = whole - stream, True, True
            elif total in self.rewritten:
                new, rewritten = exactly(new, gradient_of=whole - stream), True
        if not rewritten:
            return container
        new = tap.layout.write(new if tap.scale == 1.0 else new / tap.scale, native, self.frame.size)
        return put_slot(container, slot, new if edited or new is native else exactly(native, gradient_of=new))

    def _window_hook(self, site: Site, window: Window) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if kwargs.get("is_global_attn"):
                raise ModelError(
                    f"{site} cannot be read: this pass uses global attention, whose pattern is not one T × T matrix."
                )
            query, key = self._latest[site.beside("query")], self._latest[site.beside("key")]
            self.through_pattern(site, windowed_pattern(query, key, window.radius, self.frame.real.get(site.stack)))

        return hook


def _tensor_at(container: Any, slot: Slot, site: Site) -> Tensor:
    """The tensor at a slot; raises where the user named a part that is not there or is none."""
    try:
        found = get_slot(container, slot)
    except (LookupError, TypeError):
        found = None
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise SiteError(
            f"There is no floating-point tensor at the part that {site} names; name another part of the output."
        )
    return found


class AttentionSites:
    """One call of attention: hands query, key, value and pattern to the recorder (see `attention.AttentionCall`)."""

    def __init__(self, recorder: Recorder, site: Site) -> None:
        self._recorder = recorder
        inline = [kind for kind in ("heads", "attn") if site.beside(kind) in recorder.located.inline]
        kinds = ("query", "key", "value", "pattern", *inline)
        touched = {kind: site.beside(kind) for kind in kinds if site.beside(kind) in recorder.touched}
        self._query, self._key, self._value = touched.get("query"), touched.get("key"), touched.get("value")
        self._pattern, self._heads, self._attn = touched.get("pattern"), touched.get("heads"), touched.get("attn")
        self.active = bool(touched)
        pure = not any(touched_site in recorder.rewritten for touched_site in touched.values())
        self._pass = recorder.keep if pure else recorder.through
        self.wants_pattern = self._pattern is not None
        self.changes_pattern = self._pattern in recorder.rewritten

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        if self._query is not None:
            query = self._pass(self._query, query)
        if self._key is not None:
            key = self._pass(self._key, key)
        return query, key

    def value(self, value: Tensor) -> Tensor:
        return value if self._value is None else self._pass(self._value, value)

    def pattern(self, pattern: Tensor) -> Tensor:
        return pattern if self._pattern is None else self._recorder.through_pattern(self._pattern, pattern)

    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.pattern(pattern), self.value(value)

    def mixed(self, heads: Tensor) -> Tensor:
        return heads if self._heads is None else self._pass(self._heads, heads)

    def projected(self, output: Tensor) -> Tensor:
        """The output projection of a module that computes it itself: the site `attn`."""
        return output if self._attn is None else self._pass(self._attn, output)
