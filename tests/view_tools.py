"""A made-up round as attackers see it, and how the server sees what they send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcap.attacks import Attack, ServerView, View


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.1, 1, (rows, columns)).astype(np.float32))


def seen(rows: int = 8, columns: int = 400, malicious: int = 3, scale: float = 1.0, **more: Any) -> View:
    """Return a round in which each client received a different model; the last rows are malicious."""
    received, reference = scale * matrix(rows, columns, 1), scale * matrix(1, columns, 2)[0]
    return View(
        scale * matrix(rows, columns),
        torch.arange(rows) >= rows - malicious,
        torch.Generator().manual_seed(0),
        clients=tuple(f"c{row}" for row in range(rows)),
        read_received=lambda row: received[row][None],
        read_server=lambda: ServerView(reference),
        **more,
    )


def after(attack: Attack, view: View) -> Tensor:
    """Return all rows after an attack, N×D; the view's updates stay, and its memory is what is remembered."""
    attacked = replace(view, updates=view.updates.clone())
    attack.apply(attacked)
    return attacked.updates


def calibrated(view: View, sent: Tensor) -> np.ndarray:
    received = torch.cat([view.received(row) for row in range(len(sent))])
    return (received + sent - view.server.reference).numpy().astype(np.float64)


def cosine(one: np.ndarray, two: np.ndarray) -> float:
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
