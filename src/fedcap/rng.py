"""Random numbers without global state: every draw has its own generator, derived from the seed of the run.

`derive(seed, "train", round, client)` depends only on its arguments. So a draw is the same in any process, in
any order, and in a run that was interrupted.
"""

from __future__ import annotations

import hashlib

import torch


def derived_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, independent of the seeds for all other purposes."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a new generator for one purpose."""
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def seed_globally(seed: int) -> None:
    """Seed torch's global generators, for modules that draw from them.

    Without an accelerator, `torch.manual_seed` stores a formatted stack trace for each kind of accelerator.
    That takes longer than a test of a small network, and the memory is never freed.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
