"""The round as a server that knows all models sees it, for attackers who aim at what it compares.

A client's row, seen from the server's global model w, is what it received, plus the update it sent, minus w:
FedCAP's calibrated update. An attacker who knows what everybody received can choose its row there. A server
without a global model compares updates as they were sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.attacks.base import Foresight, View

RowsAt = Callable[[float], Tensor]
"""From a size to the rows that malicious clients send, M×D."""


@dataclass(frozen=True)
class Scene:
    """What everybody received and the point it is seen from; zeros where updates are compared as sent."""

    view: View
    received: Tensor
    """N×D, or zeros: the model each received, the mean if it received several."""
    reference: Tensor
    """D: the server's global model; for the blind, the mean of what malicious clients received."""

    @classmethod
    def of(cls, view: View, blind: bool = False) -> Scene:
        """Look at a round; the blind see what malicious clients receive, and nothing of the server."""
        server = None if blind else view.server.reference
        if view.look_at_received is None or (server is None and not blind):
            return cls(view, torch.zeros_like(view.updates), torch.zeros_like(view.updates[0]))
        received = torch.stack([_one(view.received(row)) for row in range(len(view.updates))]).to(
            view.updates
        )
        reference = received[view.malicious].mean(dim=0) if server is None else server.to(received)
        return cls(view, received, reference)

    @property
    def rows(self) -> Tensor:
        """The honest rows, N×D, as the server would see them."""
        return self.received + self.view.updates - self.reference

    def updates(self, rows: Tensor) -> Tensor:
        """Return what malicious clients must send, M×D, so that the server sees these rows."""
        return rows + self.reference - self.received[self.view.malicious]


def unit(rows: Tensor) -> Tensor:
    """Return the rows, or one vector, at length 1; a row of zeros stays as it is."""
    return torch.nn.functional.normalize(rows, dim=-1)


def victims(view: View) -> Tensor:
    """Return the rows at which the attack aims: the benign clients', or all if nobody is benign."""
    return (~view.malicious if bool((~view.malicious).any()) else view.malicious).nonzero().flatten()


def aim(view: View) -> Tensor:
    """Return the mean update of the victims, D: where they want to go."""
    return view.updates[victims(view)].mean(dim=0)


def noise(view: View, rows: int) -> Tensor:
    """Return independent random directions of length 1, one per row; without a generator, always the same."""
    generator = view.generator or torch.Generator().manual_seed(0)
    drawn = torch.randn(rows, view.updates.shape[1], generator=generator)
    return unit(drawn).to(view.updates)


def harm(view: View, before: Foresight, after: Foresight) -> float:
    """Return how far the victims' next models are thrown back, on average, along the way they want to go.

    `before` is what comes of the round if nobody lies.
    """
    aimed = victims(view)
    aimed = aimed[(before.served & after.served).to(aimed.device)[aimed]]
    if not len(aimed):
        return 0.0
    back = (before.models[aimed] - after.models[aimed]) * unit(view.updates[aimed])
    return float(back.sum(dim=1).mean())


def longest(view: View, rows_at: RowsAt, start: float, most: float = 64.0, steps: int = 6) -> float:
    """Return the largest size, in multiples of `start`, at which the server accuses no malicious client.

    Sizes are doubled while they pass, up to `most`; then the interval is halved, `steps` times. It is 0 if
    not even a small fraction of `start` passes.
    """
    bad = view.malicious.cpu()

    def passes(size: float) -> bool:
        return not bool(view.foresee(view.with_malicious(rows_at(size * start))).accused[bad].any())

    low, high = 0.0, 1.0
    while high <= most and passes(high):
        low, high = high, 2 * high
    if low >= most:
        return low * start
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low * start


def _one(models: Tensor) -> Tensor:
    return models[0] if len(models) == 1 else models.mean(dim=0)
