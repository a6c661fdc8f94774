"""`fedcap tune`: options chosen without an attack, without test samples, and without playing a run twice."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers import Killed, call, refused
from run_tools import SMALL

import fedcap
from fedcap.errors import RunError
from fedcap.experiments import tune
from fedcap.experiments.engine import Watcher, play
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import CellStore

RUN = {**SMALL, "attack": "none", "rounds": 2, "training": {"lr": 0.5, "epochs": 1}}
SPACE = {"alpha": [2, 10], "lambda_": [0.0, 3.0]}


class Here:
    """An engine that plays cells in this process, and stops when it has played so many."""

    def __init__(self, most: int | None = None) -> None:
        self.played: list[Cell] = []
        self._most = most

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        for cell in cells:
            if len(self.played) == self._most:
                raise Killed
            play(cell, store, watcher)
            self.played.append(cell)


def test_every_trial_is_the_mean_over_its_seeds_of_runs_with_holdout(tmp_path: Path):
    tuned = tune(**RUN, space=SPACE, seeds=[0, 1], search="grid", out=tmp_path, engine=Here())
    assert [dict(trial.options) for trial in tuned.trials] == [
        {"alpha": alpha, "lambda_": lambda_} for alpha in (2.0, 10.0) for lambda_ in (0.0, 3.0)
    ]
    trial = tuned.trials[1]
    by_hand = [
        fedcap.Experiment(**RUN, method={"name": "fedcap", **trial.options}, holdout=0.2, seed=seed).run()
        for seed in (0, 1)
    ]
    assert list(trial.scores) == [result.tacc for result in by_hand]
    assert trial.score == pytest.approx(sum(trial.scores) / 2, abs=1e-6)
    best = max(trial.score for trial in tuned.trials)
    assert tuned.best is next(trial for trial in tuned.trials if trial.score == best)


def test_poisoned_test_samples_change_no_score_and_no_choice(tmp_path: Path):
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(160, 4)).astype(np.float32), np.arange(160) % 4
    x[:, 0] += y
    test = np.arange(160) % 3 == 0

    def tuned(name: str, x, y):
        dataset = {"x": x, "y": y, "test": test, "clients": 4, "partition": "iid"}
        settings = {**RUN, "dataset": dataset}
        return tune(**settings, space=SPACE, search="grid", out=tmp_path / name, engine=Here())

    clean = tuned("clean", x, y)
    poisoned = tuned("poisoned", np.where(test[:, None], 1e6, x), np.where(test, (y + 1) % 4, y))
    assert len({trial.score for trial in clean.trials}) > 1
    assert [trial.scores for trial in clean.trials] == [trial.scores for trial in poisoned.trials]
    assert clean.settings() == poisoned.settings()


def test_a_tuning_that_was_killed_plays_only_what_is_left(tmp_path: Path):
    whole = tune(**RUN, space=SPACE, seeds="0-1", out=tmp_path / "whole", engine=Here())
    killed, rest = Here(3), Here()
    with pytest.raises(Killed):
        tune(**RUN, space=SPACE, seeds="0-1", out=tmp_path / "killed", engine=killed)
    again = tune(**RUN, space=SPACE, seeds="0-1", out=tmp_path / "killed", engine=rest)
    assert again.trials == whole.trials
    assert len(killed.played) + len(rest.played) == 2 * len(whole.trials)


def test_a_trial_that_failed_is_shown_and_never_chosen(tmp_path: Path):
    class Failing(Here):
        def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
            for cell in cells:
                if cell.place["method.alpha"] == "2":
                    store.fail(cell, "no luck")
                else:
                    play(cell, store, watcher)

    tuned = tune(**RUN, space={"alpha": [2, 10]}, out=tmp_path, engine=Failing())
    assert tuned.settings()["method"] == {"name": "fedcap", "alpha": 10.0}
    assert [trial.problem for trial in tuned.trials] == ["seed 0: no luck", ""]
    assert "no luck" in tuned.table().markdown()
    with pytest.raises(RunError):
        _ = tune(**RUN, space={"alpha": [2]}, out=tmp_path, engine=Here()).best
    retried = tune(**RUN, space={"alpha": [2]}, out=tmp_path, engine=Here(), retry=True)
    assert retried.best.options == {"alpha": 2.0}


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"attack": "ipm"}, "bad-value", "attack"),
        ({"space": {"alfa": [1]}}, "unknown-option", "alfa"),
        ({"space": {"alpha": []}}, "no-values", "alpha"),
        ({"space": {"phi": [2]}}, "bad-value", "phi"),
        ({"search": "greedy"}, "unknown-name", "search"),
        ({"holdout": 1.0}, "bad-value", "holdout"),
        ({"seeds": []}, "no-values", "seeds"),
    ],
)
def test_a_mistake_is_an_error_before_anything_is_played(
    tmp_path: Path, given: dict[str, object], code: str, field: str
):
    engine = Here()
    with refused(code, field):
        tune(**{**RUN, "out": tmp_path / "grid", "engine": engine, **given})
    assert engine.played == []


def test_the_command_prints_trials_and_options_to_paste(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "run.toml").write_text("rounds = 1\n[dataset]\nname = 'digits'\nclients = 6\nsamples = 30\n")
    words = [
        "tune",
        tmp_path / "run.toml",
        "--vary",
        "alpha=2,10",
        "--workers",
        1,
        "--out",
        tmp_path / "grid",
    ]
    code, text, _ = call(capsys, *words)
    assert code == 0
    assert "held-out accuracy" in text
    chosen = tomllib.loads(text[text.index("# digits") :])
    assert fedcap.Experiment(**chosen).trainer.alpha == chosen["method"]["alpha"]
    code, told, _ = call(capsys, *words, "--json")
    found = json.loads(told)
    assert code == 0
    assert found["chosen"] == chosen
    assert found["score"] == max(trial["score"] for trial in found["trials"])
