"""FLTrust: its step by hand, and the size of its root set."""

from __future__ import annotations

import numpy as np
import torch
from helpers import end_round, refused
from torch import nn
from training_tools import assert_near

import fedcap
from fedcap import methods
from fedcap.detection import Batch
from fedcap.methods.fltrust import trusted_step
from fedcap.training import Layout


def test_trust_is_the_positive_cosine_and_lengths_are_the_roots():
    rng = np.random.default_rng(0)
    for _ in range(100):
        updates, root = rng.normal(size=(8, 5)), rng.normal(size=5)
        total, scores = np.zeros(5), 0.0
        for row in updates:
            cosine = row @ root / np.linalg.norm(row) / np.linalg.norm(root)
            score = max(0.0, cosine)
            total += score * row * np.linalg.norm(root) / np.linalg.norm(row)
            scores += score
        found = trusted_step(torch.from_numpy(updates), torch.from_numpy(root))
        np.testing.assert_allclose(found, total / scores, rtol=1e-9)


def test_untrusted_updates_do_not_move_the_model():
    root = torch.tensor([1.0, 0.0])
    assert trusted_step(torch.tensor([[-1.0, 0.0], [0.0, 0.0], [-1e30, 5.0]]), root).tolist() == [0, 0]
    assert_near(trusted_step(torch.tensor([[1e30, 0.0], [-5.0, 0.0]]), root), root)
    assert trusted_step(torch.ones(2, 2), torch.zeros(2)).tolist() == [0, 0]
    method = methods.make("fltrust")
    state = method.init(torch.zeros(2), Layout.of(nn.Linear(1, 1)))
    uploads = Batch(torch.tensor([0]), torch.ones(1, 2), torch.ones(1))
    with refused("missing-root"):
        end_round(method, state, uploads)


def test_the_root_set_has_100_samples_unless_told_otherwise():
    assert len(fedcap.Experiment(method="fltrust").load_data().root) == 100
