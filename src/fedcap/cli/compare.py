"""`fedcap compare`: a grid of runs and its tables. `fedcap tune`: a grid that chooses a method's options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcap.cli.common import (
    FAILED,
    AsJson,
    Interrupted,
    Overrides,
    Quiet,
    Ray,
    Retry,
    Seeds,
    SettingsFile,
    Workers,
    echo,
    given,
    parse_lists,
    print_json,
    print_table,
    ray_address,
    settings_file,
    users_code,
    with_settings,
)
from fedcap.errors import InputError, RunError, plural

if TYPE_CHECKING:
    from fedcap.experiments import Tuned
    from fedcap.experiments.engine import Engine
    from fedcap.experiments.grid import Cell
    from fedcap.experiments.store import CellStore, GridStatus

RUNS_SHOWN = 20
"""How many runs a dry run lists."""
MANY = 2_000
"""A grid of more runs takes seconds to prepare, and that is printed."""

Vary = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=V1,V2", help="Values of another setting, such as training.lr=0.1,0.05. Repeatable."
    ),
]
GridDirectory = Annotated[
    Path, typer.Option("--out", "-o", help="Directory of the runs and tables; grids may share one.")
]


def compare(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.toml]", help="Settings of one run, and a table [axes].", callback=settings_file
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help='Methods: fedavg,fedcap, or all. With options: "fedcap(alpha=5)".')
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Rules, for methods that take one: median,krum, or all.")
    ] = None,
    attack: Annotated[str | None, typer.Option(help="Attacks: none,ipm,lie, or all.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data sets, files or folders. [default: digits]")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Seeds, such as 0-4,7. [default: 0]")] = None,
    vary: Vary = None,
    settings: Overrides = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds. [default: the data set's]")] = None,
    against: Annotated[
        str | None, typer.Option(help="Method that the others are compared with. [default: fedcap]")
    ] = None,
    out: GridDirectory = Path("fedcap-grid"),
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            help="Use the outcomes of these runs: a folder, or a file of --save-outcomes. Repeatable.",
        ),
    ] = None,
    save_outcomes: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl.gz", help="Save all outcomes in one file.")
    ] = None,
    workers: Workers = None,
    ray: Ray = None,
    retry: Retry = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the models of finished runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and run nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods under attacks, over several seeds.

    Each combination of the lists is one run. Finished runs are skipped: after an interruption, the same
    command continues.
    """
    from fedcap.experiments.comparison import Comparison
    from fedcap.experiments.grid import Grid
    from fedcap.experiments.store import CellStore, GridStatus
    from fedcap.experiments.store import save_outcomes as write_outcomes

    common = with_settings(given(rounds=rounds), settings)
    axes: dict[str, Any] = given(methods=method, rules=rule, attacks=attack, datasets=dataset, seeds=seed)
    axes |= parse_lists(vary or [], "training.lr=0.1,0.05")
    with users_code():
        grid = Grid(axes=axes, **common) if file is None else Grid.read(file, axes, common)
        if grid.combinations > MANY and not quiet:
            echo(f"fedcap: preparing {plural(grid.combinations, 'run')}", err=True)
        cells = grid.cells()
        engine = make_engine(workers, ray)
        store = CellStore(out, keep_models=keep_models, reuse=reuse or ())
        places = [cell.place for cell in cells]
        Comparison.of([], against, places)  # reports a wrong `against` before anything starts
        if not dry_run:
            status = play_cells(cells, store, engine, retry, quiet)
    if dry_run:
        print_grid_plan(GridStatus.of(cells, store), retry, as_json)
        return
    compared = Comparison.of(status.finished, against, places)
    try:
        saved = compared.save(out)
        if save_outcomes is not None:
            write_outcomes(status.finished, save_outcomes)
            saved.append(save_outcomes)
    except OSError as error:
        raise RunError(
            f"cannot write {error.filename or out}: {error.strerror}", code="cannot-write"
        ) from error
    if as_json:
        failed = [{"place": dict(f.place), "why": f.why} for f in status.failed.values()]
        facts = {"directory": str(out), "runs": len(status.runs), "done": len(status.done), "failed": failed}
        print_json({**facts, "rows": compared.dicts()})
    else:
        for table in compared.tables():
            print_table(table)
            echo()
        echo(f"Saved: {', '.join(map(str, saved))}; runs in {store.root / 'cells'}")
    if status.failed:
        echo(
            f"fedcap: {len(status.failed)} of {plural(len(status.runs), 'run')} failed:"
            f" {out / 'failed'} says why; --retry runs them again",
            err=True,
        )
        raise typer.Exit(FAILED)


def make_engine(workers: int | None, ray: str | None) -> Engine:
    """Return what plays the runs: worker processes of this machine, or a Ray cluster."""
    from fedcap import experiments

    if ray is None:
        return experiments.LocalEngine(workers)
    if workers is not None:
        raise InputError(
            "--workers is for this machine: a Ray cluster has its own slots",
            code="bad-option",
            field="workers",
        )
    return experiments.RayEngine(ray_address(ray))


def play_cells(cells: list[Cell], store: CellStore, engine: Engine, retry: bool, quiet: bool) -> GridStatus:
    """Play the cells that are not done, show the progress, and return the state of all cells."""
    from fedcap.cli.progress import GridProgress
    from fedcap.experiments.store import GridStatus, prepare

    status = prepare(cells, store, retry)
    try:
        with GridProgress(status, quiet) as progress:
            engine.run(status.left, store, progress)
    except KeyboardInterrupt:
        status = GridStatus.of(cells, store)
        done = f"{len(status.done)} of {plural(len(status.runs), 'run')} are done"
        raise Interrupted(
            f"interrupted: {done} and kept in {store.root}; the same command continues"
        ) from None
    return GridStatus.of(cells, store)


def print_grid_plan(status: GridStatus, retry: bool, as_json: bool) -> None:
    """Print which runs of a grid are done, which failed and which are left."""
    failed = {} if retry else status.failed
    left = [cell for cell in status.runs if cell.name not in status.done and cell.name not in failed]
    if as_json:
        states = dict.fromkeys(status.done, "done") | dict.fromkeys(failed, "failed")
        print_json(
            {"runs": [{"name": c.name, "state": states.get(c.name, "left"), **c.place} for c in status.runs]}
        )
        return
    again = f", {len(failed)} failed (--retry runs them again)" if failed else ""
    echo(f"dry run: {plural(len(status.runs), 'run')}, {len(status.done)} done{again}, {len(left)} left")
    lines = [f"  {cell}" for cell in left]
    lines += [f"  {cell} failed: {failed[cell.name].why}" for cell in status.runs if cell.name in failed]
    echo("\n".join(lines[:RUNS_SHOWN]), nl=bool(lines))
    if len(lines) > RUNS_SHOWN:
        echo(f"  … and {len(lines) - RUNS_SHOWN:,} more: --json lists all")


def tune(
    file: SettingsFile = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, FILE.csv, FILE.npz, or folder. [default: digits]")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION=V1,V2",
            help="Values of a method's option to try. Repeatable. [default: the paper's]",
        ),
    ] = None,
    search: Annotated[
        Literal["coordinate", "grid", "optuna"],
        typer.Option(help="One option after the other, all combinations, or Optuna's choice."),
    ] = "coordinate",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of trials with --search optuna. [default: 30]")
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of each client's training samples on which a trial is measured.")
    ] = 0.2,
    seed: Seeds = "0",
    rounds: Annotated[int | None, typer.Option(help="Number of rounds. [default: the data set's]")] = None,
    settings: Overrides = None,
    out: GridDirectory = Path("fedcap-grid"),
    workers: Workers = None,
    ray: Ray = None,
    retry: Retry = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Choose a method's options.

    Each trial is a run without an attack, measured on held-out training samples; test samples are not used.
    After an interruption, the same command continues.
    """
    from fedcap import experiments
    from fedcap.cli.progress import GridProgress
    from fedcap.runs import overlay, read_toml

    asked = with_settings(given(dataset=dataset, method=method, rounds=rounds), settings)
    asked = overlay(read_toml(file) if file else {}, asked)
    if taken := {"seed", "holdout"} & asked.keys():
        name = taken.pop()
        raise InputError(f"give {name} as --{name}, not as a setting", code="bad-option", field=name)
    try:
        with users_code():
            tuned = experiments.tune(
                space=parse_lists(vary, "alpha=2,5,10") if vary else None,
                seeds=seed,
                holdout=holdout,
                search=search,
                trials=trials,
                out=out,
                engine=make_engine(workers, ray),
                watching=lambda plan: GridProgress(plan, quiet),
                retry=retry,
                **asked,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: finished runs are kept in {out}; the same command continues"
        ) from None
    if as_json:
        print_json(_tuned_facts(tuned))
        return
    print_table(tuned.table())
    echo(f"\n{tuned.toml()}", nl=False)


def _tuned_facts(tuned: Tuned) -> dict[str, Any]:
    """Return the result of a tuning as plain values."""
    return {
        "dataset": tuned.experiment.dataset_name,
        "rounds": tuned.experiment.rounds,
        "seeds": list(tuned.seeds),
        "holdout": tuned.experiment.holdout,
        "chosen": tuned.settings(),
        "score": tuned.best.score,
        "trials": [
            {
                "options": dict(trial.options),
                "scores": list(trial.scores),
                "score": trial.score,
                "problem": trial.problem or None,
            }
            for trial in tuned.trials
        ],
    }
