"""The base classes of data: `Source`, the `Dataset` that it loads, and the `FederatedData` of the clients.

A `Source` (digits, cifar10, the user's file, …) loads a `Dataset`, n samples with labels, and states the
default settings of an experiment on it. A partition divides the samples among clients, which gives
`FederatedData`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.files import content_hash, missing_error
from fedcap.errors import InputError
from fedcap.registry import Registry
from fedcap.state import Samples

Count = Annotated[int, Field(ge=2)] | None
Amount = Annotated[int, Field(ge=2)] | Literal["all"]
Share = Annotated[float, Field(gt=0, lt=1)]
Progress = Callable[[str, int, int], None]
"""A callback with the name of a download, the bytes received, and the total (0 if unknown)."""


_EMPTY = torch.empty(0, dtype=torch.long)


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set, before partitioning. Inputs are floats, integers, or pixels as bytes."""

    samples: Samples
    class_names: tuple[str, ...]
    owners: Tensor | None = None
    """The owner of each sample, n, as an index into `owner_names`; `None` if the data has no owners."""
    owner_names: tuple[str, ...] = ()
    test: Tensor | None = None
    """Whether each sample is for testing only, n; `None` if the data has no split of its own."""
    notes: tuple[str, ...] = ()
    """Notes for the user about how the data was read, one line each."""
    hash: str = ""
    """The digest, if it is already known."""
    features: tuple[str, ...] = ()
    """The names of the features of a table, in order; empty if they have no names."""
    levels: tuple[tuple[str, ...], ...] = ()
    """The categories of each column of a table that is to be encoded, empty for numbers; else empty."""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def pixels(self) -> bool:
        """Whether the inputs are pixels as bytes."""
        return self.samples.x.dtype == torch.uint8

    @property
    def integers(self) -> bool:
        """Whether the inputs are integers."""
        return self.samples.x.dtype == torch.int64

    def take(self, indices: Tensor) -> Samples:
        """Return samples in the form of a network's input: pixels are scaled to [−1, 1].

        NumPy does this: on many small parts, torch would spend most of the time on starting threads.
        """
        x = self.samples.x.numpy()[indices.numpy()]
        if x.dtype == np.uint8:
            x = x.astype(np.float32) / np.float32(127.5) - np.float32(1)
        return Samples(torch.from_numpy(x), self.samples.y[indices])

    def digest(self) -> str:
        """Return a hash of all samples, labels, owners and test flags, and of the categories of a table."""
        if self.hash:
            return self.hash
        parts = (self.samples.x, self.samples.y, self.owners, self.test)
        found = tensors_digest(*(part for part in parts if part is not None))
        return text_digest([found, repr(self.levels)]) if self.levels else found


@dataclass(frozen=True)
class Scaling:
    """The standardisation of a client's inputs: the mean and the deviation of each feature or channel.

    It is computed from the client's training samples and applied to its training and test samples, after
    pixels were scaled to [−1, 1]. Inputs that are vectors are standardised per feature, others per channel,
    their first axis (C×H×W, C×T). Both tensors have a shape that broadcasts over one input.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Scaling:
        """Compute it from inputs, n×…; a constant feature has its value as mean, and deviation 1."""
        axes = (0, *range(2, x.ndim))
        deviation, mean = torch.std_mean(x, dim=axes, keepdim=True, correction=0)
        low, high = x.amin(dim=axes, keepdim=True), x.amax(dim=axes, keepdim=True)
        varies = (high > low) & (deviation > 0)
        return cls(torch.where(varies, mean, low)[0], torch.where(varies, deviation, 1.0)[0])

    def apply(self, x: Tensor) -> Tensor:
        """Return standardised inputs, one or n of them."""
        return (x - self.mean) / self.deviation


ClientSamples = tuple[Samples, Samples]
"""A client's training samples and test samples."""


@dataclass(frozen=True)
class FederatedData:
    """The data of all clients: client `names[k]` trains on `train[k]` and is tested on `test[k]`."""

    names: Sequence[str]
    clients: Sequence[ClientSamples]
    """The samples of each client; a partition of a data set makes them when they are read."""
    classes: int
    data_hash: str
    partition_hash: str
    class_names: tuple[str, ...] = ()
    root: Samples | None = None
    """Clean samples of the server that no client has, if the method needs them."""
    pixels: bool = False
    """Whether the inputs were pixels as bytes, which are scaled to [−1, 1] here."""
    scaling: Mapping[str, Scaling] = field(default_factory=dict)
    """The standardisation of each client's inputs, by name; empty if they are not standardised."""
    sizes: tuple[Tensor, Tensor] = (_EMPTY, _EMPTY)
    """The numbers of training and of test samples, K each."""
    features: tuple[str, ...] = ()
    """The names of the features of a table, in order; empty if they have no names."""
    levels: tuple[tuple[str, ...], ...] = ()
    """The categories of each column of an encoded table, empty for numbers; else empty."""
    medians: Mapping[str, Tensor] = field(default_factory=dict)
    """The medians of each client's columns, by the client's name; empty if no table is encoded."""

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def train(self) -> Sequence[Samples]:
        """The training samples of each client."""
        return _Part(self.clients, 0)

    @property
    def test(self) -> Sequence[Samples]:
        """The test samples of each client."""
        return _Part(self.clients, 1)

    @property
    def integers(self) -> bool:
        """Whether the inputs are integers."""
        return self.train[0].x.dtype == torch.int64

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].x.shape[1:])

    def standardised(self) -> FederatedData:
        """Return the data with each client's inputs standardised by its own training samples.

        The server does not know the clients' inputs, so its root set is standardised by its own samples.
        """
        root = self.root
        return replace(
            self,
            clients=_Standardised(self.clients),
            root=None if root is None else _scaled(root, Scaling.of(root.x)),
            scaling=_Scalings(self.names, self.clients),
        )


@dataclass(frozen=True)
class _Part(Sequence[Samples]):
    """The training samples (part 0) or the test samples (part 1) of all clients."""

    clients: Sequence[ClientSamples]
    part: int

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: Any) -> Any:
        return self.clients[client][self.part]


@dataclass(frozen=True)
class _Standardised(Sequence[ClientSamples]):
    """The samples of clients, standardised by each one's training samples."""

    clients: Sequence[ClientSamples]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: Any) -> Any:
        train, test = self.clients[client]
        by = Scaling.of(train.x)
        return _scaled(train, by), _scaled(test, by)


class _Scalings(Mapping[str, Scaling]):
    """The standardisation of each client's inputs, computed when it is read."""

    def __init__(self, names: Sequence[str], clients: Sequence[ClientSamples]) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._clients = clients

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __getitem__(self, name: str) -> Scaling:
        return Scaling.of(self._clients[self._rows[name]][0].x)


def _scaled(samples: Samples, by: Scaling) -> Samples:
    return Samples(by.apply(samples.x), samples.y)


@dataclass(frozen=True)
class Source(ABC):
    """A data set that can be loaded, with the default partition and settings of experiments on it."""

    model: ClassVar[str]
    """The default network."""
    groups: ClassVar[Mapping[str, Any]] = {}
    """Options of the partition `groups` on this data: at least the classes of each group."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """The default settings of an experiment on this data, such as `rounds`."""

    partition: str | dict[str, Any] = "iid"
    """The partition of the samples among clients: a name, or a table of name and options."""
    clients: Count = 20
    """The number of clients; if not given, the number of owners that the data names, or 20."""
    samples: Amount = "all"
    """Samples per client, training and test together, or all samples."""
    train_share: Share = 0.75
    """The share of a client's samples that it trains on."""

    @abstractmethod
    def load(self) -> Dataset:
        """Return all samples."""

    def prepared(self, federated: FederatedData) -> FederatedData:
        """Return the clients' data in the form that they train on."""
        return federated

    def doubts(self, dataset: Dataset, federated: FederatedData) -> list[str]:
        """Return what the user should know about the data before training, one line each."""
        return []

    @classmethod
    def suggest(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of an experiment on this data, given the data set's options."""
        return dict(cls.defaults)

    @classmethod
    def default_partition(cls) -> str | dict[str, Any] | None:
        """Return the default partition; none if it depends on the data."""
        partition: Any = cls.__dataclass_fields__["partition"]
        return partition.default if partition.default_factory is MISSING else partition.default_factory()  # type: ignore[no-any-return]

    def settings(self) -> dict[str, Any]:
        """Return the options as plain values, from which the source can be built again."""
        return asdict(self)

    @property
    def heading(self) -> str | None:
        """The name for headings, if it is not the registered name."""
        return None

    def files(self) -> list[Path] | None:
        """Return the files to read, in order: empty if they are missing, `None` if none are needed."""
        return None

    def absent(self) -> InputError:
        """Return the error for missing files."""
        return missing_error(type(self).__name__.lower(), "its files", fetch=False)

    def present(self) -> list[Path]:
        """Return the files to read; raise an `InputError` if they are missing."""
        files = self.files()
        if not files:
            raise self.absent()
        return files

    def fingerprint(self) -> str:
        """Return a hash of the files to read, in order, without decoding them.

        It depends on the content of the files, not on their paths.
        """
        if self.files() is None:
            return "embedded"
        return text_digest(content_hash(path) for path in self.present())

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the files from their official source into a folder."""
        raise InputError(
            "there is nothing to download: the data set comes with fedcap", code="nothing-to-fetch"
        )


registry: Registry[Source] = Registry("data set", Source, "fedcap.data")


def tensors_digest(*tensors: Tensor) -> str:
    """Return a hash of the tensors' shapes and contents."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        sha.update(tensor.contiguous().numpy().reshape(-1).view("uint8").data)
    return sha.hexdigest()


def text_digest(lines: Iterable[str]) -> str:
    """Return a hash of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
