"""`fedcap run`: one method under one attack, or with `--dry-run` the settings of that run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import (
    FAILED,
    AsJson,
    Interrupted,
    Overrides,
    Quiet,
    Ray,
    SettingsFile,
    Workers,
    echo,
    given,
    print_json,
    ray_address,
    users_code,
    with_settings,
)
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.runs import NewDirectory, RunDirectory
    from fedcap.simulation import Experiment, WorkerPool

PRODUCTS = {"onednn": "oneDNN", "mkl": "MKL"}


def run(
    file: SettingsFile = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, FILE.csv, FILE.npz, or folder. [default: digits]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Network, or module:function. [default: the data set's]")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    rule: Annotated[
        str | None, typer.Option(help="Aggregation rule, for methods that take one. [default: the method's]")
    ] = None,
    attack: Annotated[str | None, typer.Option(help="Attack, or none. [default: none]")] = None,
    malicious: Annotated[
        float | None, typer.Option(help="Share of malicious clients under an attack. [default: 0.3]")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds. [default: the data set's: 30 on digits, else 100]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed. [default: 0]")] = None,
    settings: Overrides = None,
    device: Annotated[
        str | None, typer.Option(help="Where to compute: cpu, cuda or cuda:1. [default: cpu]")
    ] = None,
    workers: Workers = None,
    ray: Ray = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="Also record the rounds with csv, tensorboard, mlflow, or module:Class. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run's directory. [default: a new one in runs/]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue the run in this directory. --rounds extends it; --dataset gives the new place of"
            " its data."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every setting, and run nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run one method under one attack.

    The result and a record of each round are saved in a directory. The defaults of the method, the training
    and the partition depend on the data set: --dry-run prints them.
    """
    from fedcap.runs import RunDirectory, overlay, read_toml
    from fedcap.simulation import Experiment, load_experiment, make_pool

    asked = given(
        dataset=dataset,
        model=model,
        method=method,
        attack=attack,
        malicious=malicious,
        rounds=rounds,
        seed=seed,
        device=device,
        workers=None if resume else workers,
        track=None if resume else track or None,
    )
    if rule is not None:
        asked = overlay(asked, {"method": {"rule": rule}})
    asked = with_settings(asked, settings)
    if resume is not None:
        where, to = asked.pop("dataset", None), asked.pop("rounds", None)
        if file or asked or out or not isinstance(where, str | None) or not isinstance(to, int | None):
            raise InputError(
                "--resume continues a run with its settings: it takes only --rounds, --dataset, --workers,"
                " --ray, --track, --dry-run, --quiet and --json",
                code="bad-option",
                field="resume",
            )
        with users_code():
            experiment = load_experiment(resume, workers, to, where, track or None)
        directory = RunDirectory(resume)
    else:
        with users_code():
            experiment = Experiment(**overlay(read_toml(file) if file else {}, asked))
        if malicious and experiment.attack.name == "none":
            echo(
                f"fedcap: --malicious {malicious:g} has no effect without an attack (--attack NAME)", err=True
            )
        directory = RunDirectory(out) if out else _new_directory(experiment)
    if dry_run:
        print_plan(experiment, as_json)
        return
    with make_pool(
        experiment.workers, experiment.device, "local" if ray is None else "ray", ray_address(ray)
    ) as pool:
        _play(experiment, directory, pool, as_json, quiet, extend=resume is not None)


def _play(
    experiment: Experiment, out: RunDirectory, pool: WorkerPool, as_json: bool, quiet: bool, extend: bool
) -> None:
    """Run the experiment, and print its result."""
    from fedcap.cli.progress import RunProgress
    from fedcap.cli.show import summary
    from fedcap.runs import CONFIG, Settings

    try:
        with users_code(), RunProgress(quiet) as progress:
            result = experiment.run(out=out, pool=pool, observers=[progress], extend=extend)
    except KeyboardInterrupt:
        begun = not out.is_new and (out.path / CONFIG).exists()
        how = f": continue with fedcap run --resume {out.path}" if begun else ""
        raise Interrupted(f"interrupted{how}") from None
    if not progress.is_started:
        longer = "" if result.stopped else f"; to extend it: fedcap run --resume {out.path} --rounds N"
        echo(f"fedcap: {out.path} has finished before, and nothing was run{longer}", err=True)
    if as_json:
        found = json.loads(result.to_json())
        print_json({"directory": str(out.path), **found, "settings": experiment.settings()})
    else:
        echo(summary(Settings.model_validate(experiment.settings()), result, out.path))
    if result.stopped is not None:
        raise typer.Exit(FAILED)


def _new_directory(experiment: Experiment) -> NewDirectory:
    """Return a new directory, named by data set, method, attack, seed and time."""
    from fedcap.runs import NewDirectory

    names = (experiment.dataset_name, experiment.method.name, experiment.attack.name)
    what = "-".join(Path(name).stem.replace(":", ".") for name in names)
    return NewDirectory("runs", f"{what}-seed{experiment.seed}-{time.strftime('%Y%m%d-%H%M%S')}")


def print_plan(experiment: Experiment, as_json: bool) -> None:
    """Print the settings as TOML that `fedcap run` takes, and the run's size as comments; or both as JSON."""
    from fedcap.runs import to_toml

    with users_code():
        settings, plan = experiment.settings(), _plan(experiment)
    if as_json:
        print_json({**plan, "settings": settings})
        return
    echo("\n".join(f"# {line}" for line in _plan_lines(experiment, plan)))
    echo(f"\n{to_toml(settings)}", nl=False)


def _plan(experiment: Experiment) -> dict[str, Any]:
    """Load the data, build the network and the server, and return the run's size."""
    from fedcap.products import chosen_products
    from fedcap.simulation import Simulation, make_pool

    with make_pool(1) as pool:
        simulation = Simulation(experiment, pool)
        return {
            "rounds": experiment.rounds,
            "clients": list(simulation.names),
            "malicious": [name for name in simulation.names if name in simulation.malicious],
            "weights": simulation.layout.size,
            "train_samples": int(simulation.data.sizes[0].sum()),
            "test_samples": int(simulation.data.sizes[1].sum()),
            "products": chosen_products(),
        }


def _plan_lines(experiment: Experiment, plan: dict[str, Any]) -> list[str]:
    """Return the plan as text."""
    malicious = ", ".join(plan["malicious"])
    name = experiment.attack.name
    attack = "no attack" if name == "none" else f"{name} by {malicious or 'no client'}"
    return [
        f"dry run: {experiment.dataset_name} · {experiment.method.name} · {attack}"
        f" · seed {experiment.seed} · {plural(experiment.rounds, 'round')}",
        f"{plural(len(plan['clients']), 'client')}, {len(plan['malicious']) or 'none'} of them malicious;"
        f" {plan['train_samples']:,} training and {plural(plan['test_samples'], 'test sample')}",
        f"model {experiment.model_name} with {plural(plan['weights'], 'weight')};"
        f" matrix products by {PRODUCTS[plan['products']]}",
        "Nothing was trained or written. All settings follow.",
    ]
