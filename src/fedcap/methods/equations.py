"""The equations of FedCAP (Li et al., ACSAC 2024) as pure functions on matrices.

Rows are clients, columns are weights: `pool` and `models` are N×D, `requests` R×D, mixing weights R×N. Eq. 4,
the cosines between updates, is `fedcap.matrix.cosines`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcap.matrix import NARROW, Rows, Values, column_blocks, cosines, to_floats, to_tensor, weighted_mean
from fedcap.products import fast_products

PER_VARIANCE = 100.0
SHARPEST = (1.0, 20.0)
"""The smallest and the largest alpha that `alpha="auto"` chooses."""


def mixing_weights(similarities: Tensor, own: Tensor, alpha: float, phi: float) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N (Eq. 5).

    `own[r]` is the row of r's own update in the pool, or −1 for a newcomer. A client of the pool gives itself
    `phi` and divides 1 − `phi` among the others by softmax(alpha · cosine); a newcomer divides 1 among all.
    Rows sum to 1: the only client of a pool keeps all.
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


def choose_alpha(similarities: Tensor) -> float:
    """Return alpha from how much the cosines within a pool, N×N, vary: the option `alpha="auto"`.

        alpha = 100 · variance of the cosines between different clients, from 1 to 20

    Cosines of clients without anything in common scatter by chance, and a sharp softmax would follow chance.
    If clients form groups, the cosines are far apart, and a large alpha separates the groups.
    """
    count = len(similarities)
    if count < 3:
        return SHARPEST[0]
    others = similarities[~torch.eye(count, dtype=torch.bool, device=similarities.device)]
    return min(max(PER_VARIANCE * float(others.double().var(correction=0)), SHARPEST[0]), SHARPEST[1])


@fast_products()
def mix_models(weights: Tensor, models: Tensor | Rows) -> Tensor:
    """Return the model made for each request, R×D: its weights times the recovered models (Eq. 3)."""
    rows = models if isinstance(models, Rows) else Rows(models)
    mixed = weights.new_empty(len(weights), rows.width)
    for columns in column_blocks(rows.width, NARROW):
        # Copy the block, so that its rows are adjacent in memory: the product reads it faster.
        mixed[:, columns] = weights @ rows.block(columns).contiguous()
    return mixed


def global_model(models: Tensor | Rows, samples: Tensor) -> Tensor:
    """Return the mean of the recovered models, D, weighted by sample counts (Eq. 6)."""
    return weighted_mean(models, samples)


def customization_weights(requests: Values, pool: Values, own: Values, alpha: float, phi: float) -> Tensor:
    """Return the weights from which each request's model is mixed, R×N (Eqs. 4 and 5).

    It takes tensors, NumPy arrays and nested lists; `own` is as in `mixing_weights`.
    """
    theirs = to_floats(pool)
    similarities = cosines(Rows(to_floats(requests).to(theirs)), Rows(theirs))
    return mixing_weights(similarities, to_tensor(own), alpha, phi)


def calibrate(models: Values, reference: Values) -> Tensor:
    """Return the updates measured from one common point, N×D: the models minus the global model (Eq. 6).

    It takes tensors, NumPy arrays and nested lists.
    """
    return to_floats(models) - to_floats(reference)
