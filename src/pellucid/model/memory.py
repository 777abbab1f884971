"""Running out of memory: how it is recognised, and the sentence that says what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from pellucid.errors import OutOfMemory
from pellucid.model.frame import Frame


@contextmanager
def told_memory(frame: Frame, device: torch.device) -> Generator[None]:
    """Running out of memory within it, as a sentence that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
        lengths = [real.shape[1] for real in frame.real.values()]
        shape = f"{frame.size} × {max(lengths)} tokens" if lengths else f"{frame.size} inputs"
        raise OutOfMemory(
            f"{device} ran out of memory on a batch of {shape}; use a smaller batch, shorter text or fewer sites, or "
            "reduce=…"
        ) from error


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on an accelerator or on the machine."""
    told = ("not enough memory", "out of memory", "can't allocate memory", "Cannot allocate memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(text in str(error) for text in told)
