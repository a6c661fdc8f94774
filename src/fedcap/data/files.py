"""The folders that are searched for data files, the hashes of files, and the errors about files.

`FEDCAP_DATA` names the user's data folder. `fedcap data get` writes to it, or to the user's cache
(`FEDCAP_CACHE`, or the system's folder for caches) if it is not set. The hash of a file is stored in the
cache with the size and the times of the file, so an unchanged file is not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedcap.errors import InputError
from fedcap.files import aside


def cache_folder() -> Path:
    """Return the folder of decoded arrays and of the hashes of files."""
    if given := os.environ.get("FEDCAP_CACHE"):
        return Path(given).expanduser()
    import pooch

    return Path(pooch.os_cache("fedcap"))


def install_folder() -> Path:
    """Return the folder for fetched data."""
    if given := os.environ.get("FEDCAP_DATA"):
        return Path(given).expanduser()
    return cache_folder() / "data"


def data_folders() -> list[Path]:
    """Return the folders that are searched for data, in this order."""
    return list(dict.fromkeys([install_folder(), cache_folder() / "data"]))


def find(names: Iterable[str], folders: Iterable[str]) -> list[Path]:
    """Return the named files in the first folder that has any of them.

    The folders are the given subfolders of the first data folder, in order, then those of the next one.
    """
    names = list(names)
    for folder in data_folders():
        for inside in folders:
            found = [path for name in names if (path := folder / inside / name).is_file()]
            if found:
                return found
    return []


def missing_error(name: str, wanted: str, fetch: bool = True) -> InputError:
    """Return the error for a data set whose files are missing."""
    folders = " and ".join(str(folder) for folder in data_folders())
    return InputError(
        f"data set {name!r} is not here: looked in {folders} for {wanted}; put it there, or name"
        " the folder that has it in FEDCAP_DATA",
        code="missing-dataset",
        field=name if fetch else None,
    )


def corrupted_error(path: Path, why: str, name: str) -> InputError:
    """Return the error for a damaged file of an official data set, which can be fetched again."""
    return InputError(
        f"{path} is corrupted: {why}; move it away and fetch data set {name!r} again",
        code="corrupt-dataset",
        field=name,
    )


def unusable_error(path: Path, why: str) -> InputError:
    """Return the error for a file of the user, which may be the only copy."""
    return InputError(f"{path} cannot be used: {why}", code="bad-file", field=str(path))


def refuse_web_page(path: Path, name: str | None = None) -> None:
    """Raise an `InputError` if a file is a web page, which a failed download often leaves.

    `name` is the official data set of the file, if there is one.
    """
    with open(path, "rb") as file:
        start = file.read(512).lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        why = "it holds a web page, not data"
        raise unusable_error(path, why) if name is None else corrupted_error(path, why, name)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file. A file that is unchanged since the last call is not read again."""
    path = path.resolve()
    entry = cache_folder() / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    stamp = file_stamp(path)
    try:
        stored = json.loads(entry.read_text())
        if stored["stamp"] == stamp:
            return str(stored["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = file_digest(path, "sha256")
    with suppress(OSError):  # if the cache cannot be written, the file is read again next time
        entry.parent.mkdir(parents=True, exist_ok=True)
        with aside(entry) as partial:
            partial.write_text(json.dumps({"path": str(path), "stamp": stamp, "sha256": found}))
    return found


def file_digest(path: Path, algorithm: str) -> str:
    """Return the hash of a file, in hex, such as its "sha256" or "md5"."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def file_stamp(path: Path) -> list[int]:
    """Return the size of a file and the times of its last changes."""
    try:
        status = path.stat()
    except OSError as error:  # such as a symbolic link to a file that is gone
        raise InputError(
            f"cannot read {path}: {error.strerror}", code="missing-file", field=str(path)
        ) from None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
