"""Inflate: its rows by hand, its largest step in a round, and broken rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from view_tools import after, calibrated, cosine, seen

from fedcap import attacks


def test_inflate_sends_the_own_direction_further_out():
    view = seen()
    honest = calibrated(view, view.updates)
    rows = calibrated(view, after(attacks.make("inflate", stretch=2.0, most=100.0), view))
    usual = np.sort(np.linalg.norm(honest[:5], axis=1))[2]
    for attacker in (5, 6, 7):
        assert cosine(rows[attacker], honest[attacker]) == pytest.approx(1.0, abs=1e-5)
        own = np.linalg.norm(honest[attacker])
        assert np.linalg.norm(rows[attacker]) == pytest.approx(2 * max(own, usual), rel=1e-4)


def test_inflate_limits_the_norm_of_an_update():
    view, attack = seen(), attacks.make("inflate", stretch=9.0, most=1.5)
    sent = after(attack, view)
    usual = float(view.benign.norm(dim=1).median())
    np.testing.assert_allclose(sent[5:].norm(dim=1), 1.5 * usual, rtol=1e-5)
    shorter = replace(view, updates=view.updates / 4, round=2)
    lengths = after(attack, shorter)[5:].norm(dim=1)
    np.testing.assert_allclose(lengths, 1.5 * usual, rtol=1e-5)  # by the longest so far, not by this round's


def test_inflate_sends_finite_rows_among_broken_and_zero_rows():
    view = seen()
    broken = view.updates.clone()
    broken[0], broken[1] = torch.nan, torch.inf
    sent = after(attacks.make("inflate"), replace(view, updates=broken))
    assert bool(sent[5:].isfinite().all())
    assert float(view.memory["longest"]) < 100
    still = attacks.make("inflate")(torch.zeros(6, 3), torch.arange(6) > 3)
    assert bool((still == 0).all())
