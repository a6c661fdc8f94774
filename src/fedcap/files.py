"""Atomic writes: content goes to a temporary file, which is renamed once it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if the block succeeds and removed otherwise.

    `path` always holds either its old content or the new one. Each process has its own temporary path.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_aside(path: Path, content: bytes | str) -> None:
    """Write a file as `aside` does; the content is flushed to disk before the file is renamed."""
    with aside(path) as partial, open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
