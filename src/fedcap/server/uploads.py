"""The server's front door: what clients send, in whatever form, becomes a matrix the methods can trust.

A row that is no vector of D real numbers, or that answers another round, is refused, with a reason; the
claim to an absurd number of samples is bounded. Whether the numbers themselves are finite or plausible is
for the method and its detectors to judge. Nothing that is sent can raise an error here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcap.methods.base import Uploads

MEDIANS_BELIEVED = 10
"""Sample counts are self-reported: one of more than this many medians is cut down to that, and further
if need be, so that the malicious, as many as are assumed, cannot outweigh the honest together."""
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TENSORS = (Tensor, torch.nn.Parameter)
"""What counts as a tensor; other kinds may do anything when they are touched."""
LARGEST_CLAIM = 1e18
"""Python's integers have no end; a claim beyond this one is taken as this."""
NAMELESS = "(no name)"
"""Under this name stands what came from nobody that can be named."""


@dataclass(frozen=True)
class Upload:
    """What one client sent, unchecked."""

    client: object
    """Who sent it, a string."""
    round: object
    """The number of the round that it answers."""
    update: object
    samples: object
    extra: object = None


@dataclass(frozen=True)
class Expected:
    """What the server waits for: from whom, in which round, and how much."""

    round: int
    rows: Mapping[str, int]
    """The clients that were invited, and their rows in the roster."""
    size: int
    """D: how many weights an update has."""
    extra: int = 0
    """How many numbers each client was asked for besides its update."""


@dataclass(frozen=True)
class Admission:
    """What was let in, and what was not or not as it came."""

    uploads: Uploads
    refused: dict[str, str]
    """Whose upload does not count, and why."""
    ignored: tuple[tuple[str, str], ...]
    """What came besides an upload that counts, as (client, why): late, repeated."""
    bounded: dict[str, str]
    """Whose claim was cut down, and how."""
    samples: dict[str, int]
    """The number of training samples that each client reported, if its upload was read."""


def admit(
    received: Sequence[Upload], expected: Expected, malicious: int = 0, device: torch.device | str = "cpu"
) -> Admission:
    """Turn what clients sent into uploads, sorted by their rows in the roster.

    Only those invited to the round count, whoever else may call (a removed client come back), and each
    only once; an answer to another round counts for nothing, and does not use up the right one.
    """
    first, faults = _first_answers(received, expected)
    updates = torch.empty(len(first), expected.size, device=device)
    extras = torch.empty(len(first), expected.extra)
    claims: dict[str, float] = {}
    for client, upload in first.items():
        at = len(claims)
        try:
            fault = _fault_of(upload, expected)
            if fault is None:
                updates[at].copy_(upload.update.detach())  # type: ignore[attr-defined]
                if expected.extra:
                    extras[at].copy_(upload.extra.detach())  # type: ignore[attr-defined]
                claims[client] = float(min(upload.samples, LARGEST_CLAIM))  # type: ignore[call-overload]
        except Exception as error:  # an object that raises when it is looked at
            fault = f"cannot be read ({type(error).__name__})"
        if fault is not None:
            faults.insert(0, (client, fault))
    count = len(claims)
    samples = torch.tensor(list(claims.values()), dtype=torch.float64)
    limit = _largest_believed(samples, malicious) if count else 0.0
    uploads = Uploads(
        torch.tensor([expected.rows[client] for client in claims], dtype=torch.long),
        updates[:count],
        samples.clamp_max(limit),
        malicious,
        extra=extras[:count].to(device) if expected.extra and count else None,
        round=expected.round,
    )
    refused: dict[str, str] = {}
    for client, why in faults:
        if client not in claims:
            refused.setdefault(client, why)
    bounded = {
        client: f"claims {claim:.0f} samples, counted as {limit:.0f}"
        for client, claim in claims.items()
        if claim > limit
    }
    reported = {client: int(claim) for client, claim in claims.items()}
    return Admission(
        uploads, refused, tuple(fault for fault in faults if fault[0] in claims), bounded, reported
    )


def _first_answers(
    received: Sequence[Upload], expected: Expected
) -> tuple[dict[str, Upload], list[tuple[str, str]]]:
    """Return each invited client's first answer to this round, by row, and what is wrong with the rest."""
    first: dict[str, Upload] = {}
    faults: list[tuple[str, str]] = []
    for upload in received:
        client = upload.client if isinstance(upload, Upload) else None
        if type(client) is not str:
            faults.append((NAMELESS, "does not say who sent it"))
        elif client not in expected.rows:
            faults.append((client, "was not asked to take part"))
        elif type(upload.round) is not int or upload.round != expected.round:
            faults.append((client, f"answers {_which(upload.round)}, this is round {expected.round}"))
        elif client in first:
            faults.append((client, "sent more than once: only the first was looked at"))
        else:
            first[client] = upload
    return dict(sorted(first.items(), key=lambda item: expected.rows[item[0]])), faults


def _which(number: object) -> str:
    return f"round {number}" if type(number) is int and abs(number) < 10**9 else "no round that there is"


def _fault_of(upload: Upload, expected: Expected) -> str | None:
    """Return what is wrong with what was sent, if anything is."""
    fault = _fault_of_vector(upload.update, expected.size)
    if fault is not None:
        return fault
    samples = upload.samples
    if isinstance(samples, bool) or not isinstance(samples, int | float | np.integer):
        return f"sample count is {type(samples).__name__}, not a number"
    if not 1 <= samples < math.inf:
        return "claims a sample count that is not positive and finite"
    if expected.extra and (
        _fault_of_vector(upload.extra, expected.extra) or not bool(upload.extra.isfinite().all())  # type: ignore[attr-defined]
    ):
        return f"extra is not {expected.extra} finite numbers"
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
    """Return the largest sample count that is believed of anybody, given all claims."""
    median = float(claims.quantile(0.5))
    honest = len(claims) - malicious
    safe = 0.9 * honest / malicious if malicious else MEDIANS_BELIEVED
    return median * min(MEDIANS_BELIEVED, max(1.0, safe))
