"""Where data is kept: the folders that are searched for files, and the hashes of files.

`FEDCAP_DATA` names the user's folder of data. What `fedcap data get` fetches goes there, or into the user's
cache (`FEDCAP_CACHE`, or where the system keeps caches) if it is not set. A file's hash is kept in the cache
with the file's size and times, so that a file that has not changed is not read again.
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
    """Return where decoded arrays and the hashes of files are kept."""
    if given := os.environ.get("FEDCAP_CACHE"):
        return Path(given).expanduser()
    import pooch

    return Path(pooch.os_cache("fedcap"))


def install_folder() -> Path:
    """Return where fetched data goes."""
    if given := os.environ.get("FEDCAP_DATA"):
        return Path(given).expanduser()
    return cache_folder() / "data"


def data_folders() -> list[Path]:
    """Return the folders that are searched for data, in this order."""
    return list(dict.fromkeys([install_folder(), cache_folder() / "data"]))


def find(names: Iterable[str], folders: Iterable[str]) -> list[Path]:
    """Return the named files that are in the first place that has any of them.

    The places are the given subfolders of the first data folder, in order, then those of the next one.
    """
    names = list(names)
    for folder in data_folders():
        for inside in folders:
            found = [path for name in names if (path := folder / inside / name).is_file()]
            if found:
                return found
    return []


def missing(name: str, wanted: str, fetch: bool = True) -> InputError:
    """Return the error for a data set that is not here: what was looked for, where, and what to do."""
    looked = " and ".join(str(folder) for folder in data_folders())
    return InputError(
        f"data set {name!r} is not here: looked in {looked} for {wanted}; put it there, or name"
        " the folder that has it in FEDCAP_DATA",
        code="missing-dataset",
        field=name if fetch else None,
    )


def corrupted(path: Path, why: str, name: str) -> InputError:
    """Return the error for a file of an official data set, which can be fetched again by its name."""
    return InputError(
        f"{path} is corrupted: {why}; move it away and fetch data set {name!r} again",
        code="corrupt-dataset",
        field=name,
    )


def unusable(path: Path, why: str) -> InputError:
    """Return the error for a file of the user's own, which may be the only copy: what is wrong with it."""
    return InputError(f"{path} cannot be used: {why}", code="bad-file", field=str(path))


def refuse_web_page(path: Path, name: str | None = None) -> None:
    """Refuse a file that is a web page, which is what a failed download often leaves behind.

    `name` is the official data set that the file is of, if it is of one.
    """
    with open(path, "rb") as file:
        start = file.read(512).lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        why = "it holds a web page, not data"
        raise unusable(path, why) if name is None else corrupted(path, why, name)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file; a file that has not changed since the last time is not read again."""
    path = path.resolve()
    known = cache_folder() / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    stamp = file_stamp(path)
    try:
        remembered = json.loads(known.read_text())
        if remembered["stamp"] == stamp:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # without a cache that can be written, the file is read again next time
        known.parent.mkdir(parents=True, exist_ok=True)
        with aside(known) as partial:
            partial.write_text(json.dumps({"path": str(path), "stamp": stamp, "sha256": found}))
    return found


def file_stamp(path: Path) -> list[int]:
    """Return the size of a file and when its content and its entry last changed."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
