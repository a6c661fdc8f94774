"""An experiment: every setting of a run, checked, with what the data set suggests where none is given.

`Experiment(dataset="digits", method="fedcap", attack="ipm").run()` is the whole of it. Things that have
options of their own are written as a name, or as a table: `method={"name": "fedcap", "alpha": 5}`. A data
set may also be a path, a pair of arrays or a `torch.utils.data.Dataset`.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fedcap import attacks, data, methods, models
from fedcap.data import FederatedData, partitions
from fedcap.randomness import derive
from fedcap.registry import InputError, nearest, validation_message
from fedcap.simulation.presets import preset
from fedcap.simulation.record import Result
from fedcap.training import SGD, Pool

if TYPE_CHECKING:
    from fedcap.simulation.loop import Observer


class Named(BaseModel):
    """The name of a thing, and its options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def options(self) -> dict[str, Any]:
        """What was given besides the name."""
        return dict(self.model_extra or {})

    @staticmethod
    def table(value: Any) -> Any:
        """Return `"name"` as `{"name": "name"}`, and anything else as it is."""
        if isinstance(value, Named):
            return {"name": value.name, **value.options}
        return {"name": value} if isinstance(value, str) else value


Choice = Annotated[Named, BeforeValidator(Named.table)]


class AttackChoice(Named):
    """An attack, and which clients are malicious."""

    clients: Annotated[tuple[Annotated[int, Field(ge=0)], ...] | None, Field()] = None
    """The malicious clients, if they are named rather than drawn."""
    claim: Annotated[int, Field(gt=0)] | None = None
    """The number of samples malicious clients claim to have, if not the true one."""


class Training(BaseModel):
    """How clients train."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    epochs: Annotated[int, Field(ge=1)] = 5
    batch_size: Annotated[int, Field(ge=1)] = 10
    shuffle: bool = True
    drop_last: bool = True


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with those of `top` laid over those of `base`.

    Options laid over a name belong to it; a name laid over anything replaces it, options and all.
    """
    merged = dict(base)
    for key, value in top.items():
        below: Any = merged.get(key)
        if key != "name" and isinstance(below, str) and isinstance(value, Mapping):
            below = Named.table(below)
        elif isinstance(below, Mapping) and "name" in below:
            value = Named.table(value)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            same = _plain(value.get("name", below.get("name"))) == _plain(below.get("name"))
            value = overlay(below, value) if same else value
        merged[key] = value
    return merged


def _plain(name: object) -> object:
    return name.lower().replace("_", "-") if isinstance(name, str) else name


UNLESS_GIVEN = {"dataset": {"name": "digits"}, "method": {"name": "fedcap"}, "attack": {"name": "none"}}


class Experiment(BaseModel):
    """All settings of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Choice
    model: str | None = None
    method: Choice
    attack: Annotated[AttackChoice, BeforeValidator(Named.table)]
    malicious: Annotated[float, Field(ge=0)] = 0.3
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    rounds: Annotated[int, Field(ge=1)] = 100
    seed: Annotated[int, Field(ge=0)] = 0
    training: Training = Training()
    eval_every: Annotated[int, Field(ge=1)] = 1
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    workers: Annotated[int, Field(ge=1)] | None = None
    device: str = "cpu"

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InputError(_explain(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Lay what is given over what its data set suggests."""
        given = {**given, "attack": "none"} if given.get("attack", "") is None else given
        tables = {key: Named.table(value) if key in UNLESS_GIVEN else value for key, value in given.items()}
        if "dataset" in tables:
            tables["dataset"] = data.table(tables["dataset"])
        settings = overlay(UNLESS_GIVEN, tables)
        for key in UNLESS_GIVEN:
            if not isinstance(settings[key], Mapping) or not isinstance(settings[key]["name"], str):
                raise InputError(f"{key} must be a name, or a table with a name and options")
        source: Any = data.registry.get(settings["dataset"]["name"])
        suggested = source.suggest(settings["dataset"])
        settings["dataset"] = overlay(suggested.pop("dataset", {}), settings["dataset"])
        settings = overlay(suggested, settings)
        for key, registry in (("dataset", data.registry), ("method", methods.registry)):
            settings[key] = {**settings[key], "name": registry.resolve(settings[key]["name"])}
        attack = settings["attack"]["name"]
        none = attack.lower() == "none"
        settings["attack"] = {
            **settings["attack"],
            "name": "none" if none else attacks.registry.resolve(attack),
        }
        like = data.registry.resolve(settings["dataset"].get("like") or settings["dataset"]["name"])
        settings["method"] = {**preset(like, settings["method"]["name"]), **settings["method"]}
        return settings

    @model_validator(mode="after")
    def _check(self) -> Experiment:
        """Build every named thing once, so that a mistake is told before anything starts."""
        if self.malicious >= 0.5:
            raise InputError(
                f"malicious share {self.malicious:g} refused: no defence can tell which side is honest"
                " once half of the clients lie; use a share below 0.5"
            )
        _ = self.trainer, self.source, self.partition, self.adversary
        if self.model_name.startswith("__main__:") and self.workers != 1:
            raise InputError(
                f"model {self.model_name!r} is defined where worker processes cannot find it: put it into a"
                " module of its own, or train in this process with workers=1"
            )
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

    @property
    def _partition_choice(self) -> Named:
        """The partition's name and options; options without a name belong to the usual one."""
        usual = Named.table(type(self.source).partition) or {}
        return Named.model_validate({**usual, **Named.table(self.source.partition)})

    @cached_property
    def partition(self) -> partitions.Partition:
        """How the data set is dealt out."""
        choice = self._partition_choice
        options = choice.options
        if partitions.registry.resolve(choice.name) == "groups":
            options = {**self.source.groups, **options}
        return partitions.make(choice.name, **options)

    @cached_property
    def adversary(self) -> attacks.Attack | None:
        """The attack, if there is one."""
        if self.attack.name == "none":
            if self.attack.clients is not None or self.attack.claim is not None or self.attack.options:
                raise InputError("the attack has settings but no name: give --attack NAME")
            return None
        known = [*attacks.registry.options(self.attack.name), *AttackChoice.model_fields]
        for key in self.attack.options:
            if key not in known:
                raise InputError(f"attack {self.attack.name!r} has no option {key!r}: {nearest(key, known)}")
        return attacks.make(self.attack.name, **self.attack.options)

    @property
    def model_name(self) -> str:
        """The network: as given, or the one made for the data set."""
        return models.registry.resolve(self.model or self.source.model)

    @property
    def dataset_name(self) -> str:
        """What to call the data set: its name, or that of the user's file."""
        return self.source.label or self.dataset.name

    @property
    def sgd(self) -> SGD:
        """How clients train, for the training room."""
        return SGD(**self.training.model_dump())

    def load_data(self) -> FederatedData:
        """Load the data set and deal it out."""
        source = self.source
        dataset = source.load()
        for note in dataset.notes:
            _tell(note)
        return source.prepare(
            data.federate(
                dataset,
                self.partition,
                source.clients,
                None if source.samples == "all" else source.samples,
                source.train_share,
                self.seed,
                root=self.trainer.root_samples,
            )
        )

    def roster(self, clients: int) -> frozenset[int]:
        """Return the malicious clients: those named, or a draw by the seed."""
        if self.adversary is None:
            return frozenset()
        if self.attack.clients is not None:
            named = frozenset(self.attack.clients)
            if named and max(named) >= clients:
                raise InputError(f"attack.clients names client {max(named)}; ids end at {clients - 1}")
            if 2 * len(named) >= clients:
                raise InputError(f"attack.clients names {len(named)} of {clients}: a majority must be honest")
            return named
        count = int(self.malicious * clients + 1e-9)
        drawn = torch.randperm(clients, generator=derive(self.seed, "roster"))[:count]
        return frozenset(drawn.tolist())

    def run(
        self,
        out: Path | str | None = None,
        pool: Pool | None = None,
        observers: Sequence[Observer] = (),
    ) -> Result:
        """Run the experiment; with `out`, keep its records and checkpoints in that directory."""
        from fedcap.simulation.loop import run

        return run(self, out, pool, observers)

    def settings(self) -> dict[str, Any]:
        """Return every setting as plain values, with all options resolved."""
        partition = partitions.registry.resolve(self._partition_choice.name)
        attack = {} if self.adversary is None else asdict(self.adversary)
        settings = {
            **self.model_dump(exclude={"dataset", "method", "attack"}),
            "model": self.model_name,
            "dataset": {
                "name": self.dataset.name,
                **self.source.settings(),
                "partition": {"name": partition, **asdict(self.partition)},
            },
            "method": {"name": self.method.name, **asdict(self.trainer)},
            "attack": {
                "name": self.attack.name,
                "clients": self.attack.clients,
                "claim": self.attack.claim,
                **attack,
            },
        }
        return _without_none(settings)


@cache
def _tell(note: str) -> None:
    """Log what the user should know, once."""
    logging.getLogger("fedcap").warning(note)


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file; what is wrong with it is told in one line."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value is not None
    }


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        *place, key = (str(part) for part in first["loc"])
        known = Training.model_fields if place else Experiment.model_fields
        return f"unknown setting {'.'.join([*place, key])!r}: {nearest(key, known)}"
    return validation_message(error)
