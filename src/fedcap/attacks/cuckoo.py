"""The cuckoo: each attacker lays its row beside one victim's, near enough to be taken for the victim's kin.

Methods that mix a model for each client from those most like it give a lookalike the victim's ear. Seen from
the server's global model w, where FedCAP compares, the attacker sends

    d = ℓ · ( c · u + √(1 − c²) · h ),    u = d_victim / ‖d_victim‖,    h ⟂ u,

at cosine c to the victim's row; the rest of it points along h, against where the victims want to go. At the
victim's own length it passes every test of length, and at the longest that passes it makes the victim's
friends longer in turn, until it is they who are removed. The blind variant knows what its own clients receive
and would honestly send, and nothing else: it lies beside itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Scene, View, aim, longest, noise, registry, unit, victims
from fedcap.errors import InputError


@registry.register("cuckoo")
@dataclass(frozen=True)
class Cuckoo(Attack):
    """Lie close to one victim each, and pull the rest of the row against where the victims want to go."""

    length: Literal["victim", "longest"] = "victim"
    """How long the row is: as the victim's, or the longest at which no attacker is accused."""
    cosine: Annotated[float, Field(ge=0, le=1)] = 0.8
    """c: the cosine between the row and the victim's."""
    against: Literal["mean", "victim"] = "mean"
    """What the harmful part opposes: the victims' mean update, or the victim's own."""
    noise: Annotated[float, Field(ge=0)] = 0.3
    """The share of independent noise in the harmful part."""
    blind: bool = False
    """Whether attackers know only what their own clients see."""
    gang: bool = False
    """Whether all of them lie beside the same victim, the first that takes part."""

    def __post_init__(self) -> None:
        if self.blind and self.length == "longest":
            raise InputError("a blind cuckoo cannot try lengths on the server: leave length or blind out")

    def craft(self, view: View) -> Tensor:
        """Return each attacker's row; of those asked for a request, the honest one."""
        if view.request:
            return view.updates[view.malicious]
        scene = Scene.of(view, self.blind)
        bad = view.malicious.nonzero().flatten()
        aimed = bad if self.blind else victims(view)
        aimed = aimed[:1] if self.gang else aimed
        chosen = aimed[torch.arange(len(bad), device=aimed.device) % len(aimed)]
        beside = scene.rows[chosen]
        near = unit(beside)
        goal = view.updates[bad].mean(dim=0) if self.blind else aim(view)
        goal = view.updates[chosen] if self.against == "victim" else goal.expand_as(near)
        harmful = self.noise * noise(view, len(bad)) - unit(goal)
        harmful = unit(harmful - (harmful * near).sum(dim=1, keepdim=True) * near)
        shape = self.cosine * near + math.sqrt(1 - self.cosine**2) * harmful
        rows = beside.norm(dim=1, keepdim=True) * shape
        if self.length == "longest":
            rows = rows * longest(view, lambda size: scene.updates(size * rows), 1.0)
        return scene.updates(rows)
