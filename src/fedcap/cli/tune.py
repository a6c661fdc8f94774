"""`fedcap tune`: a method's options, chosen before any attack is seen and without test samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcap.cli.engines import Address, EngineName, Jobs, Retry
from fedcap.cli.errors import Interrupted
from fedcap.cli.output import AsJson, Quiet, print_json, print_table, users_code
from fedcap.cli.settings import Overrides, parse_lists, parse_setting
from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.experiments import Tuned


def tune(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings of one run.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, FILE.csv, FILE.npz, or folder. [default: digits]")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="OPTION=V1,V2",
            help="Values of a method's option to try. Repeatable. [default: the paper's]",
        ),
    ] = None,
    search: Annotated[
        Literal["coordinate", "grid", "optuna"],
        typer.Option(help="One option after the other, every combination, or what Optuna draws."),
    ] = "coordinate",
    trials: Annotated[
        int | None, typer.Option(min=1, help="With --search optuna: how many trials. [default: 30]")
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of each client's training samples that the choice is made by.")
    ] = 0.2,
    seeds: Annotated[str, typer.Option(help="Seeds: 0-4,7. The mean over them counts.")] = "0",
    rounds: Annotated[int | None, typer.Option(help="Rounds. [default: the data set's]")] = None,
    settings: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where runs are kept; may be that of fedcap compare.")] = Path(
        "fedcap-grid"
    ),
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = None,
    retry: Retry = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Choose a method's options on runs without an attack, by training samples that are held out.

    Test samples have no part in the choice. Runs are kept: the same command goes on where it was interrupted.
    """
    from fedcap import experiments
    from fedcap.cli.grid_progress import GridTable
    from fedcap.experiments.engine import make_engine
    from fedcap.runs import overlay, read_toml

    flags = {"dataset": dataset, "method": method, "rounds": rounds}
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    for setting in settings or []:
        given = overlay(given, parse_setting(setting))
    given = overlay(read_toml(file) if file else {}, given)
    if taken := {"seed", "holdout"} & given.keys():
        name = taken.pop()
        raise InputError(f"give the {name} as --{'seeds' if name == 'seed' else name}, not as a setting")
    try:
        with users_code():
            tuned = experiments.tune(
                space=parse_lists("--try", tries, "OPTION=V1,V2", "alpha=2,5,10") if tries else None,
                seeds=seeds,
                holdout=holdout,
                search=search,
                trials=trials,
                out=out,
                engine=make_engine(engine, jobs, address),
                watching=lambda plan: GridTable(plan, quiet),
                retry=retry,
                **given,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: runs that are done stay in {out}; the same command goes on"
        ) from None
    if as_json:
        print_json(_facts(tuned))
        return
    print_table(tuned.table())
    typer.echo(f"\n{tuned.toml()}", nl=False)


def _facts(tuned: Tuned) -> dict[str, Any]:
    """Return what a tuning came to as plain values."""
    return {
        "dataset": tuned.experiment.dataset_name,
        "rounds": tuned.experiment.rounds,
        "seeds": list(tuned.seeds),
        "holdout": tuned.experiment.holdout,
        "chosen": tuned.settings(),
        "score": tuned.best.score,
        "trials": [
            {
                "options": dict(t.options),
                "scores": list(t.scores),
                "score": t.score,
                "problem": t.problem or None,
            }
            for t in tuned.trials
        ],
    }
