"""What the tests of detectors share: views of rounds with made-up updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcap.detection import Batch, RoundView
from fedcap.matrix import Rows


def view_of(
    rows: Tensor,
    ids: Sequence[int] | Tensor | None = None,
    samples: Tensor | None = None,
    calibrated: Rows | None = None,
    recovered: Tensor | None = None,
    reference: Tensor | None = None,
) -> RoundView:
    """Return a view of updates; they are their own calibrated rows unless others are given."""
    names = torch.arange(len(rows)) if ids is None else torch.as_tensor(ids)
    counts = torch.ones(len(rows), dtype=torch.float64) if samples is None else samples
    seen = Rows(rows) if calibrated is None else calibrated
    return RoundView(Batch(names, rows, counts), seen, recovered, reference)


def crowd(count: int, width: int = 400, seed: int = 0, common: float = 1.0) -> Tensor:
    """Return rows of similar norms with a common part, as honest updates have."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(count, width, generator=generator)
    return own + common * torch.randn(width, generator=generator)


def with_attackers(honest: Tensor, row: Tensor, copies: int) -> Tensor:
    return torch.cat([honest, row.expand(copies, -1)])
