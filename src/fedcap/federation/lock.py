"""One process at a time in a directory: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcap.errors import InputError

LOCK = ".lock"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold a directory's lock for this process; if another does, raise an `InputError`."""
    with open(directory / LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process is running in {directory}: stop it first") from None
        yield


def is_held(directory: Path) -> bool:
    """Whether some process holds a directory's lock."""
    try:
        with open(directory / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
