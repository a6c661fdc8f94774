"""Detectors, policies, and the defence that combines them.

A detector gives each client of a round a score, and a limit above which the client is accused. It removes no
client: a policy turns accusations, over rounds, into removals. Both are frozen sets of options. What they
remember goes in and out as named tensors (`memory`) and is saved with the server's state. A `Defence` is
several detectors and one policy: `defence(view, memory)` returns the verdict and the memory after the round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcap.detection.view import RoundView
from fedcap.errors import InputError
from fedcap.registry import Registry
from fedcap.state import Tensors, owned, under

NOT_FINITE = "not finite"
DEFAULT_POLICY = "strikes"


@dataclass(frozen=True)
class Accusation:
    """Why a client is accused: which score, its value, the limit it passed, and the same in a sentence."""

    score: str
    value: float
    limit: float
    sentence: str


@dataclass(frozen=True)
class Score:
    """One number per client; a number over the limit speaks against the client."""

    name: str
    values: Tensor
    """N, in the order of the view's rows."""
    limit: float
    sentence: str = "{name} {value:.4g} over {limit:g}"
    """The text of an accusation; `name`, `value` and `limit` are filled in."""
    evidence: Tensor | None = None
    """N: the logarithm of how much likelier the value is for a malicious than for an honest client."""

    def __post_init__(self) -> None:
        """Fill in the sentence once, so that a mistake in it is found before the first accusation."""
        try:
            self._text(0.0)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"score {self.name!r}: its sentence cannot be filled in: {error!r}", code="bad-sentence"
            ) from None

    def _text(self, value: float) -> str:
        return self.sentence.format(name=self.name, value=value, limit=self.limit)

    @property
    def accused(self) -> Tensor:
        """Which clients are over the limit, N flags; a value that is not a number accuses no client."""
        return self.values > self.limit

    def accusation(self, row: int) -> Accusation:
        """Return why the client of a row is accused."""
        value = float(self.values[row])
        return Accusation(self.name, value, self.limit, self._text(value))


@dataclass(frozen=True)
class Verdict:
    """What the defence found in a round; clients are rows of the client index."""

    scores: Sequence[Score] = ()
    removed: Mapping[int, Accusation] = field(default_factory=dict)
    """The clients that are removed for good, and why."""
    suspected: Mapping[int, Accusation] = field(default_factory=dict)
    """The clients that are accused and not removed: their uploads do not count in this round."""
    notes: Sequence[str] = ()
    """What was unusual about the scores."""


@dataclass(frozen=True)
class Detector(ABC):
    """Gives each client of a round one or several scores; options are the fields of its dataclass.

    It sees at least one row, and only finite rows. Memory is on the CPU.
    """

    revision: ClassVar[int] = 1
    """Increase it when the same options give other scores than before: runs are then other runs."""

    def start(self) -> Tensors:
        """Return the memory before the first round; most detectors need none."""
        return {}

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of its scores by name, if they are fixed: an attacker may know them."""
        return {}

    @abstractmethod
    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the scores of a round, and the memory after it."""


@dataclass(frozen=True)
class Policy(ABC):
    """Decides, over rounds, which of the accused clients are removed."""

    def start(self) -> Tensors:
        """Return the memory before the first round."""
        return {}

    @abstractmethod
    def decide(
        self, accused: Mapping[int, Accusation], scores: Sequence[Score], view: RoundView, memory: Tensors
    ) -> tuple[Mapping[int, Accusation], Tensors]:
        """Return which clients are removed, and why, and the memory after the round.

        `view` and `scores` have the finite rows; other clients may be among the accused.
        """


registry: Registry[Detector] = Registry("detector", Detector, "fedcap.detection")
policies: Registry[Policy] = Registry("policy", Policy, "fedcap.detection")


def get_values(memory: Tensors, ids: Tensor, default: float = 0.0) -> Tensor:
    """Return the number stored for each of these clients; `default` for clients without one."""
    found = torch.full((len(ids),), default, dtype=torch.float64)
    if "ids" in memory and len(memory["ids"]):
        at = torch.searchsorted(memory["ids"], ids).clamp_max(len(memory["ids"]) - 1)
        known = memory["ids"][at] == ids
        found[known] = memory["values"][at[known]]
    return found


def set_values(memory: Tensors, ids: Tensor, values: Tensor) -> Tensors:
    """Return the memory, which stores one number per client, with new numbers for these clients."""
    known = memory.get("ids", ids[:0])
    all_ids = torch.unique(torch.cat([known, ids]))
    numbers = get_values(memory, all_ids)
    numbers[torch.searchsorted(all_ids, ids)] = values.double()
    return {"ids": all_ids, "values": numbers}


@dataclass(frozen=True)
class Defence:
    """Detectors by name, and the policy over them."""

    detectors: Mapping[str, Detector]
    policy: Policy

    @property
    def limits(self) -> dict[str, float]:
        """The fixed limits of all detectors' scores, by name."""
        return {name: limit for part in self.detectors.values() for name, limit in part.limits.items()}

    @property
    def revised(self) -> list[str]:
        """The detectors with a revision above 1, with its number."""
        return [f"{name} {part.revision}" for name, part in self.detectors.items() if part.revision > 1]

    def start(self) -> dict[str, Tensor]:
        """Return the memory of all parts before the first round."""
        memory = under("policy", self.policy.start())
        for name, detector in self.detectors.items():
            memory |= under(name, detector.start())
        return memory

    def forget(self, memory: Tensors, client: int) -> dict[str, Tensor]:
        """Return the memory without the numbers that `set_values` stored for a client."""
        left = dict(memory)
        for name in memory:
            numbers = f"{name.removesuffix('ids')}values"
            if name.endswith("ids") and numbers in memory:
                others = memory[name] != client
                left[name], left[numbers] = memory[name][others], memory[numbers][others]
        return left

    def __call__(self, view: RoundView, memory: Tensors) -> tuple[Verdict, Tensors]:
        """Return the verdict of a round, with every score, and the memory after it.

        Clients whose row is not finite are accused, and no detector sees these rows. A client over several
        limits is accused by the first score that accuses it.
        """
        broken = view.ids[~view.finite].tolist()
        accused = {client: Accusation("norm", math.nan, math.inf, NOT_FINITE) for client in broken}
        sound = view.only(view.finite)
        scores, after = self._scores(sound, memory) if len(sound) else ([], memory)
        for score in scores:
            for row in score.accused.nonzero().flatten().tolist():
                accused.setdefault(int(sound.ids[row]), score.accusation(row))
        accused = dict(sorted(accused.items()))
        removed, decided = self.policy.decide(accused, scores, sound, owned("policy", memory))
        suspected = {client: reason for client, reason in accused.items() if client not in removed}
        notes = [
            f"score {score.name!r} is not a number for {odd} of {len(sound)} clients: it does not judge them"
            for score in scores
            if (odd := int((~score.values.isfinite()).sum()))
        ]
        all_rows = [replace(score, values=_expand(score.values, view.finite)) for score in scores]
        return Verdict(all_rows, removed, suspected, notes), {**after, **_on_cpu(under("policy", decided))}

    def _scores(self, view: RoundView, memory: Tensors) -> tuple[list[Score], dict[str, Tensor]]:
        """Return all detectors' scores, checked, and their memory after the round."""
        scores: list[Score] = []
        after: dict[str, Tensor] = {}
        for name, detector in self.detectors.items():
            found, remembered = detector.score(view, owned(name, memory))
            after |= _on_cpu(under(name, remembered))
            for score in found:
                if score.name in {known.name for known in scores}:
                    raise InputError(
                        f"detector {name!r} gives a second score called {score.name!r}", code="name-taken"
                    )
                scores.append(_checked(name, score, len(view)))
        return scores, after


def _checked(detector: str, score: Score, clients: int) -> Score:
    """Return a score with its numbers on the CPU; refuse one that has not one number per client."""
    for numbers in (score.values, score.evidence):
        if numbers is not None and numbers.shape != (clients,):
            raise InputError(
                f"detector {detector!r} gives {list(numbers.shape)} values of {score.name!r} for"
                f" {clients} clients",
                code="data-shape",
            )
    values = score.values.detach().double().cpu()
    evidence = None if score.evidence is None else score.evidence.detach().cpu()
    return replace(score, values=values, evidence=evidence)


def _expand(values: Tensor, rows: Tensor) -> Tensor:
    """Return the values at the rows for which the flags hold, and NaN at the others, N."""
    expanded = torch.full((len(rows),), math.nan, dtype=torch.float64)
    expanded[rows] = values
    return expanded


def _on_cpu(memory: Tensors) -> dict[str, Tensor]:
    """Return copies on the CPU: the memory may hold views of the updates, which the next round overwrites."""
    return {name: tensor.detach().cpu().clone() for name, tensor in memory.items()}


def make_defence(detectors: Sequence[Any], policy: Any) -> Defence | None:
    """Build a defence from detectors and a policy, by name, table or object; None without detectors."""
    built: dict[str, Detector] = {}
    for choice in detectors:
        name, detector = registry.named(choice)
        if name in built:
            raise InputError(f"detector {name!r} is named twice: once is enough", code="name-taken")
        built[name] = detector
    return Defence(built, policies.build(as_policy(policy))) if built else None


def as_policy(choice: Any) -> Any:
    """Return a policy as it was chosen; options without a name are those of the default policy."""
    nameless = isinstance(choice, Mapping) and "name" not in choice
    return {"name": DEFAULT_POLICY, **choice} if nameless else choice
