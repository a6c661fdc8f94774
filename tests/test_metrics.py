"""The measures at the end of a run, of all honest clients and of each, as scikit-learn computes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import call, without_times
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    roc_auc_score,
)
from torch import Tensor

import fedcap
from fedcap.report.pack import SizeLimit
from fedcap.report.run import RunFiles, run_report
from fedcap.report.tables import MEASURES
from fedcap.runs import ClassCounts, ClassCountsRecord, Measures, Result, RoundRecord, read
from fedcap.runs.result import metrics_of
from fedcap.simulation import Simulation, evaluation, make_pool
from fedcap.simulation.evaluation import ClassCounter
from fedcap.state import Samples
from fedcap.training import TaskResult, task
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
        100 * balanced_accuracy_score(labels, found),
        sklearn_area(labels, probabilities.astype(np.float32)),
        sklearn_calibration_error(labels == found, probabilities.max(axis=1)),
    )


def sklearn_area(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """The mean of one versus rest over the classes with samples and others."""
    classes = [k for k in range(probabilities.shape[1]) if 0 < (labels == k).sum() < len(labels)]
    areas = [roc_auc_score(labels == k, probabilities[:, k]) for k in classes]
    return 100 * float(np.mean(areas)) if areas else None


def sklearn_calibration_error(right: np.ndarray, confidence: np.ndarray) -> float:
    """By the calibration curve, which has the mean accuracy and confidence of each interval with samples."""
    accuracy, mean = calibration_curve(right, confidence, n_bins=15)
    counts = np.bincount(np.ceil(confidence * 15).astype(int), minlength=16)
    return float(100 * (counts[counts > 0] * np.abs(accuracy - mean)).sum() / len(right))


def assert_near(found: Measures | None, expected: Measures) -> None:
    assert found is not None
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.macro_f1 == pytest.approx(expected.macro_f1)
    assert found.per_class == pytest.approx(expected.per_class)
    assert found.balanced_accuracy == pytest.approx(expected.balanced_accuracy)
    assert found.auc == pytest.approx(expected.auc)
    assert found.calibration_error == pytest.approx(expected.calibration_error, rel=1e-5)


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


@pytest.mark.parametrize("method", ["fedcap", "fedavg", "fedrod", "fedfomo", "local"])
def test_a_run_ends_with_the_measures_of_all_benign_clients_answers(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Eavesdropper(monkeypatch)
    result = fedcap.Experiment(method=method, attack="ipm", **QUICK).run()
    assert result.metrics is not None
    if method == "local":
        (personal,) = heard.measured(10, 1)
        assert result.metrics.shared is None
        assert_near(result.metrics.personal, personal)
        return
    assert len(heard.logits) == 2 * 14  # shared and personal, of 14 honest clients out of 20
    shared, personal = heard.measured(10, 2)
    assert_near(result.metrics.shared, shared)
    assert_near(result.metrics.personal, personal)
    labels = torch.cat([y for _, y in heard.logits[::2]])
    found = torch.cat([logits.argmax(dim=1) for logits, _ in heard.logits[::2]])
    assert result.tacc_shared == pytest.approx(100 * accuracy_score(labels, found))


def test_each_client_has_its_own_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Eavesdropper(monkeypatch)
    result = fedcap.Experiment(method="fedcap", attack="ipm", **QUICK).run()
    honest = [client for client in result.clients if not client.malicious]
    assert len(honest) == 14
    for at, client in enumerate(honest):
        assert client.tested is not None
        assert client.tested.samples == len(heard.logits[2 * at][1])
        for reading, found in enumerate((client.tested.shared, client.tested.personal)):
            logits, y = heard.logits[2 * at + reading]
            expected = sklearn_measures(logits, y, 10)
            assert found is not None
            assert asdict(found) == pytest.approx(
                {name: value for name, value in asdict(expected).items() if name in asdict(found)}, rel=1e-5
            )
    assert all(client.tested is None for client in result.clients if client.malicious)


def answers_of(count: int, classes: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Return logits of which many are equal, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(3, (count, classes), generator=generator).float()
    return logits, torch.randint(classes, (count,), generator=generator)


def counted(clients: list[tuple[Tensor, Tensor]], classes: int) -> ClassCountsRecord:
    """Count the answers of clients that give these logits, two at a time."""
    counter = ClassCounter([str(k) for k in range(classes)], shares=False)
    results: dict[str, TaskResult] = {}
    for start in range(0, len(clients), 2):
        block = {}
        for at, (logits, y) in enumerate(clients[start : start + 2]):
            _, counts = evaluate(Samples(logits, y), lambda x: x, count_classes=True)
            block[str(start + at)] = TaskResult(personal_classes=counts)
        results |= counter.take(block)
    kept = [result.personal_classes for result in results.values()]
    assert all(counts is not None and counts.probabilities is counts.labels is None for counts in kept)
    return counter.record(results)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("memory", [64 << 20, 100], ids=["in memory", "in a file"])
def test_the_areas_are_pooled_over_the_clients_samples(
    classes: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LARGEST_IN_MEMORY", memory)
    monkeypatch.setattr(evaluation, "ROWS", 7)
    clients = [answers_of(20 + 3 * seed, classes, seed) for seed in range(5)]
    record = counted(clients, classes)
    logits, y = (torch.cat(part) for part in zip(*clients, strict=True))
    assert_near(metrics_of(record).personal, sklearn_measures(logits, y, classes))
    probabilities = torch.softmax(logits.double(), dim=1).float().numpy()
    score = probabilities[:, 1] if classes == 2 else probabilities
    whole = roc_auc_score(y.numpy(), score, multi_class="ovr")
    assert record.personal.auc == pytest.approx(100 * whole)
    for (own, labels), tested in zip(clients, record.clients.values(), strict=True):
        assert tested.personal.auc == pytest.approx(sklearn_measures(own, labels, classes).auc)


def test_measures_that_are_not_defined_are_null() -> None:
    """One client has one class, and another answers NaN: its own measures, and the pooled ones, are none."""
    logits, y = answers_of(20, 3)
    single = counted([(logits, torch.zeros_like(y))], 3)
    assert single.personal.auc is None
    assert single.clients["0"].personal.auc is None
    assert single.clients["0"].personal.calibration_error is not None
    broken = counted([(logits, y), (logits * torch.nan, y)], 3)
    assert (broken.personal.auc, broken.personal.calibration_error) == (None, None)
    assert metrics_of(broken).personal.balanced_accuracy is None
    assert set(asdict(broken.clients["1"].personal).values()) == {None}
    assert broken.clients["0"].personal.auc is not None


def test_a_run_shows_the_measures_of_its_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = fedcap.Experiment(attack="ipm", **QUICK).run(out=tmp_path / "run")
    code, out, _ = call(capsys, "show", tmp_path / "run")
    assert code == 0
    client = next(client for client in result.clients if not client.malicious)
    assert client.tested is not None
    reading = result.history[-1].accuracy.reading  # type: ignore[union-attr]
    own, overall = getattr(client.tested, reading), getattr(result.metrics, reading)
    (row,) = (
        line for line in out.splitlines() if line.startswith(f"│ {client.id} ") and "honest" not in line
    )
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        client.id,
        str(client.tested.samples),
        *(f"{value:.1f}" for value in asdict(own).values()),
    ]
    assert f"balanced accuracy shared {result.metrics.shared.balanced_accuracy:.1f}" in out  # type: ignore[union-attr]
    code, out, _ = call(capsys, "show", tmp_path / "run", "--json")
    (shown,) = json.loads(out)
    assert shown["AUC"] == overall.auc
    assert shown["result"]["clients"][int(client.id)]["tested"] == asdict(client.tested)
    report = run_report(RunFiles.read(tmp_path / "run"), SizeLimit()).run
    assert report is not None
    (found,) = (row for row in report.clients if row.name == client.id)
    assert found.tested == client.tested.samples
    assert found.auc == pytest.approx(own.auc, abs=0.005)
    assert [fact.name for fact in report.measures] == list(MEASURES)
    assert f"AUC {report.measures[2].value}" == f"AUC {overall.auc:.1f} %"


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
    counter = ClassCounter(["0", "1", "2"], shares=False)
    found = counter.record(counter.take({"a": TaskResult(personal_classes=counts)}))
    assert_near(metrics_of(found).personal, sklearn_measures(logits, y, 3))


def test_a_loss_that_is_not_finite_is_null() -> None:
    result = fedcap.Experiment(**{**QUICK, "method": "fedavg", "training": {"lr": 1e6, "epochs": 2}}).run()
    assert result.metrics is not None
    assert result.metrics.personal.loss is None
    assert json.loads(result.to_json())["metrics"]["personal"]["loss"] is None
    assert Result.from_json(result.to_json(), result.history) == result
    line = result.history[-1].to_json()
    assert RoundRecord.from_json(line).to_json() == line
