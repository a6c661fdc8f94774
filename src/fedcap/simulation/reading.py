"""A run's directory, read together with its models: `fedcap.read(path).model("u03")`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedcap import methods, runs
from fedcap.simulation.preparation import Preparation
from fedcap.simulation.trained import TrainedModels


@dataclass(frozen=True, repr=False)
class Run(runs.Run):
    """All that a run has left behind so far, and the models in its checkpoint."""

    @cached_property
    def models(self) -> TrainedModels:
        """The models of the last checkpoint."""
        named = self.settings.method
        method = methods.make(named.name, **named.options)
        return TrainedModels.saved(self.path, self.provenance, method, self.settings.model)

    def model(self, client: str | int | None = None, reading: str = "personal") -> nn.Module:
        """Return a client's model in evaluation mode, on the CPU: personal, shared or global.

        Personal is the client's own, shared what the server would send it now, global the server's one model
        for all, which needs no client. Neither the data nor the device of the run is needed.
        """
        return self.models.model(client, reading)

    def preparation(self, client: str | int | None = None) -> Preparation:
        """Return how inputs are prepared for a client's model: `model(preparation(x))` are its logits."""
        return self.models.preparation(client)

    def predict(self, client: str | int | None, inputs: Any, reading: str = "personal") -> Tensor:
        """Return how probable each class of `provenance.class_names` is, n×classes, for raw inputs."""
        return self.models.predict(client, inputs, reading)


def read(path: Path | str) -> Run:
    """Read a run's directory, finished or not; if a file is missing, raise an `InputError` of one line."""
    plain = runs.read(path)
    run = Run(plain.path, plain.settings, plain.provenance, plain.rounds, plain.result)
    return run if run.result is None else replace(run, result=replace(run.result, models=run))
