"""Mimic: all attackers copy one honest client, so that its data count M + 1 times.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
2022, section 3. No row is out of the ordinary; the harm is to those whose data are then too few to count. The
victim is the one farthest out along the direction in which honest updates differ most. Each of the first
rounds takes a step of the power iteration towards that direction (the authors average the steps, by Oja's
rule); after these, direction and victim stay. While the victim is absent, the farthest out stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedcap.attacks.base import Attack, Crafted, View, noise, registry, unit, victims
from fedcap.state import names_to_tensor, tensor_to_names


@registry.register("mimic")
@dataclass(frozen=True)
class Mimic(Attack):
    """Copy the honest client that is farthest out where honest updates differ most."""

    warm_up: Annotated[int, Field(ge=1)] = 5
    """Rounds after which the victim stays the same."""

    def craft(self, view: View) -> Crafted:
        """Return the victim's update for all attackers; nothing is learnt from requests."""
        known = tensor_to_names(view.memory["victim"]) if "victim" in view.memory else []
        learns = not view.request and (view.round <= self.warm_up or not known)
        if not learns and known and known[0] in view.clients:
            return Crafted(view.updates[view.clients.index(known[0])], view.memory)
        aimed = victims(view)
        centred = view.updates[aimed] - view.updates[aimed].mean(dim=0)
        way = view.memory["way"].to(centred) if "way" in view.memory else noise(view, 1)[0]
        step = (centred @ way) @ centred
        if learns and bool(step.any()):
            way = unit(step)
        chosen = int(aimed[(centred @ way).abs().argmax()])
        named = [view.clients[chosen]] if view.clients else []
        kept = {"way": way, "victim": names_to_tensor(named)} if learns else view.memory
        return Crafted(view.updates[chosen], kept)
