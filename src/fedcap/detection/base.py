"""What a detector is: from what the server sees of a round, and its own memory, to scores of the clients.

A detector does not remove anybody. It gives each client a score, and a limit above which the client is
accused; a policy turns accusations, over rounds, into removals. Both are frozen sets of options; what they
remember is passed in and out as named tensors, and is saved with the server's state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.detection.look import Look
from fedcap.errors import InputError
from fedcap.registry import Registry
from fedcap.state import Tensors


@dataclass(frozen=True)
class Reason:
    """Why a client is accused: which score, its value, the limit it passed, and the same in a sentence."""

    score: str
    value: float
    limit: float
    sentence: str


@dataclass(frozen=True)
class Score:
    """One number per client; if it is over the limit, it speaks against the client."""

    name: str
    values: Tensor
    """N, in the order of the look's rows."""
    limit: float
    sentence: str = "{name} {value:.4g} over {limit:g}"
    """How the accusation reads; `name`, `value` and `limit` are filled in."""
    evidence: Tensor | None = None
    """N: the logarithm of how much likelier the value is of a liar than of an honest client, if known."""

    def __post_init__(self) -> None:
        """Try the sentence once, so that a mistake in it does not wait for the first accusation."""
        try:
            self._say(0.0)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(f"score {self.name!r}: its sentence cannot be filled in: {error!r}") from None

    def _say(self, value: float) -> str:
        return self.sentence.format(name=self.name, value=value, limit=self.limit)

    @property
    def accused(self) -> Tensor:
        """Who is over the limit, N flags; a score that is no number accuses nobody."""
        return self.values > self.limit

    def reason(self, row: int) -> Reason:
        """Return why the client of a row is accused."""
        value = float(self.values[row])
        return Reason(self.name, value, self.limit, self._say(value))


@dataclass(frozen=True)
class Verdict:
    """What was found about a round's uploads; clients are rows of the roster."""

    scores: Sequence[Score] = ()
    removed: Mapping[int, Reason] = field(default_factory=dict)
    """Who is out for good, and why."""
    suspected: Mapping[int, Reason] = field(default_factory=dict)
    """Who is accused and not removed: what they sent does not count in this round."""
    notes: Sequence[str] = ()
    """What was odd about the scores."""


@dataclass(frozen=True)
class Detector(ABC):
    """Gives every client of a round one or several scores; options are the fields of its dataclass.

    It is given the rows that can be computed with, one at least. Memory lies on the CPU.
    """

    revision: ClassVar[int] = 1
    """Raise it if the same options give other scores than before: runs then are other runs."""

    def start(self) -> Tensors:
        """Return its memory before the first round; most detectors need none."""
        return {}

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of its scores by name, if they are fixed: an attacker may know them."""
        return {}

    @abstractmethod
    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the scores of a round, and the memory after it."""


@dataclass(frozen=True)
class Policy(ABC):
    """Decides, over rounds, which of the accused are removed."""

    def start(self) -> Tensors:
        """Return its memory before the first round."""
        return {}

    @abstractmethod
    def decide(
        self, accused: Mapping[int, Reason], scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[Mapping[int, Reason], Tensors]:
        """Return who is removed, and why, and the memory after the round.

        `look` and `scores` have the rows that could be computed with; others may be among the accused.
        """


registry: Registry[Detector] = Registry("detector", Detector, "fedcap.detection")
policies: Registry[Policy] = Registry("policy", Policy, "fedcap.detection")


def recall(memory: Tensors, ids: Tensor, otherwise: float = 0.0) -> Tensor:
    """Return the number remembered for each of these clients, or `otherwise` for those who are new."""
    found = torch.full((len(ids),), otherwise, dtype=torch.float64)
    if "ids" in memory and len(memory["ids"]):
        at = torch.searchsorted(memory["ids"], ids).clamp_max(len(memory["ids"]) - 1)
        known = memory["ids"][at] == ids
        found[known] = memory["values"][at[known]]
    return found


def remember(memory: Tensors, ids: Tensor, values: Tensor) -> Tensors:
    """Return the memory, one number per client, with new numbers for these clients."""
    known = memory.get("ids", ids[:0])
    everybody = torch.unique(torch.cat([known, ids]))
    numbers = recall(memory, everybody)
    numbers[torch.searchsorted(everybody, ids)] = values.double()
    return {"ids": everybody, "values": numbers}
