"""Attacks that tests name as `attack_tools:Class`: one that counts, one that looks, one on inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.attacks import Attack, View
from fedcap.state import Samples

SEEN: list[View] = []


@dataclass(frozen=True)
class Counting(Attack):
    """Scales the honest update by how often it has struck: its memory."""

    def craft(self, view: View) -> Tensor:
        times = view.memory.get("times", torch.zeros(())) + 1
        view.memory["times"] = times
        return times * view.updates[view.malicious]


@dataclass(frozen=True)
class Looking(Attack):
    """Keeps every view it is given, with the server's side looked at, and does nothing."""

    def craft(self, view: View) -> Tensor:
        _ = view.server
        SEEN.append(view)
        return view.updates[view.malicious]


@dataclass(frozen=True)
class Inputs(Attack):
    """Replaces inputs by noise, and leaves labels alone."""

    uses_honest_updates: ClassVar[bool] = True

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        return Samples(torch.randn(samples.x.shape, generator=generator), samples.y)

    def craft(self, view: View) -> Tensor:
        return view.updates[view.malicious]


@dataclass(frozen=True)
class Writing(Attack):
    """Writes over everything it is shown but its own rows."""

    def craft(self, view: View) -> Tensor:
        rows = view.updates[view.malicious]
        for participant in range(len(view.clients)):
            view.received(participant).fill_(9)
        view.server.reference.fill_(9)
        if view.server.models is not None:
            view.server.models.fill_(9)
        return rows
