"""Random numbers without global state: every draw has its own generator, derived from the seed.

`derive(seed, "train", round, client)` depends on its arguments alone, so a draw is the same whichever
process makes it, in whatever order, and whether or not the run was interrupted before.
"""

from __future__ import annotations

import hashlib

import torch


def derived_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, independent of those for all others."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def derive(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a fresh generator for one purpose."""
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def seed_globally(seed: int) -> None:
    """Seed torch's global state, for modules that draw from it.

    `torch.manual_seed` also formats a stack trace for each kind of accelerator that is not there, to be told
    if one ever is; that takes longer than testing a small network, and is never freed.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
