"""The models in a directory: those of a run, or those of a federation's site.

This module imports torch: commands import it when they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedcap import methods, models
from fedcap.errors import InputError, nearest
from fedcap.federation.config import SITE, SiteDirectory
from fedcap.federation.plan import Plan
from fedcap.federation.site import SiteState, newest
from fedcap.simulation import Run, read
from fedcap.simulation.inputs import Inputs
from fedcap.simulation.models import TrainedModels
from fedcap.state import Tensors

READINGS = ("personal", "shared")


@dataclass(frozen=True)
class FoundModels:
    """The models in a directory, and the client whose model is wanted."""

    models: TrainedModels
    digest: str
    """The digest of the run or of the plan."""
    client: str | None
    dataset: Mapping[str, Any]
    """The options of the data set."""
    run: Run | None = None
    """The run, unless it is a site's directory."""
    accuracy: Mapping[str, float] = field(default_factory=dict)
    """The accuracy of a site's models on its test samples, in percent, if it measured them."""

    def tested(self, reading: str) -> float | None:
        """Return the model's accuracy on its own client's test samples, in percent, if it was measured."""
        if reading not in READINGS:
            return None
        if self.run is None:
            return self.accuracy.get(reading)
        found = [client for client in self.run.clients if client.id == self.client]
        return getattr(found[0], reading) if found else None


def models_of(directory: Path, client: str | None) -> FoundModels:
    """Return a directory's models. At a site, the client is the site itself unless another is given."""
    if not (directory / SITE).is_file():
        run = read(directory)
        return FoundModels(run.models, run.provenance.digest, client, run.settings.dataset.options, run)
    site = SiteDirectory.open(directory)
    plan, state = newest(site)
    config = site.config
    models = SiteModels(config.name, plan, state)
    options = config.dataset.options
    return FoundModels(models, plan.digest, client or config.name, options, accuracy=state.accuracy)


class SiteModels(TrainedModels):
    """The models of one site: its personal model, and the last one that it received."""

    def __init__(self, name: str, plan: Plan, state: SiteState) -> None:
        method = methods.registry.build(plan.method.model_dump())
        features, integers = plan.features or (), bool(plan.integers)
        inputs = Inputs(plan.shape, plan.classes, plan.pixels, features, plan.columns, integers)
        super().__init__((name,), method, partial(_build, plan), inputs, AtSite(plan, state))
        self._received = state.received

    def model(self, client: str | int | None = None, reading: str = "personal") -> nn.Module:
        """Return the site's personal model or, as the shared one, the last model that it received.

        The personal model of a site that took part in no round is the one that the server made for it.
        """
        kept = self._source.client_state(self._known(client))
        if reading == "personal" and kept is not None:
            return super().model(client, reading)
        if reading not in READINGS:
            raise InputError(
                f"a site has no {reading} model: {nearest(reading, READINGS)}",
                code="unknown-name",
                field="reading",
            )
        if self._received is None:
            raise InputError("this site has received no model: its method shares nothing", code="no-model")
        return self._module(self._received)


class AtSite:
    """The tensors that a site keeps."""

    def __init__(self, plan: Plan, state: SiteState) -> None:
        self._plan = plan
        self._state = state

    def layout(self) -> str:
        """Return the digest of the plan's layout."""
        return self._plan.layout

    def server(self) -> Tensors:
        """Return nothing: the server is elsewhere."""
        return {}

    def client_state(self, client: str) -> Tensors | None:
        """Return what the site keeps; none if it never trained."""
        return self._state.kept or None

    def scaling(self) -> Tensors:
        """Return the site's mean, deviation and medians, one row each; empty if nothing is prepared."""
        by, medians = self._state.scaling, self._state.medians
        found = {} if by is None else {"mean": by.mean[None], "deviation": by.deviation[None]}
        return found if medians is None else {**found, "median": medians[None]}


def _build(plan: Plan) -> nn.Module:
    return models.builder(plan.model, plan.shape, len(plan.classes), bool(plan.integers))()
