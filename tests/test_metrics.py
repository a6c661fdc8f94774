"""Loss, macro-F1 and accuracy per class at the end of a run, as scikit-learn computes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import without_times
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss
from torch import Tensor

import fedcap
from fedcap.cli.show import summary
from fedcap.runs import ClassCounts, ClassCountsRecord, Measures, Metrics, Result, RoundRecord, Settings, read
from fedcap.runs.result import metrics_of
from fedcap.simulation import Simulation, make_pool
from fedcap.state import Samples
from fedcap.training import task
from fedcap.training.evaluation import EVALUATION_BATCH, evaluate

QUICK: dict[str, Any] = {"rounds": 2, "training": {"lr": 0.05, "epochs": 1}, "workers": 1}


def sklearn_measures(logits: Tensor, y: Tensor, classes: int) -> Measures:
    """The oracle: from the logits of all samples, one after the other."""
    labels, found = y.numpy(), logits.argmax(dim=1).numpy()
    confused = confusion_matrix(labels, found, labels=range(classes))
    with np.errstate(invalid="ignore"):
        per_class = 100 * np.diag(confused) / confused.sum(axis=1)
    probabilities = torch.softmax(logits.double(), dim=1).numpy()
    return Measures(
        log_loss(labels, probabilities, labels=range(classes)),
        100 * f1_score(labels, found, average="macro"),
        {str(k): None if np.isnan(v) else float(v) for k, v in enumerate(per_class)},
    )


def assert_near(found: Measures | None, expected: Measures) -> None:
    assert found is not None
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.macro_f1 == pytest.approx(expected.macro_f1)
    assert found.per_class == pytest.approx(expected.per_class)


class Eavesdropper:
    """Records the logits of every test in the last round, as the method's own functions give them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logits: list[tuple[Tensor, Tensor]] = []

        def listening(samples: Samples, answer: Any, count_classes: bool) -> Any:
            if count_classes:
                self.logits.append((answer(samples.x), samples.y))
            return evaluate(samples, answer, count_classes)

        monkeypatch.setattr(task, "evaluate", listening)

    def measured(self, classes: int, readings: int) -> Iterator[Measures]:
        for place in range(readings):
            logits, y = zip(*self.logits[place::readings], strict=True)
            yield sklearn_measures(torch.cat(logits), torch.cat(y), classes)


@pytest.mark.parametrize("method", ["fedcap", "fedavg", "fedrod", "fedfomo"])
def test_a_run_ends_with_the_measures_of_all_benign_clients_answers(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Eavesdropper(monkeypatch)
    result = fedcap.Experiment(method=method, attack="ipm", **QUICK).run()
    assert len(heard.logits) == 2 * 14  # shared and personal, of 14 honest clients out of 20
    shared, personal = heard.measured(10, 2)
    assert result.metrics is not None
    assert_near(result.metrics.shared, shared)
    assert_near(result.metrics.personal, personal)
    labels = torch.cat([y for _, y in heard.logits[::2]])
    found = torch.cat([logits.argmax(dim=1) for logits, _ in heard.logits[::2]])
    assert result.tacc_shared == pytest.approx(100 * accuracy_score(labels, found))


def test_local_has_no_shared_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Eavesdropper(monkeypatch)
    result = fedcap.Experiment(method="local", **QUICK).run()
    assert result.metrics is not None
    assert result.metrics.shared is None
    (personal,) = heard.measured(10, 1)
    assert_near(result.metrics.personal, personal)


def test_clients_outside_the_last_round_count_too() -> None:
    result = fedcap.Experiment(method="fedavg", participation=0.3, **QUICK).run()
    counts = result.history[-1].tallies
    assert counts is not None
    assert counts.shared is not None
    assert len(result.history[-1].participants) == 6
    assert 100 * sum(counts.shared.correct) / sum(counts.shared.actual) == pytest.approx(result.tacc_shared)
    assert 100 * sum(counts.personal.correct) / sum(counts.personal.actual) == pytest.approx(
        result.tacc_personal
    )
    assert counts.shared.actual == counts.personal.actual


def test_answers_are_counted_in_the_last_round_only() -> None:
    result = fedcap.Experiment(**QUICK).run()
    assert [record.tallies is None for record in result.history] == [True, False]
    simulation = Simulation(fedcap.Experiment(**QUICK), make_pool(1))
    assert simulation.play().tallies is None


def test_counting_does_not_change_what_is_counted() -> None:
    """The accuracy of a round is the same, to the bit, whether it is the last one or not."""
    short = fedcap.Experiment(**QUICK).run()
    longer = fedcap.Experiment(**{**QUICK, "rounds": 3}).run()
    assert short.history[1].accuracy == longer.history[1].accuracy


def test_measures_do_not_depend_on_the_workers_and_are_in_the_records(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(attack="lie", **QUICK)
    alone = experiment.run(out=tmp_path / "run")
    with make_pool(2) as pool:
        together = experiment.run(pool=pool)
    assert without_times(alone) == without_times(together)
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["metrics"] == asdict(alone.metrics)
    assert set(written["metrics"]["personal"]["per_class"]) == {str(digit) for digit in range(10)}
    assert experiment.run(out=tmp_path / "run").metrics == alone.metrics
    assert read(tmp_path / "run").rounds[-1] == alone.history[-1]
    (tmp_path / "run" / "result.json").unlink()
    assert experiment.run(out=tmp_path / "run").metrics == alone.metrics


def test_counts_by_hand() -> None:
    """Six samples of four classes; no sample is of class 2, and class 3 is never predicted."""
    counts = ClassCounts(actual=[3, 2, 0, 1], predicted=[2, 3, 1, 0], correct=[2, 1, 0, 0], loss=9.0)
    expected = Measures(
        1.5,
        100 * (4 / 5 + 2 / 5 + 0 + 0) / 4,
        {"cat": 200 / 3, "dog": 50.0, "owl": None, "yak": 0.0},
    )
    found = metrics_of(ClassCountsRecord(["cat", "dog", "owl", "yak"], None, counts))
    assert found.shared is None
    assert found.personal.macro_f1 == pytest.approx(expected.macro_f1)
    assert (found.personal.loss, found.personal.per_class) == (expected.loss, expected.per_class)
    labels, answers = [0, 0, 0, 1, 1, 3], [0, 0, 1, 1, 2, 1]
    assert found.personal.macro_f1 == pytest.approx(100 * f1_score(labels, answers, average="macro"))


def test_a_class_that_never_occurs_is_left_out_of_the_mean() -> None:
    found = metrics_of(
        ClassCountsRecord(["a", "b", "c"], None, ClassCounts([2, 2, 0], [2, 2, 0], [2, 2, 0], 1.0))
    ).personal
    assert (found.macro_f1, found.per_class["c"]) == (100.0, None)


def test_more_samples_than_a_batch_are_counted_whole() -> None:
    total = EVALUATION_BATCH + 7
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(total, 3, generator=generator)
    y = torch.randint(3, (total,), generator=generator)
    _, counts = evaluate(Samples(logits, y), lambda x: x, count_classes=True)
    assert counts is not None
    found = metrics_of(
        ClassCountsRecord(
            ["0", "1", "2"], None, ClassCounts(counts.actual, counts.predicted, counts.correct, counts.loss)
        )
    )
    assert_near(found.personal, sklearn_measures(logits, y, 3))


def test_a_loss_that_is_not_finite_is_null() -> None:
    result = fedcap.Experiment(**{**QUICK, "method": "fedavg", "training": {"lr": 1e6, "epochs": 2}}).run()
    assert result.metrics is not None
    assert result.metrics.personal.loss is None
    assert json.loads(result.to_json())["metrics"]["personal"]["loss"] is None
    assert Result.from_json(result.to_json(), result.history) == result
    line = result.history[-1].to_json()
    assert RoundRecord.from_json(line).to_json() == line


def test_the_summary_has_loss_and_macro_f1_in_one_line() -> None:
    experiment = fedcap.Experiment(**QUICK)
    result = experiment.run()
    settings = Settings.model_validate(experiment.settings())
    (line,) = (line for line in summary(settings, result, Path("run")).splitlines() if "macro-F1" in line)
    metrics = result.metrics
    assert isinstance(metrics, Metrics)
    assert metrics.shared is not None
    assert f"loss shared {metrics.shared.loss:.3f}, personal {metrics.personal.loss:.3f};" in line
    assert line.endswith(
        f"macro-F1 shared {metrics.shared.macro_f1:.1f}, personal {metrics.personal.macro_f1:.1f} %"
    )


def test_names_of_classes_are_those_of_the_data() -> None:
    x, y = torch.randn(200, 4), torch.arange(200) % 3 + 5
    result = fedcap.Experiment(dataset=(x, y), method="fedavg", **QUICK).run()
    assert result.metrics is not None
    assert list(result.metrics.personal.per_class) == ["5", "6", "7"]
