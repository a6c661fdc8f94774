"""The door of a site's own process: a unix socket in its directory, for its owner alone.

Flower starts a process for every message. That process stays small: it hands the message in at the door and
brings the answer back. Data, model and state live in the one process behind the door, which has loaded torch
once.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from fedcap.federation.messages import Arrays, Config, Malformed

DOOR = "door"
"""The socket's name in a site's directory."""
LENGTH = 8
"""Bytes that tell how many follow."""
Respond = Callable[[Arrays, dict[str, Any]], tuple[Arrays, Config]]


@contextmanager
def opened(directory: Path, respond: Respond, most: int) -> Iterator[None]:
    """Answer at the door of `directory`, one message after the other, in a thread, until the block ends.

    Messages of more than `most` bytes are not read. `respond` must not raise.
    """
    with at(directory) as path, socket.socket(socket.AF_UNIX) as listener:
        Path(path).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(16)
        thread = threading.Thread(target=_answer, args=(listener, respond, most), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            Path(path).unlink(missing_ok=True)


def ask(directory: Path, arrays: Arrays, config: Mapping[str, Any], seconds: float) -> tuple[Arrays, Config]:
    """Hand a message in at a site's door and return the answer; raise `Malformed` if there is none."""
    until = time.monotonic() + seconds
    try:
        with at(directory) as path, socket.socket(socket.AF_UNIX) as line:
            line.settimeout(max(0.001, seconds))
            line.connect(path)
            line.sendall(to_bytes(arrays, config))
            return from_bytes(_receive(line, None, until))
    except (FileNotFoundError, ConnectionRefusedError):
        raise Malformed("the site's process is not running") from None
    except TimeoutError:
        raise Malformed("the site did not answer in time") from None
    except OSError as error:
        raise Malformed(f"the site's process went away ({type(error).__name__})") from None


@contextmanager
def at(directory: Path) -> Iterator[str]:
    """Yield a short path of the door: a socket's may have 107 characters, whatever the directory's has."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{DOOR}"
    finally:
        os.close(folder)


def to_bytes(arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> bytes:
    """Return a message as bytes: two lengths, JSON, safetensors."""
    try:
        values = json.dumps(dict(config)).encode()
    except (TypeError, ValueError):
        raise Malformed("the message holds values that are no text and no numbers") from None
    tensors = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    lengths = [(LENGTH + len(values) + len(tensors)).to_bytes(LENGTH), len(values).to_bytes(LENGTH)]
    return b"".join([*lengths, values, tensors])


def from_bytes(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Return the message that `to_bytes` turned into these, without the first length."""
    stop = LENGTH + int.from_bytes(content[:LENGTH])
    try:
        return load(content[stop:]), dict(json.loads(content[LENGTH:stop]))
    except Exception:  # half a message, or something else altogether
        raise Malformed("the message cannot be read") from None


def _answer(listener: socket.socket, respond: Respond, most: int) -> None:
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        with line, suppress(OSError, Malformed):
            line.settimeout(60)
            line.sendall(to_bytes(*respond(*from_bytes(_receive(line, most, time.monotonic() + 60)))))


def _receive(line: socket.socket, most: int | None, until: float) -> bytes:
    """Return what follows a length."""
    length = int.from_bytes(_exactly(line, LENGTH, until))
    if most is not None and length > most:
        raise Malformed(f"the message has more than {most:,} bytes")
    return _exactly(line, length, until)


def _exactly(line: socket.socket, length: int, until: float) -> bytes:
    content = bytearray()
    while len(content) < length:
        line.settimeout(max(0.001, until - time.monotonic()))
        piece = line.recv(min(1 << 20, length - len(content)))
        if not piece:
            raise ConnectionError
        content += piece
    return bytes(content)
