"""Training a small GPT-2 on a stream of tokens, keeping the weights that did best on the validation text."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from recipes.lm_scores import IGNORED, score


@dataclass(frozen=True)
class Settings:
    """Everything that decides what training gives, beside the text."""

    vocabulary: int = 6144
    width: int = 160
    layers: int = 6
    head_width: int = 32
    context: int = 256
    dropout: float = 0.1
    weight_decay: float = 0.1
    learning_rate: float = 4e-3
    steps: int = 6000
    rows: int = 64  # rows of `context` tokens in each step
    repeats: float = 0.0625  # share of the rows that say random tokens again and again, for heads that look back
    seed: int = 0


def network(settings: Settings, start: int) -> GPT2LMHeadModel:
    """An untrained GPT-2 with tied embeddings; `start` is the id that begins and ends every article."""
    torch.manual_seed(settings.seed)
    config = GPT2Config(
        vocab_size=settings.vocabulary,
        n_positions=settings.context,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.width // settings.head_width,
        resid_pdrop=settings.dropout,
        embd_pdrop=settings.dropout,
        attn_pdrop=settings.dropout,
        bos_token_id=start,
        eos_token_id=start,
    )
    return GPT2LMHeadModel(config)


def train(network: Any, stream: Tensor, valid: list[list[int]], settings: Settings, device: str) -> float:
    """Trains a GPT-2 in place on the token `stream` [N]; returns the best validation loss, whose weights are kept.

    AdamW with warm-up and a cosine to zero. Every row begins with the start token, so that any text may follow it.
    """
    model = network.to(device).train()
    rows = _Rows(stream.to(device), model.config.bos_token_id, settings)
    adam = _optimiser(model, settings, fused=device == "cuda")
    best, kept, every, began = math.inf, dict[str, Tensor](), max(1, settings.steps // 20), time.perf_counter()
    running = torch.zeros((), device=device)
    torch.backends.cuda.enable_cudnn_sdp(False)  # flash attention has a reproducible backward pass, cuDNN's may not
    torch.use_deterministic_algorithms(True)
    for step in range(1, settings.steps + 1):
        for group in adam.param_groups:
            group["lr"] = settings.learning_rate * _schedule(step, settings.steps)
        ids, goals = rows.next()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(input_ids=ids, use_cache=False).logits
        loss = functional.cross_entropy(logits.float().flatten(0, 1), goals.flatten(), ignore_index=IGNORED)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        running += loss.detach()
        if step % every == 0 or step == settings.steps:
            now = score(model, valid).per_token
            if now < best:
                best, kept = now, {name: value.clone() for name, value in model.state_dict().items()}
            spent = time.perf_counter() - began
            print(f"step {step:6d}  train {float(running) / every:.4f}  valid {now:.4f}  {spent:.0f} s", flush=True)
            running.zero_()
    torch.use_deterministic_algorithms(False)
    model.load_state_dict(kept)
    return best


def _optimiser(model: Any, settings: Settings, *, fused: bool) -> torch.optim.AdamW:
    """AdamW that decays matrices alone, not biases and norms."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=fused)


def _schedule(step: int, steps: int) -> float:
    """A linear rise over the first twentieth, then half a cosine down to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return step / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class _Rows:
    """Rows of the stream in random order: each epoch cuts it at another offset, so that no two see the same rows."""

    def __init__(self, stream: Tensor, start: int, settings: Settings) -> None:
        self.stream, self.start, self.width = stream, start, settings.context
        self.repeated = round(settings.repeats * settings.rows)
        self.plain = settings.rows - self.repeated
        self.random = torch.Generator().manual_seed(settings.seed)
        self.waiting = torch.empty(0, dtype=torch.long)
        self.place = torch.arange(settings.context, device=stream.device)

    def next(self) -> tuple[Tensor, Tensor]:
        """One batch: ids [rows, context], each row beginning with the start token, and the ids to predict."""
        while len(self.waiting) < self.plain:
            offset = int(torch.randint(self.width, (), generator=self.random))
            begins = torch.arange(offset, len(self.stream) - self.width, self.width)
            self.waiting = torch.cat([self.waiting, begins[torch.randperm(len(begins), generator=self.random)]])
        begins, self.waiting = self.waiting[: self.plain], self.waiting[self.plain :]
        text = self.stream[begins.to(self.stream.device)[:, None] + self.place]
        again, goals = self._again()
        text, goals = torch.cat([text, again]), torch.cat([text, goals])
        return functional.pad(text[:, :-1], (1, 0), value=self.start), goals

    def _again(self) -> tuple[Tensor, Tensor]:
        """Rows of random tokens that begin again after 8 places or more; the first time nothing is to be predicted."""
        period = torch.randint(8, self.width // 4 + 1, (self.repeated, 1), generator=self.random)
        drawn = torch.randint(len(self.stream), (self.repeated, self.width), generator=self.random)
        period, drawn = period.to(self.stream.device), drawn.to(self.stream.device)
        tokens = self.stream[drawn.gather(1, self.place % period)]
        return tokens, tokens.masked_fill(self.place <= period, IGNORED)
