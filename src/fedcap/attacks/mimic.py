"""Mimic: all attackers copy one honest client, so that its data count M + 1 times.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
2022, section 3. No row is unusual; the damage is to clients whose data are then too few to count. The victim
is the client furthest out along the direction in which honest updates differ most. Each of the first rounds
takes one step of the power iteration towards that direction (the authors average the steps, by Oja's rule);
then direction and victim stay. While the victim is absent, the client furthest out replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, noise, registry, unit, victims
from fedcap.state import names_to_tensor, tensor_to_names


@registry.register("mimic")
@dataclass(frozen=True)
class Mimic(Attack):
    """Copy the honest client that is furthest out where honest updates differ most."""

    warm_up: Annotated[int, Field(ge=1)] = 5
    """Rounds after which the victim stays the same."""

    def craft(self, view: View) -> Tensor:
        """Return the victim's update for all attackers; requests change nothing in the memory."""
        known = tensor_to_names(view.memory["victim"]) if "victim" in view.memory else []
        learns = not view.request and (view.round <= self.warm_up or not known)
        if not learns and known and known[0] in view.clients:
            return view.updates[view.clients.index(known[0])]
        targets = victims(view)
        centred = view.updates[targets] - view.updates[targets].mean(dim=0)
        way = view.memory["way"].to(centred) if "way" in view.memory else noise(view, 1)[0]
        step = (centred @ way) @ centred
        if learns and bool(step.any()):
            way = unit(step)
        chosen = int(targets[(centred @ way).abs().argmax()])
        named = [view.clients[chosen]] if view.clients else []
        if learns:
            view.memory.update(way=way, victim=names_to_tensor(named))
        return view.updates[chosen]
