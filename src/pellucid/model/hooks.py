"""The recorder: scoped hooks that read and change a model's tensors during a pass, and leave nothing behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError, SiteError
from pellucid.model.attention import NAMES, attention_name, listening, windowed_pattern
from pellucid.model.edits import Edit
from pellucid.model.experts import ExpertsRecorder
from pellucid.model.sites import Site
from pellucid.model.taps import Located, Tap, Window, find_slot, get_slot, put_slot
from pellucid.model.watch import AttentionOps

Reduce = Callable[[Site, Tensor], Any]


@dataclass(frozen=True)
class Frame:
    """What a pass needs to know of its batch: its size, and per stack which tokens are real ([B, T] booleans)."""

    size: int
    real: Mapping[str | None, Tensor] = field(default_factory=dict[str | None, Tensor])

    def length(self, stack: str | None) -> int | None:
        """Tokens of a row, padding included."""
        real = self.real.get("decoder" if stack == "cross" else stack)
        return None if real is None else real.shape[1]

    def rows(self, stack: str | None, length: int) -> Tensor | None:
        """Which query rows are real, [B, T]; None where all are, or where the pass is a later generation step."""
        real = self.real.get("decoder" if stack == "cross" else stack)
        return None if real is None or real.shape[1] != length or bool(real.all()) else real


class Recorder:
    """Passes every tensor of interest through `through`, which edits it and keeps what was asked for.

    `steps` holds one dictionary of values per forward pass (several during generation).
    """

    def __init__(
        self,
        module: nn.Module,
        located: Located,
        frame: Frame,
        *,
        sites: Sequence[Site] = (),
        edits: Mapping[Site, Sequence[Edit]] | None = None,
        gradients: bool = False,
        reduce: Reduce | None = None,
    ) -> None:
        self.module, self.located, self.frame = module, located, frame
        self.wanted, self.edits = frozenset(sites), dict(edits or {})
        self.gradients, self.reduce = gradients, reduce
        self.steps: list[dict[Site, Any]] = [{}]
        self._forwards = 0
        self._offset = self._seen = 0
        self._calls: dict[str, int] = defaultdict(int)
        self._scope: list[tuple[str, int, int]] = []
        self._partial: dict[Site, Tensor] = {}
        self._inner_sums: set[Site] = set()  # sums needed only as a part of another sum
        self._versions: list[tuple[Site, Tensor, int]] = []
        self._names = {id(part): name for name, part in module.named_modules()}

    # -- what passes at a site ---------------------------------------------------------------------------------------

    def touches(self, site: Site) -> bool:
        """Whether a site is read or changed in this pass."""
        return site in self.wanted or site in self.edits

    def rewrites(self, site: Site) -> bool:
        """Whether the model must go on with the tensor that `through` returns."""
        return site in self.edits or (self.gradients and site in self.wanted)

    def next_call(self, key: str) -> int:
        """How often `key` has been counted in this forward pass, counting it once more."""
        self._calls[key] += 1
        return self._calls[key] - 1

    def through(self, site: Site, tensor: Tensor, *, clone: bool = False) -> Tensor:
        """Edits and keeps the tensor passing at a site; returns what the model goes on with."""
        return self.keep(site, self.edited(site, tensor), clone=clone)

    def keep(self, site: Site, tensor: Tensor, *, clone: bool = False) -> Tensor:
        """Keeps a tensor where its site was asked for; returns what the model goes on with."""
        if site not in self.wanted:
            return tensor
        if self.gradients and tensor.is_floating_point() and not tensor.requires_grad:
            tensor = tensor.detach().requires_grad_()
        if self.gradients and clone:
            self._store(site, tensor)
            return tensor.clone()
        self._store(site, tensor.clone() if clone else tensor)
        return tensor

    def through_pattern(self, site: Site, pattern: Tensor) -> Tensor:
        """The same for attention weights, whose padded query rows are shown as zero and given back untouched."""
        rows = self.frame.rows(site.stack, pattern.shape[2])
        if rows is None:
            return self.through(site, pattern)
        padded = ~rows[:, None, :, None]
        new = self.through(site, pattern.masked_fill(padded, 0))
        return torch.where(padded, pattern.detach(), new) if self.rewrites(site) else pattern

    def edited(self, site: Site, tensor: Tensor) -> Tensor:
        """The tensor after the edits asked for at its site."""
        for edit in self.edits.get(site, ()):
            length = tensor.shape[2 if site.per_head else 1] if tensor.dim() > 2 else 0
            tensor = edit.apply(tensor, site, offset=self._offset, real=self.frame.rows(site.stack, length))
        return tensor

    def _store(self, site: Site, tensor: Tensor) -> None:
        if self.reduce is not None:
            self.steps[-1][site] = self.reduce(site, tensor)
            return
        if not self.gradients:
            tensor = tensor.detach()
        self.steps[-1][site] = tensor
        if not tensor.is_inference():
            self._versions.append((site, tensor, tensor._version))

    def changed_in_place(self) -> list[Site]:
        """Sites whose kept tensor the model changed after it was kept."""
        return [site for site, tensor, version in self._versions if tensor._version != version]

    # -- attention ---------------------------------------------------------------------------------------------------

    def attend(self, module: nn.Module) -> _AttentionCall | None:
        """The recorder of this call of an attention module (see `attention.Listener`)."""
        name = self._names.get(id(module), "")
        call = self.next_call(f"attend:{name}")
        site = self.located.attention.get((name, call))
        return None if site is None else _AttentionCall(self, site)

    # -- installation ------------------------------------------------------------------------------------------------

    @contextmanager
    def installed(self, attention: str) -> Generator[Recorder]:
        """Hooks in place for the block, and every trace of them removed at its end, whatever happens."""
        with ExitStack() as stack:
            self._hook(stack, self.module.register_forward_pre_hook(self._begin, prepend=True, with_kwargs=True))
            parts = dict(self.module.named_modules())
            for name, points in self._points().items():
                self._hook_module(stack, name, parts[name], points)
            for (name, call), site in self.located.experts.items():
                if self.touches(site.beside("neurons")) or self.touches(site.beside("routing")):
                    layer = ExpertsRecorder(self, site, call, self.located.shared.get(site.beside("neurons")))
                    layer.install(stack, parts, name)
            for site, window in self.located.windows.items():
                if self.touches(site):
                    self._hook(
                        stack,
                        parts[window.module].register_forward_hook(self._window_hook(site, window), with_kwargs=True),
                    )
            if self._attention_sites():
                self._listen(stack, parts, attention)
            yield self

    def _listen(self, stack: ExitStack, parts: Mapping[str, nn.Module], attention: str) -> None:
        """Connects attention: through the interface, or by watching the operations inside attention modules."""
        if self.located.interface:
            stack.enter_context(attention_name(self.module, NAMES[attention]))
            stack.enter_context(listening(self))
            return
        for name in {name for name, _ in self.located.attention}:
            self._hook(stack, parts[name].register_forward_pre_hook(self._enter(name)))
            self._hook(stack, parts[name].register_forward_hook(self._leave, always_call=True))
        stack.enter_context(
            AttentionOps(
                lambda: self._scope[-1] if self._scope else None,
                lambda scope: _AttentionCall(self, self.located.attention[scope[:2]]),  # type: ignore[index]
                lambda: self.frame.size,
            )
        )

    def _hook(self, stack: ExitStack, handle: Any) -> None:
        stack.callback(handle.remove)

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A new forward pass starts: calls are counted afresh, and in generation a new step is opened."""
        if self._forwards:
            self.steps.append({})
            self._offset = self._seen
        self._forwards += 1
        self._calls.clear()
        ids = kwargs.get("decoder_input_ids", kwargs.get("input_ids", args[0] if args else None))
        self._seen += ids.shape[1] if isinstance(ids, Tensor) and ids.dim() > 1 else 0

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._scope.append((name, self.next_call(f"attend:{name}"), self._forwards))

        return enter

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._scope.pop()

    def _attention_sites(self) -> list[Site]:
        inside = [
            site.beside(kind)
            for site in self.located.attention.values()
            for kind in ("query", "key", "value", "pattern")
        ]
        return [site for site in (*inside, *self.located.inline) if self.touches(site)]

    def _points(self) -> dict[str, list[tuple[Tap, Site]]]:
        """The taps this pass needs, by module, in the order in which sites are passed."""
        points: dict[str, list[tuple[Tap, Site]]] = defaultdict(list)
        for site, tap in self._needed().items():
            points[tap.module].append((tap, site))
        return points

    def _needed(self) -> dict[Site, Tap]:
        needed: dict[Site, Tap] = {}
        for site, tap in self.located.taps.items():
            if site in self.edits and site in self.located.edit_taps:
                continue
            if self.touches(site):
                needed[site] = tap
        for site in self.edits:
            if site in self.located.edit_taps:
                needed[site] = self.located.edit_taps[site]
        for site in self.located.windows:
            if self.touches(site):
                needed.update({part: self.located.taps[part] for part in (site.beside("query"), site.beside("key"))})
        open_sums = [site for site in self.located.sums if self.touches(site)]
        while open_sums:
            for part in self.located.sums[open_sums.pop()]:
                if part in self.located.sums:
                    open_sums.append(part)
                    self._inner_sums.add(part)
                else:
                    needed.setdefault(part, self.located.taps[part])
        return needed

    def _hook_module(self, stack: ExitStack, name: str, module: nn.Module, points: list[tuple[Tap, Site]]) -> None:
        before = [(tap, site) for tap, site in points if tap.end == "input"]
        after = [(tap, site) for tap, site in points if tap.end == "output"]

        def pre(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
            call = self.next_call(f"in:{name}")
            arguments: Any = {"args": args, "kwargs": kwargs}
            for tap, site in before:
                if tap.call == call:
                    arguments = self._pass(tap, site, arguments)
            return (
                (arguments["args"], arguments["kwargs"])
                if arguments["args"] is not args or arguments["kwargs"] is not kwargs
                else None
            )

        def post(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            call = self.next_call(f"out:{name}")
            for tap, site in after:
                if tap.call == call:
                    output = self._pass(tap, site, output)
            return output

        if before:
            self._hook(stack, module.register_forward_pre_hook(pre, with_kwargs=True))
        if after:
            self._hook(stack, module.register_forward_hook(post))

    def _pass(self, tap: Tap, site: Site, container: Any) -> Any:
        """Takes the tensor at a tap through its site (and the sums it completes); gives the container to go on with."""
        slot = find_slot(container, dims=(1, 2, 3, 4)) if tap.slot is None else tap.slot
        if slot is None:
            raise SiteError(f"No floating-point tensor passes at {site} ({tap.module}, {tap.end}).")
        native = get_slot(container, slot)
        value = tap.layout.read(native, self.frame.size, self.frame.length(site.stack))
        if tap.scale != 1.0:
            value = value * tap.scale
        new = self.through(site, value, clone=tap.clone)
        self._partial[site] = new
        rewritten, edited = self.rewrites(site), site in self.edits
        for total, (base, added) in self.located.sums.items():
            if added == site and (self.touches(total) or total in self._inner_sums):
                stream = self._partial[base]
                whole = self.through(total, stream + new)
                self._partial[total] = whole
                if self.rewrites(total):
                    edited = edited or total in self.edits
                    new = whole - stream if total in self.edits else _with_gradient_of(whole - stream, new)
                    rewritten = True
        if not rewritten:
            return container
        new = tap.layout.write(new if tap.scale == 1.0 else new / tap.scale, native, self.frame.size)
        return put_slot(container, slot, new if edited or new is native else _with_gradient_of(new, native))

    def _window_hook(self, site: Site, window: Window) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if kwargs.get("is_global_attn"):
                raise ModelError(
                    f"{site} cannot be read: this pass uses global attention, whose pattern is not one T × T matrix."
                )
            query, key = self._partial[site.beside("query")], self._partial[site.beside("key")]
            self.through_pattern(site, windowed_pattern(query, key, window.radius, self.frame.real.get(site.stack)))

        return hook


class _Swap(torch.autograd.Function):
    """Gives `value`, bit for bit and in its memory layout, with the derivatives of `path`, equal up to rounding."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, path: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, grad

    @staticmethod
    def jvp(ctx: Any, value: Tensor | None, path: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return path


def _with_gradient_of(path: Tensor, value: Tensor) -> Tensor:
    swapped: Any = _Swap.apply(value.detach(), path)
    return swapped


class _AttentionCall:
    """One call of attention: hands query, key, value and pattern to the recorder (see `attention.AttentionCall`)."""

    def __init__(self, recorder: Recorder, site: Site) -> None:
        self._recorder = recorder
        self._site = site
        self._pattern = site.beside("pattern")
        self.wants_pattern = recorder.touches(self._pattern)
        self.changes_pattern = recorder.rewrites(self._pattern)

    def _through(self, kind: str, tensor: Tensor) -> Tensor:
        site = self._site.beside(kind)
        return self._recorder.through(site, tensor) if self._recorder.touches(site) else tensor

    def scores(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self._through("query", query), self._through("key", key)

    def value(self, value: Tensor) -> Tensor:
        return self._through("value", value)

    def pattern(self, pattern: Tensor) -> Tensor:
        return self._recorder.through_pattern(self._pattern, pattern)

    def mix(self, pattern: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.pattern(pattern) if self.wants_pattern else pattern, self.value(value)

    def mixed(self, heads: Tensor) -> Tensor:
        return self._through("heads", heads) if self._site.beside("heads") in self._recorder.located.inline else heads

    def projected(self, output: Tensor) -> Tensor:
        """The output projection of a module that computes it itself: the site `attn`, and sums that it completes."""
        return self._through("attn", output)
