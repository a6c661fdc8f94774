"""All settings of a run, checked, and the objects that they name, built.

A `Setup` has what the user gave, over what the data set suggests and the method's presets on it. A choice
(data set, method, rule, attack) is a name, a word such as `bucketing(median)`, a table such as
`{"name": "fedcap", "alpha": 5}`, an object, or a class. `table_of` turns it into a table with a resolved
name, and `label_of` into the label that tables of results use. Grids use both.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    model_validator,
)

from fedcap import aggregators, attacks, data, methods, models
from fedcap.data import FederatedData, partitions
from fedcap.data.labels import refuse_identifiers
from fedcap.errors import InputError, nearest, validation_message, warn_once
from fedcap.fingerprint import source_digest, written
from fedcap.registry import GIVEN, Registry, as_table, spelling
from fedcap.rng import derive
from fedcap.runs import Named, absent_attack, digest, overlay
from fedcap.trackers import Tracker, Words, make_trackers
from fedcap.training import SGD

_EMNIST = {"fedcap": {"alpha": 10.0, "phi": 0.1, "lambda_": 0.5, "t_norm": 10.0}}

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "digits": {
        "fedcap": {"alpha": 5.0, "phi": 0.1, "lambda_": 1.0, "t_norm": 6.0},
        "ditto": {"lambda_": 1.0},
    },
    "cifar10": {"fedcap": {"alpha": 10.0, "phi": 0.3, "lambda_": 1.0, "t_norm": 10.0}},
    "emnist": _EMNIST,
    "handwritten62": _EMNIST,
    "wisdm": {"fedcap": {"alpha": 2.0, "phi": 0.1, "lambda_": 0.1, "t_norm": 10.0}},
}
"""Data set → method → options, by registered names."""


def preset(dataset: str, method: str) -> dict[str, Any]:
    """Return the options of a method on a data set; empty if there are none."""
    return dict(PRESETS.get(dataset, {}).get(method, {}))


NO_ATTACK = "none"
UNLESS_GIVEN = {"dataset": "digits", "method": "fedcap", "attack": NO_ATTACK}
"""The choices of an experiment that names none."""
_REGISTRIES: Mapping[str, Registry[Any]] = {
    "dataset": data.registry,
    "method": methods.registry,
    "rule": aggregators.registry,
    "attack": attacks.registry,
}
KINDS = tuple(_REGISTRIES)


def names(kind: str) -> list[str]:
    """Return all names of a kind; for attacks, `none` comes first."""
    return [*[NO_ATTACK] * (kind == "attack"), *_REGISTRIES[kind].names()]


def table_of(kind: str, choice: Any) -> dict[str, Any]:
    """Return a choice as a table of its name, resolved, and its options; an unknown name is an error."""
    registry = _REGISTRIES[kind]
    table = as_table(data.table(choice) if kind == "dataset" else registry.table(choice), kind)
    if kind == "attack" and table["name"].lower() == NO_ATTACK:
        return {**table, "name": NO_ATTACK}
    if GIVEN not in table:
        table["name"] = registry.resolve(table["name"])
        registry.get(table["name"])
    return table


def label_of(kind: str, table: Mapping[str, Any]) -> str:
    """Return the word for a choice, without options that have their default: `fedavg`, `bucketing(median)`.

    The default of an option may depend on the data set; such an option is always in the word.
    """
    if GIVEN in table:
        return type(table[GIVEN]).__name__
    shown = dict(table)
    if kind == "dataset":
        shown.pop("data", None)
        if "path" in shown:
            shown["name"] = Path(shown.pop("path")).stem
        return spelling(shown)
    usual = {} if table["name"] == NO_ATTACK else _defaults(kind, table["name"])
    if kind == "method":
        preset = {option for methods in PRESETS.values() for option in methods.get(table["name"], {})}
        usual = {option: value for option, value in usual.items() if option not in preset}
    inner = {"rule": shown.pop("rule", usual["rule"])} if kind == "rule" and "rule" in usual else {}
    return spelling({key: value for key, value in shown.items() if value != usual.get(key)} | inner)


def _defaults(kind: str, name: str) -> dict[str, Any]:
    known: Any = _REGISTRIES[kind].get(name)
    made = {
        field.name: field.default_factory() for field in fields(known) if field.default_factory is not MISSING
    }
    return {field.name: field.default for field in fields(known)} | made


def options_of(kind: str, table: Mapping[str, Any]) -> list[str]:
    """Return the options that a choice has."""
    if GIVEN in table:
        return [field.name for field in fields(table[GIVEN]) if field.init]
    if table["name"] == NO_ATTACK:
        return []
    return [*_REGISTRIES[kind].options(table["name"]), *["clients"] * (kind == "attack")]


def with_options(kind: str, table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice with these options in place of its own."""
    if GIVEN not in table or not options:
        return overlay(table, options)
    try:
        thing = replace(table[GIVEN], **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind} {label_of(kind, table)}: {error}") from None
    return table_of(kind, thing)


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with names resolved and defaults filled in for what was not given."""
    tables = {key: value for key, value in given.items() if key not in UNLESS_GIVEN or value is not None}
    if "dataset" in tables:
        tables["dataset"] = data.table(tables["dataset"])
    for key, registry in (("method", methods.registry), ("attack", attacks.registry)):
        if key in tables:
            tables[key] = registry.table(tables[key])
    if "model" in tables:
        tables["model"] = models.as_choice(tables["model"])
    settings = overlay(UNLESS_GIVEN, tables)
    for key in UNLESS_GIVEN:
        settings[key] = as_table(settings[key], key)
    dataset, method, attack = (settings[key] for key in UNLESS_GIVEN)
    source: Any = data.registry.get(dataset["name"])
    suggested = source.suggest(dataset)
    dataset = overlay(suggested.pop("dataset", {}), dataset)
    dataset["name"] = data.registry.resolve(dataset["name"])
    if GIVEN not in method:
        method["name"] = methods.registry.resolve(method["name"])
    set_up = dataset.get("like") or dataset["name"]
    method = {**preset(data.registry.resolve(set_up), method["name"]), **method}
    if attack["name"].lower() == "none":
        attack["name"] = "none"
    elif GIVEN not in attack:
        attack["name"] = attacks.registry.resolve(attack["name"])
    return overlay(suggested, settings) | {"dataset": dataset, "method": method, "attack": attack}


def explain(error: ValidationError, known: Iterable[str]) -> str:
    """Return what is wrong with the settings in one line; for an unknown one, suggest the nearest names."""
    first = error.errors()[0]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *place, key = (str(part) for part in first["loc"])
        there = [field.name for field in fields(SGD)] if place else known
        owner = None if place else _owner(key)
        hint = nearest(key, there) if owner is None else f"it is an option of the {owner}, {owner}.{key}"
        return f"unknown setting {'.'.join([*place, key])!r}: {hint}"
    return validation_message(error)


def _owner(option: str) -> str | None:
    """Return the setting that has this option; None if none has it."""
    if option in (field.name for field in fields(SGD)):
        return "training"
    for owner, registry in (("method", methods.registry), ("attack", attacks.registry)):
        if any(option in registry.options(name) for name in registry.names()):
            return owner
    return None


def without_none(settings: Any) -> Any:
    """Return nested settings without those that are None, which TOML cannot express."""
    if isinstance(settings, Mapping):
        return {key: without_none(value) for key, value in settings.items() if value is not None}
    return [without_none(value) for value in settings] if isinstance(settings, list | tuple) else settings


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
    """Share of each client's training samples that replaces its test samples, which are then not used.
    Settings are tuned on it, so that the test samples have no part in the choice."""
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the clients that take part in a round."""
    rounds: Annotated[int, Field(ge=1)] = 100
    """The number of rounds."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Fixes all that is drawn: the partition, the malicious clients, the first weights, the mini-batches."""
    training: SGD = SGD()
    """How clients train; with `lr = "auto"`, a short comparison chooses the learning rate."""
    choose_lr: Annotated[bool, Field(exclude=True)] = False
    """Whether the learning rate is to be chosen; training.lr = "auto" sets it."""
    eval_every: Annotated[int, Field(ge=1)] = 1
    """Accuracy is measured once in this number of rounds, and in the last round."""
    eval_clients: Annotated[int, Field(ge=1)] | None = None
    """The number of honest clients whose accuracy is measured, a sample drawn by the seed; if not given,
    all clients, or 1,000 if there are more than 5,000 clients."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    """The state is saved once in this number of rounds, and after the last round."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """The number of processes that train; if not given, one per core. Results do not depend on it."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, …"""
    track: Words | None = None
    """Trackers that follow the run, by their names. No result depends on them."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Complete what is given with what its data set and its method suggest."""
        settings = resolve(given)
        training = settings.get("training")
        if isinstance(training, Mapping) and training.get("lr") == "auto":
            others = {key: value for key, value in training.items() if key != "lr"}
            settings |= {"training": others, "choose_lr": True}
        return settings

    @model_validator(mode="after")
    def _check(self) -> Setup:
        """Build everything that is named, so that a mistake is an error before anything starts."""
        if self.malicious >= 0.5:
            raise InputError(
                f"malicious should be a share below 0.5, such as 0.3 for 30 % (got {self.malicious:g}): when"
                " half of the clients are malicious, no defence can decide which side is honest",
                code="bad-value",
                field="malicious",
            )
        _ = self.trainer, self.source, self.partition, self.adversary, self.model_name
        try:
            usable = torch.empty(0, device=self.device).device.type != "meta"
        except (RuntimeError, AssertionError):
            usable = False
        if not usable:
            gpus = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
            available = ["cpu", *(name for name, is_there in gpus.items() if is_there)]
            raise InputError(
                f"device {self.device!r} is not available here: choose {' or '.join(available)}",
                code="unavailable-device",
                field="device",
            )
        return self

    @cached_property
    def trainer(self) -> methods.Method[Any]:
        """The method."""
        return methods.make(self.method.name, **self.method.options)

    @cached_property
    def chosen_training(self) -> SGD:
        """How clients train, with the learning rate that is given or chosen."""
        if not self.choose_lr:
            return self.training
        from fedcap.simulation.rate import choose_rate  # the comparison plays experiments

        return replace(self.training, lr=choose_rate(self))

    @cached_property
    def source(self) -> data.Source:
        """The data set, not loaded yet."""
        name = self.dataset.name
        try:
            return data.make(name, **self.dataset.options)
        except InputError as error:
            option = error.field
            is_own = "standardise" in data.registry.options(name)
            if is_own or error.code != "unknown-option" or option not in data.registry.options("csv"):
                raise
            raise InputError(
                f"data set {name!r} has no option {option!r}, which is for your own data: a file, a folder or"
                " arrays",
                code="unknown-option",
                field=option,
            ) from None

    @cached_property
    def partition(self) -> partitions.Partition:
        """How the data set is partitioned."""
        return partitions.registry.build(data.partition_table(self.source))

    @cached_property
    def adversary(self) -> attacks.Attack | None:
        """The attack, if there is one."""
        if self.attack.name == "none":
            if self.attack.clients is not None or self.attack.options:
                raise InputError(
                    "the attack has settings but no name: give it one", code="nameless-attack", field="attack"
                )
            return None
        given = GIVEN in self.attack.options
        known = ["clients", GIVEN] if given else [*attacks.registry.options(self.attack.name), "clients"]
        for key in self.attack.options:
            if key not in known:
                raise InputError(
                    f"attack {self.attack.name!r} has no option {key!r}: {nearest(key, known)}",
                    code="unknown-option",
                    field=key,
                )
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
        """The name of the network."""
        return self.network.label if isinstance(self.network, models.Given) else self.network

    @property
    def dataset_name(self) -> str:
        """The name of the data set, or of the user's file."""
        return self.source.heading or self.dataset.name

    def load_data(self) -> FederatedData:
        """Load the data set and partition it."""
        dataset = self.source.load()
        refuse_identifiers(dataset.class_names, len(dataset.samples))
        federated = data.federate_source(
            self.source, dataset, self.seed, root=self.trainer.root_samples, holdout=self.holdout
        )
        for note in (*dataset.notes, *self.source.doubts(dataset, federated)):
            warn_once(note)
        return federated

    def check_clients(self, clients: Sequence[str]) -> None:
        """Refuse a single client; warn if the share of participants is less than one client."""
        if len(clients) < 2:
            raise InputError(
                f"all samples belong to client {clients[0]!r}: two clients or more are needed",
                code="one-client",
                field="dataset",
            )
        if self.participation * len(clients) < 1:
            warn_once(
                f"participation = {self.participation:g} is less than one of {len(clients)} clients: one"
                " client takes part in each round"
            )

    def attackers(self, clients: Sequence[str]) -> frozenset[str]:
        """Return the malicious clients: those named, or a draw by the seed."""
        if self.adversary is None:
            return frozenset()
        if self.attack.clients is not None:
            chosen = frozenset(self.attack.clients)
            for client in sorted(chosen - set(clients)):
                raise InputError(
                    f"attack.clients names client {client!r}: {nearest(client, clients)}",
                    code="unknown-name",
                    field="attack.clients",
                )
            if 2 * len(chosen) >= len(clients):
                raise InputError(
                    f"attack.clients names {len(chosen)} of {len(clients)}: a majority must be honest",
                    code="bad-value",
                    field="attack.clients",
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
            **self.model_dump(exclude={"dataset", "model", "method", "attack", "training"}),
            "training": asdict(self.chosen_training),
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

        It covers the settings, the content of the data (not its path), the user's own code
        (`module:name`), `COMPUTES`, and the revisions of parts. It does not cover the number of workers.
        Other settings than its own may be given, such as those that an older version recorded of the run.
        """
        return digest(
            settings or self.settings(), str(COMPUTES), self.source.fingerprint(), *self.revisions()
        )

    def revisions(self) -> list[str]:
        """Return what identifies the code of its parts: hashes of the user's own code, revisions of ours."""
        return [*sorted(set(self.code().values())), *self.trainer.revised]

    def code(self) -> dict[str, str]:
        """Return the hash of the file of each part of the user's own, by `module:name`."""
        settings = self.settings()
        settings["dataset"] = {key: value for key, value in settings["dataset"].items() if key != "levels"}
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
