"""`fedcap compare`: a grid of methods, rules, attacks, data sets, seeds and other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.engines import Address, DryRun, EngineName, Jobs, Retry
from fedcap.cli.errors import FAILED, Interrupted
from fedcap.cli.output import AsJson, Quiet, print_json, print_table, users_code
from fedcap.cli.plan import print_grid_plan
from fedcap.cli.settings import Overrides, parse_lists, parse_setting
from fedcap.errors import RunError, plural

if TYPE_CHECKING:
    from fedcap.experiments.engine import Engine
    from fedcap.experiments.grid import Cell
    from fedcap.experiments.store import CellStore, GridStatus


def compare(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings as of one run, and [axes].")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods: fedavg,fedcap, or all. Options in brackets: fedcap(alpha=5).")
    ] = None,
    rules: Annotated[
        str | None, typer.Option(help="Rules, for methods that take any: median,bucketing(median), or all.")
    ] = None,
    attacks: Annotated[str | None, typer.Option(help="Attacks: none,ipm,lie, or all.")] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Data sets, or paths of your own. [default: digits]")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds: 0-4,7. [default: 0]")] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option("--axis", metavar="KEY=V1,V2", help="Any other setting as an axis. Repeatable."),
    ] = None,
    settings: Overrides = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds. [default: the data set's]")] = None,
    against: Annotated[
        str | None, typer.Option(help="Method to compare the others with. [default: fedcap]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs and tables are kept.")] = Path("fedcap-grid"),
    reuse: Annotated[
        Path | None,
        typer.Option(exists=True, help="Outcomes that count as done: a saved file, or a folder of outcomes."),
    ] = None,
    save_outcomes: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl.gz", help="Save all outcomes into one file.")
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = None,
    retry: Retry = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the models of finished runs.")
    ] = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods under attacks: every combination is a run, and those that are done are skipped.

    The same command goes on where it was interrupted. Grids with the same --out share their runs.
    """
    from fedcap.experiments import store as store_module
    from fedcap.experiments.comparison import Comparison
    from fedcap.experiments.engine import make_engine
    from fedcap.experiments.grid import Grid
    from fedcap.experiments.store import CellStore, GridStatus
    from fedcap.runs import overlay

    common: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
    for setting in settings or []:
        common = overlay(common, parse_setting(setting))
    flags = {"methods": methods, "rules": rules, "attacks": attacks, "datasets": datasets, "seeds": seeds}
    varied: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    varied |= parse_lists("--axis", axes or [], "KEY=V1,V2", "training.lr=0.1,0.05")
    with users_code():
        grid = Grid(axes=varied, **common) if file is None else Grid.read(file, varied, common)
        cells = grid.cells()
        places = [cell.place for cell in cells]
        plays = make_engine(engine, jobs, address)
        store = CellStore(out, keep_models=keep_models, reuse=reuse)
        Comparison.of([], against, places)  # a mistake in it is reported before anything starts
        if not dry_run:
            plan = play_cells(cells, store, plays, retry, quiet)
    if dry_run:
        print_grid_plan(GridStatus.of(cells, store), retry, as_json)
        return
    compared = Comparison.of(plan.finished, against, places)
    try:
        saved = compared.save(out)
        if save_outcomes is not None:
            store_module.save_outcomes(plan.finished, save_outcomes)
            saved.append(save_outcomes)
    except OSError as error:
        raise RunError(f"cannot write to {error.filename or out}: {error.strerror}") from error
    if as_json:
        failed = [{"place": dict(f.place), "why": f.why} for f in plan.failed.values()]
        facts = {"directory": str(out), "runs": len(plan.runs), "done": len(plan.done), "failed": failed}
        print_json({**facts, "rows": compared.dicts()})
    else:
        for table in compared.tables():
            print_table(table)
            typer.echo()
        typer.echo(f"Saved: {', '.join(map(str, saved))}; runs in {store.root / 'cells'}")
    if plan.failed:
        tell_failures(plan, out)
        raise typer.Exit(FAILED)


def play_cells(cells: list[Cell], store: CellStore, engine: Engine, retry: bool, quiet: bool) -> GridStatus:
    """Play the cells that are not done, show how far they are, and return how each of them stands."""
    from fedcap.cli.grid_progress import GridTable
    from fedcap.experiments.store import GridStatus, prepare

    plan = prepare(cells, store, retry)
    try:
        with GridTable(plan, quiet) as table:
            engine.run(plan.left, store, table)
    except KeyboardInterrupt:
        plan = GridStatus.of(cells, store)
        done = f"{len(plan.done)} of {plural(len(plan.runs), 'run')} are done and stay in {store.root}"
        raise Interrupted(f"interrupted: {done}; the same command goes on") from None
    return GridStatus.of(cells, store)


def tell_failures(plan: GridStatus, out: Path) -> None:
    """Tell in a line how many runs failed, and where to read why."""
    typer.echo(
        f"fedcap: {len(plan.failed)} of {plural(len(plan.runs), 'run')} failed: why is in {out / 'failed'};"
        " --retry tries them again",
        err=True,
    )
