"""The judge: several detectors' scores, and the policy that decides over rounds, as one step.

`judge(look, memory)` returns the verdict and the memory after it; memory is the detectors' and the policy's,
each under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedcap.detection.base import Detector, Look, Policy, Reason, Score, Verdict, policies, registry
from fedcap.registry import InputError, as_table
from fedcap.state import Tensors, owned, under


@dataclass(frozen=True)
class Judge:
    """Detectors by name, and the policy over them."""

    detectors: Mapping[str, Detector]
    policy: Policy

    @property
    def limits(self) -> dict[str, float]:
        """The fixed limits of all detectors' scores, by name."""
        return {name: limit for part in self.detectors.values() for name, limit in part.limits.items()}

    def start(self) -> dict[str, Tensor]:
        """Return the memory of all of them before the first round."""
        return self._joined(
            {name: part.start() for name, part in self.detectors.items()}, self.policy.start()
        )

    def __call__(self, look: Look, memory: Tensors) -> tuple[Verdict, Tensors]:
        """Return who is removed and who is suspected, with every score, and the memory after the round.

        A client over several limits is accused by the first of these scores, in the order of the detectors.
        """
        scores: list[Score] = []
        after: dict[str, Tensors] = {}
        for name, detector in self.detectors.items():
            found, after[name] = detector.score(look, owned(name, memory))
            scores += found
        accused: dict[int, Reason] = {}
        for score in reversed(scores):
            for row in score.accused.nonzero().flatten().tolist():
                accused[int(look.ids[row])] = score.reason(row)
        accused = dict(sorted(accused.items()))
        removed, decided = self.policy.decide(accused, look, owned("policy", memory))
        suspected = {client: reason for client, reason in accused.items() if client not in removed}
        return Verdict(scores, removed, suspected), self._joined(after, decided)

    @staticmethod
    def _joined(detectors: Mapping[str, Tensors], policy: Tensors) -> dict[str, Tensor]:
        joined = under("policy", policy)
        for name, memory in detectors.items():
            joined |= under(name, memory)
        return joined


def make_judge(detectors: Sequence[str | Mapping[str, Any]], policy: str | Mapping[str, Any]) -> Judge | None:
    """Build a judge from the detectors' names, or tables of names and options; none if there are none."""
    built: dict[str, Detector] = {}
    for choice in detectors:
        name = registry.resolve(as_table(choice, "detector")["name"])
        if name in built or name == "policy":
            raise InputError(f"detector {name!r} is named twice: once is enough")
        built[name] = registry.build(choice)
    return Judge(built, policies.build(policy)) if built else None
