"""The file of a checkpoint: named tensors as safetensors, with the round, the run, and a checksum.

This is the only module of the package that needs torch, so the package does not import it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedcap.errors import InputError
from fedcap.runs.directory import CHECKPOINT, RunDirectory, checksum
from fedcap.state import Tensors


@dataclass(frozen=True)
class About:
    """The round and the run of a checkpoint."""

    round: int
    layout: str
    """The digest of the network's layout."""
    course: str
    """The hash that identifies the run: `Provenance.course`."""
    format: int = 1
    """2 if the clients' states are in a file of their own, which older versions cannot read."""

    def facts(self) -> dict[str, Any]:
        """Return the fields as plain values; format 1 is not written, as in older versions."""
        return {key: value for key, value in asdict(self).items() if (key, value) != ("format", 1)}


def pack(about: About, tensors: Tensors) -> bytes:
    """Return the content of a checkpoint's file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    facts = about.facts() | {"checksum": _checksum(about, plain)}
    return save(plain, metadata={"run": json.dumps(facts)})  # one entry: several would have no fixed order


def unpack(path: Path) -> tuple[About, dict[str, Tensor]]:
    """Read a checkpoint's file; raise an `InputError` with the reason if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {})["run"])
        expected = facts.pop("checksum")
        about = About(**facts)
        intact = expected == _checksum(about, tensors)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"is not a checkpoint: {' '.join(str(error).split())}") from None
    if not intact:
        raise InputError("is damaged: its checksum does not match")
    return about, tensors


def read_checkpoint(directory: RunDirectory, course: str) -> tuple[About, dict[str, Tensor]]:
    """Read the checkpoint of a run; raise an `InputError` if it is damaged or belongs to another run."""
    try:
        about, tensors = unpack(directory.checkpoint)
    except InputError as error:
        raise directory.damaged(CHECKPOINT, str(error)) from None
    if about.course != course:
        raise directory.damaged(CHECKPOINT, "is of another run")
    return about, tensors


def _checksum(about: About, tensors: Tensors) -> str:
    return checksum(_checksum_parts(about, tensors))


def _checksum_parts(about: About, tensors: Tensors) -> Iterator[bytes | memoryview]:
    """Yield everything that the checksum covers, with the tensors sorted by name."""
    yield json.dumps(about.facts()).encode()
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {list(tensor.shape)}".encode()
        yield tensor.reshape(-1).view(torch.uint8).numpy().data
