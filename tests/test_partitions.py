"""From a data set to clients: the defining property of each partition, parts, names, and the root set."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcap.data import Dataset, federate, partitions
from fedcap.state import Samples

OPTIONS = {
    "iid": {},
    "pathological": {},
    "groups": {"groups": ((0, 1, 2), (3, 4, 5), (6, 7, 8, 9))},
    "dirichlet": {},
    "natural": {},
}


def labels_of(classes: int, each: int) -> torch.Tensor:
    return torch.arange(classes).repeat(each)


def deal(name: str, labels: torch.Tensor, clients: int, samples: int | None = None, seed: int = 0, **options):
    generator = torch.Generator().manual_seed(seed)
    owners = torch.arange(len(labels)) * 40 // len(labels)  # forty owners, a stretch of samples each
    return list(partitions.make(name, **options).bind(owners)(labels, clients, samples, generator))


def counts(labels: torch.Tensor, share: torch.Tensor) -> Counter[int]:
    return Counter(labels[share].tolist())


# --- What all partitions promise


def test_every_partition_is_tested_here():
    assert set(OPTIONS) == set(partitions.names())


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("clients", "samples"), [(2, 30), (10, 20), (30, 10)])
def test_no_sample_is_given_twice_and_the_shares_are_a_function_of_the_generator(
    name: str, clients: int, samples: int
):
    labels = labels_of(10, 100)
    before = torch.get_rng_state()
    shares, other = (deal(name, labels, clients, samples, seed, **OPTIONS[name]) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    given = torch.cat(shares)
    assert len(shares) == clients
    assert len(given.unique()) == len(given)
    assert given.min() >= 0
    assert given.max() < len(labels)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again = deal(name, labels, clients, samples, **OPTIONS[name])
    assert all(torch.equal(a, b) for a, b in zip(shares, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(shares, other, strict=True))


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("dirichlet", {"beta": 0}, "beta"),
        ("dirichlet", {"smallest": 0}, "smallest"),
        ("groups", {"dominant": 1.2}, "dominant"),
        ("pathological", {"classes_per_client": 0}, "classes_per_client"),
        ("natural", {"owners": [0, 0, 1]}, None),
    ],
)
def test_options_that_do_not_exist_or_are_out_of_range_are_refused(
    name: str, options: dict[str, Any], field: str | None
):
    with refused("bad-value" if field else "unknown-option", field):
        partitions.make(name, **options)


@pytest.mark.parametrize(
    ("name", "labels", "clients", "samples", "options", "code", "numbers"),
    [
        ("iid", (10, 10), 5, 30, {}, "too-few-samples", (150, 100)),
        ("iid", (10, 10), 101, None, {}, "too-few-samples", (101, 100)),
        ("pathological", (2, 40), 3, 40, {}, "too-few-samples", (20,)),
        ("pathological", (2, 40), 5, 40, {}, "too-few-samples", (60, 120)),
        ("pathological", (2, 10), 100, None, {}, "too-few-samples", ()),
        ("pathological", (10, 10), 4, 1, {"classes_per_client": 2}, "too-few-samples", ()),
        ("pathological", (2, 40), 3, 6, {"classes_per_client": 3}, "unknown-class", (3, 2)),
        ("groups", (2, 40), 1, 50, {"groups": ((0,),), "dominant": 1.0}, "too-few-samples", (10,)),
        ("groups", (2, 3), 20, None, {"groups": ((0,), (1,)), "dominant": 1.0}, "too-few-samples", ()),
        ("groups", (4, 40), 2, 10, {"groups": ()}, "missing-option", ()),
        ("groups", (4, 40), 2, 10, {"groups": ((0, 1), ())}, "missing-option", ()),
        ("groups", (4, 40), 2, 10, {"groups": ((0, 1), (2, 9))}, "unknown-class", (9, 4)),
        ("groups", (4, 40), 2, 10, {"groups": ((-1,),)}, "unknown-class", (-1,)),
        ("natural", (10, 40), 50, None, {}, "too-few-owners", (50, 40, 10)),
        ("dirichlet", (2, 10), 4, None, {"smallest": 6, "tries": 20}, "too-few-samples", (20, 4, 6)),
    ],
)
def test_what_cannot_be_dealt_is_an_error_with_the_numbers(
    name: str,
    labels: tuple[int, int],
    clients: int,
    samples: int | None,
    options: dict[str, Any],
    code: str,
    numbers: tuple[int, ...],
):
    with refused(code) as error:
        deal(name, labels_of(*labels), clients, samples, **options)
    assert all(re.search(rf"(?<!\d){number}\b", str(error.value)) for number in numbers)


# --- IID


@pytest.mark.parametrize(("clients", "samples", "each"), [(4, None, 250), (7, None, 142), (10, 30, 30)])
def test_iid_clients_have_the_same_number_of_samples_and_all_classes(
    clients: int, samples: int | None, each: int
):
    shares = deal("iid", labels_of(10, 100), clients, samples)
    assert [len(share) for share in shares] == [each] * clients
    labels = labels_of(5, 1000)
    for share in deal("iid", labels, 5):
        found = counts(labels, share)
        assert all(150 < found[label] < 250 for label in range(5))


# --- Pathological


@pytest.mark.parametrize("classes_per_client", [1, 2, 3, 10])
@pytest.mark.parametrize("clients", [3, 10, 13, 20])
def test_pathological_clients_have_k_classes_evenly_and_classes_have_clients_evenly(
    classes_per_client: int, clients: int
):
    labels = labels_of(10, 300)
    shares = deal("pathological", labels, clients, 61, classes_per_client=classes_per_client)
    holders: Counter[int] = Counter()
    for share in shares:
        found = counts(labels, share)
        assert len(found) == classes_per_client
        assert sum(found.values()) == 61
        assert max(found.values()) - min(found.values()) <= 1
        holders.update(found.keys())
    assert max(holders[k] for k in range(10)) - min(holders[k] for k in range(10)) <= 1


def test_pathological_takes_as_many_as_there_are_by_default():
    shares = deal("pathological", labels_of(10, 30), 10)
    assert [len(share) for share in shares] == [30] * 10


def held_in_blocks(clients: int, classes: int, classes_per_client: int) -> list[list[int]]:
    labels = labels_of(classes, 4 * clients)
    options = {"classes_per_client": classes_per_client, "sharing": "blocks"}
    shares = deal("pathological", labels, clients, 2 * classes_per_client, **options)
    assert all(set(counts(labels, share).values()) == {2} for share in shares)
    return [sorted(counts(labels, share)) for share in shares]


@pytest.mark.parametrize(
    ("clients", "classes", "classes_per_client", "held"),
    [
        (13, 10, 2, [[0, 1]] * 3 + [[2, 3]] * 3 + [[4, 5]] * 3 + [[6, 7]] * 3 + [[8, 9]]),
        (7, 3, 1, [[0]] * 3 + [[1]] * 3 + [[2]]),
        (20, 10, 3, [[0, 1, 2]] * 6 + [[3, 4, 5]] * 6 + [[6, 7, 8]] * 6 + [[0, 1, 9]] * 2),
        (4, 3, 3, [[0, 1, 2]] * 4),
    ],
)
def test_blocks_of_clients_have_the_same_classes(clients, classes, classes_per_client, held):
    assert held_in_blocks(clients, classes, classes_per_client) == held


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_blocks_are_classes_dealt_one_by_one_to_the_next_clients_that_lack_one(clients, classes, data):
    each = data.draw(st.integers(1, classes))
    held = held_in_blocks(clients, classes, each)
    assert [len(own) for own in held] == [each] * clients
    turn = -(-clients * each // classes)
    dealt: list[list[int]] = [[] for _ in range(clients)]
    for label in range(classes):
        for own in [own for own in dealt if len(own) < each][:turn]:
            own.append(label)
    short = next((at for at, own in enumerate(dealt) if len(own) < each), clients)
    assert held[:short] == dealt[:short]
    for own, before in zip(held[short:], dealt[short:], strict=True):  # from the first class on once more
        assert own == [*range(each - len(before)), *before]


# --- Groups


@pytest.mark.parametrize("dominant", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("samples", [50, 100])
def test_group_clients_have_their_share_from_the_groups_classes(dominant: float, samples: int):
    labels = labels_of(10, 400)
    groups = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    shares = deal("groups", labels, 8, samples, groups=groups, dominant=dominant)
    own = round(dominant * samples)
    for client, share in enumerate(shares):
        found = counts(labels, share)
        assert sum(found.values()) == samples
        mine = sum(found[label] for label in groups[client % 2])
        # The rest is from all ten classes alike, give or take one, and five of them are the group's own.
        rest = samples - own
        assert own + 5 * (rest // 10) <= mine <= own + 5 * -(-rest // 10)


@pytest.mark.parametrize("groups", [((0, 1), (1, 2, 3, 4)), ((0, 0, 1), (2,))])
def test_groups_may_overlap_differ_in_size_and_repeat_a_class(groups: tuple[tuple[int, ...], ...]):
    labels = labels_of(6, 200)
    for client, share in enumerate(deal("groups", labels, 4, 60, groups=groups, dominant=1.0)):
        group = set(groups[client % 2])
        assert counts(labels, share) == {label: 60 // len(group) for label in group}


@pytest.mark.parametrize("dominant", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("clients", [3, 7, 30])
def test_groups_deal_out_all_samples_by_default(dominant: float, clients: int):
    sizes = [30, 60, 90, 120, 200, 250]
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    groups = ((0, 1), (2, 3), (4, 5))
    shares = deal("groups", labels, clients, groups=groups, dominant=dominant)
    given = torch.cat(shares)
    assert len(given.unique()) == len(given) >= len(labels) - 6
    for client, share in enumerate(shares):
        found = counts(labels, share)
        mine = sum(found[label] for label in groups[client % 3])
        assert mine >= round(dominant * len(share)) - 1
    if dominant == 1.0:  # clients of one group have as much as each other, give or take one
        for group in range(3):
            lengths = [len(share) for share in shares[group::3]]
            assert max(lengths) - min(lengths) <= 1


# --- Natural and Dirichlet


def test_natural_clients_have_their_owners_samples():
    labels = labels_of(10, 40)
    shares = deal("natural", labels, 40)
    assert [share.tolist() for share in shares] == [list(range(at, at + 10)) for at in range(0, 400, 10)]
    some = {tuple(share.tolist()) for share in deal("natural", labels, 7)}
    assert len(some) == 7
    assert some < {tuple(share.tolist()) for share in shares}
    with refused("no-owners"):
        partitions.make("natural").bind(None)


@pytest.mark.parametrize(("name", "clients", "limit"), [("natural", 40, 6), ("dirichlet", 10, 50)])
def test_samples_limits_what_a_client_has(name: str, clients: int, limit: int):
    labels = labels_of(10, 100)
    free, capped = deal(name, labels, clients), deal(name, labels, clients, limit)
    assert [len(share) for share in capped] == [min(limit, len(share)) for share in free]
    assert all(set(c.tolist()) <= set(f.tolist()) for c, f in zip(capped, free, strict=True))


def test_a_smaller_beta_makes_dirichlet_clients_differ_more():
    def skew(shares: list[torch.Tensor]) -> float:
        """Return the mean share of a client's commonest class."""
        return sum(max(counts(labels, share).values()) / len(share) for share in shares) / len(shares)

    labels = labels_of(10, 200)
    found = [
        sum(skew(deal("dirichlet", labels, 10, seed=seed, beta=beta)) for seed in range(5)) / 5
        for beta in (0.1, 1.0, 10.0, 1000.0)
    ]
    assert found[0] > found[1] > found[2] > found[3]
    assert found[0] > 0.4
    assert found[3] < 0.13


@pytest.mark.parametrize("smallest", [1, 8, 40])
def test_dirichlet_clients_have_all_samples_and_at_least_the_smallest_number(smallest: int):
    shares = deal("dirichlet", labels_of(10, 100), 10, beta=0.3, smallest=smallest)
    assert min(len(share) for share in shares) >= smallest
    assert sorted(torch.cat(shares).tolist()) == list(range(1000))


# --- From a data set to clients


def numbered(classes: int, each: int) -> Dataset:
    """A data set whose every input is its own number."""
    labels = torch.arange(classes).repeat(each)
    x = torch.arange(len(labels), dtype=torch.float32)[:, None]
    return Dataset(Samples(x, labels), tuple(map(str, range(classes))))


def owned(names: tuple[str, ...], each: int) -> Dataset:
    """A data set in which each owner has as many samples, the owners in turns."""
    dataset = numbered(4, len(names) * each // 4)
    return replace(dataset, owners=torch.arange(len(dataset.samples)) % len(names), owner_names=names)


@pytest.mark.parametrize("samples", [None, 10])
@pytest.mark.parametrize("drawn", [None, 3])
def test_natural_clients_have_the_owners_names(samples: int | None, drawn: int | None):
    users = ("u03", "u11", "a", "u02", "b")
    for seed in range(3):
        federated = federate(owned(users, 20), partitions.make("natural"), drawn, samples, 0.5, seed)
        assert len(set(federated.names)) == (drawn or 5)
        for name, train, test in zip(federated.names, federated.train, federated.test, strict=True):
            held = torch.cat([train.x, test.x]).flatten()
            assert (held % 5 == users.index(name)).all()
    assert len(federate(owned(users, 20), partitions.make("natural"), None, None, 0.75, 0)) == 5
    assert federate(owned(users, 20), partitions.make("iid"), 4, None, 0.75, 0).names == ("0", "1", "2", "3")
    assert len(federate(numbered(4, 50), partitions.make("iid"), None, None, 0.75, 0)) == 20
    with refused("name-taken"):
        federate(owned(("ann", "bob", "ann"), 40), partitions.make("natural"), None, None, 0.5, seed=0)


def test_training_and_test_parts_have_no_sample_in_common():
    federated = federate(numbered(4, 50), partitions.make("iid"), 5, 20, 0.75, seed=0)
    assert [len(part) for part in federated.train] == [15] * 5
    assert [len(part) for part in federated.test] == [5] * 5
    everything = torch.cat([part.x for part in (*federated.train, *federated.test)]).flatten()
    assert len(everything.unique()) == 100
    for part in (*federated.train, *federated.test):
        assert torch.equal(part.y, part.x.flatten().long() % 4)
    with refused("too-few-samples", "0"):
        federate(numbered(4, 10), partitions.make("iid"), 5, 1, 0.75, seed=0)


def test_federating_is_a_function_of_the_seed():
    first, again, other = (
        federate(numbered(4, 50), partitions.make("pathological"), 4, 20, 0.5, seed) for seed in (3, 3, 4)
    )
    assert first.partition_hash == again.partition_hash != other.partition_hash
    assert first.data_hash == again.data_hash == other.data_hash
    for a, b in zip((*first.train, *first.test), (*again.train, *again.test), strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)


def test_data_with_its_own_split_is_split_so():
    dataset = numbered(4, 50)
    tests = torch.arange(200) % 5 == 0
    federated = federate(replace(dataset, test=tests), partitions.make("iid"), 4, 40, 0.75, seed=0)
    assert not any(tests[part.x.flatten().long()].any() for part in federated.train)
    assert all(tests[part.x.flatten().long()].all() for part in federated.test)
    without = replace(dataset, test=torch.zeros(200, dtype=torch.bool))
    with refused("too-few-samples"):
        federate(without, partitions.make("iid"), 4, 40, 0.75, 0)


# --- The root set


@pytest.mark.parametrize(("classes", "root"), [(4, 20), (4, 22), (10, 7), (3, 3)])
def test_a_root_set_is_even_over_the_classes_and_changes_no_client(classes: int, root: int):
    plain, rooted = (
        federate(numbered(classes, 60), partitions.make("iid"), 5, 5, 0.6, 0, root=size) for size in (0, root)
    )
    assert plain.root is None
    assert rooted.root is not None
    found = Counter(rooted.root.y.tolist())
    assert sum(found.values()) == root
    assert max(found.values()) - min(found[k] for k in range(classes)) <= 1
    given = torch.cat([part.x for part in (*rooted.train, *rooted.test)]).flatten()
    held = rooted.root.x.flatten()
    assert len(held.unique()) == root
    assert not torch.isin(held, given).any()
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


def test_if_clients_have_all_samples_the_root_set_is_part_of_what_they_train_on():
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
    with refused("too-few-samples"):
        federate(numbered(4, 30), partitions.make("iid"), 5, 20, 0.6, 0, root=60)
