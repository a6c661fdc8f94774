"""Colluders that train against the defence with their own samples: run fedcap compare own_attack.toml here.

They know what the attacks of `fedcap list` know, and also use the network. All of them imitate one group of
similar honest clients: measured from the server's global model, each sends

    ℓ · ( c · u + √(1 − c²) · h ),    u the direction of the group's mean, ℓ its mean norm,

where h is orthogonal to u. It combines three directions: the most lasting damage (ten steps uphill on the
loss that remains, on the attackers' own samples, after three steps of honest training), a little noise shaped
like the group's mean, because rows that differ only by even noise share one vote, and the direction in which
the group wants to go, so that following the attackers helps at first. Updates that would be too long are cut.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from fedcap import models
from fedcap.attacks.base import Attack, Geometry, noise, unit, victims
from fedcap.errors import InputError
from fedcap.training import Layout


@dataclass(frozen=True)
class Crowd(Attack):
    """Send rows similar to one group of clients, with the damage that training undoes least."""

    cosine: float = 0.9
    """c: the cosine of the rows to the group's mean."""
    alike: float = 0.6
    """The least cosine between two clients of one group."""
    most: float = 1.6
    """The longest update, as a multiple of the victims' longest median so far."""
    model: str = "cnn-digits"
    """The network that the clients train."""

    def __post_init__(self):
        object.__setattr__(self, "own", [])  # the attackers' own samples: no option

    def poison(self, samples, classes, generator):
        """Keep a malicious client's samples; it trains on them unchanged."""
        self.own.append((samples.x, samples.y, classes))
        return samples

    def craft(self, view):
        """Return each attacker's row; in a request, the honest one."""
        if view.request:
            return view.updates[view.malicious]
        geometry, aimed = Geometry.of(view), victims(view)
        rows = geometry.rows[aimed]
        kin = unit(rows) @ unit(rows[0]) > self.alike
        centre, length = rows[kin].mean(dim=0), rows[kin].norm(dim=1).mean()
        near = unit(centre)

        def similar(ways):
            """Return rows at cosine c to the group's mean; the rest of them points along the ways."""
            across = unit(ways - (ways @ near)[..., None] * near)
            return length * (self.cosine * near + math.sqrt(1 - self.cosine**2) * across)

        damage = self._damage(geometry.reference, centre, similar, noise(view, 1)[0])
        wanted = unit(view.updates[aimed][kin].mean(dim=0))
        count = int(view.malicious.sum())
        shaped = unit(noise(view, count) * centre.abs())
        updates = geometry.updates(similar(unit(damage + 0.1 * shaped) + 0.5 * wanted))
        usual = view.updates[aimed].norm(dim=1).median()
        longest = usual.maximum(view.memory.get("longest", usual))
        short = (self.most * longest / updates.norm(dim=1, keepdim=True)).clamp_max(1)
        view.memory["longest"] = longest
        return updates * short

    def _damage(self, reference, centre, similar, start):
        """Return the direction, D, in which half a group's model does the most lasting damage."""
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
            weights = (reference + (centre + similar(way)) / 2).requires_grad_()
            (uphill,) = torch.autograd.grad(lasting(weights), weights)
            way = unit(uphill) if step == 0 else unit(way + 0.5 * unit(uphill))
        return way
