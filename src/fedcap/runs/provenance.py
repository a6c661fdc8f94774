"""Where a run's figures come from: what is needed to check them, or to make them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from pydantic import TypeAdapter

@dataclass(frozen=True)
class Shorter:
    """A run as it was before it was extended: how many rounds it had, and its digests."""

    rounds: int
    digest: str
    settings_digest: str


@dataclass(frozen=True)
class Provenance:
    """The facts of one run that its settings do not say."""

    versions: Mapping[str, str]
    """The versions of the packages that compute, of Python, and of the platform."""
    threads: int
    seed: int
    digest: str
    """The hash of all that decides the result: settings, data, the user's own code."""
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
    settings_digest: str = ""
    """The hash of the settings alone; it tells whether config.toml was changed."""
    course: str = ""
    """The hash of all that decides what happens in each round, however many rounds there are."""
    computes: int = 0
    """Which of fedcap's ways to compute was used: versions with another number give other results."""
    products: str = ""
    """Which library multiplied matrices: `onednn` or `mkl`; empty in runs of older versions."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The hash of the file of each thing of the user's own, by `module:name`."""
    commit: str = ""
    """The commit of fedcap's source, if it was run from a checkout; with a plus if files were changed."""
    extended: Sequence[Shorter] = field(default_factory=list)
    """What the run was before it was extended, oldest first."""

    def extend(self, longer: Provenance, rounds: int) -> Provenance:
        """Return the facts of this run, which has so many rounds, as those of the longer one."""
        shorter = Shorter(rounds, self.digest, self.settings_digest)
        return replace(
            self,
            digest=longer.digest,
            settings_digest=longer.settings_digest,
            extended=[*self.extended, shorter],
        )

    def of(self, settings_digest: str) -> Provenance | None:
        """Return the facts of the run with these settings, none if they are not this run's.

        If the run was killed while it was being extended, config.toml still has the settings of before.
        """
        if settings_digest == self.settings_digest or not self.settings_digest:
            return self
        if self.extended and settings_digest == self.extended[-1].settings_digest:
            shorter = self.extended[-1]
            return replace(
                self,
                digest=shorter.digest,
                settings_digest=shorter.settings_digest,
                extended=list(self.extended[:-1]),
            )
        return None

    def to_json(self) -> str:
        """Return the facts as indented JSON."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read the facts back."""
        return _PROVENANCE.validate_json(text)


_PROVENANCE: TypeAdapter[Provenance] = TypeAdapter(Provenance)
