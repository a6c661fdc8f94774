"""The judge: several detectors' scores, and the policy that decides over rounds, as one step.

`judge(look, memory)` returns the verdict and the memory after it; memory is the detectors' and the policy's,
each under its own name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.detection.base import Detector, Policy, Reason, Score, Verdict, policies, registry
from fedcap.detection.look import Look
from fedcap.errors import InputError
from fedcap.state import Tensors, owned, under

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
