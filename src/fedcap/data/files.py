"""Where data lies: the folders that are searched, and files known by their content.

`FEDCAP_DATA` names the user's folder of data; what `fedcap data get` fetches goes there, or into the user's
cache (`FEDCAP_CACHE`, or where the system keeps caches). A file's hash is remembered with its size and
time of change, so that a file that has not been touched is not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedcap.registry import InputError


def cache_folder() -> Path:
    """Where decoded arrays and remembered hashes are kept."""
    if given := os.environ.get("FEDCAP_CACHE"):
        return Path(given).expanduser()
    import pooch

    return Path(pooch.os_cache("fedcap"))


def install_folder() -> Path:
    """Where fetched data goes."""
    if given := os.environ.get("FEDCAP_DATA"):
        return Path(given).expanduser()
    return cache_folder() / "data"


def data_folders() -> list[Path]:
    """Every folder that is searched for data, in this order."""
    return list(dict.fromkeys([install_folder(), cache_folder() / "data"]))


def find(names: Iterable[str], folders: Iterable[str]) -> list[Path]:
    """Return the named files from the first place that has any: each folder's subfolders, in order."""
    names = list(names)
    for folder in data_folders():
        for inside in folders:
            found = [path for name in names if (path := folder / inside / name).is_file()]
            if found:
                return found
    return []


def missing(name: str, wanted: str, fetch: bool = True) -> InputError:
    """Return the error of a data set that is not there: what was wanted, where, and what to do."""
    looked = " and ".join(str(folder) for folder in data_folders())
    get = f"fetch it with fedcap data get {name}, or " if fetch else ""
    return InputError(
        f"data set {name!r} is not here: looked in {looked} for {wanted}; {get}put it there, or name"
        " the folder that has it in FEDCAP_DATA"
    )


def corrupted(path: Path, why: str) -> InputError:
    """Return the error of a file that cannot be what its name says."""
    return InputError(f"{path} is corrupted: {why}; remove it and fetch it again")


def refuse_web_page(path: Path) -> None:
    """Refuse a file that is a web page: what a failed download often leaves behind."""
    with open(path, "rb") as file:
        start = file.read(512).lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise corrupted(path, "it holds a web page, not data")


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file; one not touched since it was last asked for is not read again."""
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
    write_quietly(known, json.dumps({"path": str(path), "stamp": stamp, "sha256": found}))
    return found


def file_stamp(path: Path) -> list[int]:
    """Return what changes when a file does: its size and when it was last written."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def write_quietly(path: Path, text: str) -> None:
    """Write a file of the cache aside and rename it; a cache that cannot be written is done without."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
