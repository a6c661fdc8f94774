"""MLflow: a run in an MLflow store, with the settings as parameters and the figures of the rounds as metrics.

The store is the one that MLFLOW_TRACKING_URI names, else `mlflow.db` in the working directory, which `mlflow
ui` shows. `mlflow.json` in the run's directory has the id of the MLflow run: a resumed run continues it, and
no round is written twice.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcap.files import write_aside
from fedcap.runs import FREE_TO_CHANGE, Result, RoundRecord, flattened
from fedcap.trackers.base import Tracked, Tracker, figures, needs, registry

_FILE = "mlflow.json"
_ALWAYS = "seconds/total"
"""A metric that every round has."""
_BATCH = 1000
"""The largest number of metrics in one call of MLflow."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Default limits for a server that does not answer; those of MLflow would delay a round by minutes."""
_RESULTS = ("tacc", "tacc_shared", "tacc_personal", "tacc_worst_client", "dacc", "fpr", "fnr")


@registry.register("mlflow")
@dataclass
class MLflow(Tracker):
    """A run in MLflow's local store, or in the one that MLFLOW_TRACKING_URI names."""

    experiment: str = "fedcap"
    """The MLflow experiment of the run; it is created if it does not exist."""
    store: str = ""
    """The tracking URI; if empty, MLFLOW_TRACKING_URI, else mlflow.db in the working directory."""
    clients: bool = False
    """Whether each client's accuracies and scores are metrics as well."""
    _client: Any = field(default=None, init=False)
    _run: str = field(default="", init=False)
    _known: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        needs("mlflow", "mlflow")

    def start(self, run: Tracked) -> None:
        """Continue the MLflow run of this run, or create one, and add the rounds that it lacks."""
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        import mlflow

        self._client = mlflow.MlflowClient(tracking_uri=self.store or None)
        where = None if run.directory is None else run.directory / _FILE
        self._run = self._existing(where) or self._create(run, where)
        self._client.set_tag(self._run, "rounds", run.settings.get("rounds"))
        self._known = {point.step for point in self._client.get_metric_history(self._run, _ALWAYS)}
        for record in run.history:
            self.log(record)

    def _existing(self, where: Path | None) -> str | None:
        """Return the id of the MLflow run in a directory, if the store still has it."""
        from mlflow.exceptions import MlflowException

        try:
            run = str(json.loads(where.read_text())["run"]) if where is not None else ""
            self._client.update_run(run, status="RUNNING")
        except (OSError, ValueError, KeyError, TypeError, MlflowException):
            return None
        return run

    def _create(self, run: Tracked, where: Path | None) -> str:
        from mlflow.entities import Param

        client = self._client
        there = client.get_experiment_by_name(self.experiment)
        place = there.experiment_id if there else client.create_experiment(self.experiment)
        begun = client.create_run(place, run_name=run.name).info.run_id
        fixed = {key: value for key, value in run.settings.items() if key not in (*FREE_TO_CHANGE, "rounds")}
        client.log_batch(begun, params=[Param(_key(name), str(value)) for name, value in flattened(fixed)])
        if where is not None:
            write_aside(where, json.dumps({"run": begun, "store": client.tracking_uri}) + "\n")
        return str(begun)

    def log(self, record: RoundRecord) -> None:
        """Write the round's figures, unless they were written before the run was interrupted."""
        if record.round not in self._known:
            self._write(figures(record, self.clients), record.round)

    def end(self, result: Result | None) -> None:
        """Write the result, and how the run ended."""
        if result is not None:
            found = {f"result/{name}": getattr(result, name) for name in _RESULTS}
            self._write({name: value for name, value in found.items() if value is not None}, result.rounds)
        self._client.set_terminated(self._run, "KILLED" if result is None else "FINISHED")

    def _write(self, found: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(_key(name), value, now, step) for name, value in found.items()]
        metrics.sort(key=lambda metric: metric.key == _ALWAYS)  # last: it marks the round as complete
        for first in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run, metrics=metrics[first : first + _BATCH])


def _key(name: str) -> str:
    """Return a name in which other characters than those of MLflow's names are replaced."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]
