"""What the tests of detectors share: looks at rounds of made-up updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcap.detection import Batch, RoundView
from fedcap.matrix import Rows


def view_of(rows: Tensor, ids: Sequence[int] | None = None) -> RoundView:
    names = torch.arange(len(rows)) if ids is None else torch.tensor(ids)
    return RoundView(Batch(names, rows, torch.ones(len(rows), dtype=torch.float64)), Rows(rows))


def crowd(count: int, width: int = 400, seed: int = 0, common: float = 1.0) -> Tensor:
    """Return rows of about the same length that have something in common, as honest updates do."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(count, width, generator=generator)
    return own + common * torch.randn(width, generator=generator)


def with_attackers(honest: Tensor, row: Tensor, copies: int) -> Tensor:
    return torch.cat([honest, row.expand(copies, -1)])
