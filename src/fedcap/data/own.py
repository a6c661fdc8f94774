"""The user's own data: what a file, a folder or a Python object must hold, and the set-up it runs in.

Inputs are floats, used as they are, or bytes: images, n×H×W or n×H×W×C or n×C×H×W, scaled to [−1, 1].
Labels are numbers or text, and so are owners. With `like`, the data runs in the set-up of another data set:
its partition and groups, its number of clients, its training and its network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcap.data.base import Count, Dataset, Source, registry
from fedcap.registry import InputError
from fedcap.samples import Samples

CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Own(Source):
    """The user's own data: a client per owner if the data says whose each sample is, else an iid split."""

    model: ClassVar[str] = "mlp"

    partition: str | dict[str, Any] | None = None  # type: ignore[assignment]
    clients: Count = None
    like: str | None = None
    """The data set in whose set-up this one runs."""

    def __post_init__(self) -> None:
        if self.partition is None:
            object.__setattr__(self, "partition", "natural" if self.has_owners() else "iid")

    @abstractmethod
    def has_owners(self) -> bool:
        """Whether the data says whose each sample is."""

    @classmethod
    def suggest(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the set-up of the data set named by `like`, if one is."""
        if not options.get("like"):
            return super().suggest(options)
        other: Any = registry.get(options["like"])
        partition = other.partition
        if partition == "groups":
            partition = {"name": "groups", **other.groups}
        own = {"partition": partition, "clients": other.clients, "train_share": other.train_share}
        return {**other.suggest({}), "model": other.model, "dataset": own}


def table(value: Any) -> Any:
    """Return the user's own data as a table of the source that reads it, and its options.

    A path, or a table with a path for its name, becomes a table of the source `npz` or `folder`. Arrays and
    `torch.utils.data.Dataset`s become a table of the source `arrays`. Anything else is returned as it is.
    """
    if isinstance(value, str | Path):
        return _path_table(str(value))
    if isinstance(value, Mapping):
        if "name" not in value and "data" in value:
            return {"name": "arrays", **value}
        if "path" in value and value.get("name", "npz") in ("npz", "folder"):
            return {**value, **_path_table(str(value["path"]))}
        if isinstance(value.get("name"), str):
            return {**value, **_path_table(value["name"])}
        return value
    if hasattr(value, "__getitem__") or hasattr(value, "__iter__"):
        return {"name": "arrays", "data": value}
    return value


def _path_table(name: str) -> dict[str, str]:
    """Return a table of the source that reads a path; what is not a path is taken as a source's name."""
    path = Path(name).expanduser()
    looks = path.suffix == ".npz" or "/" in name or name.startswith((".", "~"))
    if name in registry.names() or not (looks or path.is_dir()):
        return {"name": name}
    if path.is_dir():
        return {"name": "folder", "path": str(path.resolve())}
    if path.suffix == ".npz":
        return {"name": "npz", "path": str(path.resolve())}
    what = "is not a data set" if path.exists() else "is not there"
    raise InputError(f"{name} {what}: give an .npz file with x and y, or a folder of images by class")


def from_arrays(what: str, x: Any, y: Any, client: Any = None, test: Any = None) -> Dataset:
    """Return arrays as a data set; `what` is the name of their origin, for error messages."""
    inputs, labels = as_array(what, "x", x), as_array(what, "y", y)
    if labels.ndim != 1 or len(labels) != len(inputs) or not len(labels):
        raise InputError(
            f"{what}: y must have one label for each of the inputs x;"
            f" their shapes are {list(labels.shape)} and {list(inputs.shape)}"
        )
    classes, targets = numbered(what, "y", labels)
    owner_names: tuple[str, ...] = ()
    owners = flags = None
    if client is not None:
        owner_names, owners = numbered(what, "client", as_array(what, "client", client, len(labels)))
    if test is not None:
        given = as_array(what, "test", test, len(labels))
        if not np.isin(given, (0, 1)).all():
            raise InputError(f"{what}: test must be true or false for each sample")
        flags = torch.from_numpy(given.astype(bool))
    return Dataset(Samples(as_inputs(what, inputs), targets), classes, owners, owner_names, flags)


def as_array(what: str, name: str, value: Any, length: int | None = None) -> np.ndarray:
    """Return a value as a NumPy array of numbers or text; `what` and `name` are for error messages."""
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what}: {name} is not an array: {error}") from None
    if array.dtype.kind == "O":
        raise InputError(f"{what}: {name} must hold numbers of one shape, not Python objects")
    if length is not None and array.shape != (length,):
        raise InputError(f"{what}: {name} must have {length} entries, its shape is {list(array.shape)}")
    return array


def numbered(what: str, name: str, values: np.ndarray) -> tuple[tuple[str, ...], Tensor]:
    """Return the distinct values as text, sorted, and for each entry its place among them."""
    if values.dtype.kind == "f":
        if not np.array_equal(values, np.round(values)):
            raise InputError(f"{what}: {name} must be whole numbers or text, and it has fractions")
        values = values.astype(np.int64)
    distinct, places = np.unique(values, return_inverse=True)
    return tuple(str(value) for value in distinct.tolist()), torch.from_numpy(places.astype(np.int64))


def as_inputs(what: str, x: np.ndarray) -> Tensor:
    """Return inputs as float32, or bytes as they are with the channels before height and width."""
    if x.ndim < 2:
        raise InputError(f"{what}: x must be an array of inputs; its shape is {list(x.shape)}")
    if x.dtype == np.uint8:
        if x.ndim == 3:
            x = x[:, None]
        elif x.ndim == 4 and x.shape[-1] in CHANNELS and x.shape[1] not in CHANNELS:
            x = np.moveaxis(x, -1, 1)
        return torch.from_numpy(np.ascontiguousarray(x))
    if x.dtype.kind not in "fiub":
        raise InputError(f"{what}: x must hold numbers, not {x.dtype}")
    inputs = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if not bool(inputs.isfinite().all()):
        broken = int((~inputs.flatten(1).isfinite().all(dim=1)).sum())
        raise InputError(f"{what}: {broken} of {len(x)} inputs are not finite (NaN or infinity)")
    return inputs
