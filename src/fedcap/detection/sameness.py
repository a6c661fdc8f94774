"""Who sent the same but for noise: colluders who add noise of their own, so that no two rows are equal.

Training changes few weights much and most a little, and that is how two honest clients differ. Two copies of
one row that got independent noise differ by noise, which is alike in all weights:

    e = ‖x‖₁ / (√m · ‖x‖₂),    x the difference of two rows, m its columns,

is √(2/π) = 0.80 for normal noise and 0.82 for uniform noise. Between honest clients it was 0.3 to 0.65, with
networks and data of several kinds. Noise of other shapes, such as training's own, is not found by this.
Honest clients who are much alike and add normal noise for privacy, where the others do not, are found too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcap.matrix import FEW_ROWS

SHARED = 0.5
"""Rows at a smaller cosine have less in common than not, whatever their difference looks like."""
NOISE = 0.775
"""A difference that is less even than this is no noise."""
MORE = 0.1
"""Nor is one that is more even than is usual by less than this."""
ROUNDING = 1e-5
"""Rows that differ by a smaller share of their length do so by rounding."""
FEWEST = 500
"""In fewer columns differences look even by chance, and are not judged."""


def noise_apart(rows: Tensor, cosines: Tensor) -> Tensor:
    """Return which pairs of rows, N×m, differ by nothing but noise, N×N flags; `cosines`, N×N, are theirs.

    Everybody is first compared with its nearest, and only those who are noise apart with each other. What is
    usual is the median over clients of the least even of their differences from the nearest and a few others:
    a minority cannot move it by lying near everybody.
    """
    apart = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    if len(rows) < 2 or rows.shape[1] < FEWEST:
        return apart
    cosines = cosines.nan_to_num(-1.0).fill_diagonal_(-1.0)
    everybody = torch.arange(len(rows))
    even = _evenness(rows, everybody, cosines.argmax(dim=1))
    others = [
        _evenness(rows, everybody, everybody.roll(step)) for step in (1, len(rows) // 3, len(rows) // 2)
    ]
    least = torch.stack([even, *others]).nan_to_num(1.0).min(dim=0).values
    limit = max(NOISE, float(least.median()) + MORE)
    few = (even > limit).nonzero().flatten()
    for k in few.tolist():
        noise = _evenness(rows, few, torch.full_like(few, k)) > limit
        apart[k, few] = noise & (cosines[k, few] > SHARED)
    return apart | apart.T


def _evenness(rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return how even the differences between rows are, one of `left` and one of `right` each.

    Those that come of rounding are as even as can be. A few rows are taken at a time: new memory for all of
    them would take longer than the rest.
    """
    found = []
    for start in range(0, len(left), FEW_ROWS):
        few = slice(start, start + FEW_ROWS)
        here = rows[left[few].to(rows.device)]
        length = _norms(here, 2)
        here -= rows[right[few].to(rows.device)]
        short = _norms(here, 2)
        even = _norms(here, 1) / (short * rows.shape[1] ** 0.5)
        found.append(torch.where(short < ROUNDING * length, 1.0, even))
    return torch.cat(found).cpu()


def _norms(rows: Tensor, order: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    return norms
