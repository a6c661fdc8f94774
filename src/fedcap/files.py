"""Files that are never half there: what is written aside takes its place only once it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes `path` when the block ends well and is removed otherwise.

    Whatever happens, `path` holds the old content or the new one. Each process has a path of its own.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_aside(path: Path, content: bytes | str) -> None:
    """Write a file as `aside` does, and have it on the disk before it gets its name."""
    with aside(path) as partial, open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
