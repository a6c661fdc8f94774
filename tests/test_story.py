"""What a page tells of a run: figures, checks, series, clients and the map of mixing weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation_tools import federation
from run_tools import SMALL
from story_tools import decoded, reason, record, write

import fedcap
from fedcap.cli.report import story_for
from fedcap.errors import InputError
from fedcap.report.story import Check, Said, Story, packed, story_of, unpacked
from fedcap.report.story.mixing_map import order_by_likeness
from fedcap.report.story.packing import quantised
from fedcap.runs import Accuracy, AttackStats, ClientAccuracy, Mixing, read

NAMES = ["ada", "bob", "cyd", "dan"]


def check(story: Story, name: str) -> Check:
    return next(each for each in story.checks if each.name == name)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("real")
    attack = {"name": "ipm", "epsilon": 50.0}
    for method in ("fedcap", "local"):
        fedcap.Experiment(**{**SMALL, "attack": attack, "method": method}).run(out=folder / method)
    return folder / "fedcap", folder / "local"


def test_series_are_those_of_the_records(real: tuple[Path, Path]) -> None:
    run, story = read(real[0]), story_of(real[0])
    course = story.course
    assert course is not None
    assert course.accuracy is not None
    assert course.costs is not None
    assert [client.name for client in course.clients] == list(run.provenance.clients)
    assert course.accuracy.rounds == course.costs.rounds == [1, 2, 3]
    for at, each in enumerate(run.rounds):
        assert each.accuracy is not None
        assert course.accuracy.personal.mean[at] == pytest.approx(each.accuracy.personal, abs=0.005)
        assert course.accuracy.personal.worst[at] == pytest.approx(
            min(own.personal for own in each.accuracy.clients.values()), abs=0.005
        )
        for row, client in enumerate(run.provenance.clients):
            own = each.accuracy.clients.get(client)
            value = course.accuracy.personal.clients[row, at]
            assert np.isnan(value) if own is None else value == own.personal
            score, there = course.scores[0].values[row, at], each.norms.get(client)
            assert np.isnan(score) if there is None else score == there
    assert course.costs.bytes == [each.bytes for each in run.rounds]
    assert [(event.round, course.clients[event.client].name) for event in course.events] == [
        (removal.round, client) for client, removal in run.removed.items()
    ]


def test_clients_gain_over_what_they_reach_alone(real: tuple[Path, Path]) -> None:
    path, alone = real
    course = story_of(path, local=alone).course
    assert course is not None
    assert course.local is not None
    expected = {client.id: client.personal for client in read(alone).clients}
    assert course.local.mean[-1] == pytest.approx(read(alone).result.tacc, abs=0.005)
    for client in course.clients:
        if client.role == "honest":
            assert client.local == expected[client.name]
            gain = max(client.shared, client.personal) - client.local
            assert client.gain == pytest.approx(gain, abs=0.05)
        else:
            assert client.gain is None


def test_a_run_with_other_data_or_another_method_is_not_taken_for_clients_alone(
    real: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="--method local"):
        story_of(real[0], local=real[0])
    other = {**SMALL, "method": "local", "seed": 1, "rounds": 1}
    fedcap.Experiment(**other).run(out=tmp_path / "other")
    with pytest.raises(InputError, match="same data set and seed"):
        story_of(real[0], local=tmp_path / "other")


def test_the_map_has_each_weight_in_its_place(real: tuple[Path, Path]) -> None:
    course = story_of(real[0]).course
    assert course is not None
    assert course.mixing is not None
    names = [course.clients[row[0]].name for row in course.mixing.rows]
    for at, mixing in enumerate(read(real[0]).mixings):
        for r, receiver in enumerate(names):
            for c, contributor in enumerate(names):
                value = course.mixing.weights[at, r, c]
                if receiver in mixing.receivers and contributor in mixing.contributors:
                    place = mixing.receivers.index(receiver), mixing.contributors.index(contributor)
                    assert value == mixing.weights[place]
                else:
                    assert np.isnan(value)


@pytest.mark.parametrize("power", [1, 40])  # 40: few weights are far above the others
def test_weights_on_the_page_are_as_exact_as_it_says(tmp_path: Path, power: int) -> None:
    names = [f"c{i}" for i in range(12)]
    weights = np.random.default_rng(power).uniform(0, 1, (12, 12)) ** power
    rounds = [record(1, names, weights_entropy=1.0)]
    story = story_of(write(tmp_path, rounds, names, mixings=[Mixing(1, names, names, weights)]))
    assert "Mixing weights are exact to a 200th of the largest of all." in story.thinned
    told = decoded(json.loads(packed(story)))["course"]["mixing"]
    order = [row[0] for row in told["rows"]]
    assert np.abs(np.array(told["weights"][0]) - weights[np.ix_(order, order)]).max() <= weights.max() / 200


def test_clients_that_draw_on_each_other_are_neighbours() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        group = draw.permutation([0] * 5 + [1] * 4 + [2] * 6)
        weights = np.where(group[:, None] == group, 0.15, 0.01) + 0.005 * draw.random((3, 15, 15))
        ordered = group[order_by_likeness(weights)]
        assert (np.diff(ordered) != 0).sum() == 2, ordered  # three blocks


def test_clients_that_never_met_are_ordered_all_the_same() -> None:
    weights = np.full((2, 4, 4), np.nan)
    assert sorted(order_by_likeness(weights)) == [0, 1, 2, 3]
    weights[0, 0, 2] = weights[0, 1, 3] = 0.5
    order = order_by_likeness(weights)
    assert abs(order.index(0) - order.index(2)) == abs(order.index(1) - order.index(3)) == 1


def test_what_is_in_order_has_a_good_mark(tmp_path: Path) -> None:
    sent = AttackStats(10.0, 2.0, -0.9)
    first = record(1, NAMES, attack=sent, removed={"dan": reason()})
    story = story_of(write(tmp_path, [first, record(2, NAMES[:3])], NAMES, ["dan"]))
    assert [each.mark for each in story.checks] == ["ok"] * 5
    assert "5 times as long" in check(story, "Attack").words
    assert "−0.90" in check(story, "Attack").words
    assert [(each.label, each.value) for each in story.headlines][:4] == [
        ("accuracy", "90.0 %"),
        ("worst client", "90.0 %"),
        ("attackers removed", "1 of 1"),
        ("honest clients removed", "0 of 3"),
    ]


@pytest.mark.parametrize(
    ("best", "worst", "mark"), [(90.0, 71.0, "ok"), (90.0, 69.0, "warn"), (15.0, 0.0, "warn")]
)
def test_a_client_that_lies_far_behind_is_told(tmp_path: Path, best: float, worst: float, mark: str) -> None:
    own = {name: ClientAccuracy(None, best) for name in NAMES} | {"ada": ClientAccuracy(None, worst)}
    last = replace(record(1, NAMES), accuracy=Accuracy(None, best, own))
    story = story_of(write(tmp_path, [last], NAMES))
    assert check(story, "Worst client").mark == mark
    assert story.headlines[0].sentence.endswith("each client with a model of its own: nothing is shared.")


def test_what_is_not_in_order_is_told(tmp_path: Path) -> None:
    same = AttackStats(2.0, 2.0, 0.99)
    first = record(1, NAMES, attack=same, removed={"ada": reason()}, diverged=["ada"])
    story = story_of(write(tmp_path, [first, record(2, NAMES[1:], attack=same)], NAMES, ["dan"]))
    marks = {each.name: each.mark for each in story.checks}
    assert marks == {
        "Attack": "warn",
        "Honest clients kept": "bad",
        "Attackers found": "bad",
        "Nobody diverged": "bad",
        "Worst client": "ok",
    }
    assert "ada" in check(story, "Honest clients kept").words


def test_an_attacker_that_is_not_found_may_weigh_little(tmp_path: Path) -> None:
    for share, mark in ((0.05, "warn"), (0.4, "bad")):
        weights = np.tile([(1 - share) / 3] * 3 + [share], (4, 1))
        rounds = [record(1, NAMES), record(2, NAMES, weights_entropy=1.0)]
        path = write(tmp_path / mark, rounds, NAMES, ["dan"], [Mixing(2, NAMES, NAMES, weights)])
        found = check(story_of(path), "Attackers found")
        assert found.mark == mark
        assert f"{100 * share:.1f} % of the models" in found.words
        course = story_of(path).course
        assert course is not None
        assert course.clients[3].share == pytest.approx(100 * share, abs=0.1)


def test_whoever_hands_in_what_the_paper_says_has_it_told(tmp_path: Path) -> None:
    path = write(tmp_path, [record(1, NAMES)], NAMES)
    said = Check("ok", "The paper's setting", "The same.")
    assert said in story_of(path, paper=lambda settings: Said(said)).checks
    assert check(story_for(path), "The paper's setting").mark == "none"  # digits are not in the paper


def test_a_suspected_client_is_told_once_and_by_its_reason(tmp_path: Path) -> None:
    doubt = reason("collusion 0.9 over 0.5")
    rounds = [record(1, NAMES, suspected={"bob": doubt}, refused={"bob": "suspected", "cyd": "late"})]
    course = story_of(write(tmp_path, rounds, NAMES)).course
    assert course is not None
    assert [(event.client, event.kind, event.reason) for event in course.events] == [
        (1, "suspected", "collusion 0.9 over 0.5"),
        (2, "refused", "late"),
    ]
    assert (course.clients[1].state, course.clients[1].reason) == ("suspected", "collusion 0.9 over 0.5")


def test_every_score_there_is_has_its_limits_by_round(tmp_path: Path) -> None:
    def scored(number: int, limit: float | None) -> object:
        values = {"norm": dict.fromkeys(NAMES, 1.0), "direction": dict.fromkeys(NAMES, -0.5)}
        return record(number, NAMES, scores=values, limits={"norm": 6.0, "direction": limit})

    course = story_of(write(tmp_path, [scored(1, 0.3), scored(2, None)], NAMES)).course
    assert course is not None
    assert [(score.name, list(score.limits)) for score in course.scores] == [
        ("norm", [6.0, 6.0]),
        ("direction", [0.3, None]),
    ]


def test_a_federation_tells_what_its_ledger_says(tmp_path: Path) -> None:
    made = federation(tmp_path)
    (tmp_path / "federation.toml").write_text('host = "here"\n')
    before = story_for(tmp_path)
    assert (before.kind, before.sentence) == ("federation", "The federation has not begun.")
    assert before.course is not None
    assert [client.state for client in before.course.clients] == ["enrolled"] * 5
    with made.conductor() as conductor:
        conductor.run()
    made.ledger.remove("2", "it moved away")
    made.ledger.ask("new", "late-comer", "key")
    story = story_for(tmp_path)
    assert story.course is not None
    assert story.kind == "federation"
    rows = [(client.name, client.identity, client.state, client.role) for client in story.course.clients]
    assert rows[2] == ("site-2", "2", "removed", "site")
    assert rows[5] == ("late-comer", "new", "asked", "site")
    assert story.course.clients[2].reason == "it moved away"
    assert check(story, "Sites kept").words == "1 site removed: site-2."
    assert "5 sites" in story.sentence
    assert story.course.mixing is not None
    assert story_for(tmp_path / "run").course.clients[2].name == "site-2"


def test_a_packed_story_says_the_same_as_the_plain_one(real: tuple[Path, Path]) -> None:
    story = story_of(real[0], local=real[1])
    plain, back = json.loads(unpacked(story)), decoded(json.loads(packed(story)))

    def compare(one: object, other: object, place: str) -> None:
        if isinstance(one, dict):
            assert one.keys() == other.keys(), place
            for key in one:
                compare(one[key], other[key], f"{place}.{key}")
        elif isinstance(one, list):
            assert len(one) == len(other), place
            for at, (first, second) in enumerate(zip(one, other, strict=True)):
                compare(first, second, f"{place}[{at}]")
        elif isinstance(one, float):
            assert other == pytest.approx(one, rel=1e-3, abs=0.003), place
        else:
            assert one == other, place

    compare(plain, back, "story")


def test_arrays_come_back_within_half_a_step_and_nothing_stays_nothing() -> None:
    draw = np.random.default_rng(0)
    for bits, array in ((16, draw.normal(50, 20, (9, 30))), (8, draw.random((4, 5, 6)))):
        array.flat[7] = np.nan
        array.flat[8] = np.inf
        made = quantised(array, bits)
        back = np.array(decoded(made), dtype=float)
        assert not made["log"]
        assert np.isnan(back.flat[[7, 8]]).all()
        known = np.isfinite(array)
        step = (array[known].max() - array[known].min()) / (2**bits - 2)
        assert np.abs(back[known] - array[known]).max() <= step / 2 + 1e-9


def test_a_few_huge_numbers_leave_the_others_readable() -> None:
    array = np.concatenate([np.random.default_rng(0).normal(3, 0.5, 200), [1e9, -1e7, 0.0]])
    made = quantised(array)
    assert made["log"]
    assert np.allclose(np.array(decoded(made)), array, rtol=0.005, atol=0.001)
    assert decoded(quantised(np.full((10, 10), np.nan))) == [[None] * 10] * 10
