"""The tolerance that rules promise, rows that are not finite, and arguments that are errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from helpers import refused

from fedcap import aggregators
from fedcap.aggregators import Aggregator

ROBUST = [name for name in aggregators.names() if name != "mean"]

# --- What rules promise

PROMISES = {
    "krum": {},
    "multi-krum": {},
    "median": {},
    "geometric-median": {},
    "trimmed-mean": {},
    "trimmed-mean all": {"cut": "all"},
    "norm-clipping": {},
    "centred-clipping": {},
    "gas": {},
    "gas krum": {"rule": "krum", "chunks": 4},
    "bucketing": {},
    "bucketing by three": {"size": 3},
    "bucketing multi-krum": {"rule": "multi-krum"},
    "bucketing trimmed-mean": {"rule": {"name": "trimmed-mean", "cut": "all"}},
    "gas bucketing": {"rule": {"name": "bucketing", "rule": "geometric-median"}},
}


def promising(name: str) -> Aggregator:
    return aggregators.make(name.partition(" ")[0], **PROMISES[name])


def honest_rows(count: int, seed: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(30, generator=generator)
    return direction + 0.3 * torch.randn(count, 30, generator=generator)


def one_way(honest: torch.Tensor, bad: int) -> torch.Tensor:
    return torch.full((bad, honest.shape[1]), 1e30)


def the_largest_numbers(honest: torch.Tensor, bad: int) -> torch.Tensor:
    return torch.full((bad, honest.shape[1]), -torch.finfo(torch.float32).max)


def every_way(honest: torch.Tensor, bad: int) -> torch.Tensor:
    return 1e30 * torch.randn(bad, honest.shape[1], generator=torch.Generator().manual_seed(5))


def every_size(honest: torch.Tensor, bad: int) -> torch.Tensor:
    return every_way(honest, bad) * 10.0 ** -torch.arange(0.0, 20.0, 3)[torch.arange(bad) % 7, None]


def the_honest_way(honest: torch.Tensor, bad: int) -> torch.Tensor:
    return 1e30 * honest.mean(dim=0).repeat(bad, 1)


Bad = Callable[[torch.Tensor, int], torch.Tensor]
SENT = [one_way, the_largest_numbers, every_way, every_size, the_honest_way]


def sent_by(honest: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    """Return all rows, the bad ones in between the honest ones."""
    rows = torch.cat([bad, honest])
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(6))]


def assert_near(name: str, found: torch.Tensor, honest: torch.Tensor, bad: int) -> None:
    """Check that an aggregate keeps the distance from the honest rows that its rule's module states."""
    longest = torch.linalg.vector_norm(honest, dim=1).max()
    if "clipping" in name:
        assert torch.linalg.vector_norm(found) <= 1.001 * longest * (7 if "centred" in name else 1)
    elif name == "geometric-median":
        mean, rows = honest.mean(dim=0), len(honest) + bad
        radius = torch.linalg.vector_norm(honest - mean, dim=1).max()
        assert torch.linalg.vector_norm(found - mean) <= 2 * len(honest) / (rows - 2 * bad) * radius
    else:
        slack = 1e-5 * longest
        assert bool((found >= honest.min(dim=0).values - slack).all()), name
        assert bool((found <= honest.max(dim=0).values + slack).all()), name


@pytest.mark.parametrize("send", SENT)
@pytest.mark.parametrize("name", PROMISES)
def test_the_number_of_bad_rows_that_a_rule_tolerates_moves_it_only_a_bounded_distance(name: str, send: Bad):
    rule = promising(name)
    most = 0
    for rows in (3, 5, 8, 13, 20):
        for assumed in range(rule.max_malicious(rows) + 1):
            bad = rule.tolerates(rows, assumed)
            honest = honest_rows(rows - bad)
            assert_near(name, rule(sent_by(honest, send(honest, bad)), malicious=assumed), honest, bad)
            most = max(most, bad)
    assert most >= 2


@pytest.mark.parametrize(
    "name",
    ["median", "trimmed-mean", "trimmed-mean all", "multi-krum", "gas", "norm-clipping", "centred-clipping"],
)
def test_one_bad_row_more_than_a_rule_tolerates_breaks_it(name: str):
    rule = promising(name)
    bad = rule.tolerates(20, 6) + 1
    honest = honest_rows(20 - bad)
    assert rule(sent_by(honest, one_way(honest, bad)), malicious=6).abs().max() > 1e20


def test_rules_promise_what_their_modules_say():
    expected = {
        "mean": 0,
        "clustered": 0,
        "dnc": 0,
        "krum": 6,
        "multi-krum": 6,
        "median": 9,
        "geometric-median": 9,
        "trimmed-mean": 3,
        "norm-clipping": 9,
        "centred-clipping": 9,
        "bucketing": 4,
        "gas": 6,
    }
    assert {name: aggregators.make(name).tolerates(20, 6) for name in aggregators.names()} == expected
    assert [aggregators.make("krum").tolerates(20, assumed) for assumed in (8, 9, 12, 17)] == [8, 8, 5, 0]
    assert aggregators.make("trimmed-mean", cut="all").tolerates(20, 9) == 9
    assert aggregators.make("bucketing", rule="krum").tolerates(20, 6) == 1
    assert aggregators.make("gas", rule="mean").tolerates(20, 6) == 0


@pytest.mark.parametrize("name", ["clustered", "dnc"])
def test_clustered_and_dnc_hold_if_bad_rows_go_one_way_together(name: str):
    honest = honest_rows(14)
    found = aggregators.make(name)(sent_by(honest, -1e30 * honest.mean(dim=0).repeat(6, 1)), malicious=6)
    torch.testing.assert_close(found, honest.mean(dim=0))


@pytest.mark.parametrize("name", ["median", "geometric-median", "krum", "bucketing"])
def test_a_rule_with_a_larger_m_than_it_tolerates_still_answers(name: str):
    rule, rows = aggregators.make(name), honest_rows(20)
    assumed = rule.max_malicious(20)
    assert rule.tolerates(20, assumed) < assumed
    assert rule(rows, malicious=assumed).isfinite().all()


# --- Rows that are no numbers


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ROBUST)
def test_rows_that_are_no_numbers_count_among_the_malicious(name: str, bad: float):
    rows = torch.randn(12, 7, generator=torch.Generator().manual_seed(0))
    hostile = torch.full((2, 7), bad)
    hostile[1, :-1] = rows[3, :-1]
    with_bad = torch.cat([rows[:5], hostile, rows[5:]])
    rule = aggregators.make(name)
    assert torch.equal(rule(with_bad, malicious=4), rule(rows, malicious=2))
    assert torch.equal(rule(with_bad, malicious=1), rule(rows, malicious=0))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_mean_refuses_rows_that_are_not_finite(bad: float):
    rows = torch.ones(4, 3)
    rows[2, 1] = bad
    with refused("not-finite"):
        aggregators.make("mean")(rows)
    with refused("not-finite"):
        aggregators.make("mean")(rows, torch.tensor([1.0, 1, 0, 1]))


@pytest.mark.parametrize("name", ROBUST)
def test_rows_none_of_which_is_a_number_are_refused(name: str):
    with refused("too-few-rows"):
        aggregators.make(name)(torch.full((4, 3), math.nan), malicious=1)


# --- Settings that cannot work


@pytest.mark.parametrize(
    ("name", "options", "rows", "most"),
    [
        *((name, {}, rows, rows - 3) for name in ("krum", "multi-krum") for rows in (3, 4, 5)),
        ("trimmed-mean", {}, 4, 3),
        ("trimmed-mean", {"cut": "all"}, 6, 2),
        ("dnc", {"factor": 3}, 7, 2),
        ("bucketing", {"rule": "multi-krum", "size": 2}, 20, 7),
        ("gas", {"rule": "krum", "chunks": 2}, 20, 17),
    ],
)
def test_more_malicious_rows_than_a_rule_or_its_inner_rule_accepts_are_refused(
    name: str, options: dict[str, object], rows: int, most: int
):
    rule = aggregators.make(name, **options)
    assert rule(torch.randn(rows, 4), malicious=most).isfinite().all()
    with refused("too-many-malicious"):
        rule(torch.randn(rows, 4), malicious=most + 1)
    if "krum" in name:
        with refused("too-few-rows"):
            rule(torch.randn(2, 4))


@pytest.mark.parametrize("name", ROBUST)
def test_a_matrix_that_is_none_and_a_negative_count_are_refused(name: str):
    rule = aggregators.make(name)
    with refused("data-shape"):
        rule(torch.randn(7))
    with refused("data-shape"):
        rule(torch.ones(7, 3, dtype=torch.long))
    with refused("bad-value"):
        rule(torch.randn(7, 3), malicious=-1)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("bucketing", {"rule": "medain"}, "unknown-name"),
        ("bucketing", {"size": 0}, "bad-value"),
        ("bucketing", {"rule": {"size": 2}}, "bad-value"),
        ("gas", {"rule": {"name": "bucketing", "sizes": 2}}, "unknown-option"),
        ("gas", {"chunks": 0}, "bad-value"),
        ("norm-clipping", {"threshold": -1}, "bad-value"),
        ("trimmed-mean", {"cut": "none"}, "bad-value"),
    ],
)
def test_options_that_cannot_work_are_refused(name: str, options: dict[str, object], code: str):
    with refused(code):
        aggregators.make(name, **options)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_suffice_if_the_rule_accepts_them(name: str, rows: int):
    rule = aggregators.make(name)
    if rule.max_malicious(rows) >= 0:
        assert rule(torch.randn(rows, 4), malicious=rule.max_malicious(rows)).isfinite().all()
