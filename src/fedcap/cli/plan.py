"""What would run, with --dry-run: every setting of a run, every run of a grid. Nothing is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fedcap.cli.output import print_json, users_code
from fedcap.errors import plural

if TYPE_CHECKING:
    from fedcap.experiments.store import GridStatus
    from fedcap.simulation import Experiment

PRODUCTS = {"onednn": "oneDNN", "mkl": "MKL"}
RUNS_SHOWN = 20
"""How many runs that would be played, and how many that failed, are listed."""


def print_plan(experiment: Experiment, as_json: bool) -> None:
    """Print the settings as TOML that `fedcap run` takes, and what would run as comments; or both as JSON."""
    from fedcap.runs import to_toml

    with users_code():
        settings, plan = experiment.settings(), _plan(experiment)
    if as_json:
        print_json({**plan, "settings": settings})
        return
    typer.echo("\n".join(f"# {line}" for line in _lines(experiment, plan)))
    typer.echo(f"\n{to_toml(settings)}", nl=False)


def _plan(experiment: Experiment) -> dict[str, Any]:
    """Load the data, build the network and the server, and return the run's size."""
    from fedcap.products import chosen_products
    from fedcap.simulation import Simulation, make_pool

    with make_pool(1) as crew:
        simulation = Simulation(experiment, crew)
        return {
            "rounds": experiment.rounds,
            "clients": list(simulation.names),
            "malicious": [name for name in simulation.names if name in simulation.malicious],
            "weights": simulation.layout.size,
            "train_samples": sum(map(len, simulation.data.train)),
            "test_samples": sum(map(len, simulation.data.test)),
            "products": chosen_products(),
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
        f"model {experiment.model_name} of {plural(plan['weights'], 'weight')};"
        f" matrix products by {PRODUCTS[plan['products']]}",
        "Every setting follows. This is a dry run: nothing was trained or written.",
    ]


def print_grid_plan(plan: GridStatus, retry: bool, as_json: bool) -> None:
    """Print which runs of a grid are done, failed and left."""
    failed = {} if retry else plan.failed
    left = [cell for cell in plan.runs if cell.name not in plan.done and cell.name not in failed]
    if as_json:
        states = dict.fromkeys(plan.done, "done") | dict.fromkeys(failed, "failed")
        runs = [{"name": c.name, "state": states.get(c.name, "left"), **c.place} for c in plan.runs]
        print_json({"runs": runs})
        return
    told = f", {len(failed)} failed (--retry tries them again)" if failed else ""
    typer.echo(f"{plural(len(plan.runs), 'run')}: {len(plan.done)} done{told}, {len(left)} would be played")
    lines = [f"  {cell}" for cell in left]
    lines += [f"  {cell} failed: {failed[cell.name].why}" for cell in plan.runs if cell.name in failed]
    typer.echo("\n".join(lines[:RUNS_SHOWN]), nl=bool(lines))
    if len(lines) > RUNS_SHOWN:
        typer.echo(f"  … and {len(lines) - RUNS_SHOWN:,} more: --json has all")
    typer.echo("This is a dry run: nothing was kept.")
