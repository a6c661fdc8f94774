"""Who has which samples: each partition is a function of (labels, clients, samples, generator).

It returns one tensor of sample indices per client. No sample is given twice; what cannot be met is an
error that says how much is missing. A partition that goes by whose the samples are is bound to that first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

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

    def bind(self, owners: Tensor | None) -> Partition:
        """Return the partition for samples whose owners are known, or not; most do not care."""
        return self


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
        """Take samples of a class."""
        pile = self._piles[label]
        self._piles[label] = pile[count:]
        return pile[:count]

    def deal_out(self, wanted: Sequence[Mapping[int, int]]) -> list[Tensor]:
        """Give each client what it wants of each class, or say how many samples are missing."""
        total: Counter[int] = Counter()
        for wants in wanted:
            total.update(wants)
        missing = {label: count - self.left(label) for label, count in total.items()}
        worst = max(missing, key=missing.__getitem__)
        if missing[worst] > 0:
            short = [count for count in missing.values() if count > 0]
            others = f" ({sum(short)} are missing over {len(short)} classes)" if len(short) > 1 else ""
            raise InputError(
                f"class {worst} has {missing[worst]} samples too few for this partition{others}:"
                " use fewer clients or fewer samples per client"
            )
        return [torch.cat([self.deal(label, count) for label, count in wants.items()]) for wants in wanted]


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
            samples = self.classes_per_client * min(
                piles.left(label) // count for label, count in enumerate(holders) if count
            )
        if samples < self.classes_per_client:
            raise InputError(
                f"{clients} clients with {self.classes_per_client} classes each get {samples} samples each:"
                f" {self.classes_per_client - samples} too few for one of each class"
            )
        return piles.deal_out([_spread(samples, own, generator) for own in held])

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
        groups = self._checked(len(piles))
        if samples is None:
            return self._everything(piles, groups, clients, generator)
        own = round(self.dominant * _per_client(labels, clients, samples))
        everything = list(range(len(piles)))
        wanted: list[dict[int, int]] = []
        for client in range(clients):
            wants = _spread(own, groups[client % len(groups)], generator)
            for label, count in _spread(samples - own, everything, generator).items():
                wants[label] = wants.get(label, 0) + count
            wanted.append(wants)
        return piles.deal_out(wanted)

    def _checked(self, classes: int) -> list[list[int]]:
        """Return the groups, each class once in each."""
        if not self.groups or not all(self.groups):
            raise InputError("partition 'groups' needs its groups of classes, e.g. [[0, 1], [2, 3]]")
        for label in {label for group in self.groups for label in group}:
            if not 0 <= label < classes:
                raise InputError(f"partition 'groups' names class {label}; there are {classes}")
        return [list(dict.fromkeys(group)) for group in self.groups]

    def _everything(
        self, piles: Piles, groups: Sequence[Sequence[int]], clients: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal out all there is: a group whose classes have fewer samples has smaller clients.

        The dominant share of each class goes to the groups that hold it, in equal parts, and there to
        their clients; what remains of all classes goes to everybody in proportion to that.
        """
        pools: list[list[Tensor]] = [[] for _ in groups]
        common: list[Tensor] = []
        for label in range(len(piles)):
            holders = [pool for pool, group in zip(pools, groups, strict=True) if label in group]
            dominant = round(self.dominant * piles.left(label))
            common.append(piles.deal(label, piles.left(label) - dominant))
            for place, pool in enumerate(holders):
                pool.append(piles.deal(label, (dominant + place) // len(holders)))
        rest = _shuffled(torch.cat(common), generator)
        shares: list[Tensor] = [rest[:0]] * clients
        for place, pool in enumerate(pools):
            members = range(place, clients, len(groups))
            if members:
                parts = torch.tensor_split(_shuffled(torch.cat(pool), generator), len(members))
                shares[place :: len(groups)] = parts
        more = [
            len(share) * (1 - self.dominant) / self.dominant if self.dominant else len(rest) / clients
            for share in shares
        ]
        ends = np.cumsum(more)
        starts = [0, *ends[:-1].round().astype(int).tolist()]
        shares = [
            torch.cat([share, rest[start : round(end)]])
            for share, start, end in zip(shares, starts, ends, strict=True)
        ]
        if not all(len(share) for share in shares):
            raise InputError(f"{clients} clients in {len(groups)} groups: some would have no sample at all")
        return shares


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


@registry.register("natural")
@dataclass(frozen=True)
class Natural(Partition):
    """Every client has its own samples, as the data says: one per user, site or device."""

    owners: Any = None
    """Whose each sample is, n; the data set's own."""

    def bind(self, owners: Tensor | None) -> Natural:
        """Return the partition for these owners."""
        if owners is None:
            raise InputError(
                "partition 'natural' needs data that says whose each sample is; this one does not:"
                " give another, such as iid or dirichlet"
            )
        return replace(self, owners=owners)

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Give each owner its samples; `samples` caps them, fewer `clients` are drawn among the owners."""
        there, sizes = self.owners.unique(return_counts=True)
        if clients > len(there):
            raise InputError(
                f"{clients} clients, but the data has {len(there)} owners: {clients - len(there)} are missing"
            )
        chosen = there
        if clients < len(there):
            chosen = there[torch.randperm(len(there), generator=generator)[:clients].sort().values]
        by_owner = dict(
            zip(there.tolist(), torch.split(self.owners.argsort(stable=True), sizes.tolist()), strict=True)
        )
        shares = [by_owner[owner] for owner in chosen.tolist()]
        if samples is None:
            return shares
        return [_shuffled(share, generator)[:samples] for share in shares]
