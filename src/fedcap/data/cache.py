"""The cache of decoded data sets: a data set is decoded once, and later opened as memory-mapped files.

An entry is a folder, named by a hash of the content of the source and of the options that matter. It has an
.npy file per array, and dataset.json with everything else and a hash of each .npy file. An entry is written
to a temporary folder, which is renamed when it is complete. An entry that is incomplete or was changed is
written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedcap.data.base import Dataset
from fedcap.data.files import cache_folder, content_hash, file_digest, file_stamp
from fedcap.state import Samples, map_array

_FORMAT = 1
"""The version of the format of entries. Entries with another version are not used."""
_FACTS = "dataset.json"


def cached(name: str, source: Mapping[str, Any], decode: Callable[[], Dataset]) -> Dataset:
    """Return the data set of `decode`, from the cache if it has an entry.

    `source` has everything that the data set depends on: hashes of files, and options.
    """
    text = json.dumps({"format": _FORMAT, "name": name, **source}, sort_keys=True)
    entry = cache_folder() / "decoded" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    found = _open(entry)
    if found is not None:
        return found
    dataset = decode()
    dataset = replace(dataset, hash=dataset.digest())
    try:
        _store(entry, dataset)
    except OSError:  # the cache cannot be written: continue without it
        return dataset
    return _open(entry) or dataset


def hashes(files: list[Path]) -> dict[str, str]:
    """Return the hash of each file, by name."""
    return {path.name: content_hash(path) for path in files}


def _arrays(dataset: Dataset) -> dict[str, Tensor]:
    arrays = {"x": dataset.samples.x, "y": dataset.samples.y, "owners": dataset.owners, "test": dataset.test}
    return {name: array for name, array in arrays.items() if array is not None}


def _store(entry: Path, dataset: Dataset) -> None:
    """Write an entry to a temporary folder next to it, then rename the folder."""
    aside = entry.with_name(f".{entry.name}.{os.getpid()}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        facts: dict[str, Any] = {
            "class_names": dataset.class_names,
            "owner_names": dataset.owner_names,
            "notes": dataset.notes,
            "hash": dataset.hash,
            "features": dataset.features,
            "levels": dataset.levels,
            "files": {},
        }
        for name, array in _arrays(dataset).items():
            path = aside / f"{name}.npy"
            np.save(path, array.numpy(), allow_pickle=False)
            facts["files"][name] = {"stamp": file_stamp(path)[:2], "sha256": file_digest(path, "sha256")}
        (aside / _FACTS).write_text(json.dumps(facts))
        shutil.rmtree(entry, ignore_errors=True)
        aside.replace(entry)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _open(entry: Path) -> Dataset | None:
    """Return an entry as memory-mapped arrays, or `None` if it is missing, incomplete or changed.

    Writing to the arrays does not change the files.
    """
    try:
        facts = json.loads((entry / _FACTS).read_text())
        arrays: dict[str, Tensor] = {}
        for name, known in facts["files"].items():
            path = entry / f"{name}.npy"
            if file_stamp(path)[:2] != known["stamp"] and file_digest(path, "sha256") != known["sha256"]:
                return None
            arrays[name] = map_array(path)
        return Dataset(
            Samples(arrays["x"], arrays["y"]),
            tuple(facts["class_names"]),
            arrays.get("owners"),
            tuple(facts["owner_names"]),
            arrays.get("test"),
            tuple(facts["notes"]),
            facts["hash"],
            tuple(facts.get("features", ())),
            tuple(map(tuple, facts.get("levels", ()))),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
