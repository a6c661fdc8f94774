"""FLTrust: its step by hand, and its root set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import end_round
from torch import nn
from training_tools import assert_near

import fedcap
from fedcap import methods
from fedcap.data import federate
from fedcap.data import make as make_data
from fedcap.data.partitioning import draw_root as root_set
from fedcap.data.partitions import make as make_partition
from fedcap.detection import Batch
from fedcap.errors import InputError
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
    with pytest.raises(InputError, match="root set"):
        end_round(method, state, uploads)


def test_the_root_set_is_disjoint_from_all_clients_data():
    dataset, seed = make_data("digits").load(), 3
    shares = (make_partition("iid"), 20, 80, 0.55, seed)
    with_root, without = (federate(dataset, *shares, root=root) for root in (100, 0))
    assert without.root is None
    assert with_root.root is not None
    assert sorted(torch.bincount(with_root.root.y).tolist()) == [10] * 10
    assert with_root.partition_hash == without.partition_hash
    assert all(torch.equal(a.x, b.x) for a, b in zip(with_root.train, without.train, strict=True))
    held = torch.cat([part.x for part in (*with_root.train, *with_root.test)]).flatten(1)
    taken = {tuple(row.tolist()) for row in held}
    twins = len(dataset.samples.x) - len({tuple(row.tolist()) for row in dataset.samples.x.flatten(1)})
    assert sum(tuple(row.tolist()) in taken for row in with_root.root.x.flatten(1)) <= twins
    with pytest.raises(InputError, match=r"root set of 3000 .* leave 197, too few"):
        federate(dataset, *shares, root=3000)


def test_a_root_set_takes_all_samples_of_rare_classes():
    labels = torch.tensor([0] * 50 + [1] * 50 + [2] * 8)
    held = torch.arange(30), torch.tensor([60, 61, 100, 101, 102])
    taken = torch.cat(held)
    found = root_set(labels, taken, lambda: held[:1], 25, seed=0)
    assert torch.bincount(labels[found]).tolist() == [10, 10, 5]
    assert not set(found.tolist()) & set(taken.tolist())
    assert not torch.equal(found, root_set(labels, taken, lambda: held[:1], 25, seed=1))
    assert len(fedcap.Experiment(method="fltrust").load_data().root) == 100
