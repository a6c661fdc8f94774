"""TensorBoard and MLflow as they are: what their own readers find after a run or an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Killed, Killer
from run_tools import SMALL

import fedcap
from fedcap.runs import Run
from fedcap.trackers import figures, make

Points = list[tuple[int, float]]
ACCURACY = "accuracy/personal"


def expected(run: Run, name: str = ACCURACY) -> Points:
    found = ((record.round, figures(record, clients=True).get(name)) for record in run.rounds)
    return [(number, pytest.approx(value)) for number, value in found if value is not None]


def interrupted_and_resumed(out: Path, track: str) -> Run:
    """Play to round 3 of 5, with a checkpoint after round 2, and then to the end."""
    settings = SMALL | {"rounds": 5, "checkpoint_every": 2, "track": [track]}
    with pytest.raises(Killed):
        fedcap.Experiment(**settings).run(out=out, observers=[Killer(4)])
    fedcap.Experiment(**settings).run(out=out)
    return fedcap.read(out)


class TestTensorBoard:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("tensorboard", reason="needs the extra tensorboard: make test-extras")

    def points(self, folder: Path, name: str = ACCURACY) -> Points:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        reader = EventAccumulator(str(folder))
        reader.Reload()
        return [(event.step, event.value) for event in reader.Scalars(name)]

    def test_every_round_is_a_point_whether_or_not_the_run_was_interrupted(self, tmp_path: Path) -> None:
        run = interrupted_and_resumed(tmp_path / "run", "tensorboard(clients=true)")
        assert self.points(run.path / "tensorboard") == expected(run)
        assert self.points(run.path / "tensorboard", "client/2/norm") == expected(run, "client/2/norm")

    def test_a_tensorboard_that_reads_on_meanwhile_shows_no_point_twice(self, tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        out = tmp_path / "run"
        reader = EventAccumulator(str(out / "tensorboard"))
        settings = SMALL | {"rounds": 4, "track": "tensorboard"}
        with pytest.raises(Killed):
            fedcap.Experiment(**settings).run(out=out, observers=[Killer(3)])
        reader.Reload()
        assert [event.step for event in reader.Scalars(ACCURACY)] == [1, 2]
        fedcap.Experiment(**settings).run(out=out)
        reader.Reload()
        assert [event.step for event in reader.Scalars(ACCURACY)] == [1, 2, 3, 4]

    def test_a_folder_of_ones_own_has_a_folder_for_each_run(self, tmp_path: Path) -> None:
        track = f"tensorboard(folder={tmp_path / 'boards'})"
        fedcap.Experiment(**SMALL, track=track).run(out=tmp_path / "mine")
        fedcap.Experiment(**SMALL, track=track).run()
        names = {"mine", "digits-fedcap-min-max-seed0"}
        assert {path.name for path in (tmp_path / "boards").iterdir()} == names


class TestMLflow:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("mlflow", reason="needs the extra mlflow: make test-extras")

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, tmp_path_factory: pytest.TempPathFactory) -> str:
        return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"

    def held(self, run: Path, store: str) -> tuple[Any, Any]:
        import mlflow

        client = mlflow.MlflowClient(store)
        return client, client.get_run(json.loads((run / "mlflow.json").read_text())["run"])

    def points(self, run: Path, store: str, name: str = ACCURACY) -> Points:
        client, found = self.held(run, store)
        return [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, name)]

    def test_every_round_is_a_point_whether_or_not_the_run_was_interrupted(
        self, tmp_path: Path, store: str
    ) -> None:
        run = interrupted_and_resumed(tmp_path / "run", f"mlflow(store={store}, clients=true)")
        assert self.points(run.path, store) == expected(run)
        assert self.points(run.path, store, "client/2/norm") == expected(run, "client/2/norm")
        client, found = self.held(run.path, store)
        assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
        assert run.result is not None
        assert found.data.metrics["result/tacc"] == run.result.tacc
        assert found.data.params["method.name"] == "fedcap"
        assert found.data.params["training.lr"] == "0.05"
        assert len(client.search_runs([found.info.experiment_id])) == 1

    def test_a_run_that_is_extended_goes_on_in_its_mlflow_run(self, tmp_path: Path, store: str) -> None:
        settings = SMALL | {"rounds": 1, "track": f"mlflow(store={store}, experiment=longer)"}
        fedcap.Experiment(**settings).run(out=tmp_path / "run")
        fedcap.Experiment(**settings | {"rounds": 3}).run(out=tmp_path / "run", extend=True)
        assert [step for step, _ in self.points(tmp_path / "run", store)] == [1, 2, 3]
        client, found = self.held(tmp_path / "run", store)
        assert found.data.tags["rounds"] == "3"
        assert len(client.search_runs([found.info.experiment_id])) == 1

    def test_the_operators_tracking_uri_is_used_if_it_is_set(
        self, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
        fedcap.Experiment(**SMALL, track="mlflow").run(out=tmp_path / "run")
        assert len(self.points(tmp_path / "run", store)) == 3

    def test_a_server_that_is_gone_is_told_of_in_a_line_and_the_run_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        gone = make("mlflow", store="http://127.0.0.1:9")
        assert fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[gone]).rounds == 3
        said = [record.getMessage() for record in caplog.records if record.name == "fedcap"]
        assert len(said) == 1
        assert said[0].startswith("tracker mlflow failed, the run continues without it: MlflowException")
