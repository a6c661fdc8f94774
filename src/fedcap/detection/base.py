"""What a detector is: from what the server sees of a round, and its own memory, to scores of the clients.

A detector does not remove anybody. It gives each client a score, and a limit above which the client is
accused; a policy turns accusations, over rounds, into removals. Both are frozen sets of options; what they
remember is passed in and out as named tensors, and is saved with the server's state.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.matrices import Rows, cosines, finite_rows, folded
from fedcap.registry import InputError, Registry
from fedcap.state import Tensors

EQUAL = 0.999
"""Updates at a larger cosine than this are the same: training on different samples never comes so close."""

FOLDED = 1 << 14
"""To so many columns updates are folded before they are compared."""
UNFORESEEN = 16


@dataclass(frozen=True)
class Look:
    """What the server sees of a round's uploads, a row per client."""

    round: int
    ids: Tensor
    """N: whose rows they are, ascending."""
    updates: Tensor
    """N×D: the updates as they were sent."""
    calibrated: Rows
    """N×D: the updates as seen from one common point; as they were sent, if the method has none."""
    recovered: Tensor | None = None
    """N×D: the clients' models, what each received plus the update it sent, if the method needs them."""
    reference: Tensor | None = None
    """D: the common point, the server's global model."""
    samples: Tensor | None = None
    """N: the clients' sample counts, as claimed and bounded."""

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, mask: Tensor) -> Look:
        """Return what is seen of the rows for which the mask holds."""
        if bool(mask.all()):
            return self
        recovered = None if self.recovered is None else self.recovered[mask]
        return replace(
            self,
            ids=self.ids[mask],
            updates=self.updates[mask],
            calibrated=self.calibrated.only(mask),
            recovered=recovered,
            samples=None if self.samples is None else self.samples[mask],
        )

    @cached_property
    def norms(self) -> Tensor:
        """The length of each calibrated update, N, in double precision."""
        return self.calibrated.norms().cpu()

    @cached_property
    def lengths(self) -> Tensor:
        """How far each client went from the model it was sent, N, in double precision."""
        return Rows(self.updates).norms().cpu()

    @cached_property
    def finite(self) -> Tensor:
        """Which rows are finite, N flags: by their norms if models were recovered, else by the updates."""
        return finite_rows(self.updates).cpu() if self.recovered is None else self.norms.isfinite()

    @cached_property
    def likeness(self) -> Tensor:
        """The cosines between the calibrated updates, N×N."""
        return cosines(self.calibrated, self.calibrated).cpu()

    @cached_property
    def agreement(self) -> Tensor:
        """The cosines between the updates as they were sent, N×N: who goes whose way."""
        rows = Rows(self.folded_updates)
        return cosines(rows, rows).cpu()

    @cached_property
    def folded_updates(self) -> Tensor:
        """The updates as they were sent, at length 1, long ones folded."""
        return self._folded(Rows(self.updates), self.lengths)

    @cached_property
    def folded_calibrated(self) -> Tensor:
        """The calibrated updates at length 1, folded in the same way."""
        return self._folded(self.calibrated, self.norms)

    def _folded(self, rows: Rows, norms: Tensor) -> Tensor:
        """Return rows at length 1, long ones folded, in a way that depends on what everybody sent."""
        few = self.updates[:, :UNFORESEEN].contiguous().cpu()
        return folded(rows, norms.to(self.updates.device), FOLDED, zlib.crc32(few.numpy().tobytes()))

    @cached_property
    def equal(self) -> Tensor:
        """Which pairs sent the same direction, N×N flags; everybody is its own equal."""
        return (self.agreement > EQUAL) | torch.eye(len(self), dtype=torch.bool)

    @cached_property
    def votes(self) -> Tensor:
        """How much each client counts, N: those who sent the same share one vote, so copies gain nothing."""
        return 1 / self.equal.sum(dim=1).double()


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
