"""The cuckoo: each attacker sends a row similar to one victim's row.

Methods that mix a model for each client from those most similar to it then mix the attacker into the victim's
model. Measured from the server's global model w, where FedCAP compares, the attacker sends

    d = ℓ · ( c · u + √(1 − c²) · h ),    u = d_victim / ‖d_victim‖,    h ⟂ u,

at cosine c to the victim's row; h points against the direction in which the victims want to go. At the
victim's own norm it passes every test of norms. At the largest norm that passes, it makes the clients that
are similar to the victim longer in turn, until these are removed. The blind variant knows only what its own
clients receive and would honestly send, and chooses itself as the victim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, longest, noise, registry, target_mean, unit, victims
from fedcap.errors import InputError


@registry.register("cuckoo")
@dataclass(frozen=True)
class Cuckoo(Attack):
    """Send a row similar to one victim's, with the rest of it against the direction of all victims."""

    attacks_requests: ClassVar[bool] = False

    length: Literal["victim", "longest"] = "victim"
    """The norm of the row: the victim's, or the largest at which no attacker is accused."""
    cosine: Annotated[float, Field(ge=0, le=1)] = 0.8
    """c: the cosine between the row and the victim's."""
    against: Literal["mean", "victim"] = "mean"
    """What the harmful part opposes: the victims' mean update, or the victim's own."""
    noise: Annotated[float, Field(ge=0)] = 0.3
    """The share of independent noise in the harmful part."""
    blind: bool = False
    """Whether attackers know only what their own clients receive and send."""
    gang: bool = False
    """Whether all attackers have the same victim, the first that takes part."""

    def __post_init__(self) -> None:
        if self.blind and self.length == "longest":
            raise InputError(
                "a blind cuckoo cannot try lengths on the server: leave length or blind out",
                code="bad-option",
            )

    def craft(self, view: View) -> Tensor:
        """Return each attacker's row."""
        geometry = Geometry.of(view, self.blind)
        bad = view.malicious.nonzero().flatten()
        targets = bad if self.blind else victims(view)
        targets = targets[:1] if self.gang else targets
        chosen = targets[torch.arange(len(bad), device=targets.device) % len(targets)]
        similar = geometry.rows[chosen]
        near = unit(similar)
        goal = view.updates[bad].mean(dim=0) if self.blind else target_mean(view)
        goal = view.updates[chosen] if self.against == "victim" else goal.expand_as(near)
        harmful = self.noise * noise(view, len(bad)) - unit(goal)
        harmful = unit(harmful - (harmful * near).sum(dim=1, keepdim=True) * near)
        shape = self.cosine * near + math.sqrt(1 - self.cosine**2) * harmful
        rows = similar.norm(dim=1, keepdim=True) * shape
        if self.length == "longest":
            rows = rows * longest(view, lambda size: geometry.updates(size * rows), 1.0)
        return geometry.updates(rows)
