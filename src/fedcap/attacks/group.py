"""Group: all attackers imitate the mean of one group of similar honest clients, and shift it.

Measured from the server's global model, where FedCAP compares, each sends

    m + shift · ‖m‖ · h,    m the mean row of the group,    h = −(mean update of the group) / ‖…‖,

with a little noise, so that no two rows are equal. The group's clients are those at a cosine of at least
`alike` to one client's row. Later groups are those around the mean of the last one. If the group has fewer
clients than there are attackers, these are the majority among the clients that are similar to its members,
and a method that mixes models by similarity moves the group back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, noise, registry, unit, victims


@registry.register("group")
@dataclass(frozen=True)
class Group(Attack):
    """Imitate the mean of one group of similar honest clients, shifted against what the group learns."""

    attacks_requests: ClassVar[bool] = False

    shift: Annotated[float, Field(ge=0)] = 0.75
    """How far the row is from the group's mean, as a multiple of the mean's norm."""
    alike: Annotated[float, Field(ge=-1, le=1)] = 0.5
    """The least cosine of a member of the group to its centre."""
    noise: Annotated[float, Field(ge=0)] = 0.1
    """The norm of each row's own noise, shaped like the mean, as a share of the mean's norm."""

    def craft(self, view: View) -> Tensor:
        """Return each attacker's row."""
        geometry, targets = Geometry.of(view), victims(view)
        rows = unit(geometry.rows[targets])
        centre = view.memory["centre"].to(rows) if "centre" in view.memory else rows[0]
        alike = rows @ centre
        members = targets[alike >= alike.max().clamp_max(self.alike)]
        mean = geometry.rows[members].mean(dim=0)
        view.memory["centre"] = unit(mean)
        harmful = -unit(view.updates[members].mean(dim=0))
        own = unit(noise(view, int(view.malicious.sum())) * mean.abs())
        return geometry.updates(mean + mean.norm() * (self.shift * harmful + self.noise * own))
