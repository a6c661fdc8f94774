"""The server's front door: what clients send, in whatever form, becomes a matrix the methods can trust.

A row that is no vector of D real numbers is refused, with a reason; the claim to an absurd number of
samples is bounded. Whether the numbers themselves are finite or plausible is for the method to judge.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcap.methods.base import Uploads

MEDIANS_BELIEVED = 10
"""Sample counts are self-reported: one of more than this many medians is cut down to that, and further
if need be, so that the malicious, as many as are assumed, cannot outweigh the honest together."""
LARGEST_CLAIM = 1e18
"""Python's integers have no end; a claim beyond this one is taken as this."""


@dataclass(frozen=True)
class Upload:
    """What one client sent, unchecked."""

    client: int
    update: object
    samples: object
    extra: object = None


@dataclass(frozen=True)
class Admission:
    """What was let in, and what was not or not as it came."""

    uploads: Uploads
    refused: dict[int, str]
    bounded: dict[int, str]


def _check(upload: Upload, size: int, extra: int) -> tuple[Tensor, float] | str:
    """Return the update and the claimed sample count, or what is wrong with what was sent."""
    update, samples = upload.update, upload.samples
    if not isinstance(update, Tensor):
        return f"not a tensor but {type(update).__name__}"
    if not update.is_floating_point():
        return f"dtype {str(update.dtype).removeprefix('torch.')}, not floating point"
    if update.shape != (size,):
        return f"shape {list(update.shape)}, not [{size}]"
    if update.layout != torch.strided or update.is_meta:
        return "not a dense tensor of numbers"
    if isinstance(samples, bool) or not isinstance(samples, int | float | np.integer):
        return f"sample count is {type(samples).__name__}, not a number"
    if not 1 <= samples < math.inf:
        return "claims a sample count that is not positive and finite"
    if extra and not _is_finite_vector(upload.extra, extra):
        return f"extra is not {extra} finite numbers"
    try:
        return update.detach().float(), float(min(samples, LARGEST_CLAIM))
    except RuntimeError as error:
        return f"cannot be read as single precision: {error}"


def _is_finite_vector(value: object, size: int) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.shape == (size,)
        and bool(value.isfinite().all())
    )


def _largest_believed(claims: Tensor, malicious: int) -> float:
    """Return the largest sample count that is believed of anybody, given all claims."""
    median = float(claims.quantile(0.5))
    honest = len(claims) - malicious
    safe = 0.9 * honest / malicious if malicious else MEDIANS_BELIEVED
    return median * min(MEDIANS_BELIEVED, max(1.0, safe))


def admit(
    received: Sequence[Upload],
    invited: Container[int],
    size: int,
    malicious: int = 0,
    device: torch.device | str = "cpu",
    extra: int = 0,
) -> Admission:
    """Turn what clients sent, `size` weights and `extra` numbers each, into uploads sorted by client.

    Only those invited to the round count, whoever else may call (a removed client come back), and each
    only once.
    """
    refused: dict[int, str] = {}
    rows: dict[int, Tensor] = {}
    claims: dict[int, float] = {}
    extras: dict[int, Tensor] = {}
    for upload in sorted(received, key=lambda upload: upload.client):
        client = upload.client
        checked = _check(upload, size, extra)
        if client not in invited:
            refused[client] = "was not asked to take part"
        elif client in rows or client in refused:
            refused[client] = refused.get(client, "sent more than once: only the first was looked at")
        elif isinstance(checked, str):
            refused[client] = checked
        else:
            rows[client], claims[client] = checked
            if isinstance(upload.extra, Tensor):
                extras[client] = upload.extra
    samples = torch.tensor(list(claims.values()), dtype=torch.float64)
    limit = _largest_believed(samples, malicious) if rows else 0.0
    bounded = {
        client: f"claims {claim:.0f} samples, counted as {limit:.0f}"
        for client, claim in claims.items()
        if claim > limit
    }
    updates = torch.empty(len(rows), size, device=device)
    for admitted, row in zip(updates, rows.values(), strict=True):
        admitted.copy_(row)
    ids = torch.tensor(list(rows), dtype=torch.long)
    uploads = Uploads(
        ids,
        updates,
        samples.clamp_max(limit),
        malicious,
        extra=torch.stack([extras[client].to(device) for client in rows]) if extra and rows else None,
    )
    return Admission(uploads, refused, bounded)
