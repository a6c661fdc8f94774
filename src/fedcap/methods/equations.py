"""The equations of FedCAP (Li et al., ACSAC 2024) as pure functions on matrices.

Rows are clients, columns are weights: `pool` and `updates` are N×D, `requests` R×D, weights R×N.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def cosine_similarities(requests: Tensor, pool: Tensor) -> Tensor:
    """Return the cosines of every request with every update of the pool, R×N (Eq. 4).

    A vector of zeros points nowhere: its cosine with anything is 0.
    """
    return functional.normalize(requests, dim=1) @ functional.normalize(pool, dim=1).T


def customization_weights(requests: Tensor, pool: Tensor, own: Tensor, alpha: float, phi: float) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N (Eqs. 4 and 5).

    `own[r]` is the row of r's own update in the pool, or −1 for a newcomer. A client of the pool gives
    itself `phi` and shares 1 − `phi` over the others by softmax(alpha · cosine); a newcomer shares 1
    over all. Rows sum to 1: a client alone in the pool has nobody to share with and keeps all.
    """
    own = own.to(requests.device)
    mine = own[:, None] == torch.arange(len(pool), device=requests.device)
    scaled = alpha * cosine_similarities(requests, pool)
    others = torch.softmax(scaled.masked_fill(mine, -torch.inf), dim=1)
    if len(pool) == 1:
        return torch.ones_like(others)
    known = (own >= 0)[:, None]
    return torch.where(mine, phi, torch.where(known, (1 - phi) * others, others))


def customised_models(weights: Tensor, models: Tensor) -> Tensor:
    """Return the model made for each request, R×D: its weights times the recovered models (Eq. 3)."""
    return weights @ models


def global_model(models: Tensor, samples: Tensor) -> Tensor:
    """Return the mean of the recovered models, D, weighted by sample counts (Eq. 6)."""
    shares = samples.to(models.device, torch.float64)
    return (shares / shares.sum()).to(models.dtype) @ models


def recover(received: Tensor, updates: Tensor) -> Tensor:
    """Return the clients' models, N×D: what each received plus the update it sent."""
    return received + updates


def calibrate(models: Tensor, reference: Tensor) -> Tensor:
    """Return the updates as seen from one common point, N×D: the models minus the global model."""
    return models - reference


def exceeds(norms: Tensor, threshold: float) -> Tensor:
    """Return which norms, N, are over the threshold, or not numbers at all."""
    return ~((norms <= threshold) & norms.isfinite())
