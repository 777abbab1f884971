"""What some parts of one network give, changed while a block runs and left as it was afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

Change = Callable[[Tensor, Tensor], Tensor]
"""Takes the tensor that a part was given and the one that it made, and says what the network goes on with."""


@contextmanager
def changed_outputs(parts: Iterable[nn.Module], change: Change) -> Generator[None]:
    """Hooks that pass every output of `parts` through `change`; they are gone at the end, whatever happens."""

    def hook(_: nn.Module, given: tuple[Any, ...], made: Any) -> Any:
        usable = given and isinstance(given[0], Tensor) and isinstance(made, Tensor)
        return change(given[0], made) if usable else made

    with ExitStack() as stack:
        for part in parts:
            stack.callback(part.register_forward_hook(hook).remove)
        yield
