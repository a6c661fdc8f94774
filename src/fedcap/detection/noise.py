"""Pairs of rows that differ only by noise: clients that send one common row with independent noise added.

Training changes few weights much and most weights little, so the difference of two honest rows is uneven over
the weights. That of two copies with independent noise is even. The evenness of x, the difference of two rows
in m columns, is

    e = ‖x‖₁ / (√m · ‖x‖₂)

It is √(2/π) = 0.80 for normal noise and 0.82 for uniform noise. Between honest clients, 0.3 to 0.65 was
measured. Two limitations: noise with the distribution of honest differences is not found, and honest clients
with similar updates count as colluders if they add normal noise for privacy while the other clients add none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcap.matrix import FEW_ROWS

COMMON_COSINE = 0.5
"""Rows at a smaller cosine do not count as copies of one row, however even their difference is."""
NOISE_EVENNESS = 0.775
"""A difference that is less even than this is not noise."""
EVENNESS_MARGIN = 0.1
"""A difference is noise only if its evenness is larger than the usual one by at least this."""
ROUNDING = 1e-5
"""Rows that differ by a smaller share of their norm differ by rounding."""
FEWEST_COLUMNS = 500
"""In fewer columns differences may be even by chance, and are not examined."""


def noise_apart(rows: Tensor, cosines: Tensor) -> Tensor:
    """Return which pairs of rows, N×m, differ only by noise, N×N flags; `cosines`, N×N, are of these rows.

    Each row is first compared with its nearest row. Only rows that differ from their nearest row by noise are
    compared with each other. For the usual evenness, each row is compared with the nearest and three other
    rows, and its smallest evenness is taken; the usual one is the median of these. So a minority cannot
    change it much by sending rows close to all others.
    """
    apart = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    if len(rows) < 2 or rows.shape[1] < FEWEST_COLUMNS:
        return apart
    cosines = cosines.nan_to_num(-1.0).fill_diagonal_(-1.0)
    all_rows = torch.arange(len(rows))
    even = evenness(rows, all_rows, cosines.argmax(dim=1))
    others = [evenness(rows, all_rows, all_rows.roll(step)) for step in (1, len(rows) // 3, len(rows) // 2)]
    least = torch.stack([even, *others]).nan_to_num(1.0).min(dim=0).values
    limit = max(NOISE_EVENNESS, float(least.median()) + EVENNESS_MARGIN)
    candidates = (even > limit).nonzero().flatten()
    for k in candidates.tolist():
        noise = evenness(rows, candidates, torch.full_like(candidates, k)) > limit
        apart[k, candidates] = noise & (cosines[k, candidates] > COMMON_COSINE)
    return apart | apart.T


def evenness(rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return the evenness of the differences `rows[left] − rows[right]`; both are indices of rows.

    Differences that come from rounding count as fully even. A few rows are taken at a time, because
    allocating memory for all of them would take longer than the computation.
    """
    found = []
    for start in range(0, len(left), FEW_ROWS):
        few = slice(start, start + FEW_ROWS)
        difference = rows[left[few].to(rows.device)]
        norm = _norms(difference, 2)
        difference -= rows[right[few].to(rows.device)]
        distance = _norms(difference, 2)
        even = _norms(difference, 1) / (distance * rows.shape[1] ** 0.5)
        found.append(torch.where(distance < ROUNDING * norm, 1.0, even))
    return torch.cat(found).cpu()


def _norms(rows: Tensor, order: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    return norms
