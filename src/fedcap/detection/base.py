"""What a detector is: from what the server sees of a round, and its own memory, to scores of the clients.

A detector does not remove anybody. It gives each client a score, and a limit above which the client is
accused; a policy turns accusations, over rounds, into removals. Both are frozen sets of options; what they
remember is passed in and out as named tensors, and is saved with the server's state.

Evidence: a client is removed once what speaks against it, over rounds, could hardly come of chance.

Each round the strongest evidence of any detector is added to what there was, in logarithms, and what is
left of good rounds never counts in advance:

    E_k ← max(0, E_k + log e_k),    removed if E_k ≥ log(1/δ)

δ bounds the chance that a given honest client is ever removed by one detector, on account of rounds from a
given one on, if honest deviations are as `spread.evidence` supposes. What a detector calls proof is enough
at once, whatever δ is. Whoever is over a score's limit and not removed is on probation: it takes part, and
what it sends counts for nobody. Nobody is removed in a round in which everybody's length jumped, since then
the common point did. Nor is ever a majority removed, be it of those who take part or of all who ever did:
then it is rather the server's models that are broken. So half of all clients ever seen is the most that
is removed; who can come back under new names uses that up.

The judge: several detectors' scores, and the policy that decides over rounds, as one step.

`judge(look, memory)` returns the verdict and the memory after it; memory is the detectors' and the policy's,
each under its own name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.view import Look
from fedcap.errors import InputError
from fedcap.registry import Registry
from fedcap.state import Tensors, owned, under


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


JUMP = math.log(3)


@policies.register("evidence")
@dataclass(frozen=True)
class Evidence(Policy):
    """Add up evidence over rounds, and remove whoever's could hardly be chance."""

    chance: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """δ: the chance that a given honest client is ever removed on account of rounds from a given one on."""

    def decide(
        self, accused: Mapping[int, Reason], scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[Mapping[int, Reason], Tensors]:
        """Add this round's evidence, and remove whoever has enough against it."""
        lost = {client: reason for client, reason in accused.items() if not math.isfinite(reason.value)}
        guilty, after = self._guilty(scores, look, memory)
        gone = owned("gone", memory)
        before = gone.get("ids", look.ids[:0]).tolist()
        ever = {*after["books.ids"].tolist(), *before, *lost}
        removed: dict[int, Reason] = {}
        for group in (lost, guilty):
            here, all_told = len(removed) + len(group), len(before) + len(removed) + len(group)
            if 2 * here <= len(lost) + len(look) and 2 * all_told <= len(ever):
                removed |= group
        out = torch.tensor(sorted(removed), dtype=look.ids.dtype)
        after |= under("gone", remember(gone, out, torch.ones(len(out))))  # so that `Judge.forget` knows them
        return removed, after

    def _guilty(
        self, scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[dict[int, Reason], dict[str, Tensor]]:
        """Return against whom there is enough, and the memory with this round's evidence."""
        told = [score for score in scores if score.evidence is not None]
        books, after = owned("books", memory), dict(memory)
        found = recall(books, look.ids)
        guilty: dict[int, Reason] = {}
        if told and len(look):
            after["length"] = look.norms.log().median()
            if not ("length" in memory and bool(after["length"] - memory["length"] > JUMP)):
                found = (found + _strongest(told)).clamp(0, self._enough)
                rows = (found >= self._enough).nonzero().flatten().tolist()
                guilty = {int(look.ids[row]): self._reason(told, row, float(found[row])) for row in rows}
        return guilty, after | under("books", remember(books, look.ids, found))

    @property
    def _enough(self) -> float:
        return -math.log(self.chance)

    def _reason(self, scores: Sequence[Score], row: int, found: float) -> Reason:
        """Return the strongest accusation of the round, with what there was before."""
        strongest = max(scores, key=lambda score: _at(score.evidence, row))
        said = strongest.reason(row)
        return Reason(
            said.score,
            said.value,
            said.limit,
            f"{said.sentence}; evidence {math.exp(min(found, 60)):.2g} to 1",
        )


def _strongest(scores: Sequence[Score]) -> Tensor:
    """Return the strongest evidence of any score, N; what is no number says nothing."""
    values = torch.stack([score.evidence for score in scores if score.evidence is not None])
    return torch.where(values.isnan(), -torch.inf, values).max(dim=0).values


def _at(values: Tensor | None, row: int) -> float:
    return -math.inf if values is None else float(values[row])


NOT_FINITE = "not finite"
USUAL_POLICY = "strikes"


@dataclass(frozen=True)
class Judge:
    """Detectors by name, and the policy over them."""

    detectors: Mapping[str, Detector]
    policy: Policy

    @property
    def limits(self) -> dict[str, float]:
        """The fixed limits of all detectors' scores, by name."""
        return {name: limit for part in self.detectors.values() for name, limit in part.limits.items()}

    @property
    def revised(self) -> list[str]:
        """The detectors that score otherwise than they once did, with the number of their revision."""
        return [f"{name} {part.revision}" for name, part in self.detectors.items() if part.revision > 1]

    def start(self) -> dict[str, Tensor]:
        """Return the memory of all of them before the first round."""
        memory = under("policy", self.policy.start())
        for name, detector in self.detectors.items():
            memory |= under(name, detector.start())
        return memory

    def forget(self, memory: Tensors, client: int) -> dict[str, Tensor]:
        """Return the memory without what `remember` put there of a client."""
        left = dict(memory)
        for name in memory:
            numbers = f"{name.removesuffix('ids')}values"
            if name.endswith("ids") and numbers in memory:
                others = memory[name] != client
                left[name], left[numbers] = memory[name][others], memory[numbers][others]
        return left

    def __call__(self, look: Look, memory: Tensors) -> tuple[Verdict, Tensors]:
        """Return who is removed and who is suspected, with every score, and the memory after the round.

        Rows that cannot be computed with accuse their senders, and no detector sees them: a median over
        the others stays a number. Whoever passes several limits is accused by the first that says so.
        """
        broken = look.ids[~look.finite].tolist()
        accused = {client: Reason("norm", math.nan, math.inf, NOT_FINITE) for client in broken}
        sound = look.only(look.finite)
        scores, after = self._scores(sound, memory) if len(sound) else ([], memory)
        for score in scores:
            for row in score.accused.nonzero().flatten().tolist():
                accused.setdefault(int(sound.ids[row]), score.reason(row))
        accused = dict(sorted(accused.items()))
        removed, decided = self.policy.decide(accused, scores, sound, owned("policy", memory))
        suspected = {client: reason for client, reason in accused.items() if client not in removed}
        notes = [
            f"score {score.name!r} is no number for {odd} of {len(sound)} clients: they are not judged by it"
            for score in scores
            if (odd := int((~score.values.isfinite()).sum()))
        ]
        all_rows = [replace(score, values=_spread(score.values, look.finite)) for score in scores]
        return Verdict(all_rows, removed, suspected, notes), {**after, **_on_cpu(under("policy", decided))}

    def _scores(self, look: Look, memory: Tensors) -> tuple[list[Score], dict[str, Tensor]]:
        """Return all detectors' scores, checked, and their memory after the round."""
        scores: list[Score] = []
        after: dict[str, Tensor] = {}
        for name, detector in self.detectors.items():
            found, kept = detector.score(look, owned(name, memory))
            after |= _on_cpu(under(name, kept))
            for score in found:
                if score.values.shape != (len(look),):
                    shape = list(score.values.shape)
                    raise InputError(
                        f"detector {name!r} gives {shape} values of {score.name!r} for {len(look)} clients"
                    )
                if score.name in {known.name for known in scores}:
                    raise InputError(f"detector {name!r} gives a second score called {score.name!r}")
                scores.append(replace(score, values=score.values.detach().double().cpu()))
        return scores, after


def _spread(values: Tensor, rows: Tensor) -> Tensor:
    """Return the values at the rows for which the flags hold, and NaN at the others, N."""
    spread = torch.full((len(rows),), math.nan, dtype=torch.float64)
    spread[rows] = values
    return spread


def _on_cpu(memory: Tensors) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in memory.items()}


def make_judge(detectors: Sequence[Any], policy: Any) -> Judge | None:
    """Build a judge from detectors and a policy, by name, table or object; none if there are no detectors."""
    built: dict[str, Detector] = {}
    for choice in detectors:
        name, detector = registry.named(choice)
        if name in built:
            raise InputError(f"detector {name!r} is named twice: once is enough")
        built[name] = detector
    return Judge(built, policies.build(as_policy(policy))) if built else None


def as_policy(choice: Any) -> Any:
    """Return a policy as it was chosen; options without a name are those of the usual one."""
    nameless = isinstance(choice, Mapping) and "name" not in choice
    return {"name": USUAL_POLICY, **choice} if nameless else choice
