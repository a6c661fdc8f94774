"""`fedcap run --dry-run`: every setting as it will be, and what would run; nothing is trained or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fedcap.cli.output import print_json, users_code
from fedcap.words import plural

if TYPE_CHECKING:
    from fedcap.simulation import Experiment


def print_plan(experiment: Experiment, as_json: bool) -> None:
    """Print the settings as TOML that `fedcap run` takes, and what would run as comments; or both as JSON."""
    from fedcap.records import to_toml

    with users_code():
        settings, plan = experiment.settings(), _plan(experiment)
    if as_json:
        print_json({**plan, "settings": settings})
        return
    typer.echo("\n".join(f"# {line}" for line in _lines(experiment, plan)))
    typer.echo(f"\n{to_toml(settings)}", nl=False)


def _plan(experiment: Experiment) -> dict[str, Any]:
    """Load the data, build the network and the server, and return the run's size."""
    from fedcap.simulation import Simulation, make_crew

    with make_crew(1) as crew:
        simulation = Simulation(experiment, crew)
        return {
            "rounds": experiment.rounds,
            "clients": list(simulation.names),
            "malicious": [name for name in simulation.names if name in simulation.malicious],
            "weights": simulation.layout.size,
            "train_samples": sum(map(len, simulation.data.train)),
            "test_samples": sum(map(len, simulation.data.test)),
        }


def _lines(experiment: Experiment, plan: dict[str, Any]) -> list[str]:
    """Return the plan as text."""
    attackers = ", ".join(plan["malicious"])
    name = experiment.attack.name
    attack = "no attack" if name == "none" else f"{name} by {attackers or 'nobody'}"
    return [
        f"would run: {experiment.dataset_name} · {experiment.method.name} · {attack}"
        f" · seed {experiment.seed} · {plural(experiment.rounds, 'round')}",
        f"{plural(len(plan['clients']), 'client')}, {len(plan['malicious']) or 'none'} of them malicious;"
        f" {plan['train_samples']:,} training and {plural(plan['test_samples'], 'test sample')}",
        f"model {experiment.model_name} of {plural(plan['weights'], 'weight')}",
        "Every setting follows. This is a dry run: nothing was trained or written.",
    ]
