"""`fedcap run`: one method under one attack."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcap.cli.engines import Address, EngineName
from fedcap.cli.errors import FAILED, Interrupted
from fedcap.cli.output import AsJson, Quiet, print_json, users_code
from fedcap.cli.plan import print_plan
from fedcap.cli.settings import Overrides, Workers, parse_setting
from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.runs import NewDirectory, RunDirectory
    from fedcap.simulation import Experiment, WorkerPool


def run(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, FILE.csv, FILE.npz, or folder. [default: digits]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Network, or module:function. [default: the data set's]")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    rule: Annotated[
        str | None, typer.Option(help="The server's rule, for methods that take any. [default: the method's]")
    ] = None,
    attack: Annotated[str | None, typer.Option(help="Attack, or none. [default: none]")] = None,
    malicious: Annotated[
        float | None, typer.Option(help="Share of malicious clients under an attack. [default: 0.3]")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds. [default: the data set's: 30 on digits, else 100]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed. [default: 0]")] = None,
    workers: Workers = None,
    engine: EngineName = "local",
    address: Address = None,
    eval_every: Annotated[
        int | None, typer.Option(help="Evaluate every so many rounds, and after the last. [default: 1]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, … [default: cpu]")] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER", help="Follow the run: csv, tensorboard, mlflow, or module:Class. Repeatable."
        ),
    ] = None,
    settings: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's directory. [default: a new one in runs/]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue this run; --rounds extends it, --dataset says where its data is now."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every setting and what would run, and stop.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run one method under one attack, and keep its records.

    Options of the method, the training and the partition, and the number of rounds, have defaults that
    differ by data set. --dry-run shows every setting as it will be.
    """
    from fedcap.runs import RunDirectory, overlay, read_toml
    from fedcap.simulation import Experiment, load_experiment

    flags = {
        "dataset": dataset,
        "model": model,
        "method": method,
        "attack": attack,
        "malicious": malicious,
        "rounds": rounds,
        "seed": seed,
        "eval_every": eval_every,
        "device": device,
        "workers": None if resume else workers,
        "track": None if resume else track or None,
    }
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    if rule is not None:
        given = overlay(given, {"method": {"rule": rule}})
    for setting in settings or []:
        given = overlay(given, parse_setting(setting))
    if resume is not None:
        where, to = given.pop("dataset", None), given.pop("rounds", None)
        if file or given or out or not isinstance(where, str | None) or not isinstance(to, int | None):
            raise InputError(
                "--resume continues a run as it was: only --workers, --engine, --address, --rounds (more of"
                " them), --dataset (where its data is now), --track, --dry-run, --quiet and --json go with it"
            )
        with users_code():
            experiment = load_experiment(resume, workers, to, where, track or None)
        directory = RunDirectory(resume)
    else:
        with users_code():
            experiment = Experiment(**overlay(read_toml(file) if file else {}, given))
        if malicious and experiment.attack.name == "none":
            typer.echo(f"fedcap: --malicious {malicious:g} without --attack NAME: nobody attacks", err=True)
        directory = RunDirectory(out) if out else _new_directory(experiment)
    if dry_run:
        print_plan(experiment, as_json)
    else:
        with _crew(experiment, engine, address) as crew:
            _play(experiment, directory, crew, as_json, quiet, extend=resume is not None)


def _crew(experiment: Experiment, engine: Literal["local", "ray"], address: str | None) -> WorkerPool:
    from fedcap.simulation import make_pool

    return make_pool(experiment.workers, experiment.device, engine, address)


def _play(
    experiment: Experiment, out: RunDirectory, crew: WorkerPool, as_json: bool, quiet: bool, extend: bool
) -> None:
    """Run the experiment, and print its result."""
    from fedcap.cli.progress import RunProgress
    from fedcap.cli.summary import summary
    from fedcap.runs import CONFIG, Settings

    try:
        with users_code(), RunProgress(experiment.rounds, quiet) as progress:
            result = experiment.run(out=out, pool=crew, observers=[progress], extend=extend)
    except KeyboardInterrupt:
        begun = not out.is_new and (out.path / CONFIG).exists()
        how = f": continue with fedcap run --resume {out.path}" if begun else ""
        raise Interrupted(f"interrupted{how}") from None
    if as_json:
        found = json.loads(result.to_json())
        print_json({"directory": str(out.path), **found, "settings": experiment.settings()})
    else:
        typer.echo(summary(Settings.model_validate(experiment.settings()), result, out.path))
    if result.stopped is not None:
        raise typer.Exit(FAILED)


def _new_directory(experiment: Experiment) -> NewDirectory:
    """Return a new directory, named by data set, method, attack, seed and time."""
    from fedcap.runs import NewDirectory

    names = (experiment.dataset_name, experiment.method.name, experiment.attack.name)
    what = "-".join(Path(name).stem.replace(":", ".") for name in names)
    return NewDirectory("runs", f"{what}-seed{experiment.seed}-{time.strftime('%Y%m%d-%H%M%S')}")
