"""`Model`: a loaded network and its tokenizer, able to run on a batch, record sites and make edits."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import EditError, ModelError, TextError, listing
from pellucid.model import fewer_heads
from pellucid.model.batch import Batch
from pellucid.model.edits import Edit
from pellucid.model.fingerprint import fingerprint
from pellucid.model.frame import Frame, Wiring
from pellucid.model.generate import generate
from pellucid.model.hooks import Recorder, Reduce
from pellucid.model.loading import SETTINGS, Opened, open_object, open_source
from pellucid.model.memory import told_memory
from pellucid.model.run import Generation, Run
from pellucid.model.sites import Site, expand, single
from pellucid.model.starting import Start, Starts
from pellucid.model.survey import Survey, survey
from pellucid.model.taps import Located
from pellucid.model.tokens import is_text, length_limit, tokenize

Texts = str | Sequence[str]
Sites = str | Site | Iterable[str | Site]


class Model:
    """A transformer opened for looking at: `Model.load(…)`, then `run`, with named sites and scoped edits.

    The network itself is in `hf` and is never changed: hooks live for one call, and edits are made on copies.
    """

    def __init__(self, opened: Opened, surveyed: Survey | None = None) -> None:
        self.hf, self.tokenizer = opened.module, opened.tokenizer
        self.name, self.attention, self.notes = opened.name, opened.attention, opened.notes
        self._lock = threading.RLock()
        self._accepted = frozenset(inspect.signature(self.hf.forward).parameters)
        self._wiring = Wiring.of(self.hf)
        self._survey = surveyed or survey(self._wiring, self.attention)
        self._selected: dict[tuple[str | Site, ...], tuple[Site, ...]] = {}
        self._recipe: Callable[..., Model] | None = None
        self._starts = Starts(self._wiring, self._survey.located)

    # -- opening -----------------------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        source: str | Path | nn.Module,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        head: str = "auto",
        attention: str | None = None,
        tokenizer: Any = None,
        allow_pickle: bool = False,
        new_head: bool = False,
    ) -> Model:
        """Opens a model from a hub name, a folder, a GGUF file or a transformers model object.

        `head` is auto, none, lm, mlm, classifier, qa, tagger or seq2seq. `attention` is fixed for the model's life:
        `fused` is fast, `eager` also allows edits of patterns; a model object keeps the setting it has. Weights are
        read from safetensors only, unless `allow_pickle`; code from model repositories is never run. `dtype` defaults
        to float32 on a CPU and to the checkpoint's own on an accelerator; `device` to an accelerator where there is
        one.
        """
        if isinstance(source, nn.Module):
            if not hasattr(source, "config"):
                raise ModelError(
                    f"{type(source).__name__} is not a transformers model; open it with Model.wrap(module, "
                    "tokenize=…, sites=…)."
                )
            if head != "auto" or new_head:
                raise ModelError("A model object keeps the head it has; build it with the head you want.")
            return cls(open_object(source, tokenizer, device=device, dtype=dtype, attention=attention))
        model = cls(
            open_source(
                source,
                head=head,
                device=device,
                dtype=dtype,
                attention=attention or "fused",
                allow_pickle=allow_pickle,
                new_head=new_head,
                tokenizer=tokenizer,
            )
        )
        if not new_head:  # a new head starts with random weights: only a copy has the same
            options = {"dtype": dtype, "head": head, "attention": attention, "tokenizer": tokenizer}
            model._recipe = partial(cls.load, source, device=device, allow_pickle=allow_pickle, **options)
        return model

    @classmethod
    def random_like(cls, model: Model, seed: int = 0) -> Model:
        """A model of the same architecture with fresh random weights, built from the configuration."""
        if not hasattr(model.hf, "config"):
            raise ModelError(
                "A wrapped module has no configuration to build a random one from; make and wrap one yourself."
            )
        hf: Any = model.hf
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            setting = hf.config._attn_implementation
            fresh = type(hf)._from_config(deepcopy(hf.config), attn_implementation=setting, dtype=hf.dtype)
        fewer = fewer_heads.held(hf)
        if fewer is not None:
            fewer_heads.settle(fresh, fewer, {name: tuple(weight.shape) for name, weight in hf.named_parameters()})
        opened = Opened(
            fresh.to(hf.device).eval(),
            model.tokenizer,
            model.attention,
            f"{model.name} (random, seed {seed})",
            model.notes,
        )
        made = cls(opened)
        made._recipe = partial(_random_again, model.recipe, seed, device=None)
        return made

    @property
    def recipe(self) -> Callable[..., Model]:
        """A function that opens the same model again, in another process or (`device=`) on another device.

        It reads the model's source where there is one, and otherwise holds a copy of the network itself.
        """
        if self._recipe is not None:
            return self._recipe
        opened = Opened(self.hf, self.tokenizer, self.attention, self.name, self.notes)
        return partial(_copied, opened, device=None)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the configuration, every weight and the tokenizer."""
        return fingerprint(self.hf, self.tokenizer)

    @property
    def causal(self) -> bool:
        """Whether tokens see only what stands before them."""
        return self._survey.causal

    @staticmethod
    def wrap(
        module: nn.Module,
        *,
        tokenize: Callable[[Texts], Any] | None = None,
        sites: Mapping[str, str],
        name: str | None = None,
    ) -> Model:
        """Any PyTorch module with the same run, edit and gradient interface, at places named by you.

        `sites` maps a name to a module path (`"rnn"` its output, `"rnn:input"` its input, `"rnn:1.0"` a part of its
        output); `tokenize` turns text into the module's input: a tensor, a tuple or a dictionary of tensors.
        """
        from pellucid.model.wrap import WrappedModel

        return WrappedModel(module, tokenize=tokenize, sites=sites, name=name)

    @staticmethod
    def vectors(path: str | Path) -> Model:
        """A static embedding table from a GloVe or word2vec text file, as a model with the single site `embed`."""
        from pellucid.model.wrap import read_vectors

        return read_vectors(path)

    # -- what is inside ----------------------------------------------------------------------------------------------

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every site of this model."""
        return self._survey.sites

    @property
    def missing(self) -> Mapping[str, str]:
        """Sites that models of this kind could have and this one lacks, with the reason."""
        return self._survey.located.missing

    @property
    def located(self) -> Located:
        """Where each site is among the modules, and how it is read."""
        return self._survey.located

    @property
    def forms(self) -> Mapping[str | None, str]:
        """How each stack's blocks compose their stream: pre-norm, post-norm, sandwich or parallel."""
        return self._survey.located.forms

    def size(self, site: str | Site) -> tuple[int, ...]:
        """Sizes of a site that do not depend on the text: (heads, width) per head, (width,) elsewhere."""
        return self._survey.sizes[single(site, self.sites)]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.hf.parameters()).device

    @cached_property
    def limit(self) -> int | None:
        """Most tokens that a sequence may have; None where the architecture sets no limit."""
        return length_limit(self.hf, self.tokenizer)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.hf.parameters())
        return f"Model({self.name!r}, {type(self.hf).__name__}, {parameters:,} parameters, {self.attention} attention)"

    # -- running -----------------------------------------------------------------------------------------------------

    def tokenize(
        self,
        texts: Texts,
        pair: Texts | None = None,
        *,
        target: Texts | None = None,
        padding_side: str | None = None,
        truncate: bool = False,
    ) -> Any:
        """Text as a `Batch`; `pair` holds second sentences, `target` what an encoder–decoder's decoder reads."""
        return tokenize(self, texts, pair, target=target, padding_side=padding_side, truncate=truncate)

    def run(
        self,
        batch: Batch | Texts,
        sites: Sites = (),
        edits: Edit | Iterable[Edit] = (),
        *,
        gradients: bool = False,
        reduce: Reduce | None = None,
        logits: bool = True,
        start: Start | None = None,
    ) -> Run:
        """One forward pass that records `sites` and makes `edits`.

        Recorded tensors are the model's own (read them, do not change them in place). With `gradients` they stay in
        the graph, so that `torch.autograd.grad(target, run[site])` works. `reduce(site, tensor)` replaces each tensor
        as it comes, so that large ones such as patterns are never held together. With `logits=False` a language model
        computes scores for the last token only, where it can. With `start={"resid.5": stream}` the blocks below are
        left out; a model that does not allow it runs whole, with the same answer, and `note` says why.
        """
        given: Any = self.tokenize(batch) if is_text(batch) else batch
        with self._lock:
            begun, whole = {single(site, self.sites): stream for site, stream in (start or {}).items()}, ""
            if begun:
                edits = [*(Edit.patch(site, stream) for site, stream in begun.items()), *_several(edits)]
                self._starts.check(begun, [*self._select(sites), *(single(edit.site, self.sites) for edit in edits)])
                whole = self._starts.reason(self, begun)
            arguments, frame = self._arguments(given)
            if not logits and "logits_to_keep" in self._accepted:
                arguments["logits_to_keep"] = 1
            recorder = self._recorder(frame, sites, edits, gradients=gradients, reduce=reduce)
            left_out = self._starts.skipped(() if whole else begun)
            with (
                left_out,
                recorder.installed(self.attention),
                torch.set_grad_enabled(gradients),
                told_memory(frame, self.device),
            ):
                output = self._forward(arguments)
            note = f"whole passes, not from {listing(begun)} on: {whole}" if whole else ""
            return Run(recorder.taken()[-1], given if isinstance(given, Batch) else None, output, note)

    def cannot_start(self, sites: Sites) -> str:
        """Why passes cannot start at streams such as `resid.5`, tried once and remembered; empty where they can."""
        begun = self._select(sites)
        with self._lock:
            self._starts.check(begun, ())
            return self._starts.reason(self, begun)

    def generate(
        self,
        prompt: Batch | Texts,
        *,
        max_new_tokens: int = 20,
        sites: Sites = (),
        edits: Edit | Iterable[Edit] = (),
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        reduce: Reduce | None = None,
    ) -> Generation:
        """Continues a prompt, greedily or by sampling, under edits, recording `sites` at every step."""
        given: Any = self.tokenize(prompt, padding_side="left") if is_text(prompt) else prompt
        with self._lock:
            arguments, frame = self._arguments(given)
            recorder = self._recorder(frame, sites, edits, generating=True, reduce=reduce)
            with recorder.installed(self.attention), told_memory(frame, self.device):
                return generate(
                    self,
                    recorder,
                    arguments,
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed,
                )

    def _forward(self, arguments: Any) -> Any:
        return self.hf(**arguments)

    def _arguments(self, batch: Any) -> tuple[Any, Frame]:
        """The network's arguments for a batch, and what the recorder must know of it."""
        config: Any = self.hf.config
        if config._attn_implementation != SETTINGS[self.attention]:
            raise ModelError(
                f"The network's attention was switched to {config._attn_implementation!r} after it was opened with "
                f"{SETTINGS[self.attention]!r}; the setting is fixed for a model's life. Open it again with Model.load."
            )
        if not isinstance(batch, Batch):
            raise TextError(
                f"run takes text or a Batch (see Model.tokenize and Batch.of_ids), not a {type(batch).__name__}."
            )
        self._check_ids(batch)
        inputs = batch.inputs(self._accepted, causal=self._survey.causal)
        arguments: dict[str, Any] = {name: value.to(self.device) for name, value in inputs.items()}
        if "use_cache" in self._accepted:
            arguments["use_cache"] = False
        masks: dict[str | None, Tensor] = {None: batch.mask}
        if getattr(config, "is_encoder_decoder", False):
            if batch.target_mask is None:
                raise TextError("An encoder–decoder model needs target ids in its batch: tokenize(text, target=…).")
            masks = {"encoder": batch.mask, "decoder": batch.target_mask}
        return arguments, Frame.of(batch.size, masks, self.device)

    def _check_ids(self, batch: Batch) -> None:
        hf: Any = self.hf
        known = hf.get_input_embeddings().num_embeddings
        for ids in (batch.ids, batch.target_ids):
            if ids is None:
                continue
            lowest, highest = int(ids.min()), int(ids.max())
            if highest >= known or lowest < 0:
                raise TextError(
                    f"Token id {lowest if lowest < 0 else highest} is outside this model's vocabulary of {known}; was "
                    "it made by another tokenizer?"
                )
            if self.limit is not None and ids.shape[1] > self.limit:
                raise TextError(
                    f"The text has {ids.shape[1]} tokens and this model takes at most {self.limit}; shorten it or "
                    "pass truncate=True."
                )

    def _recorder(
        self,
        frame: Frame,
        sites: Sites,
        edits: Edit | Iterable[Edit],
        *,
        gradients: bool = False,
        generating: bool = False,
        reduce: Reduce | None = None,
    ) -> Recorder:
        """A recorder for one pass, with every site and edit checked before anything runs."""
        located = self._survey.located
        planned: dict[Site, list[Edit]] = {}
        for edit in _several(edits):
            site = single(edit.site, self.sites)
            self._check_edit(edit, site)
            if site in located.read_only:
                raise EditError(f"{site} cannot be edited: {located.read_only[site]}.")
            if site.kind == "pattern" and self.attention != "eager":
                raise EditError(
                    f"Editing {site} needs eager attention; load the model with attention='eager' (--attention eager)."
                )
            planned.setdefault(site, []).append(edit)
        wanted = self._select(sites)
        if gradients:
            self._check_gradients(wanted)
        return Recorder(
            self._wiring,
            located,
            frame,
            sites=wanted,
            edits=planned,
            gradients=gradients,
            generating=generating,
            reduce=reduce,
        )

    def _select(self, sites: Sites) -> tuple[Site, ...]:
        """The sites that names and patterns mean, remembered: the same ones are asked for batch after batch."""
        asked = (sites,) if isinstance(sites, (str, Site)) else tuple(sites)
        if asked not in self._selected:
            self._selected[asked] = expand(asked, self.sites)
        return self._selected[asked]

    def _check_edit(self, edit: Edit, site: Site) -> None:
        edit.check(site, self.size(site))

    def _check_gradients(self, wanted: Sequence[Site]) -> None:
        for site in wanted:
            if site.kind == "pattern" and self.attention != "eager":
                raise ModelError(
                    f"Gradients with respect to {site} need eager attention; load the model with attention='eager'."
                )
            if site in self._survey.located.read_only:
                raise ModelError(
                    f"Gradients with respect to {site} cannot be had: {self._survey.located.read_only[site]}."
                )


def _several(edits: Edit | Iterable[Edit]) -> list[Edit]:
    return [edits] if isinstance(edits, Edit) else list(edits)


def _random_again(trained: Callable[..., Model], seed: int, *, device: str | torch.device | None) -> Model:
    return Model.random_like(trained() if device is None else trained(device=device), seed)


def _copied(opened: Opened, *, device: str | torch.device | None) -> Model:
    return Model(opened if device is None else replace(opened, module=opened.module.to(device)))
