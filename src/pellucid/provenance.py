"""Provenance: where numbers come from, so that they can be made again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_VERSIONED = ("torch", "transformers", "numpy")


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from: enough to make them again. It holds no time, so that equal work gives equal bytes.

    `models` are {name, fingerprint} each; `corpus` is {name, fingerprint, sentences, words}; `command` is the shell's,
    where the work was started there.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    models: tuple[Mapping[str, str], ...] = ()
    corpus: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=lambda: versions())
    command: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The provenance as JSON holds it."""
        return json.loads(json.dumps(asdict(self), ensure_ascii=False))

    @staticmethod
    def of_json(told: Mapping[str, Any]) -> Provenance:
        """The provenance that `to_json` told."""
        facts: dict[str, Any] = dict(told)
        facts["models"] = tuple(told["models"])
        return Provenance(**facts)


def versions() -> dict[str, str]:
    """Versions of Pellucid and of the libraries that its numbers depend on, found without importing them."""
    from importlib.metadata import PackageNotFoundError, version

    from pellucid import __version__

    found = {"pellucid": __version__}
    for name in _VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
