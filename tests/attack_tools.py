"""Attacks that tests name as `attack_tools:Class`: one that counts, one that records views, one on inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.attacks import Attack, View
from fedcap.server.server import Server
from fedcap.state import Samples

SEEN: list[View] = []
SERVERS: list[Server] = []
"""The server that `Previewing` compares before and after its previews."""


@dataclass(frozen=True)
class Counting(Attack):
    """Scales the honest update by the number of rounds so far, which it remembers."""

    def craft(self, view: View) -> Tensor:
        times = view.memory.get("times", torch.zeros(())) + 1
        view.memory["times"] = times
        return times * view.updates[view.malicious]


@dataclass(frozen=True)
class Recording(Attack):
    """Appends every view to `SEEN`, with the server's side read, and changes no row."""

    def craft(self, view: View) -> Tensor:
        _ = view.server
        SEEN.append(view)
        return view.updates[view.malicious]


@dataclass(frozen=True)
class Inputs(Attack):
    """Replaces inputs by noise, and keeps the labels."""

    uses_honest_updates: ClassVar[bool] = True

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        return Samples(torch.randn(samples.x.shape, generator=generator), samples.y)

    def craft(self, view: View) -> Tensor:
        return view.updates[view.malicious]


@dataclass(frozen=True)
class Writing(Attack):
    """Overwrites all that it is shown, apart from the updates."""

    def craft(self, view: View) -> Tensor:
        rows = view.updates[view.malicious]
        for participant in range(len(view.clients)):
            view.received(participant).fill_(9)
        view.server.reference.fill_(9)
        if view.server.models is not None:
            view.server.models.fill_(9)
        return rows


@dataclass(frozen=True)
class Previewing(Attack):
    """Sends its honest rows, after previews of others that have to change nothing."""

    previews: int = 3
    short: bool = False
    """Whether it transmits rows that are too short, which are rejected."""

    def craft(self, view: View) -> Tensor:
        rows = view.updates[view.malicious]
        for scale in [1.0, 1e4, torch.nan][: 0 if view.request else self.previews]:
            before = view.updates.clone(), _held(SERVERS[0])
            view.preview(scale * rows)
            assert torch.equal(view.updates, before[0])
            for one, other in zip(_held(SERVERS[0]), before[1], strict=True):
                assert torch.equal(one, other)
        return rows

    def wire(self, row: Tensor) -> object:
        return row[:-1] if self.short else row


def _held(server: Server) -> list[Tensor]:
    """Return copies of what the server holds, and of the models that it sent in this round."""
    assert server._sent is not None
    return [tensor.clone() for tensor in (*server.state_dict().values(), server._sent.models)]
