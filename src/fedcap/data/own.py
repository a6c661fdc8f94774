"""The user's own data: the base class of its sources, and the forms of files, folders and objects.

Inputs are floats, which are used unchanged, or bytes: images, n×H×W or n×H×W×C or n×C×H×W, which are scaled
to [−1, 1]. Whole numbers become floats, or with `integers` 64-bit integers, for networks that begin with
`nn.Embedding`. Labels and owners are numbers or text. The columns of a table are features. With `like`, the
data is used with the settings of another data set: its partition and groups, number of clients, training and
network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedcap.data.base import Count, Dataset, FederatedData, Source, registry
from fedcap.data.doubts import doubts
from fedcap.data.encoding import Levels, encoded
from fedcap.data.hugging_face import from_hugging_face, is_hugging_face, is_partitioner
from fedcap.data.labels import flags, numbered, numeric_labels_note, one_each
from fedcap.data.tables import column_names, feature_names, is_frame, matrix
from fedcap.errors import InputError
from fedcap.state import Samples

_CHANNELS = (1, 3, 4)
_READERS = {".npz": "npz", ".csv": "csv", ".tsv": "csv"}
"""The source that reads a file, by its suffix in small letters."""
_LARGE = 100.0
"""Inputs with a larger absolute value should be scaled."""
_SHOWN = 5
"""The number of clients that a note names."""
_EXAMINED = 1_000
"""The number of clients whose samples are looked at for notes."""
_NEEDED = "give a .csv file, an .npz file with x and y, or a folder of images by class"


Prepare = Literal["auto"] | None
"""Whether missing values and categories of a table are encoded."""


@dataclass(frozen=True)
class Own(Source):
    """The user's own data: one client per owner if the data names owners, else an iid partition."""

    model: ClassVar[str] = "mlp"

    partition: str | dict[str, Any] | None = None  # type: ignore[assignment]
    clients: Count = None
    like: str | None = None
    """The data set whose settings are used."""
    standardise: bool = False
    """Give each feature, or each channel, mean 0 and deviation 1 over each client's training samples."""
    integers: bool | None = None
    """Keep whole numbers as 64-bit integers, which nn.Embedding takes; by default they become floats."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "integers", self.integers or None)  # so that false has no other digest
        if getattr(self, "levels", None) is not None and getattr(self, "prepare", None) is None:
            raise InputError(
                "dataset.levels lists categories, which are encoded with dataset.prepare=auto: set it too",
                code="bad-value",
                field="levels",
            )
        if self.integers and (self.standardise or getattr(self, "prepare", None)):
            other = "standardise" if self.standardise else "prepare"
            raise InputError(
                f"dataset.integers keeps the inputs unchanged, and dataset.{other} changes them: remove one",
                code="bad-value",
                field="integers",
            )
        if self.partition is None:
            object.__setattr__(self, "partition", "natural" if self.has_owners() else "iid")

    def prepared(self, federated: FederatedData) -> FederatedData:
        """Encode tables that are to be encoded, and standardise each client's inputs, if that is set."""
        if federated.levels:
            federated = encoded(federated, getattr(self, "levels", None) is not None)
        return federated.standardised() if self.standardise else federated

    def doubts(self, dataset: Dataset, federated: FederatedData) -> list[str]:
        """Return notes about likely mistakes, test samples of one class, and inputs that are not scaled.

        Only the first clients are looked at: with many clients, reading all samples would take long.
        """
        clients = [federated.clients[row] for row in range(min(len(federated), _EXAMINED))]
        federated = replace(federated, names=federated.names[: len(clients)], clients=clients)
        is_natural = self.partition in ("natural", {"name": "natural"})
        found = [
            _tested_on_one_class(federated, is_natural),
            None if self.standardise else _unscaled(federated),
        ]
        return [*doubts(dataset), *(note for note in found if note is not None)]

    @abstractmethod
    def has_owners(self) -> bool:
        """Return whether the data names the owner of each sample."""

    @classmethod
    def suggest(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the data set named by `like`, or a learning rate that is chosen."""
        if not options.get("like"):
            return {"training": {"lr": "auto"}}
        other: Any = registry.get(options["like"])
        partition = other.default_partition()
        if partition == "groups":
            partition = {"name": "groups", **other.groups}
        own = {"partition": partition, "clients": other.clients, "train_share": other.train_share}
        return {**other.suggest({}), "model": other.model, "dataset": own}


def _tested_on_one_class(federated: FederatedData, name_clients: bool) -> str | None:
    """Return a note if all clients are tested on one class or, with `name_clients`, if some are."""
    single = {
        name: int(test.y[0])
        for name, test in zip(federated.names, federated.test, strict=True)
        if bool((test.y == test.y[0]).all())
    }
    if len(single) == len(federated) and len(set(single.values())) == 1:
        label = federated.class_names[next(iter(single.values()))]
        who = f"all test samples are of the class {label!r}"
    elif not single or not name_clients:
        return None
    else:
        names = [*single][:_SHOWN]
        more = "" if len(names) == len(single) else f" and {len(single) - len(names)} more"
        who = f"the test samples of a client are of one class only ({', '.join(names)}{more})"
    return f"{who}: a model that always answers with it is 100 % right; give test samples of more classes"


def _unscaled(federated: FederatedData) -> str | None:
    """Return a note if a feature has large values, with which training with usual rates diverges."""
    if federated.pixels or federated.integers:
        return None
    largest = torch.stack([part.x.abs().amax(dim=0) for part in federated.train]).amax(dim=0)
    value, place = largest.flatten().max(dim=0)
    if float(value) <= _LARGE:
        return None
    is_named = len(federated.features) == largest.numel()
    name = f"feature {federated.features[int(place)]!r} has" if is_named else "the inputs have"
    return (
        f"{name} values up to {float(value):.4g}, too large for most networks to learn from: scale the"
        " inputs, or let fedcap do it with dataset.standardise=true"
    )


def table(value: Any) -> Any:
    """Return the user's own data as a table of the source that reads it, and its options.

    A path, or a table with a path as its name, becomes a table of the source `npz`, `csv` or `folder`.
    Arrays, data frames, `torch.utils.data.Dataset`s and data sets of Hugging Face become a table of the
    source `arrays`. Other values are returned unchanged.
    """
    if isinstance(value, str | Path):
        return _path_table(str(value))
    if is_hugging_face(value):
        value = {"data": value}
    if isinstance(value, Mapping) and is_hugging_face(value.get("data")):
        return {"name": "arrays", **from_hugging_face(value)}
    if isinstance(value, Mapping):
        if is_partitioner(value.get("partition")):
            raise InputError(
                "a partitioner of flwr-datasets divides a data set of Hugging Face: give one as data, or a"
                " partition of fedcap, such as dirichlet",
                code="bad-value",
                field="partition",
            )
        if "name" not in value and ("data" in value or "x" in value):
            return {"name": "arrays", **value}
        reader = value.get("name", "folder")
        if "path" in value and reader in ("folder", *_READERS.values()):
            return {**value, **_path_table(str(value["path"]), reader)}
        if isinstance(value.get("name"), str):
            return {**value, **_path_table(value["name"])}
        return value
    if hasattr(value, "__getitem__") or hasattr(value, "__iter__"):
        return {"name": "arrays", "data": value}
    return value


def _path_table(name: str, reader: str | None = None) -> dict[str, str]:
    """Return a table of the source that reads a path; text that is not a path is the name of a source.

    With `reader`, the name of a source, the text is a path; `csv` reads files with any suffix.
    """
    path = Path(name).expanduser()
    known = _READERS.get(path.suffix.lower())
    looks_like_path = known or reader or "/" in name or name.startswith((".", "~"))
    if not reader and (name in registry.names() or not (looks_like_path or path.exists())):
        return {"name": name}
    try:
        path.resolve()
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"cannot read {name}: its symbolic links form a loop", code="missing-path", field=name
        ) from error
    if path.is_dir() and known:
        raise InputError(
            f"{name} is a folder, and its name is that of a file: rename it, or give the file in it",
            code="missing-path",
            field=name,
        )
    if path.exists() and not path.is_dir() and not path.is_file():
        raise InputError(
            f"{name} is not a regular file, and fedcap reads a file more than once: copy it to a file",
            code="missing-path",
            field=name,
        )
    if path.is_dir():
        return {"name": "folder", "path": str(path.resolve())}
    if known or (path.exists() and reader == "csv"):
        return {"name": known or "csv", "path": str(path.resolve())}
    raise InputError(
        f"{name} {'is not a data set' if path.exists() else 'does not exist'}: {_NEEDED}",
        code="missing-path",
        field=name,
    )


def from_arrays(
    what: str,
    x: Any,
    y: Any,
    client: Any = None,
    test: Any = None,
    notes: tuple[str, ...] = (),
    features: Any = None,
    levels: Levels = (),
    integers: bool | None = None,
) -> Dataset:
    """Return arrays as a data set; `what` names their origin in error messages.

    `features` has the names of the columns of x; a data frame has its own names. With `levels`, x is a table
    that is to be encoded, and may have missing values.
    """
    inputs = as_array(what, x)
    if is_frame(x):
        features = column_names(x)
    if not inputs.size:
        raise InputError(
            f"{what}: x is empty; its shape is {list(inputs.shape)}", code="data-shape", field="x"
        )
    length = len(inputs) if inputs.ndim else 0
    labels = one_each(what, "y", y, length)
    classes, targets = numbered(what, "y", labels)
    note = numeric_labels_note(what, labels, classes)
    notes = notes if note is None else (*notes, note)
    owner_names: tuple[str, ...] = ()
    owners = tests = None
    if client is not None:
        owner_names, owners = numbered(what, "client", one_each(what, "client", client, length))
    if test is not None:
        tests = flags(what, "test", one_each(what, "test", test, length))
    names = () if features is None else feature_names(what, features, inputs.shape)
    x = torch.from_numpy(inputs) if levels else as_inputs(what, inputs, bool(integers))
    samples = Samples(x, targets)
    return Dataset(samples, classes, owners, owner_names, tests, notes, features=names, levels=levels)


def as_array(what: str, x: Any) -> np.ndarray:
    """Return inputs as an array of numbers."""
    if is_frame(x):
        return matrix(what, x)
    try:
        array = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
        return array.astype(np.float64) if array.dtype.kind == "O" else array
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{what}: x must hold numbers of one shape: {error}", code="data-shape", field="x"
        ) from None


def as_inputs(what: str, x: np.ndarray, integers: bool = False) -> Tensor:
    """Return inputs as float32, or as int64; bytes stay bytes, with the channels before height and width."""
    if x.ndim < 2:
        raise InputError(
            f"{what}: x must be an array of inputs; its shape is {list(x.shape)}",
            code="data-shape",
            field="x",
        )
    if integers:
        return _as_integers(what, x)
    if x.dtype == np.uint8:
        if x.ndim == 3:
            x = x[:, None]
        elif x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS:
            x = np.moveaxis(x, -1, 1)
        return torch.from_numpy(np.ascontiguousarray(x))
    if x.dtype.kind not in "fiub":
        raise InputError(f"{what}: x must hold numbers, not {x.dtype}", code="data-shape", field="x")
    with np.errstate(over="ignore"):
        inputs = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if not bool(inputs.isfinite().all()):
        if x.dtype.kind == "f" and np.isfinite(x).all():
            largest = float(np.abs(x).max())
            raise InputError(
                f"{what}: x has a value of {largest:.3g}, too large for 32-bit numbers: scale the inputs",
                code="data-shape",
                field="x",
            )
        broken = int((~inputs.flatten(1).isfinite().all(dim=1)).sum())
        raise InputError(
            f"{what}: {broken} of {len(x)} inputs are not finite (NaN or infinity)",
            code="data-shape",
            field="x",
        )
    return inputs


def _as_integers(what: str, x: np.ndarray) -> Tensor:
    """Return whole numbers as int64; a table has them as floats."""
    is_whole = x.dtype.kind in "iub"
    if x.dtype.kind == "f":
        wrong = x[~(np.isfinite(x) & (x == np.round(x)) & (np.abs(x) < 2**53))]
        is_whole = not wrong.size
    elif x.dtype == np.uint64:
        is_whole = bool((x < 2**63).all())
    if not is_whole:
        got = f"{wrong[0]:g}" if x.dtype.kind == "f" else str(x.dtype)
        raise InputError(
            f"{what}: dataset.integers needs whole numbers as inputs (got {got})",
            code="data-shape",
            field="x",
        )
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.int64))
