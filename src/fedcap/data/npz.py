"""The user's own arrays from a NumPy file: inputs `x` and labels `y`.

Optional arrays are `client` (the owner of each sample), `test` (whether each sample is for testing only) and
`features` (the name of each column of `x`, if `x` is a table).
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcap.data.base import Dataset, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.files import refuse_web_page, unusable_error
from fedcap.data.own import Own, from_arrays
from fedcap.errors import InputError

ARRAYS = ("x", "y", "client", "test", "features")
"""The arrays of a file that are read."""


@registry.register("npz")
@dataclass(frozen=True)
class Npz(Own):
    """Your own arrays: --dataset FILE.npz with x and y, and optionally client, test and features."""

    path: str = ""
    """The file."""

    def has_owners(self) -> bool:
        """Return whether the file has an array of owners."""
        return "client" in _names(Path(self.path))

    @property
    def heading(self) -> str:
        """The file's name."""
        return Path(self.path).stem

    def files(self) -> list[Path]:
        """Return the file; raise an `InputError` if it cannot be read."""
        _names(Path(self.path))
        return [Path(self.path)]

    def load(self) -> Dataset:
        """Return all samples."""
        files = self.files()
        content = {"files": hashes(files), "arrays": ARRAYS, **({"integers": 1} if self.integers else {})}
        return cached("npz", content, lambda: read_npz(files[0], self.integers))


def _names(path: Path) -> list[str]:
    """Return the names of the arrays in a file, without reading them."""
    if path.suffix.lower() != ".npz":
        raise InputError("a path of an .npz file is needed", code="missing-path", field="npz")
    try:
        refuse_web_page(path)
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise unusable_error(path, f"it is not a whole .npz file ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", code="missing-file") from None


def read_npz(path: Path, integers: bool | None = None) -> Dataset:
    """Return the data set of a file of arrays. Nothing in the file is unpickled."""
    names = _names(path)
    for name in ("x", "y"):
        if name not in names:
            raise InputError(
                f"{path} has no array {name!r}, only {', '.join(names) or 'nothing'}", code="missing-data"
            )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS if name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        objects = ": save labels and clients as numbers or text, such as y.astype(str)"
        raise unusable_error(path, f"{error}{objects * ('pickle' in str(error))}") from None
    return from_arrays(str(path), **arrays, integers=integers)
