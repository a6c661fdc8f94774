"""PoisonedFL: clients without data send one fixed sign vector in all rounds, with a size that passes.

Reference: Xie, Fang, Gong, "Model poisoning attacks to federated learning via multi-round consistency",
CVPR 2025. With s a random sign vector that is fixed for the run, and g the last change of the model that the
attackers receive, all of them send

    d = c · ‖g‖ · v ⊙ s,    v = |g − ‖g‖ · d'/‖d'‖| / ‖g − ‖g‖ · d'/‖d'‖‖,

where d' is what they sent last: v is large where honest clients change the model most. Every few rounds they
test whether the model follows them. If the number of weights whose change has the sign of s is no larger than
chance gives with probability 0.99, they were filtered out, and they multiply c by 0.7. They need no samples
and know only the models that they receive. With models made for each client, g is the change of their mean.
In the first round they have no g, and send zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, noise, registry, unit

SOFTER = 0.7
CONFIDENCE = 0.99


@registry.register("poisoned-fl", "poisonedfl")
@dataclass(frozen=True)
class PoisonedFL(Attack):
    """One fixed random sign vector in all rounds; its length is reduced while the model does not follow."""

    uses_honest_updates: ClassVar[bool] = False
    attacks_requests: ClassVar[bool] = False

    scale: Annotated[float, Field(gt=0)] = 8.0
    """c at first: the length of the row, as a multiple of the model's last change."""
    every: Annotated[int, Field(ge=1)] = 5
    """The number of rounds between two tests; the paper has 50 for its 6,000 rounds."""

    def craft(self, view: View) -> Tensor:
        """Return the one vector that all malicious clients send."""
        memory = view.memory
        model = Geometry.of(view, blind=True).received[view.malicious].mean(dim=0)
        signs = memory["signs"].to(model) if memory else noise(view, 1)[0].sign()
        if not memory:
            memory.update(signs=signs, model=model, tested=model, scale=torch.tensor(self.scale))
            memory.update(sent=torch.zeros_like(model), rounds=torch.tensor(0))
            return memory["sent"]
        change = model - memory["model"].to(model)
        if int(memory["rounds"]) % self.every == self.every - 1:
            moved = model - memory["tested"].to(model)
            if int((moved.sign() == signs).sum()) <= _chance(len(signs)):
                memory["scale"] = memory["scale"] * SOFTER
            memory["tested"] = model
        length = change.norm()
        shape = unit((change - length * unit(memory["sent"].to(model))).abs())
        row: Tensor = float(memory["scale"]) * length * shape * signs
        memory.update(model=model, sent=row, rounds=memory["rounds"] + 1)
        return row


def _chance(weights: int) -> float:
    """Return how many of the weights have the right sign by chance at most, at 99 % confidence."""
    return weights / 2 + NormalDist().inv_cdf(CONFIDENCE) * math.sqrt(weights) / 2
