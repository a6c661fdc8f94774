"""Standardising: what is taken off each feature of an input, and what it is divided by.

It is learnt from a client's training part alone and applied to its training and its test part, after pixels
were scaled to [−1, 1]. Inputs that are vectors are standardised by feature, larger ones by channel, which is
their first axis (C×H×W, C×T).

What a data set is, where it comes from, and how it is dealt out unless the user says otherwise.

A `Source` (digits, cifar10, the user's own file, …) loads a `Dataset`: n samples and their labels. A
partition says which samples each client has, and `federate` makes the clients' `FederatedData` of both.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.files import content_hash, missing
from fedcap.errors import InputError, plural
from fedcap.registry import Registry
from fedcap.state import Samples


@dataclass(frozen=True)
class Scaling:
    """The mean and the deviation of each feature or channel, in a shape that broadcasts over one input."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Scaling:
        """Learn it from inputs, n×…; what does not vary has its own value as mean, and deviation 1."""
        axes = (0, *range(2, x.ndim))
        deviation, mean = torch.std_mean(x, dim=axes, keepdim=True, correction=0)
        low, high = x.amin(dim=axes, keepdim=True), x.amax(dim=axes, keepdim=True)
        varies = (high > low) & (deviation > 0)
        return cls(torch.where(varies, mean, low)[0], torch.where(varies, deviation, 1.0)[0])

    def apply(self, x: Tensor) -> Tensor:
        """Return inputs, one or n of them, standardised."""
        return (x - self.mean) / self.deviation


Count = Annotated[int, Field(ge=2)] | None
Amount = Annotated[int, Field(ge=2)] | Literal["all"]
Share = Annotated[float, Field(gt=0, lt=1)]
Progress = Callable[[str, int, int], None]
"""Told what is being fetched, how many bytes are here, and how many there are (0 if unknown)."""


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set, before they are dealt out; inputs are floats, or pixels as bytes."""

    samples: Samples
    class_names: tuple[str, ...]
    owners: Tensor | None = None
    """The owner of each sample, n, as a place in `owner_names`; `None` if the data does not say."""
    owner_names: tuple[str, ...] = ()
    test: Tensor | None = None
    """Whether each sample is for testing only, n; `None` if the data does not come split."""
    notes: tuple[str, ...] = ()
    """What the user should know about how it was read, a line each."""
    hash: str = ""
    """The digest, if it is known already."""

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @property
    def pixels(self) -> bool:
        """Whether the inputs are pixels as bytes."""
        return self.samples.x.dtype == torch.uint8

    def take(self, indices: Tensor) -> Samples:
        """Return some of the samples as a network takes them: pixels are scaled to [−1, 1].

        This is done in NumPy: on many small parts, torch would spend most of the time on starting threads.
        """
        x = self.samples.x.numpy()[indices.numpy()]
        if x.dtype == np.uint8:
            x = x.astype(np.float32) / np.float32(127.5) - np.float32(1)
        return Samples(torch.from_numpy(x), self.samples.y[indices])

    def digest(self) -> str:
        """Return a hash of all samples, labels, owners and test flags."""
        parts = (self.samples.x, self.samples.y, self.owners, self.test)
        return self.hash or digest(*(part for part in parts if part is not None))


@dataclass(frozen=True)
class FederatedData:
    """The clients' data: client k is called `names[k]`, trains on `train[k]` and is tested on `test[k]`."""

    names: tuple[str, ...]
    train: Sequence[Samples]
    test: Sequence[Samples]
    classes: int
    data_hash: str
    partition_hash: str
    class_names: tuple[str, ...] = ()
    root: Samples | None = None
    """Clean samples that the server holds and no client has, if the method asks for any."""
    pixels: bool = False
    """Whether the data set had pixels as bytes, which are scaled to [−1, 1] here."""
    scaling: Mapping[str, Scaling] = field(default_factory=dict)
    """How each client's inputs were standardised, by its name; empty if they were not."""

    def __len__(self) -> int:
        return len(self.train)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].x.shape[1:])

    def holding_out(self, share: float) -> FederatedData:
        """Return the data with a share of each client's training samples in the place of its test samples.

        It is at least one sample. The test samples are gone.
        """
        counts = [max(1, round(share * len(part))) for part in self.train]
        for name, part, count in zip(self.names, self.train, counts, strict=True):
            if count >= len(part):
                raise InputError(
                    f"client {name!r} has {plural(len(part), 'training sample')}: too few to hold out"
                    f" {share:g} of them; give it more samples, or set holdout to less",
                    code="too-few-samples",
                    field=name,
                )
        parts = [
            (Samples(part.x[:-count], part.y[:-count]), Samples(part.x[-count:], part.y[-count:]))
            for part, count in zip(self.train, counts, strict=True)
        ]
        return replace(self, train=[train for train, _ in parts], test=[held for _, held in parts])

    def standardised(self) -> FederatedData:
        """Return the data with every client's inputs standardised by its own training part.

        The server knows nothing of the clients' inputs: its root set is standardised by itself.
        """
        own = [Scaling.of(part.x) for part in self.train]
        root = self.root
        return replace(
            self,
            train=[_scaled(part, by) for part, by in zip(self.train, own, strict=True)],
            test=[_scaled(part, by) for part, by in zip(self.test, own, strict=True)],
            root=None if root is None else _scaled(root, Scaling.of(root.x)),
            scaling=dict(zip(self.names, own, strict=True)),
        )


def _scaled(samples: Samples, by: Scaling) -> Samples:
    return Samples(by.apply(samples.x), samples.y)


@dataclass(frozen=True)
class Source(ABC):
    """A data set that can be loaded, and how it is dealt out unless the user says otherwise."""

    model: ClassVar[str]
    """The network that is used unless the user names another."""
    groups: ClassVar[Mapping[str, Any]] = {}
    """Options of the partition `groups` on this data: at least the classes of each group."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of an experiment on this data, such as `rounds`, unless the user gives others."""

    partition: str | dict[str, Any] = "iid"
    """How samples are dealt out to clients: a partition's name, or a table of its name and options."""
    clients: Count = 20
    """How many clients there are; if not given, as many as the data names, or 20."""
    samples: Amount = "all"
    """Samples per client, training and test together, or all there are."""
    train_share: Share = 0.75
    """Share of a client's samples that it trains on."""

    @abstractmethod
    def load(self) -> Dataset:
        """Return all samples."""

    def prepare(self, federated: FederatedData) -> FederatedData:
        """Return the clients' data as they train on it."""
        return federated

    @classmethod
    def suggest(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of an experiment on this data, given the data set's options."""
        return dict(cls.defaults)

    @classmethod
    def usual_partition(cls) -> str | dict[str, Any] | None:
        """Return how it is dealt out unless the user says otherwise; none if that depends on the data."""
        partition: Any = cls.__dataclass_fields__["partition"]
        return partition.default if partition.default_factory is MISSING else partition.default_factory()  # type: ignore[no-any-return]

    def settings(self) -> dict[str, Any]:
        """Return its options as plain values, from which it can be made again."""
        return asdict(self)

    @property
    def heading(self) -> str | None:
        """What to call it in a heading, if not by its registered name."""
        return None

    def files(self) -> list[Path] | None:
        """Return the files it would read, in order: empty if they are missing, `None` if it needs none."""
        return None

    def absent(self) -> InputError:
        """Return the error for missing files: what was looked for, where, and what to do."""
        return missing(type(self).__name__.lower(), "its files", fetch=False)

    def present(self) -> list[Path]:
        """Return the files it would read; raise an error if they are missing."""
        files = self.files()
        if not files:
            raise self.absent()
        return files

    def fingerprint(self) -> str:
        """Return a hash of the files it would read, in order, without decoding them.

        It depends on what is in the files, not on where they are or what they are called.
        """
        if self.files() is None:
            return "embedded"
        return text_digest(content_hash(path) for path in self.present())

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch its files from their official source into a folder."""
        raise InputError(
            "there is nothing to download: the data set comes with fedcap", code="nothing-to-fetch"
        )


registry: Registry[Source] = Registry("data set", Source, "fedcap.data")


def digest(*tensors: Tensor) -> str:
    """Return a hash of the tensors' shapes and contents."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        sha.update(tensor.contiguous().numpy().reshape(-1).view("uint8").data)
    return sha.hexdigest()


def text_digest(lines: Iterable[str]) -> str:
    """Return a hash of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
