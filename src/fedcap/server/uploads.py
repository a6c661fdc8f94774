"""Validation: what clients sent, in whatever form, becomes a batch that methods can trust.

A row that is not a vector of D real numbers, or that answers another round, is rejected with a reason. The
claim of an implausible number of samples is capped. Whether the numbers are finite or plausible is for the
method and its detectors to judge. Nothing that a client sends can raise an error here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcap.detection import Batch

MEDIANS_BELIEVED = 10
"""A claimed sample count is limited to this number of medians. The limit is lower if the malicious clients
that are assumed could otherwise outweigh the honest ones."""
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TENSORS = (Tensor, torch.nn.Parameter)
"""The accepted classes of tensors; code of other classes may run when they are read."""
LARGEST_CLAIM = 1e18
"""Larger claims are treated as this one: Python's integers have no largest value."""
NAMELESS = "(no name)"
"""The name under which an upload without a client's name is recorded."""


@dataclass(frozen=True)
class Upload:
    """What one client sent, as received: nothing of it is checked yet."""

    client: object
    """The client's name, a string."""
    round: object
    """The number of the round that it answers."""
    update: object
    samples: object
    feedback: object = None


class Validated(NamedTuple):
    """The uploads that were accepted, and what was rejected or changed."""

    batch: Batch
    rejected: dict[str, str]
    """Clients whose upload does not count, and why."""
    ignored: tuple[tuple[str, str], ...]
    """What came in addition to an upload that counts, as (client, why): late, repeated."""
    capped: dict[str, str]
    """Clients whose claim was reduced, and how."""
    samples: dict[str, int]
    """The sample counts as claimed."""


def validate(
    received: Sequence[Upload],
    number: int,
    rows: Mapping[str, int],
    size: int,
    feedback: int = 0,
    assumed_malicious: int = 0,
    device: torch.device | str = "cpu",
    buffer: Tensor | None = None,
) -> Validated:
    """Turn what clients sent in a round into a batch, sorted by their rows in the client index.

    `rows` has the clients that were asked, `size` is D, `feedback` the number of values asked of each client.
    Only clients that were asked count, and each only once; an answer to another round does not use up the
    right one. `buffer`, N×D, may hold the updates already, in order: then they are not copied, and the
    accepted rows are moved together in it.
    """
    first, faults = _first_answers(received, number, rows)
    updates = torch.empty(len(first), size, device=device) if buffer is None else buffer
    values = torch.empty(len(first), feedback)
    claims: dict[str, float] = {}
    unusable: dict[str, str] = {}
    for client, upload in first.items():
        at = len(claims)
        try:
            fault = _fault(upload, size, feedback)
            if fault is None:
                _copy(upload.update, updates[at])
                if feedback:
                    values[at].copy_(upload.feedback.detach())  # type: ignore[attr-defined]
                    values[at].nan_to_num_()  # double precision may have held more than single precision can
                claims[client] = float(min(upload.samples, LARGEST_CLAIM))  # type: ignore[call-overload]
        except Exception as error:  # an object that raises when it is read
            fault = f"cannot be read ({type(error).__name__})"
        if fault is not None:
            unusable[client] = fault
    count = len(claims)
    samples = torch.tensor(list(claims.values()), dtype=torch.float64)
    limit = _largest_believed(samples, assumed_malicious) if count else 0.0
    batch = Batch(
        ids=torch.tensor([rows[client] for client in claims], dtype=torch.long),
        updates=updates[:count],
        samples=samples.clamp_max(limit),
        assumed_malicious=assumed_malicious,
        feedback=values[:count].to(device) if feedback and count else None,
        round=number,
    )
    rejected = dict(reversed(unusable.items()))
    for client, why in faults:
        if client not in claims:
            rejected.setdefault(client, why)
    capped = {
        client: f"claims {claim:.0f} samples, counted as {limit:.0f}"
        for client, claim in claims.items()
        if claim > limit
    }
    ignored = tuple(fault for fault in faults if fault[0] in claims)
    counts = {client: int(claim) for client, claim in claims.items()}
    return Validated(batch, rejected, ignored, capped, counts)


def is_valid(upload: Upload, size: int, feedback: int) -> bool:
    """Return whether an upload has the form that was asked for."""
    try:
        return _fault(upload, size, feedback) is None
    except Exception:  # an object that raises when it is read
        return False


def _copy(update: object, row: Tensor) -> None:
    """Copy a checked update into a row of the batch, unless it is there already."""
    assert isinstance(update, Tensor)
    same = (update.data_ptr(), update.stride(), update.dtype, update.device)
    if same != (row.data_ptr(), row.stride(), row.dtype, row.device):
        row.copy_(update.detach())


def _first_answers(
    received: Sequence[Upload], number: int, rows: Mapping[str, int]
) -> tuple[dict[str, Upload], list[tuple[str, str]]]:
    """Return each asked client's first answer to this round, by row, and what is wrong with the rest."""
    first: dict[str, Upload] = {}
    faults: list[tuple[str, str]] = []
    for upload in received:
        client = upload.client if type(upload) is Upload else None
        if type(client) is not str:
            faults.append((NAMELESS, "does not say which client sent it"))
        elif client not in rows:
            faults.append((client, "was not asked to take part"))
        elif type(upload.round) is not int or upload.round != number:
            faults.append((client, f"answers {_which(upload.round)}, this is round {number}"))
        elif client in first:
            faults.append((client, "sent more than once: only the first upload is used"))
        else:
            first[client] = upload
    return dict(sorted(first.items(), key=lambda item: rows[item[0]])), faults


def _which(number: object) -> str:
    return f"round {number}" if type(number) is int and abs(number) < 10**9 else "no valid round"


def _fault(upload: Upload, size: int, feedback: int) -> str | None:
    """Return what is wrong with an upload; None if nothing is."""
    fault = _fault_of_vector(upload.update, size)
    if fault is not None:
        return fault
    samples = upload.samples
    if type(samples) not in (int, float) and not isinstance(samples, np.integer | np.floating):
        return f"sample count is {type(samples).__name__}, not a number"
    if not 1 <= samples < math.inf:  # type: ignore[operator]
        return "claims a sample count that is not positive and finite"
    if feedback and (
        _fault_of_vector(upload.feedback, feedback) or not bool(upload.feedback.isfinite().all())  # type: ignore[attr-defined]
    ):
        return f"feedback is not {feedback} finite numbers"
    return None


def _fault_of_vector(vector: object, size: int) -> str | None:
    if not isinstance(vector, Tensor):
        return f"not a tensor but {type(vector).__name__}"
    if type(vector) not in TENSORS or vector.is_nested:
        return "not a dense tensor of numbers"
    if vector.dtype not in FLOATS:
        return f"dtype {str(vector.dtype).removeprefix('torch.')}, not floating point"
    if vector.layout != torch.strided or vector.is_meta:
        return "not a dense tensor of numbers"
    if vector.shape != (size,):
        return f"shape {list(vector.shape)}, not [{size}]"
    return None


def _largest_believed(claims: Tensor, malicious: int) -> float:
    """Return the largest sample count that is believed of any client, given all claims."""
    median = float(claims.quantile(0.5))
    honest = len(claims) - malicious
    safe = 0.9 * honest / malicious if malicious else MEDIANS_BELIEVED
    return median * min(MEDIANS_BELIEVED, max(1.0, safe))
