"""Who has which samples: the defining property of each partition, and the errors for what cannot be met."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcap.data import partitions
from fedcap.errors import InputError

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
def test_no_sample_is_given_twice(name: str, clients: int, samples: int):
    labels = labels_of(10, 100)
    shares = deal(name, labels, clients, samples, **OPTIONS[name])
    given = torch.cat(shares)
    assert len(shares) == clients
    assert len(given.unique()) == len(given)
    assert given.min() >= 0
    assert given.max() < len(labels)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_shares_are_a_function_of_the_generator(name: str):
    labels = labels_of(10, 100)
    first, again, other = (deal(name, labels, 6, 24, seed, **OPTIONS[name]) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_global_random_state_plays_no_part(name: str):
    labels = labels_of(10, 100)
    before = torch.get_rng_state()
    first = deal(name, labels, 6, 24, **OPTIONS[name])
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again = deal(name, labels, 6, 24, **OPTIONS[name])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


# --- IID


@pytest.mark.parametrize(("clients", "samples", "each"), [(4, None, 250), (7, None, 142), (10, 30, 30)])
def test_iid_clients_all_have_the_same_number_of_samples(clients: int, samples: int | None, each: int):
    shares = deal("iid", labels_of(10, 100), clients, samples)
    assert [len(share) for share in shares] == [each] * clients


def test_iid_clients_have_every_class_about_alike():
    labels = labels_of(5, 1000)
    for share in deal("iid", labels, 5):
        found = counts(labels, share)
        assert all(150 < found[label] < 250 for label in range(5))


@pytest.mark.parametrize(("clients", "samples", "numbers"), [(5, 30, (150, 100)), (101, None, (101, 100))])
def test_iid_tells_what_it_would_need(clients: int, samples: int | None, numbers: tuple[int, int]):
    with pytest.raises(InputError) as error:
        deal("iid", labels_of(10, 10), clients, samples)
    assert all(re.search(rf"\b{number}\b", str(error.value)) for number in numbers)


# --- Pathological


@pytest.mark.parametrize("classes_per_client", [1, 2, 3, 10])
@pytest.mark.parametrize("clients", [3, 10, 20])
def test_pathological_clients_have_exactly_k_classes_evenly(classes_per_client: int, clients: int):
    labels = labels_of(10, 300)
    shares = deal("pathological", labels, clients, 60, classes_per_client=classes_per_client)
    for share in shares:
        assert sorted(counts(labels, share).values()) == [60 // classes_per_client] * classes_per_client


@pytest.mark.parametrize("clients", [5, 10, 13, 20])
def test_every_class_goes_to_as_many_clients_as_any_other_give_or_take_one(clients: int):
    labels = labels_of(10, 300)
    shares = deal("pathological", labels, clients, 20)
    holders = Counter(label for share in shares for label in counts(labels, share))
    assert max(holders[k] for k in range(10)) - min(holders[k] for k in range(10)) <= 1


def test_pathological_spreads_what_does_not_divide_by_one():
    labels = labels_of(10, 300)
    for share in deal("pathological", labels, 10, 20, classes_per_client=3):
        assert sorted(counts(labels, share).values()) == [6, 7, 7]


def test_pathological_takes_as_many_as_there_are_unless_told():
    labels = labels_of(10, 30)
    shares = deal("pathological", labels, 10)
    assert [len(share) for share in shares] == [30] * 10


def test_pathological_tells_how_many_samples_of_a_class_are_missing():
    with pytest.raises(InputError, match=r"class [01] has 20 samples too few"):
        deal("pathological", labels_of(2, 40), 3, 40)


def test_pathological_tells_that_there_are_not_as_many_classes():
    with pytest.raises(InputError, match=r"3 classes per client.* only 2"):
        deal("pathological", labels_of(2, 40), 3, 6, classes_per_client=3)


def test_pathological_refuses_more_clients_than_it_has_samples_for():
    with pytest.raises(InputError):
        deal("pathological", labels_of(2, 10), 100)


def test_pathological_refuses_fewer_samples_than_classes_per_client():
    with pytest.raises(InputError):
        deal("pathological", labels_of(10, 10), 4, 1, classes_per_client=2)


# --- Pathological in blocks


def held_in_blocks(clients: int, classes: int, classes_per_client: int) -> list[list[int]]:
    labels = labels_of(classes, 4 * clients)
    options = {"classes_per_client": classes_per_client, "sharing": "blocks"}
    shares = deal("pathological", labels, clients, 2 * classes_per_client, **options)
    assert all(set(counts(labels, share).values()) == {2} for share in shares)
    return [sorted(counts(labels, share)) for share in shares]


@pytest.mark.parametrize(
    ("clients", "classes", "classes_per_client", "held"),
    [
        (20, 10, 2, [[0, 1]] * 4 + [[2, 3]] * 4 + [[4, 5]] * 4 + [[6, 7]] * 4 + [[8, 9]] * 4),
        (13, 10, 2, [[0, 1]] * 3 + [[2, 3]] * 3 + [[4, 5]] * 3 + [[6, 7]] * 3 + [[8, 9]]),
        (3, 10, 2, [[0, 1], [2, 3], [4, 5]]),
        (7, 3, 1, [[0]] * 3 + [[1]] * 3 + [[2]]),
        (20, 10, 3, [[0, 1, 2]] * 6 + [[3, 4, 5]] * 6 + [[6, 7, 8]] * 6 + [[0, 1, 9]] * 2),
        (5, 4, 3, [[0, 1, 2]] * 4 + [[0, 1, 3]]),
        (4, 3, 3, [[0, 1, 2]] * 4),
    ],
)
def test_blocks_of_clients_have_the_same_classes(clients, classes, classes_per_client, held):
    assert held_in_blocks(clients, classes, classes_per_client) == held


@settings(max_examples=60, deadline=None)
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


def test_groups_may_overlap_and_differ_in_size():
    labels = labels_of(6, 200)
    groups = ((0, 1), (1, 2, 3, 4))
    shares = deal("groups", labels, 4, 60, groups=groups, dominant=1.0)
    for client, share in enumerate(shares):
        group = groups[client % 2]
        assert counts(labels, share) == {label: 60 // len(group) for label in group}


def test_groups_tell_how_many_samples_of_a_class_are_missing():
    with pytest.raises(InputError, match=r"class 0 has 10 samples too few"):
        deal("groups", labels_of(2, 40), 1, 50, groups=((0,),), dominant=1.0)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((), "needs its groups"),
        (((0, 1), (2, 9)), "class 9; there are 4"),
        (((-1,),), "class -1"),
    ],
)
def test_groups_must_name_classes_that_exist(groups: tuple[tuple[int, ...], ...], message: str):
    with pytest.raises(InputError, match=message):
        deal("groups", labels_of(4, 40), 2, 10, groups=groups)


def test_a_group_without_classes_is_refused():
    with pytest.raises(InputError):
        deal("groups", labels_of(4, 40), 2, 10, groups=((0, 1), ()))


@pytest.mark.parametrize("dominant", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("clients", [3, 7, 30])
def test_groups_deal_out_all_there_is_unless_told(dominant: float, clients: int):
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


def test_groups_that_leave_a_client_without_samples_are_refused():
    with pytest.raises(InputError, match="would have no sample"):
        deal("groups", labels_of(2, 3), 20, groups=((0,), (1,)), dominant=1.0)


def test_a_class_named_twice_in_a_group_costs_no_samples():
    shares = deal("groups", labels_of(4, 40), 2, 10, groups=((0, 0, 1),))
    assert [len(share) for share in shares] == [10, 10]


def test_the_number_missing_counts_every_client():
    with pytest.raises(
        InputError, match=r"class [01] has 60 samples too few.*120 are missing over 2 classes"
    ):
        deal("pathological", labels_of(2, 40), 5, 40)


# --- Natural


def test_natural_clients_have_their_owners_samples():
    labels = labels_of(10, 40)
    shares = deal("natural", labels, 40)
    assert [share.tolist() for share in shares] == [list(range(at, at + 10)) for at in range(0, 400, 10)]


def test_fewer_natural_clients_are_drawn_among_the_owners_whole():
    labels = labels_of(10, 40)
    everybody = {tuple(share.tolist()) for share in deal("natural", labels, 40)}
    some = {tuple(share.tolist()) for share in deal("natural", labels, 7)}
    assert len(some) == 7
    assert some < everybody


def test_samples_caps_what_a_natural_client_keeps():
    labels = labels_of(10, 40)
    capped = deal("natural", labels, 40, 6)
    for whole, share in zip(deal("natural", labels, 40), capped, strict=True):
        assert len(share) == 6
        assert set(share.tolist()) <= set(whole.tolist())


def test_natural_tells_how_many_owners_are_missing():
    with pytest.raises(InputError, match="50 clients, but the data has 40 owners: 10 are missing"):
        deal("natural", labels_of(10, 40), 50)


def test_natural_needs_to_know_whose_samples_they_are():
    with pytest.raises(InputError, match="names the owner of each sample"):
        partitions.make("natural").bind(None)


def test_the_owners_are_not_an_option_of_the_natural_partition():
    assert partitions.registry.options("natural") == []
    with pytest.raises(InputError, match="no option 'owners'"):
        partitions.make("natural", owners=[0, 0, 1])


# --- Dirichlet


def skew(labels: torch.Tensor, shares: list[torch.Tensor]) -> float:
    """Mean share of a client's commonest class."""
    return sum(max(counts(labels, share).values()) / len(share) for share in shares) / len(shares)


def test_a_smaller_beta_makes_clients_differ_more():
    labels = labels_of(10, 200)
    found = [
        sum(skew(labels, deal("dirichlet", labels, 10, seed=seed, beta=beta)) for seed in range(5)) / 5
        for beta in (0.1, 1.0, 10.0, 1000.0)
    ]
    assert found[0] > found[1] > found[2] > found[3]
    assert found[0] > 0.4
    assert found[3] < 0.13


@pytest.mark.parametrize("smallest", [1, 8, 40])
def test_the_smallest_dirichlet_client_has_what_is_asked(smallest: int):
    shares = deal("dirichlet", labels_of(10, 100), 10, beta=0.3, smallest=smallest)
    assert min(len(share) for share in shares) >= smallest


def test_dirichlet_deals_out_every_sample():
    for beta in (0.2, 5.0):
        shares = deal("dirichlet", labels_of(7, 33), 5, beta=beta)
        assert sorted(torch.cat(shares).tolist()) == list(range(7 * 33))


def test_samples_caps_what_a_dirichlet_client_keeps():
    free = deal("dirichlet", labels_of(10, 100), 10)
    capped = deal("dirichlet", labels_of(10, 100), 10, 50)
    assert [len(share) for share in capped] == [min(50, len(share)) for share in free]
    assert all(set(c.tolist()) <= set(f.tolist()) for c, f in zip(capped, free, strict=True))


def test_an_impossible_dirichlet_tells_the_numbers():
    with pytest.raises(InputError) as error:
        deal("dirichlet", labels_of(2, 10), 4, smallest=6, tries=20)
    assert all(re.search(rf"\b{number}\b", str(error.value)) for number in (20, 4, 6))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dirichlet", {"beta": 0}),
        ("dirichlet", {"smallest": 0}),
        ("groups", {"dominant": 1.2}),
        ("pathological", {"classes_per_client": 0}),
    ],
)
def test_options_outside_their_range_are_refused(name: str, options: dict[str, float]):
    with pytest.raises(InputError, match=next(iter(options))):
        partitions.make(name, **options)
