"""Colluders who train against the defence, with their own samples: fedcap compare own_attack.toml, here.

They know what the attacks of `fedcap list` know, and use the network too. All of them crowd into one group of
honest clients who are alike: seen from the server's global model each sends

    ℓ · ( c · u + √(1 − c²) · h ),    u the direction of the group's mean, ℓ its mean length,

and h is across u. It is what does the most lasting harm (ten steps uphill on the loss that is left, on the
attackers' own samples, after three steps of the training by which an honest client would mend it), a little
noise, shaped like the group's mean since rows that are plain noise apart share one vote, and where the group
wants to go, so that going along with the attackers pays at first. Updates that would be too long are cut.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from fedcap import models
from fedcap.attacks.base import Attack, Crafted, Scene, noise, unit, victims
from fedcap.errors import InputError
from fedcap.training import Layout


@dataclass(frozen=True)
class Crowd(Attack):
    """Crowd into a group of clients who are alike, along the harm that training undoes least."""

    cosine: float = 0.9
    """c: how near they lie to the group's mean."""
    alike: float = 0.6
    """The least cosine at which two clients are of one group."""
    most: float = 1.6
    """The longest update, as a multiple of the victims' longest median so far."""
    model: str = "cnn-digits"
    """The network that the clients train."""

    def __post_init__(self):
        object.__setattr__(self, "own", [])  # the attackers' own samples: no option

    def poison(self, samples, classes, generator):
        """Keep a malicious client's samples; it trains on them as they are."""
        self.own.append((samples.x, samples.y, classes))
        return samples

    def craft(self, view):
        """Return each attacker's row; of those asked for a request, the honest one."""
        if view.request:
            return Crafted(view.updates[view.malicious], view.memory)
        scene, aimed = Scene.of(view), victims(view)
        rows = scene.rows[aimed]
        kin = unit(rows) @ unit(rows[0]) > self.alike
        centre, length = rows[kin].mean(dim=0), rows[kin].norm(dim=1).mean()
        near = unit(centre)

        def beside(ways):
            """Return rows at the cosine to the group's mean, their rest along the ways."""
            across = unit(ways - (ways @ near)[..., None] * near)
            return length * (self.cosine * near + math.sqrt(1 - self.cosine**2) * across)

        harm = self._harm(scene.reference, centre, beside, noise(view, 1)[0])
        wanted = unit(view.updates[aimed][kin].mean(dim=0))
        count = int(view.malicious.sum())
        shaped = unit(noise(view, count) * centre.abs())
        updates = scene.updates(beside(unit(harm + 0.1 * shaped) + 0.5 * wanted))
        usual = view.updates[aimed].norm(dim=1).median()
        longest = usual.maximum(view.memory.get("longest", usual))
        short = (self.most * longest / updates.norm(dim=1, keepdim=True)).clamp_max(1)
        return Crafted(updates * short, {"longest": longest})

    def _harm(self, reference, centre, beside, start):
        """Return the direction, D, in which half a group's model does the most lasting harm."""
        inputs, labels, (classes, *_) = zip(*self.own, strict=True)
        x, y = torch.cat(inputs).to(reference), torch.cat(labels).to(reference.device)
        module = models.registry.make(self.model).build(tuple(x.shape[1:]), classes).to(reference.device)
        layout = Layout.of(module)
        if layout.size != len(reference):
            raise InputError(f"the clients' network is not {self.model}: give its name, attack.model=…")

        def answers(weights, inputs):
            named = {slot.name: slot.of(weights) for slot in layout.slots}
            return torch.func.functional_call(module, named, (inputs,))

        with torch.no_grad():
            known = answers(reference + centre, x).softmax(dim=1).mean(dim=0) > 0.05
        if bool(known[y].any()):
            x, y = x[known[y]], y[known[y]]  # of the classes that the group knows

        def lasting(weights):
            for _ in range(3):
                loss = cross_entropy(answers(weights, x), y)
                (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
                weights = weights - 0.1 * gradient
            return cross_entropy(answers(weights, x), y)

        way = start
        for step in range(10):
            weights = (reference + (centre + beside(way)) / 2).requires_grad_()
            (uphill,) = torch.autograd.grad(lasting(weights), weights)
            way = unit(uphill) if step == 0 else unit(way + 0.5 * unit(uphill))
        return way
