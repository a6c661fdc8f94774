"""Where a run's figures come from: what is needed to check them, or to make them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Provenance:
    """The facts of one run that its settings do not say."""

    versions: Mapping[str, str]
    """The versions of the packages that compute, of Python, and of the platform."""
    threads: int
    seed: int
    digest: str
    """The hash of the settings: see `fedcap.records.digest`."""
    data_hash: str
    partition_hash: str
    weights: int
    """How many weights the model has: D."""
    clients: Sequence[str]
    """All clients' names, in order."""
    malicious: Sequence[str]
    """Those of them who attack."""
    shape: Sequence[int] = field(default_factory=list)
    """The shape of one input; empty in runs of versions that did not write it down."""
    class_names: Sequence[str] = field(default_factory=list)
    """What the classes are called, in the order of the network's answers."""
    pixels: bool = False
    """Whether inputs were bytes, which are scaled to [−1, 1]."""

    def to_json(self) -> str:
        """Return the facts as indented JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read the facts back."""
        return _PROVENANCE.validate_json(text)


_PROVENANCE: TypeAdapter[Provenance] = TypeAdapter(Provenance)
