"""The family check: opens a tiny random model of a family and tries everything that Pellucid promises of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pellucid.errors import EditError, PellucidError
from pellucid.families import configs
from pellucid.families.blocks import ROWS
from pellucid.families.configs import FAMILIES, Family
from pellucid.families.oracle import Finding, form, recompose
from pellucid.model import Batch, Edit, Model, Run, Site
from pellucid.model.loading import why_not_fused

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 6e-2}
NOT_APPLICABLE = ("sinks", "post-norm", "window")
"""The only reasons for which a check may be left out of a family that counts as full."""

_BLOCK_KINDS = ("query", "key", "value", "pattern", "heads", "attn", "mid", "neurons", "mlp")
_CROSS_KINDS = ("query", "key", "value", "pattern", "heads", "attn", "mid")


@dataclass
class Report:
    """What was found for one family: checks passed, failures and missing sites, each with its reason."""

    name: str
    form: str = ""
    attention: str = ""
    passed: dict[str, int] = field(default_factory=dict[str, int])
    failed: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def status(self) -> str:
        """full: every site and every check; partial: some; none: the family cannot be opened."""
        if not self.passed:
            return "none"
        reasons_fit = all(reason in NOT_APPLICABLE for reason in self.left_out.values())
        return "full" if not self.failed and not self.missing and reasons_fit else "partial"

    def note(self, check: str, ok: bool, detail: str) -> None:
        """Counts one comparison."""
        if ok:
            self.passed[check] = self.passed.get(check, 0) + 1
        else:
            self.failed.append(f"{check}: {detail}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "missing": [*self.missing, *self.failed],
            "form": self.form,
            "attention": self.attention,
            "checks": sum(self.passed.values()),
            "not_applicable": self.left_out,
        }


def check_families(names: Iterable[str] | None = None) -> Iterator[Report]:
    """One report per family, as each is done; all families, or those named."""
    chosen = list(names or FAMILIES)
    for name in chosen:
        if name not in FAMILIES:
            raise PellucidError(f"There is no family called {name!r}; the families are {', '.join(FAMILIES)}.")
    return (check_family(FAMILIES[name]) for name in chosen)


def check_family(family: Family) -> Report:
    """Every check of one family; a check that raises is a failure with its message, never silence."""
    report = Report(family.name, form(family))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny
    try:
        for setting in ("eager", "sdpa"):
            _check_setting(family, setting, torch.float32, report)
            with _plain_bfloat16():
                _check_setting(family, setting, torch.bfloat16, report)
    finally:
        torch.set_num_threads(threads)
    return report


@contextmanager
def _plain_bfloat16() -> Generator[None]:
    """Without the library whose bfloat16 kernels end the process on machines that announce instructions they lack."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # switching it off and on warns about another kind of processor
        with torch.backends.mkldnn.flags(enabled=False, allow_tf32=False):
            yield


def _check_setting(family: Family, setting: str, dtype: torch.dtype, report: Report) -> None:
    """Every check under one attention setting and precision."""
    case = _opened(family, setting, dtype, report)
    if case is None:
        return
    for check in (_sites, _outputs, _recomposition, _unpadded, _edits, _gradients):
        try:
            check(case, report)
        except Exception as error:  # whatever a check stumbles over is a failure of that family, never a crash
            report.note(check.__name__.strip("_"), False, f"{case.label}: {type(error).__name__}: {str(error)[:200]}")


@dataclass(frozen=True)
class _Case:
    """One opened tiny model and the plain copies that it is compared with."""

    family: Family
    model: Model
    eager: Any
    setting: str
    dtype: torch.dtype

    @property
    def label(self) -> str:
        return f"{self.model.attention} {str(self.dtype).removeprefix('torch.')}"

    def batch(self, side: str = "right") -> Batch:
        given = configs.inputs(self.family, side=side)  # type: ignore[arg-type]
        return Batch.of_ids(
            given["input_ids"],
            given["attention_mask"],
            target_ids=given.get("decoder_input_ids"),
            target_mask=given.get("decoder_attention_mask"),
        )

    def arguments(self, batch: Batch) -> dict[str, Tensor]:
        arguments, _ = self.model._arguments(batch)  # pyright: ignore[reportPrivateUsage]
        return arguments

    def plain(self, batch: Batch, *, gradients: bool = False) -> Tensor:
        """The first output of the same network without capture (fused kernels differ with and without gradients)."""
        with torch.set_grad_enabled(gradients):
            return next(iter(self.model.hf(**self.arguments(batch)).values())).detach()


def _opened(family: Family, setting: str, dtype: torch.dtype, report: Report) -> _Case | None:
    """The family under one setting; None where it has no such setting or cannot be opened."""
    eager = configs.build(family, attention="eager", dtype=dtype)
    network: Any = eager if setting == "eager" else configs.build(family, attention="sdpa", dtype=dtype)
    if setting == "sdpa" and why_not_fused(type(network), network.config) is not None:
        return None
    try:
        model = Model.load(network)
    except PellucidError as error:
        report.note("open", False, str(error))
        return None
    report.attention = ", ".join(dict.fromkeys(filter(None, [*report.attention.split(", "), model.attention])))
    return _Case(family, model, eager, setting, dtype)


def _sites(case: _Case, report: Report) -> None:
    """Every kind of site in every block."""
    present = {str(site) for site in case.model.sites}
    wanted = list(_wanted_sites(case))
    for name in wanted:
        reason = case.model.missing.get(name, "not found")
        if name not in present and f"{name}: {reason}" not in report.missing:
            report.missing.append(f"{name}: {reason}")
    report.note("sites", all(name in present for name in wanted), "some are missing")


def _wanted_sites(case: _Case) -> Iterator[str]:
    config: Any = case.model.hf.config
    for prefix, stack in ROWS[case.family.name].stacks.items():
        depth = int(getattr(config, stack.layers))
        yield f"{prefix}embed"
        yield from (f"{prefix}resid.{layer}" for layer in range(depth + 1))
        for layer in range(depth):
            yield from (f"{prefix}{kind}.{layer}" for kind in _BLOCK_KINDS)
            if prefix == "decoder.":
                yield from (f"cross.{kind}.{layer}" for kind in _CROSS_KINDS)
    if case.family.head != "none":
        yield "logits"


def _outputs(case: _Case, report: Report) -> None:
    """Outputs bit-equal with and without capture; kept tensors equal to copies made when they passed; no hook left."""
    before = _hooks(case.model)
    for side in ("right", "left"):
        batch = case.batch(side)
        plain = case.plain(batch)
        run = case.model.run(batch, case.model.sites)
        copies = case.model.run(batch, case.model.sites, reduce=lambda site, tensor: tensor.clone())
        same = _bits(next(iter(run.output.values())), plain)
        report.note("output", same, f"{case.label}, {side} padding: capture changes the output")
        for site in case.model.sites:
            report.note("copy", _bits(run[site], copies[site]), f"{case.label}: {site} changed after it was kept")
    report.note("hooks", _hooks(case.model) == before, f"{case.label}: hooks are left on the model")


def _recomposition(case: _Case, report: Report) -> None:
    """Everything that the oracle recomposes, with padding on either side."""
    for side in ("right", "left"):
        batch = case.batch(side)
        for finding in _findings(case, case.model.run(batch, case.model.sites), batch):
            if finding.check == "pattern_eager" and case.model.attention == "fused" and case.dtype != torch.float32:
                continue  # fused and eager streams drift apart in half precision; float32 has compared them
            detail = (
                f"{case.label}, {side} padding: {finding.site} is off by {finding.error:.1e} {finding.note}".rstrip()
            )
            report.note(finding.check, finding.ok, detail)


def _findings(case: _Case, run: Run, batch: Batch) -> list[Finding]:
    captured = {str(site): run[site] for site in run}
    network: Any = case.model.hf
    return recompose(
        case.family,
        network,
        captured,
        case.arguments(batch),
        eager_model=case.eager,
        tolerance=TOLERANCE[case.dtype],
    )


def _unpadded(case: _Case, report: Report) -> None:
    """A padded row gives its real tokens the same stream as the row alone."""
    if case.dtype != torch.float32:
        return
    for side in ("right", "left") if case.model.causal else ("right",):
        batch = case.batch(side)
        last = [site for site in case.model.sites if site.kind == "resid"][-1]
        together = case.model.run(batch, [last])[last]
        for row in range(batch.size):
            alone = _row(batch, row)
            real = batch.mask[row].bool() if batch.target_mask is None else batch.target_mask[row].bool()
            error = _error(together[row][real], case.model.run(alone, [last])[last][0])
            report.note("padding", error < 1e-4, f"{case.label}, {side}: row {row} alone differs by {error:.1e}")


def _row(batch: Batch, row: int) -> Batch:
    """One row of a batch without its padding."""
    real = batch.mask[row].bool()
    if batch.target_ids is None or batch.target_mask is None:
        return Batch.of_ids(batch.ids[row][real][None])
    return Batch.of_ids(
        batch.ids[row][real][None], target_ids=batch.target_ids[row][batch.target_mask[row].bool()][None]
    )


def _edits(case: _Case, report: Report) -> None:
    """An edit of every kind of site changes the output as the oracle says, and undoing it restores every bit."""
    batch = case.batch()
    plain = case.plain(batch)
    for site in _middle_sites(case.model):
        unit = min(1, case.model.size(site)[0] - 1) if site.per_head else _busy_unit(case, batch, site)
        edit = Edit.zero(site, neurons=unit)
        if site in case.model.located.read_only:
            report.left_out[f"edit {site.kind}"] = "window"
            continue
        if site.kind == "pattern" and case.model.attention == "fused":
            _refuses(
                lambda edit=edit: case.model.run(batch, (), edit),
                report,
                f"{case.label}: editing {site} was not refused",
            )
            continue
        run = case.model.run(batch, case.model.sites, edit)
        part = run[site][:, unit] if site.per_head else run[site][..., unit]
        report.note("edit", not bool(part.any()), f"{case.label}: {site} was not set to zero")
        changed = next(iter(run.output.values()))
        report.note("edit", not _bits(changed, plain), f"{case.label}: zeroing {site} does not reach the output")
        _recomposed_under_edit(case, run, batch, site, report)
        report.note(
            "undo",
            _bits(case.plain(batch), plain),
            f"{case.label}: after editing {site} the output is not restored",
        )
    before = _hooks(case.model)  # transformers leaves hooks of its own
    _refuses(
        lambda: case.model.run(batch, (), Edit.set(_middle_sites(case.model)[0], torch.ones(3, 5))),
        report,
        "bad shape not refused",
    )
    report.note("hooks", _hooks(case.model) == before, f"{case.label}: hooks are left after a refused edit")


def _recomposed_under_edit(case: _Case, run: Run, batch: Batch, site: Site, report: Report) -> None:
    """The block still recomposes from its edited parts: what was edited is what the model went on with."""
    if site.kind not in ("heads", "neurons", "pattern", "value"):
        return
    for finding in _findings(case, run, batch):
        if finding.check in ("heads", "attn", "mlp", "stream") and finding.site != str(site):
            report.note(
                "edit",
                finding.ok,
                f"{case.label}: with {site} edited, {finding.site} is off by {finding.error:.1e}",
            )


def _gradients(case: _Case, report: Report) -> None:
    """Gradients reach every site, and asking for them leaves the output as it was."""
    batch = case.batch()
    fixed = case.model.located.read_only
    sites = [
        site
        for site in case.model.sites
        if site not in fixed and (site.kind != "pattern" or case.model.attention == "eager")
    ]
    run = case.model.run(batch, sites, gradients=True)
    output = next(iter(run.output.values()))
    report.note(
        "output",
        _bits(output.detach(), case.plain(batch, gradients=True)),
        f"{case.label}: gradients change the output",
    )
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output.dtype)
    slopes = torch.autograd.grad((output * weights).float().sum(), [run[site] for site in sites], allow_unused=True)
    found: list[Tensor | None] = list(slopes)
    for site, slope in zip(sites, found, strict=True):
        flows = slope is not None and bool(slope.isfinite().all()) and bool(slope.any())
        report.note("gradient", flows, f"{case.label}: no gradient reaches {site}")


def _middle_sites(model: Model) -> list[Site]:
    """One site of every kind and stack, from the second block where there is one."""
    chosen: dict[tuple[str | None, str], Site] = {}
    for site in model.sites:
        if site.kind != "routing" and (site.layer in (1, None) or (site.stack, site.kind) not in chosen):
            chosen[(site.stack, site.kind)] = (
                site if site.layer in (0, 1, None) else chosen.get((site.stack, site.kind), site)
            )
    return list(chosen.values())


def _busy_unit(case: _Case, batch: Batch, site: Site) -> int:
    """The unit of a site that is most active on real tokens, so that zeroing it must show."""
    value = case.model.run(batch, [site])[site].float().abs()
    return int(value.flatten(0, -2).sum(0).argmax())


def _refuses(call: Callable[[], Any], report: Report, detail: str) -> None:
    try:
        call()
    except EditError:
        report.note("refusal", True, "")
    else:
        report.note("refusal", False, detail)


def _hooks(model: Model) -> int:
    """Hooks left on any module."""
    parts: list[Any] = list(model.hf.modules())
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts)


def _bits(one: Tensor, other: Tensor) -> bool:
    """Equal bit for bit; not-a-number at padded positions equals itself."""
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def _error(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def table(reports: Iterable[Report]) -> Mapping[str, Any]:
    """The reports as the object that `pellucid families --json` prints."""
    return {"families": [report.to_dict() for report in reports]}
