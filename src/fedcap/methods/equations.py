"""The equations of FedCAP (Li et al., ACSAC 2024) as pure functions on matrices.

Rows are clients, columns are weights: `pool` and `models` are N×D, `requests` R×D, weights R×N. What
needs all of a pool's updates at once takes `Rows`, and goes through them a block of columns at a time,
so that a pool is never copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1 << 13
"""Columns that are compared at a time."""
NARROW = 1 << 11
"""Columns that are mixed, or measured, at a time."""
STRIPE = 256
"""Rows that are compared at a time with themselves and those after them."""


@dataclass(frozen=True)
class Rows:
    """The rows of a matrix, N×D, as seen from an origin (D): `calibrate` without the copy."""

    matrix: Tensor
    origin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.matrix)

    def block(self, columns: slice) -> Tensor:
        """Return some columns of the rows."""
        part = self.matrix[:, columns]
        return part if self.origin is None else part - self.origin[columns]

    def norms(self) -> Tensor:
        """Return the length of each row, N, in double precision."""
        squares = self.matrix.new_zeros(len(self), dtype=torch.float64)
        for columns in _blocks(slice(0, self.matrix.shape[1]), NARROW):
            squares += torch.linalg.vector_norm(self.block(columns), dim=1).double().square()
        return squares.sqrt()


def _blocks(columns: slice, width: int) -> Iterator[slice]:
    for start in range(columns.start, columns.stop, width):
        yield slice(start, min(start + width, columns.stop))


def cosine_similarities(requests: Rows, pool: Rows, columns: slice | None = None) -> Tensor:
    """Return the cosines of every request with every update of the pool, R×N (Eq. 4).

    A vector of zeros points nowhere: its cosine with anything is 0. `columns` limits the comparison.
    """
    matrix = pool.matrix
    products = matrix.new_zeros((len(requests), len(pool)), dtype=torch.float64)
    asking = matrix.new_zeros(len(requests), dtype=torch.float64)
    offering = matrix.new_zeros(len(pool), dtype=torch.float64)
    for block in _blocks(columns or slice(0, matrix.shape[1]), BLOCK):
        theirs = pool.block(block)
        offering += torch.linalg.vector_norm(theirs, dim=1).double().square()
        if requests is pool:  # what is below the diagonal is known from above it
            for start in range(0, len(pool), STRIPE):
                products[start : start + STRIPE, start:] += theirs[start : start + STRIPE] @ theirs[start:].T
        else:
            ours = requests.block(block)
            asking += torch.linalg.vector_norm(ours, dim=1).double().square()
            products += ours @ theirs.T
    if requests is pool:
        asking, products = offering, products.triu() + products.triu(1).T
    lengths = (asking[:, None] * offering).sqrt()
    return torch.where(lengths > 0, products / lengths, 0.0).to(matrix.dtype)


def mixing_weights(similarities: Tensor, own: Tensor, alpha: float, phi: float) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N (Eq. 5).

    `own[r]` is the row of r's own update in the pool, or −1 for a newcomer. A client of the pool gives
    itself `phi` and shares 1 − `phi` over the others by softmax(alpha · cosine); a newcomer shares 1
    over all. Rows sum to 1: a client alone in the pool has nobody to share with and keeps all.
    """
    own = own.to(similarities.device)
    count = similarities.shape[1]
    if len(own) and not -1 <= int(own.min()) <= int(own.max()) < count:
        raise ValueError(f"own holds rows of the pool, 0 to {count - 1}, or -1 for a newcomer")
    mine = own[:, None] == torch.arange(count, device=similarities.device)
    others = torch.softmax((alpha * similarities).masked_fill(mine, -torch.inf), dim=1)
    if count == 1:
        return torch.ones_like(others)
    known = (own >= 0)[:, None]
    return torch.where(mine, phi, torch.where(known, (1 - phi) * others, others))


def customization_weights(requests: Tensor, pool: Tensor, own: Tensor, alpha: float, phi: float) -> Tensor:
    """Return the weights from which each request's model is mixed, R×N (Eqs. 4 and 5)."""
    return mixing_weights(cosine_similarities(Rows(requests), Rows(pool)), own, alpha, phi)


def customised_models(weights: Tensor, models: Tensor) -> Tensor:
    """Return the model made for each request, R×D: its weights times the recovered models (Eq. 3)."""
    mixed = models.new_empty(len(weights), models.shape[1])
    for columns in _blocks(slice(0, models.shape[1]), NARROW):
        mixed[:, columns] = weights @ models[:, columns].contiguous()  # a row's next one is far away
    return mixed


def global_model(models: Tensor, samples: Tensor) -> Tensor:
    """Return the mean of the recovered models, D, weighted by sample counts (Eq. 6)."""
    shares = samples.to(models.device, torch.float64)
    return (shares / shares.sum()).to(models.dtype) @ models


def recover(received: Tensor, updates: Tensor, in_place: bool = False) -> Tensor:
    """Return the clients' models, N×D: what each received plus the update it sent.

    In place, they are where the received ones were, and a pool less is held in memory.
    """
    return received.add_(updates) if in_place else received + updates


def calibrate(models: Tensor, reference: Tensor) -> Tensor:
    """Return the updates as seen from one common point, N×D: the models minus the global model."""
    return models - reference


def exceeds(norms: Tensor, threshold: float) -> Tensor:
    """Return which norms, N, are over the threshold, or not numbers at all."""
    return ~((norms <= threshold) & norms.isfinite())
