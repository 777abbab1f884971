"""A text coloured token by token: activations of neurons, surprise, the size of the stream, and the logit lens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import ModelError, SiteError, TextError
from pellucid.views.interactive import lens as lenses
from pellucid.views.interactive.payload import Chunk, numbers
from pellucid.views.interactive.reading import Reading, read
from pellucid.views.interactive.view import View, make, shown_name, shown_text

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Model, Run, Site

SURPRISE = "surprise"
NORMS = "norms"
_SURPRISE = "How little the model expected the token: −ln p(token | all before), in nats; the first has no prediction."
_NORMS = "Length of the vector that stands for the token: the stream entering the first layer, then after every layer."


def text_view(
    model: Model,
    text: str,
    *,
    neurons: Sequence[str] = (),
    tracks: Mapping[str, Sequence[float]] | None = None,
    surprise: bool | None = None,
    lens: bool | None = None,
    norms: bool = True,
    title: str | None = None,
    state: Mapping[str, Any] | None = None,
) -> View:
    """A text with a colour per token: units such as `"neurons.3:17"`, surprise, norms by layer, and the logit lens.

    `tracks` are numbers of your own by name, one for each token of `model.tokenize(text)`, such as an attribution.
    Surprise and lens are for causal language models; left alone, they are there where the model is one.
    """
    wanted = [_unit(model, name) for name in ([neurons] if isinstance(neurons, str) else neurons)]
    reading = read(model, text)
    scene = _Text(model, reading, wanted, surprise=surprise, lens=lens, norms=norms)
    given = {str(name): _checked(str(name), row, reading.batch.ids.shape[1]) for name, row in (tracks or {}).items()}
    scene.run(given)
    tokens = scene.side
    panel = {
        "name": shown_name(model),
        "model": model.name,
        "fingerprint": model.fingerprint,
        "tokens": {tokens: reading.tokens[tokens].told(())},
        "blocks": [],
        "text": {"tracks": scene.tracks, "maps": scene.maps, "lens": scene.lens},
    }
    first: dict[str, Any] = {"mode": "text"}
    if scene.tracks:
        first["track"] = next(iter(scene.tracks))
    return make(
        "text",
        shown_text(text) if title is None else title,
        [panel],
        scene.chunks,
        notes=[*(note for note in reading.notes if "decoder" not in note), *scene.notes],
        first=first,
        state=state,
        live=None,
    )


def _checked(name: str, row: Sequence[float], tokens: int) -> NDArray[np.float32]:
    """A track of the user's own: as many finite numbers as there are tokens."""
    found = np.asarray(row, dtype=np.float32)
    if found.shape != (tokens,):
        raise TextError(f"The track {name!r} has the shape {list(found.shape)}, and the text has {tokens} tokens.")
    if not np.isfinite(found).all():
        place = int(np.flatnonzero(~np.isfinite(found))[0])
        raise TextError(f"The track {name!r} is not a number at token {place}; put 0 where there is nothing to show.")
    return found


@dataclass(frozen=True)
class _Unit:
    """One unit of one site."""

    name: str
    site: Site
    number: int


def _unit(model: Model, name: str) -> _Unit:
    """The unit that a name such as `neurons.3:17` means."""
    from pellucid.model.sites import single

    place, _, number = str(name).rpartition(":")
    if not place or not number.isdigit():
        raise SiteError(f"{name!r} names no unit: write a site, a colon and a number, as in 'neurons.3:17'.")
    site = single(place, model.sites)
    if site.per_head or site.kind in ("logits", "routing"):
        raise SiteError(f"{name!r} is not one number per token; use units of embed, resid, attn, mid, neurons or mlp.")
    if site.stack in ("decoder", "cross"):
        raise SiteError(f"{name!r} belongs to the decoder, and this view shows the text that the encoder reads.")
    width = model.size(site)[0]
    if int(number) >= width:
        raise SiteError(f"{site} has the units 0 to {width - 1}; there is no {number}.")
    return _Unit(f"{site}:{int(number)}", site, int(number))


class _Text:
    """One pass over a text, and what the view shows of it."""

    def __init__(
        self,
        model: Model,
        reading: Reading,
        units: Sequence[_Unit],
        *,
        surprise: bool | None,
        lens: bool | None,
        norms: bool,
    ) -> None:
        self.model, self.reading, self.units = model, reading, units
        self.side = "text" if "text" in reading.tokens else "source"
        speaks = self._is_language_model()
        for name, asked in (("surprise", surprise), ("lens", lens)):
            if asked and not speaks:
                raise ModelError(
                    f"{name}=True needs a causal language model, and {model.name!r} is none; leave it out, or open "
                    "one with head='lm'."
                )
        self._surprise, self._lens, self._norms = (
            speaks if surprise is None else surprise,
            speaks if lens is None else lens,
            norms,
        )
        self.tracks: dict[str, dict[str, Any]] = {}
        self.maps: dict[str, dict[str, Any]] = {}
        self.lens: dict[str, Any] | None = None
        self.chunks: dict[str, Chunk] = {}
        self.notes: list[str] = []

    def run(self, given: Mapping[str, NDArray[np.float32]]) -> None:
        """Runs the model, and makes tracks, maps and lens of what it gives; tracks `given` come first."""
        stack = None if self.side == "text" else "encoder"
        streams = [site for site in self.model.sites if site.kind == "resid" and site.stack == stack]
        sites = [*(streams if self._norms or self._lens else ()), *(unit.site for unit in self.units)]
        ran = self.model.run(self.reading.batch, sites, reduce=_taken, logits=self._surprise or self._lens)
        self._make_tracks(ran, given)
        if self._norms and streams:
            lengths = np.stack([ran[site].double().norm(dim=-1).numpy() for site in streams])
            self.maps[NORMS] = {
                "heading": "Layer by layer",
                "about": _NORMS,
                "rows": _rows(streams),
                "signed": False,
                "unit": "",
            }
            self.chunks[f"text/0/map/{NORMS}"] = numbers(lengths, "<f4")
        if self._lens:
            self._make_lens(ran, streams)
        if not (self.tracks or self.maps or self.lens):
            from pellucid.model.sites import describe

            raise ModelError(
                f"Nothing of {self.model.name!r} was asked for; name units with neurons=[…], of its sites "
                f"{describe(self.model.sites)}."
            )

    def _is_language_model(self) -> bool:
        hf: Any = self.model.hf
        return self.model.causal and hf.get_output_embeddings() is not None

    def _make_tracks(self, ran: Run, given: Mapping[str, NDArray[np.float32]]) -> None:
        from pellucid.model.sites import MEANINGS

        rows = list(given.values())
        for name, row in given.items():
            self.tracks[name] = {"about": f"{name}: given with the view.", "signed": bool((row < 0).any()), "unit": ""}
        for unit in self.units:
            about = f"Unit {unit.number} of {unit.site}: {MEANINGS[unit.site.kind]}."
            self.tracks[unit.name] = {"about": about, "signed": True, "unit": ""}
            rows.append(ran[unit.site][:, unit.number].numpy())
        if self._surprise:
            self.tracks[SURPRISE] = {"about": _SURPRISE, "signed": False, "unit": "nats"}
            rows.append(self._nats(ran))
        if rows:
            self.chunks["text/0/tracks"] = numbers(np.stack(rows), "<f4")

    def _nats(self, ran: Run) -> NDArray[np.float32]:
        """Surprise of every token; the first one, which nothing foretells, is not a number."""
        import torch

        from pellucid.collect.surprise import token_nats

        count = self.reading.batch.ids.shape[1]
        places = torch.arange(1, count)
        nats = token_nats(ran.logits, self.reading.batch.ids, torch.zeros_like(places), places)
        return np.concatenate([[np.nan], nats.numpy()]).astype(np.float32)

    def _make_lens(self, ran: Run, streams: Sequence[Site]) -> None:
        logits = ran.logits[0]
        found = lenses.readout(self.model, ran[streams[-1]].to(self.model.device, logits.dtype), logits)
        if found is None:
            self.notes.append(
                "There is no lens: no norm and output layer of this model, applied to its last stream, gave its own "
                "predictions."
            )
            return
        moved = [ran[site].to(self.model.device, logits.dtype) for site in streams]
        seen = lenses.look(self.model, moved, logits, found)
        self.lens = {"rows": _rows(streams), "most": seen.ids.shape[2], "about": lenses.ABOUT}
        self.chunks.update(seen.chunks(0))


def _rows(streams: Sequence[Site]) -> list[str]:
    """Names of the stream's places: what enters the first layer, and what leaves each."""
    return ["input" if site.layer == 0 else f"layer {int(site.layer or 0) - 1}" for site in streams]


def _taken(site: Site, tensor: Tensor) -> Tensor:
    """A recorded tensor [1, tokens, d] as [tokens, d] on the CPU; numbers that are none are named by site."""
    import torch

    values = tensor[0].detach().float().cpu()
    if not bool(torch.isfinite(values).all()):
        raise ModelError(f"{site} is not a number (NaN or infinite) on this text; run the model in float32.")
    return values
