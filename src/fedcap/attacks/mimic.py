"""Mimic: all attackers copy one honest client, so that its data count M + 1 times.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
2022, section 3. No row is out of the ordinary; the harm is to those whose data are then too few to count. The
victim is the one farthest out along the direction in which honest updates differ most, which is found by a
power iteration over the first rounds (Oja's rule); after these it stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Crafted, View, registry
from fedcap.attacks.scene import noise, unit, victims
from fedcap.state import names_to_tensor, tensor_to_names


@registry.register("mimic")
@dataclass(frozen=True)
class Mimic(Attack):
    """Copy the honest client that is farthest out where honest updates differ most."""

    warm_up: Annotated[int, Field(ge=1)] = 5
    """Rounds after which the victim stays the same."""

    def craft(self, view: View) -> Crafted:
        """Return the victim's update for all attackers."""
        aimed = victims(view)
        centred = view.updates[aimed] - view.updates[aimed].mean(dim=0)
        way = view.memory["way"].to(centred) if "way" in view.memory else noise(view, 1)[0]
        if view.round <= self.warm_up or "victim" not in view.memory:
            step = (centred @ way) @ centred
            way = unit(step) if bool(step.any()) else way
        chosen = self._chosen(view, aimed, (centred @ way).abs())
        named = [view.clients[chosen]] if view.clients else []
        return Crafted(view.updates[chosen], {"way": way, "victim": names_to_tensor(named)})

    def _chosen(self, view: View, aimed: Tensor, far: Tensor) -> int:
        """Return the victim's row: last round's after the warm-up, if it is there, else the farthest out."""
        known = tensor_to_names(view.memory["victim"]) if "victim" in view.memory else []
        if view.round > self.warm_up and known and known[0] in view.clients:
            return view.clients.index(known[0])
        return int(aimed[torch.argmax(far)])
