"""`fedcap list NAME` and `fedcap explain NAME`: what one named thing is, and each of its options."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from fedcap.cli.options import Option, options_of
from fedcap.cli.output import AsJson, print_json
from fedcap.errors import InputError
from fedcap.registry import Registry, load

USES = {
    "method": "fedcap run --method {name}",
    "attack": "fedcap run --attack {name}",
    "aggregator": "fedcap run --method fedavg --rule {name}",
    "detector": "fedcap run --set method.detectors={name}",
    "policy": "fedcap run --set method.policy={name}",
    "data set": "fedcap run --dataset {name}",
    "partition": "fedcap run --set dataset.partition={name}",
    "model": "fedcap run --model {name}",
    "tracker": "fedcap run --track {name}",
}
"""How a thing of each kind is used."""
PLACES = {
    "method": "method",
    "attack": "attack",
    "aggregator": "method.rule",
    "policy": "method.policy",
    "data set": "dataset",
    "partition": "dataset.partition",
}
"""Where the options of a thing of each kind are set."""
OWN = {"csv": "FILE.csv", "npz": "FILE.npz", "folder": "FOLDER"}
"""What is given in place of the name of a source of one's own data."""


@dataclass(frozen=True)
class Explanation:
    """All that is known of one named thing."""

    kind: str
    name: str
    aliases: Sequence[str]
    summary: str
    about: str
    """The docstring of its module: what it does, its formula, its reference."""
    options: Sequence[Option]
    notes: Sequence[str]
    """What goes with it unless the user says otherwise."""
    use: str
    """A command that uses it."""


def registries() -> dict[str, Registry[Any]]:
    """Return everything that can be named, by room."""
    from fedcap import aggregators, attacks, data, detection, methods, models, trackers
    from fedcap.data import partitions

    return {
        "methods": methods.registry,
        "attacks": attacks.registry,
        "aggregators": aggregators.registry,
        "detectors": detection.registry,
        "policies": detection.policies,
        "data sets": data.registry,
        "partitions": partitions.registry,
        "models": models.registry,
        "trackers": trackers.registry,
    }


def explain(
    name: Annotated[str, typer.Argument(help="Name, alias, or module:Class.")], as_json: AsJson = False
) -> None:
    """Explain a method, attack, aggregator, detector, policy, data set, partition, model or tracker."""
    found = explanations(name)
    if as_json:
        print_json([asdict(explanation) for explanation in found])
        return
    typer.echo("\n\n".join(_text(explanation) for explanation in found))


def explanations(name: str) -> list[Explanation]:
    """Return everything that is called so, of whatever kind."""
    rooms = registries().values()
    found = [registry for registry in rooms if _has(registry, name)]
    if found:
        return [_explanation(registry, registry.resolve(name)) for registry in found]
    if ":" in name:
        load(name)  # tells why it cannot be imported
        raise InputError(f"{name!r} is no method, attack, aggregator, detector, policy or data set")
    known = {spelled for registry in rooms for one in registry.names() for spelled in registry.spellings(one)}
    close = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise InputError(f"nothing is called {name!r}: {hint}(fedcap list shows all)")


def _has(registry: Registry[Any], name: str) -> bool:
    try:
        registry.get(name)
    except InputError:
        return False
    return True


def _explanation(registry: Registry[Any], name: str) -> Explanation:
    cls: Any = registry.get(name)
    options = options_of(cls)
    return Explanation(
        registry.kind,
        name,
        registry.spellings(name)[1:],
        registry.summary(name),
        sys.modules[cls.__module__].__doc__ or "",
        options,
        _notes(registry.kind, name, cls),
        _use(registry.kind, name, options),
    )


def _notes(kind: str, name: str, cls: Any) -> list[str]:
    """Return the settings that a data set brings, and those that a method has on each data set."""
    from fedcap.simulation.settings import PRESETS

    if kind == "method":
        there = {dataset: methods[name] for dataset, methods in PRESETS.items() if name in methods}
        return [f"on {dataset}: {_settings(options)}" for dataset, options in there.items()]
    if kind == "data set":
        return [f"unless you say otherwise: {_settings({'model': cls.model, **cls.suggest({})})}"]
    return []


def _settings(settings: Any, place: str = "") -> str:
    parts = [
        _settings(value, f"{place}{key}.") if isinstance(value, dict) else f"{place}{key}={value}"
        for key, value in settings.items()
    ]
    return ", ".join(parts)


def _use(kind: str, name: str, options: Sequence[Option]) -> str:
    if name == "arrays":
        return "fedcap.Experiment(dataset=(x, y)).run()"
    given = OWN.get(name, name) if kind == "data set" else name
    line = USES[kind].format(name=given)
    chosen = next((option for option in options if option.numeric), None)
    if chosen is None or kind not in PLACES:
        return line
    return f"{line} --set {PLACES[kind]}.{chosen.name}={chosen.default}"


def _text(explanation: Explanation) -> str:
    """Return an explanation as text."""
    heading = typer.style(f"{explanation.name}", bold=True) + f" · {explanation.kind}"
    also = f" · also {', '.join(explanation.aliases)}" if explanation.aliases else ""
    parts = [f"{heading}{also}\n{explanation.summary}", explanation.about.strip()]
    if explanation.options:
        lines = [f"  {o.name} ({o.type}; default {o.default})\n      {o.line}" for o in explanation.options]
        parts.append("\n".join([typer.style("options", bold=True), *lines]))
    return "\n\n".join([*parts, "\n".join([*explanation.notes, explanation.use])])
