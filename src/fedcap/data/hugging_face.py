"""Data of Hugging Face from Python: a `datasets.Dataset` or `DatasetDict`, and partitioners of flwr-datasets.

The columns have the roles of a table's columns. A column of images, or of arrays of one shape, must be the
only feature. Of a `DatasetDict`, the split `test` (or `validation`) is for testing. A partitioner divides all
rows: its partitions are the owners of the samples. The samples become NumPy arrays, so a run records their
digest as for other data from Python. fedcap imports neither library: the objects have what is needed.
"""

from __future__ import annotations

import copy
import importlib
import io
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import replace
from typing import Any

import numpy as np

from fedcap.data.labels import one_each
from fedcap.data.tables import Roles, Table, arrow_column
from fedcap.errors import InputError

_WHAT = "dataset"
_TESTED = ("test", "validation")
_ROW = "fedcap: row"
"""The name of a column of row numbers that shows which rows a partition has."""


def is_hugging_face(value: Any) -> bool:
    """Return whether a value is a data set of the library `datasets`."""
    return _comes_from(value, "datasets") and hasattr(value, "column_names")


def is_partitioner(value: Any) -> bool:
    """Return whether a value is a partitioner of the library `flwr_datasets`."""
    return _comes_from(value, "flwr_datasets") and hasattr(value, "load_partition")


def _comes_from(value: Any, library: str) -> bool:
    return any(kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def from_hugging_face(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the source `arrays` for a data set of Hugging Face, its `data`."""
    options = {**options}
    data, tests = _joined(options.pop("data"))
    if tests is not None and options.get("test") is not None:
        raise InputError(
            "dataset.test and the splits of a DatasetDict both say which samples are for testing: give one",
            code="bad-value",
            field="test",
        )
    names = {key: options.get(key) for key in ("label", "client", "test")}
    columns = {key: str(name) if isinstance(name, str | int) else None for key, name in names.items()}
    ignored = options.pop("ignore", ())
    ignored = [ignored] if isinstance(ignored, str) else [*ignored]
    roles = Roles.assign(_WHAT, data.column_names, ignore=ignored, **columns)
    rows, owners = None, None
    if is_partitioner(options.get("partition")):
        by = getattr(options["partition"], "_partition_by", None)  # this column is no feature
        roles = replace(
            roles,
            client=None if roles.client == by else roles.client,
            features=tuple(name for name in roles.features if name != by),
        )
        if roles.client is not None or options.get("client") is not None:
            raise InputError(
                "dataset.client and a partitioner both divide the samples: give one of them",
                code="bad-value",
                field="client",
            )
        rows, owners = _partitioned(data, options.pop("partition"))
    found = {name: _column(data, name) for name in (*roles.features, roles.label)}
    roles_columns = {
        key: _column(data, name)
        for key, name in (("client", roles.client), ("test", roles.test))
        if name is not None
    }
    given = {key: options[key] for key in ("client", "test") if options.get(key) is not None}
    separate = given | roles_columns | ({} if tests is None else {"test": tests})
    if rows is not None:
        length = len(data)
        found = {name: column[rows] for name, column in found.items()}
        separate = {key: one_each(_WHAT, key, each, length)[rows] for key, each in separate.items()}
        separate["client"] = owners
    wide = [name for name in roles.features if found[name].ndim > 1]
    if not wide:
        return options | separate | {"data": Table(found), "label": roles.label}
    if len(roles.features) > 1:
        others = [name for name in roles.features if name != wide[0]]
        raise InputError(
            f"{_WHAT}: column {wide[0]!r} holds images or arrays, so it must be the only feature: ignore the"
            f" others with dataset.ignore = {others}",
            code="data-shape",
            field=wide[0],
        )
    options.pop("label", None)
    return options | separate | {"x": found[wide[0]], "y": found[roles.label]}


def _joined(data: Any) -> tuple[Any, np.ndarray | None]:
    """Return all rows as one data set and, for a `DatasetDict`, whether each row is for testing."""
    if not isinstance(data, Mapping):
        _refuse_lazy(data)
        return data, None
    for part in data.values():
        _refuse_lazy(part)
    tested = [name for name in _TESTED if name in data]
    if "train" not in data or len(data) > 2 or (len(data) == 2 and not tested):
        raise InputError(
            "a DatasetDict must have the split train, and may have test or validation (got"
            f" {', '.join(data)}): give the splits to use, such as DatasetDict(train=data['train'],"
            " test=data['test'])",
            code="data-shape",
            field="data",
        )
    train = data["train"]
    if not tested:
        return train, None
    test = data[tested[0]]
    if train.features != test.features:
        raise InputError(
            f"the splits train and {tested[0]} have different columns or types of columns: make them equal",
            code="data-shape",
            field="data",
        )
    both = importlib.import_module("datasets").concatenate_datasets([train, test])
    return both, np.arange(len(train) + len(test)) >= len(train)


def _refuse_lazy(data: Any) -> None:
    """Refuse a data set whose samples are not fixed: a stream, or one with a transform."""
    if not hasattr(data, "_fingerprint") or not hasattr(data, "__len__"):
        raise InputError(
            "dataset is a stream (IterableDataset), and a run needs all samples and their digest: load it"
            " with streaming=False, or keep some samples with Dataset.from_list(list(data.take(1000)))",
            code="streaming-data",
            field="data",
        )
    if data.format["type"] == "custom":
        raise InputError(
            "dataset has a transform (set_transform), which may change samples at each reading: apply it"
            " once, with data.map, and remove it with data.reset_format()",
            code="streaming-data",
            field="data",
        )


def _column(data: Any, name: str) -> np.ndarray:
    """Return a column as an array: n values, or n arrays or images of one shape; classes by their names."""
    feature = data.features[name]
    kind = type(feature).__name__
    if kind == "Image":
        return _images(name, data)
    if kind in ("Value", "ClassLabel"):
        values = arrow_column(data.with_format("arrow").select_columns([name])[:].column(name))
        if kind == "Value":
            return values
        codes = [None if code is None or not code >= 0 else int(code) for code in values.tolist()]
        return np.array([None if code is None else feature.names[code] for code in codes], dtype=object)
    dtype = _inner_dtype(feature)
    if dtype is not None and np.dtype(dtype).kind in "biuf":
        stacked = np.asarray(data.select_columns([name]).with_format("numpy")[:][name])
        if stacked.dtype.kind in "biuf" and stacked.ndim > 1:
            return stacked.astype(np.uint8) if dtype == "uint8" else stacked
        why = "arrays of different shapes, or with missing values"
    else:
        why = f"values of type {kind}"
    raise InputError(
        f"{_WHAT}: column {name!r} holds {why}: make it images or arrays of numbers of one shape, or"
        " ignore it (dataset.ignore)",
        code="data-shape",
        field=name,
    )


def _inner_dtype(feature: Any) -> str | None:
    """Return the type of the numbers in a column of arrays or of nested lists."""
    while feature is not None and not isinstance(feature, Mapping | list):
        inner = getattr(feature, "feature", None)
        if inner is None:
            dtype = getattr(feature, "dtype", None)
            return dtype if dtype in np.sctypeDict else None
        feature = inner
    return None


def _images(name: str, data: Any) -> np.ndarray:
    """Return images of one size as bytes, n×H×W, or n×H×W×3 if any has colour."""
    from fedcap.data.folder import pixels_of

    images = []
    for at, row in enumerate(data.select_columns([name]).with_format(None)):
        if row[name] is None:
            raise InputError(
                f"{_WHAT}: column {name!r} has no image in row {at} (counted from 0): leave such rows out",
                code="data-shape",
                field=name,
            )
        images.append(pixels_of(row[name]))
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in images]
    for at, image in enumerate(images):
        if image.shape != images[0].shape:
            size, first = (f"{shape[1]}×{shape[0]}" for shape in (image.shape, images[0].shape))
            raise InputError(
                f"{_WHAT}: column {name!r} has an image of {size} pixels in row {at} and of {first} in row 0:"
                " make them one size",
                code="data-shape",
                field=name,
            )
    return np.stack(images) if images else np.empty((0, 1, 1), np.uint8)


def _partitioned(data: Any, partitioner: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that a partitioner gives to clients, and the owner of each of them."""
    if partitioner.is_dataset_assigned():
        raise InputError(
            "the partitioner already has a data set: make a new one", code="bad-value", field="partition"
        )
    own = copy.deepcopy(partitioner)  # it can divide one data set only, and draws random numbers
    name = type(partitioner).__name__
    try:
        with redirect_stderr(io.StringIO()):  # progress bars
            own.dataset = data.with_format(None).add_column(_ROW, np.arange(len(data)))
            parts = [own.load_partition(place) for place in range(own.num_partitions)]
            if any(
                _ROW not in part.column_names or len(part.features) < len(own.dataset.features)
                for part in parts
            ):
                raise InputError(
                    f"{name} divides the columns; fedcap's clients have the same features: use a partitioner"
                    " that divides the rows",
                    code="bad-value",
                    field="partition",
                )
            rows = [
                np.array(part.with_format("numpy").select_columns([_ROW])[:][_ROW], dtype=int)
                for part in parts
            ]
    except InputError:
        raise
    except Exception as error:  # of the library, in its own words
        first = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{name} cannot divide the data: {first or type(error).__name__}",
            code="bad-value",
            field="partition",
        ) from error
    natural = getattr(own, "partition_id_to_natural_id", None) or {}
    owners = [np.full(len(part), natural.get(at, at)) for at, part in enumerate(rows)]
    places = np.concatenate(rows)
    order = places.argsort(kind="stable")
    return places[order], np.concatenate(owners)[order]
