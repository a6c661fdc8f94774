"""The embedded digits, and their partition."""

from __future__ import annotations

import pytest
import torch
from helpers import refused

from fedcap import data
from fedcap.simulation import Experiment


def test_digits_are_1797_images_of_ten_classes_between_minus_one_and_one():
    dataset = data.make("digits").load()
    assert dataset.samples.x.shape == (1797, 1, 8, 8)
    assert (dataset.samples.x.min(), dataset.samples.x.max()) == (-1, 1)
    assert dataset.samples.y.unique().tolist() == list(range(10))
    assert dataset.classes == 10


def test_digits_go_to_20_clients_with_42_training_and_18_test_samples_each():
    federated = Experiment(dataset="digits").load_data()
    assert [len(part) for part in federated.train] == [42] * 20
    assert [len(part) for part in federated.test] == [18] * 20
    assert federated.shape == (1, 8, 8)


def test_digits_clients_have_their_groups_classes_only():
    groups = (range(5), range(5, 10), range(0, 10, 2), range(1, 10, 2))
    federated = Experiment(dataset="digits", seed=1).load_data()
    for client in range(20):
        labels = torch.cat([federated.train[client].y, federated.test[client].y]).tolist()
        assert {label: labels.count(label) for label in labels} == dict.fromkeys(groups[client % 4], 12)


def test_the_share_of_the_groups_classes_can_be_set_alone():
    dataset = {"name": "digits", "samples": 80, "partition": {"dominant": 0.8}}
    federated = Experiment(dataset=dataset).load_data()
    labels = torch.cat([federated.train[0].y, federated.test[0].y])
    assert 64 + 5 <= int((labels < 5).sum()) <= 64 + 10  # 64, and a part of the 16 from all ten classes


@pytest.mark.parametrize(
    "options", [{"clients": 1}, {"samples": 1}, {"train_share": 1.0}, {"train_share": 0}]
)
def test_digits_options_outside_their_range_are_refused(options: dict[str, float]):
    with refused("bad-value"):
        data.make("digits", **options)
