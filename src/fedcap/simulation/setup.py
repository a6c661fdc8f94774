"""All settings of a run, checked, and the things they name, built.

Things that have options of their own are written as a name, or as a table: `method={"name": "fedcap",
"alpha": 5}`; from Python also as an object, `method=FedCAP(alpha=5)`, with all of its options as they stand.
What else is not given is taken from what the data set suggests and from the method's presets on it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache, cached_property
from typing import Annotated, Any

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator

from fedcap import attacks, data, methods, models
from fedcap.data import FederatedData, partitions
from fedcap.errors import InputError, nearest
from fedcap.fingerprint import source_digest, written
from fedcap.registry import GIVEN
from fedcap.rng import derive
from fedcap.runs import Named, absent_attack, digest
from fedcap.simulation.resolving import resolve, without_none
from fedcap.trackers import Tracker, Words, make_trackers
from fedcap.training import SGD

LOG = logging.getLogger("fedcap")
COMPUTES = 2
"""Increase this when the same settings give other results than before; it is part of every digest."""


def _as_names(clients: Any) -> Any:
    return [str(client) for client in clients] if isinstance(clients, list | tuple) else clients


class AttackChoice(Named):
    """An attack, and which clients are malicious."""

    clients: Annotated[tuple[str, ...] | None, BeforeValidator(_as_names)] = None
    """The malicious clients, if they are named rather than drawn."""


class Setup(BaseModel):
    """All settings of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Named
    """The data: a name, a path, arrays, or a table of a name and options."""
    model: str | InstanceOf[models.Given] | None = None
    """The network: a name, `module:function`, or from Python a function, a class or a module; a module's own
    weights are the common start."""
    method: Named
    """The method: a name, a table of a name and options, or an object."""
    attack: AttackChoice
    """The attack, likewise; `none` if there is none."""
    malicious: Annotated[float, Field(ge=0)] = 0.3
    """Share of the clients that are malicious, if there is an attack."""
    assumed: Annotated[float, Field(ge=0, lt=0.5)] | None = None
    """Share of the participants that the server assumes to be malicious; if not given, the true share:
    `malicious` under an attack, 0 without. Rules that need a number M take it from this."""
    holdout: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each client's training samples that stands in the place of its test samples, which are then
    not used: settings are chosen by it, so that the test samples have no part in the choice."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the clients that take part in a round."""
    rounds: Annotated[int, Field(ge=1)] = 100
    """How many rounds are played."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Fixes all that is drawn: who has which data, who attacks, the first weights, the mini-batches."""
    training: SGD = SGD()
    """How clients train."""
    eval_every: Annotated[int, Field(ge=1)] = 1
    """Accuracy is measured in every so many rounds, and in the last."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    """The state is saved after every so many rounds, and after the last."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """How many processes train; if not given, one for each core. Results do not depend on it."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, …"""
    track: Words | None = None
    """Trackers that follow the run, by their names. No result depends on them."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Lay what is given over what its data set and its method suggest."""
        return resolve(given)

    @model_validator(mode="after")
    def _check(self) -> Setup:
        """Build every named thing once, so that a mistake is an error before anything starts."""
        if self.malicious >= 0.5:
            raise InputError(
                f"malicious share {self.malicious:g} refused: no defence can tell which side is honest"
                " once half of the clients lie; use a share below 0.5"
            )
        _ = self.trainer, self.source, self.partition, self.adversary, self.model_name
        try:
            usable = torch.empty(0, device=self.device).device.type != "meta"
        except (RuntimeError, AssertionError):
            usable = False
        if not usable:
            raise InputError(f"device {self.device!r} is not available here")
        return self

    @cached_property
    def trainer(self) -> methods.Method[Any]:
        """The method."""
        return methods.make(self.method.name, **self.method.options)

    @cached_property
    def source(self) -> data.Source:
        """The data set, not loaded yet."""
        return data.make(self.dataset.name, **self.dataset.options)

    @cached_property
    def partition(self) -> partitions.Partition:
        """How the data set is dealt out."""
        return partitions.registry.build(data.partition_table(self.source))

    @cached_property
    def adversary(self) -> attacks.Attack | None:
        """The attack, if there is one."""
        if self.attack.name == "none":
            if self.attack.clients is not None or self.attack.options:
                raise InputError("the attack has settings but no name: give --attack NAME")
            return None
        given = GIVEN in self.attack.options
        known = ["clients", GIVEN] if given else [*attacks.registry.options(self.attack.name), "clients"]
        for key in self.attack.options:
            if key not in known:
                raise InputError(f"attack {self.attack.name!r} has no option {key!r}: {nearest(key, known)}")
        return attacks.make(self.attack.name, **self.attack.options)

    def trackers(self) -> list[Tracker]:
        """Return the trackers, new ones each time."""
        return make_trackers(self.track or ())

    @property
    def assumed_malicious(self) -> float:
        """The share of the participants that the server assumes to be malicious."""
        if self.assumed is not None:
            return self.assumed
        return 0.0 if self.adversary is None else self.malicious

    @property
    def network(self) -> str | models.Given:
        """The network: as given, or the data set's default; what `models.builder` takes."""
        if isinstance(self.model, models.Given):
            return self.model
        return models.registry.resolve(self.model or self.source.model)

    @property
    def model_name(self) -> str:
        """What to call the network."""
        return self.network.label if isinstance(self.network, models.Given) else self.network

    @property
    def dataset_name(self) -> str:
        """What to call the data set: its name, or that of the user's file."""
        return self.source.heading or self.dataset.name

    def load_data(self) -> FederatedData:
        """Load the data set and deal it out."""
        dataset = self.source.load()
        for note in dataset.notes:
            _tell(note)
        return data.deal(
            self.source, dataset, self.seed, root=self.trainer.root_samples, holdout=self.holdout
        )

    def attackers(self, clients: tuple[str, ...]) -> frozenset[str]:
        """Return who of the clients is malicious: those named, or a draw by the seed."""
        if self.adversary is None:
            return frozenset()
        if self.attack.clients is not None:
            chosen = frozenset(self.attack.clients)
            for client in sorted(chosen - set(clients)):
                raise InputError(f"attack.clients names client {client!r}: {nearest(client, clients)}")
            if 2 * len(chosen) >= len(clients):
                raise InputError(
                    f"attack.clients names {len(chosen)} of {len(clients)}: a majority must be honest"
                )
            if not chosen:
                LOG.warning(absent_attack(self.attack.name, 0, len(clients), named=True))
            return chosen
        count = int(self.malicious * len(clients) + 1e-9)
        if not count:
            LOG.warning(absent_attack(self.attack.name, self.malicious, len(clients)))
        drawn = torch.randperm(len(clients), generator=derive(self.seed, "roster"))[:count]
        return frozenset(clients[row] for row in drawn.tolist())

    def settings(self) -> dict[str, Any]:
        """Return every setting as plain values, with all options resolved."""
        attack = {} if self.adversary is None else written(self.attack.name, self.adversary)
        settings = {
            "model": self.model_name,
            **self.model_dump(exclude={"dataset", "model", "method", "attack"}),
            "dataset": {
                "name": self.dataset.name,
                **self.source.settings(),
                "partition": {**data.partition_table(self.source), **asdict(self.partition)},
            },
            "method": written(self.method.name, self.trainer),
            "attack": {"name": self.attack.name, "clients": self.attack.clients, **attack},
        }
        return without_none(settings)  # type: ignore[no-any-return]

    def digest(self, settings: Mapping[str, Any] | None = None) -> str:
        """Return a hash of everything on which the result depends; it identifies the run.

        It covers the settings, the content of the data (not where it lies), the user's own code
        (`module:name`), `COMPUTES`, and the revisions of parts. It does not cover the number of workers.
        Other settings than its own may be given, such as those that an older version wrote down of the run.
        """
        return digest(
            settings or self.settings(), str(COMPUTES), self.source.fingerprint(), *self.revisions()
        )

    def revisions(self) -> list[str]:
        """Return what tells the code of its parts: hashes of the user's own, revisions of ours."""
        return [*sorted(set(self.code().values())), *self.trainer.revised]

    def code(self) -> dict[str, str]:
        """Return the hash of the file of each thing of the user's own, by `module:name`."""
        settings = self.settings()
        named = (settings[key] for key in ("model", "method", "attack", "dataset"))
        return {name: source_digest(name) for part in named for name in _references(part)}


def _references(settings: Any) -> Iterator[str]:
    """Yield every `module:name` in nested settings."""
    if isinstance(settings, Mapping):
        settings = settings.values()
    if isinstance(settings, str):
        if re.fullmatch(r"[\w.]+:\w+", settings):
            yield settings
    elif isinstance(settings, Iterable):
        for part in settings:
            yield from _references(part)


@cache
def _tell(note: str) -> None:
    """Log what the user should know, once."""
    LOG.warning(note)
