"""The provenance of a run: the facts that are needed to check its results or to compute them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from fedcap.names import LONGEST_LIST, NumberedNames


@dataclass(frozen=True)
class Shorter:
    """The number of rounds and the digests of a run before it was extended."""

    rounds: int
    digest: str
    settings_digest: str


@dataclass(frozen=True)
class Provenance:
    """The facts about a run that are not in its settings."""

    versions: Mapping[str, str]
    """The versions of the numerical packages, of Python, and of the platform."""
    threads: int
    seed: int
    digest: str
    """The hash of everything that determines the result: settings, data, the user's code."""
    data_hash: str
    partition_hash: str
    weights: int
    """D: the number of weights of the model."""
    clients: Sequence[str]
    """The names of all clients, in order."""
    malicious: Sequence[str]
    """The names of the malicious clients."""
    shape: Sequence[int] = field(default_factory=list)
    """The shape of one input; empty in runs of older versions."""
    class_names: Sequence[str] = field(default_factory=list)
    """The names of the classes, in the order of the network's outputs."""
    pixels: bool = False
    """Whether the inputs were bytes, which are scaled to [−1, 1]."""
    features: Sequence[str] = field(default_factory=list)
    """The names of the features of a table, in order; empty if they have no names."""
    levels: Sequence[Sequence[str]] = field(default_factory=list)
    """The categories of each column of an encoded table, empty for numbers; else empty."""
    integers: bool = False
    """Whether the inputs are integers."""
    settings_digest: str = ""
    """The hash of the settings; it shows whether config.toml was changed."""
    course: str = ""
    """The hash of everything that determines each round, for any number of rounds."""
    computes: int = 0
    """The revision of fedcap's computations: versions with another number give other results."""
    products: str = ""
    """The library that multiplied matrices: `onednn` or `mkl`; empty in runs of older versions."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The hash of the file of each class or function of the user, by `module:name`."""
    commit: str = ""
    """The commit of fedcap's source, if it ran from a checkout; a plus means that files were changed."""
    extended: Sequence[Shorter] = field(default_factory=list)
    """The run before each of its extensions, oldest first."""

    def extend(self, longer: Provenance, rounds: int) -> Provenance:
        """Return the provenance of the longer run into which this run of `rounds` rounds is extended."""
        shorter = Shorter(rounds, self.digest, self.settings_digest)
        return replace(
            self,
            digest=longer.digest,
            settings_digest=longer.settings_digest,
            extended=[*self.extended, shorter],
        )

    def of(self, settings_digest: str) -> Provenance | None:
        """Return the provenance of the run with these settings; none if the settings are of another run.

        If the run was killed while it was extended, config.toml still has the previous settings.
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
        """Return the provenance as indented JSON, without empty entries of features, levels and integers.

        Of many numbered clients it has their number, and the numbers of the malicious ones.
        """
        facts = asdict(replace(self, clients=[]))
        for name in ("features", "levels", "integers"):
            if not facts[name]:
                del facts[name]
        if isinstance(self.clients, NumberedNames) and len(self.clients) > LONGEST_LIST:
            malicious = ", ".join(self.malicious)
            facts |= {"clients": len(self.clients), "malicious": []}
            return json.dumps(facts, indent=2).replace('"malicious": []', f'"malicious": [{malicious}]', 1)
        return json.dumps(facts | {"clients": list(self.clients)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read the provenance back."""
        facts: Any = None
        with suppress(ValueError):
            facts = json.loads(text)
        if not isinstance(facts, dict) or not isinstance(facts.get("clients"), int):
            return _PROVENANCE.validate_json(text)
        clients = NumberedNames(facts["clients"])
        malicious = list(map(str, facts.get("malicious", [])))
        if not all(name in clients for name in malicious):
            raise ValueError("a malicious client is not one of the clients")
        facts |= {"clients": [], "malicious": malicious}
        return replace(_PROVENANCE.validate_python(facts), clients=clients)


_PROVENANCE: TypeAdapter[Provenance] = TypeAdapter(Provenance)
