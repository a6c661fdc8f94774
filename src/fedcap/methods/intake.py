"""How uploads are checked: what clients send, in whatever form, becomes a matrix of the right shape and type.

A row that is no vector of D real numbers, or that answers another round, is refused, with a reason; an
absurdly large sample count is cut down. Whether the numbers themselves are finite or plausible is
for the method and its detectors to judge.
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
"""Sample counts are the clients' own claims. A count is cut down to this many times the median count, or to
less if otherwise the assumed number of malicious clients could together outweigh the honest ones."""
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LARGEST_CLAIM = 1e18
"""A larger claim is taken as this one: Python's integers can be too large for a float."""


@dataclass(frozen=True)
class Upload:
    """What one client sent, unchecked."""

    client: str
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
    """The admitted uploads, who was refused, and whose sample count was cut down, with reasons."""

    uploads: Uploads
    refused: dict[str, str]
    bounded: dict[str, str]


def admit(
    received: Sequence[Upload], expected: Expected, malicious: int = 0, device: torch.device | str = "cpu"
) -> Admission:
    """Turn what clients sent into uploads, sorted by their rows in the roster.

    Only clients that were invited to the round count (a removed client, say, is refused), each with its
    first upload. An answer to another round is refused, and does not count as the client's first upload.
    """
    refused: dict[str, str] = {}
    good: dict[str, Upload] = {}
    heard: set[str] = set()
    for upload in received:
        client = upload.client
        fault = _fault_of_sender(upload, expected)
        if fault is None and client in heard:
            fault = "sent more than once: only the first was looked at"
        elif fault is None:
            heard.add(client)
            fault = _fault_of_update(upload.update, expected.size) or _fault_of_rest(upload, expected.extra)
        if fault is not None:
            refused.setdefault(client, fault)
        elif client not in good:
            good[client] = upload
    ordered = sorted(good.values(), key=lambda upload: expected.rows[upload.client])
    claims = torch.tensor([_claim(upload) for upload in ordered], dtype=torch.float64)
    limit = _largest_believed(claims, malicious) if ordered else 0.0
    bounded = {
        upload.client: f"claims {claim:.0f} samples, counted as {limit:.0f}"
        for upload, claim in zip(ordered, claims.tolist(), strict=True)
        if claim > limit
    }
    updates = torch.empty(len(ordered), expected.size, device=device)
    for row, upload in zip(updates, ordered, strict=True):
        row.copy_(upload.update.detach())  # type: ignore[attr-defined]
    uploads = Uploads(
        torch.tensor([expected.rows[upload.client] for upload in ordered], dtype=torch.long),
        updates,
        claims.clamp_max(limit),
        malicious,
        extra=_extras(ordered, device) if expected.extra and ordered else None,
        round=expected.round,
    )
    return Admission(uploads, refused, bounded)


def _fault_of_sender(upload: Upload, expected: Expected) -> str | None:
    """Return why an upload does not belong to this round; none if it does."""
    if upload.client not in expected.rows:
        return "was not asked to take part"
    if type(upload.round) is not int or upload.round != expected.round:
        return f"answers round {upload.round!r:.20}, this is round {expected.round}"
    return None


def _fault_of_update(update: object, size: int) -> str | None:
    if not isinstance(update, Tensor):
        return f"not a tensor but {type(update).__name__}"
    if update.dtype not in FLOATS:
        return f"dtype {str(update.dtype).removeprefix('torch.')}, not floating point"
    if update.shape != (size,):
        return f"shape {list(update.shape)}, not [{size}]"
    if update.layout != torch.strided or update.is_meta:
        return "not a dense tensor of numbers"
    return None


def _fault_of_rest(upload: Upload, extra: int) -> str | None:
    samples = upload.samples
    if isinstance(samples, bool) or not isinstance(samples, int | float | np.integer):
        return f"sample count is {type(samples).__name__}, not a number"
    if not 1 <= samples < math.inf:
        return "claims a sample count that is not positive and finite"
    if extra and not _is_finite_vector(upload.extra, extra):
        return f"extra is not {extra} finite numbers"
    return None


def _is_finite_vector(value: object, size: int) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.shape == (size,)
        and bool(value.isfinite().all())
    )


def _claim(upload: Upload) -> float:
    return float(min(upload.samples, LARGEST_CLAIM))  # type: ignore[call-overload]


def _extras(uploads: Sequence[Upload], device: torch.device | str) -> Tensor:
    return torch.stack([upload.extra for upload in uploads]).to(device)  # type: ignore[misc]


def _largest_believed(claims: Tensor, malicious: int) -> float:
    """Return the largest sample count that is believed of anybody, given all claims."""
    median = float(claims.quantile(0.5))
    honest = len(claims) - malicious
    safe = 0.9 * honest / malicious if malicious else MEDIANS_BELIEVED
    return median * min(MEDIANS_BELIEVED, max(1.0, safe))
