"""Who has which samples: each partition is a function of (labels, clients, samples, generator).

It returns one tensor of sample indices per client. No sample is given twice; what cannot be met is an
error that says how much is missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.registry import InputError, Registry


@dataclass(frozen=True)
class Partition(ABC):
    """A way of dealing samples out to clients."""

    @abstractmethod
    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Return each client's sample indices; `samples` per client, or as many as there are."""


registry: Registry[Partition] = Registry("partition", Partition)
names = registry.names
make = registry.make


class Piles:
    """The samples of each class in random order, dealt from the top."""

    def __init__(self, labels: Tensor, generator: torch.Generator) -> None:
        self._piles = [
            _shuffled((labels == label).nonzero().flatten(), generator)
            for label in range(int(labels.max()) + 1)
        ]

    def __len__(self) -> int:
        return len(self._piles)

    def left(self, label: int) -> int:
        """How many samples of a class are left."""
        return len(self._piles[label])

    def deal(self, label: int, count: int) -> Tensor:
        """Take samples of a class; having too few is an error that says how many are missing."""
        pile = self._piles[label]
        if count > len(pile):
            raise InputError(
                f"class {label} has {count - len(pile)} samples too few for this partition:"
                " use fewer clients or fewer samples per client"
            )
        self._piles[label] = pile[count:]
        return pile[:count]


def _shuffled(indices: Tensor, generator: torch.Generator) -> Tensor:
    return indices[torch.randperm(len(indices), generator=generator)]


def _spread(total: int, labels: Sequence[int], generator: torch.Generator) -> dict[int, int]:
    """Spread a total as evenly as it goes over classes; chance decides who gets the rest."""
    order = torch.randperm(len(labels), generator=generator).tolist()
    each, rest = divmod(total, len(labels))
    return {labels[at]: each + (place < rest) for place, at in enumerate(order)}


def _per_client(labels: Tensor, clients: int, samples: int | None) -> int:
    per_client = len(labels) // clients if samples is None else samples
    if per_client * clients > len(labels) or per_client == 0:
        raise InputError(
            f"{clients} clients with {max(1, per_client)} samples each need"
            f" {max(1, per_client) * clients}, there are {len(labels)}"
        )
    return per_client


@registry.register("iid")
@dataclass(frozen=True)
class IID(Partition):
    """Every client draws from all samples alike."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal shuffled samples out evenly."""
        per_client = _per_client(labels, clients, samples)
        order = torch.randperm(len(labels), generator=generator)
        return list(torch.split(order[: clients * per_client], per_client))


@registry.register("pathological")
@dataclass(frozen=True)
class Pathological(Partition):
    """Every client has samples of a few classes only, evenly many of each (two by default)."""

    classes_per_client: Annotated[int, Field(ge=1)] = 2

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Give each client its classes, every class to as many clients as any other, give or take one."""
        piles = Piles(labels, generator)
        held = self._assign(len(piles), clients, generator)
        if samples is None:
            holders = [sum(label in own for own in held) for label in range(len(piles))]
            samples = self.classes_per_client * max(
                1, min(piles.left(label) // count for label, count in enumerate(holders) if count)
            )
        if samples < self.classes_per_client:
            raise InputError(
                f"{samples} samples per client cannot be of {self.classes_per_client} classes:"
                f" {self.classes_per_client - samples} too few"
            )
        return [
            torch.cat([piles.deal(label, count) for label, count in _spread(samples, own, generator).items()])
            for own in held
        ]

    def _assign(self, classes: int, clients: int, generator: torch.Generator) -> list[list[int]]:
        """Choose each client's classes among those least often given so far, by chance."""
        if self.classes_per_client > classes:
            raise InputError(f"{self.classes_per_client} classes per client, but there are only {classes}")
        given = torch.zeros(classes)
        held = []
        for _ in range(clients):
            chance = torch.rand(classes, generator=generator)
            own = torch.argsort(given + chance)[: self.classes_per_client]
            given[own] += 1
            held.append(sorted(own.tolist()))
        return held


@registry.register("groups")
@dataclass(frozen=True)
class Groups(Partition):
    """Groups of clients, each with most of its samples from the group's own classes."""

    groups: tuple[tuple[int, ...], ...] = ()
    """The dominant classes of each group; groups may overlap."""
    dominant: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of a client's samples from its group's classes; the rest is from all classes alike."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Give client k to group k mod G and deal from the group's classes and from all."""
        piles = Piles(labels, generator)
        if not self.groups:
            raise InputError("partition 'groups' needs its groups of classes, e.g. [[0, 1], [2, 3]]")
        for group in self.groups:
            if not group or len(set(group)) < len(group):
                raise InputError(f"group {list(group)} should name one or more classes, each once")
            if not set(group) <= set(range(len(piles))):
                raise InputError(f"group {list(group)} names classes that are not there: {len(piles)} are")
        per_client = self._most(piles, clients) if samples is None else samples
        _per_client(labels, clients, per_client)
        own = round(self.dominant * per_client)
        everything = list(range(len(piles)))
        wanted: list[dict[int, int]] = []
        for client in range(clients):
            wants = _spread(own, self.groups[client % len(self.groups)], generator)
            for label, count in _spread(per_client - own, everything, generator).items():
                wants[label] = wants.get(label, 0) + count
            wanted.append(wants)
        return [torch.cat([piles.deal(label, count) for label, count in wants.items()]) for wants in wanted]

    def _most(self, piles: Piles, clients: int) -> int:
        """Return how many samples every client can have, whichever way the odd ones fall."""

        def fits(per_client: int) -> bool:
            own = round(self.dominant * per_client)
            needed = [clients * -(-(per_client - own) // len(piles))] * len(piles)
            for client in range(clients):
                group = self.groups[client % len(self.groups)]
                for label in group:
                    needed[label] += -(-own // len(group))
            return all(count <= piles.left(label) for label, count in enumerate(needed))

        total = sum(piles.left(label) for label in range(len(piles)))
        return next((count for count in range(total // clients, 0, -1) if fits(count)), 1)


@registry.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partition):
    """Every class is spread over the clients by shares drawn from Dirichlet(beta)."""

    beta: Annotated[float, Field(gt=0)] = 0.5
    """The smaller, the more the clients differ."""
    smallest: Annotated[int, Field(ge=1)] = 8
    """Draw again until the smallest client has this many samples."""
    tries: Annotated[int, Field(ge=1)] = 1000

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal each class out by its own draw; `samples` caps what a client keeps."""
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        piles = Piles(labels, generator)
        total = torch.tensor([piles.left(label) for label in range(len(piles))]).numpy()
        for _ in range(self.tries):
            shares = draw.dirichlet([self.beta] * clients, size=len(piles))
            ends = (shares.cumsum(axis=1) * total[:, None]).round().astype(int)
            counts = np.diff(ends, axis=1, prepend=0)
            if counts.sum(axis=0).min() >= self.smallest:
                break
        else:
            raise InputError(
                f"no Dirichlet({self.beta:g}) split of {len(labels)} samples gave each of {clients}"
                f" clients {self.smallest}: use a larger beta, or a smaller smallest"
            )
        dealt = [
            torch.cat([piles.deal(label, int(counts[label, k])) for label in range(len(piles))])
            for k in range(clients)
        ]
        if samples is None:
            return dealt
        return [_shuffled(share, generator)[:samples] for share in dealt]
