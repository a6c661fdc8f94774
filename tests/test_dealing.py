"""From a data set to clients: names, training and test parts, and the server's root set."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from fedcap.data import Dataset, federate, partitions
from fedcap.errors import InputError
from fedcap.state import Samples


def numbered(classes: int, each: int) -> Dataset:
    """A data set whose every input is its own number."""
    labels = torch.arange(classes).repeat(each)
    x = torch.arange(len(labels), dtype=torch.float32)[:, None]
    return Dataset(Samples(x, labels), tuple(map(str, range(classes))))


def owned(names: tuple[str, ...], each: int) -> Dataset:
    """A data set in which each owner has as many samples, the owners in turns."""
    dataset = numbered(4, len(names) * each // 4)
    return replace(dataset, owners=torch.arange(len(dataset.samples)) % len(names), owner_names=names)


# --- Names


@pytest.mark.parametrize("name", ["iid", "pathological", "dirichlet"])
def test_clients_are_called_by_their_number(name: str):
    federated = federate(owned(("u03", "u01"), 100), partitions.make(name), 4, None, 0.75, seed=0)
    assert federated.names == ("0", "1", "2", "3")


def test_natural_clients_are_called_what_the_data_calls_them():
    users = ("u03", "u11", "a", "u02")
    federated = federate(owned(users, 20), partitions.make("natural"), None, None, 0.75, seed=0)
    assert federated.names == users
    for place, part in enumerate(federated.train):
        assert (part.x.flatten().long() % 4 == place).all()


@pytest.mark.parametrize("samples", [None, 10])
@pytest.mark.parametrize("seed", range(4))
def test_natural_clients_keep_their_names_when_only_some_are_drawn(samples: int | None, seed: int):
    users = tuple(f"u{number:02}" for number in range(10))
    federated = federate(owned(users, 20), partitions.make("natural"), 3, samples, 0.5, seed)
    assert len(set(federated.names)) == 3
    for name, train, test in zip(federated.names, federated.train, federated.test, strict=True):
        held = torch.cat([train.x, test.x]).flatten().long()
        assert (held % 10 == users.index(name)).all()


def test_two_clients_of_one_name_are_refused():
    with pytest.raises(InputError, match="two clients are called 'ann'"):
        federate(owned(("ann", "bob", "ann"), 40), partitions.make("natural"), None, None, 0.5, seed=0)


# --- Training and test parts


def test_training_and_test_parts_have_no_sample_in_common():
    federated = federate(numbered(4, 50), partitions.make("iid"), 5, 20, 0.75, seed=0)
    assert [len(part) for part in federated.train] == [15] * 5
    assert [len(part) for part in federated.test] == [5] * 5
    everything = torch.cat([part.x for part in (*federated.train, *federated.test)]).flatten()
    assert len(everything.unique()) == 100
    for part in (*federated.train, *federated.test):
        assert torch.equal(part.y, part.x.flatten().long() % 4)


def test_federating_is_a_function_of_the_seed():
    first, again, other = (
        federate(numbered(4, 50), partitions.make("pathological"), 4, 20, 0.5, seed) for seed in (3, 3, 4)
    )
    assert first.partition_hash == again.partition_hash != other.partition_hash
    assert first.data_hash == again.data_hash == other.data_hash
    for parts in ("train", "test"):
        for a, b in zip(getattr(first, parts), getattr(again, parts), strict=True):
            assert torch.equal(a.x, b.x)
            assert torch.equal(a.y, b.y)


def test_a_client_with_too_few_samples_to_split_is_an_error_that_names_it():
    with pytest.raises(InputError, match="client '0' has 1 sample: too few"):
        federate(numbered(4, 10), partitions.make("iid"), 5, 1, 0.75, seed=0)


def test_data_that_brings_its_own_split_is_split_so():
    dataset = numbered(4, 50)
    tests = torch.arange(200) % 5 == 0
    federated = federate(replace(dataset, test=tests), partitions.make("iid"), 4, 40, 0.75, seed=0)
    for part in federated.train:
        assert not tests[part.x.flatten().long()].any()
    for part in federated.test:
        assert tests[part.x.flatten().long()].all()
    with pytest.raises(InputError, match="own split leaves it without"):
        federate(
            replace(dataset, test=torch.zeros(200, dtype=torch.bool)), partitions.make("iid"), 4, 40, 0.75, 0
        )


def test_without_a_number_there_is_a_client_per_owner_or_twenty():
    dataset = numbered(4, 50)
    owners = torch.arange(200) // 8
    owned = replace(dataset, owners=owners, owner_names=tuple(map(str, range(25))))
    assert len(federate(owned, partitions.make("natural"), None, None, 0.75, 0)) == 25
    assert len(federate(dataset, partitions.make("iid"), None, None, 0.75, 0)) == 20


# --- The root set


@pytest.mark.parametrize(("classes", "root"), [(4, 20), (4, 22), (10, 7), (3, 3)])
def test_a_root_set_is_even_over_the_classes_and_nobodys(classes: int, root: int):
    federated = federate(numbered(classes, 60), partitions.make("iid"), 5, 5, 0.6, 0, root=root)
    assert federated.root is not None
    found = Counter(federated.root.y.tolist())
    assert sum(found.values()) == root
    assert max(found.values()) - min(found[k] for k in range(classes)) <= 1
    given = torch.cat([part.x for part in (*federated.train, *federated.test)]).flatten()
    held = federated.root.x.flatten()
    assert len(held.unique()) == root
    assert not torch.isin(held, given).any()


def test_clients_are_the_same_with_a_root_set_and_without():
    plain, rooted = (
        federate(numbered(4, 60), partitions.make("pathological"), 5, 20, 0.6, 3, root=root)
        for root in (0, 40)
    )
    assert plain.root is None
    assert plain.partition_hash == rooted.partition_hash
    for one, other in zip((*plain.train, *plain.test), (*rooted.train, *rooted.test), strict=True):
        assert torch.equal(one.x, other.x)


def test_a_class_that_runs_out_leaves_its_part_of_the_root_set_to_the_others():
    labels = torch.tensor([0] * 50 + [1] * 50 + [2] * 3)
    dataset = Dataset(Samples(torch.arange(103.0)[:, None], labels), ("a", "b", "c"))
    groups = partitions.make("groups", groups=((0, 1),), dominant=1.0)
    federated = federate(dataset, groups, 2, 20, 0.5, 0, root=33)
    assert federated.root is not None
    assert Counter(federated.root.y.tolist()) == {0: 15, 1: 15, 2: 3}


def test_where_every_sample_is_some_client_s_the_root_set_comes_out_of_what_they_train_on():
    plain, rooted = (
        federate(numbered(4, 25), partitions.make("iid"), 5, 20, 0.6, 0, root=root) for root in (0, 20)
    )
    assert rooted.root is not None
    held = rooted.root.x.flatten()
    assert Counter(rooted.root.y.tolist()) == dict.fromkeys(range(4), 5)
    for before, after in zip(plain.train, rooted.train, strict=True):
        kept = before.x.flatten()
        assert torch.equal(after.x.flatten(), kept[~torch.isin(kept, held)])
    assert sum(map(len, plain.train)) - sum(map(len, rooted.train)) == 20
    for before, after in zip(plain.test, rooted.test, strict=True):
        assert torch.equal(before.x, after.x)


def test_a_root_set_that_would_take_most_of_the_training_samples_is_refused():
    with pytest.raises(InputError, match=r"root set of 60 .* leave 20, too few"):
        federate(numbered(4, 30), partitions.make("iid"), 5, 20, 0.6, 0, root=60)
