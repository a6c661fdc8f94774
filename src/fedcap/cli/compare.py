"""`fedcap compare`: a grid of methods, rules, attacks, data sets, seeds and other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.engines import Address, DryRun, EngineName, Jobs, Nice, Retry
from fedcap.cli.errors import FAILED, Interrupted
from fedcap.cli.output import AsJson, Quiet, print_json, print_table, users_code
from fedcap.cli.plan import print_grid_plan
from fedcap.cli.settings import Overrides, parse_lists, parse_setting
from fedcap.errors import RunError, plural

if TYPE_CHECKING:
    from fedcap.experiments.cells import Cell
    from fedcap.experiments.engines.base import Engine
    from fedcap.experiments.plan import Plan
    from fedcap.experiments.store import CellStore


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
    known: Annotated[
        Path | None,
        typer.Option(
            exists=True, help="Outcomes that count as done: a folder of them, or a file of fedcap paper pack."
        ),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = None,
    nice: Nice = False,
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
    from fedcap.experiments.comparison import Comparison
    from fedcap.experiments.engines import make_engine
    from fedcap.experiments.grid import Grid
    from fedcap.experiments.plan import Plan
    from fedcap.experiments.store import CellStore
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
        plays = make_engine(engine, jobs, nice, address)
        store = CellStore(out, keep_models=keep_models, known=known)
        Comparison.of([], against, cells)  # a mistake in it is told before anything starts
        if not dry_run:
            plan = play_cells(cells, store, plays, retry, quiet)
    if dry_run:
        print_grid_plan(Plan.of(cells, store), store, jobs, retry, as_json)
        return
    compared = Comparison.of(plan.found, against, cells)
    try:
        saved = compared.save(out)
    except OSError as error:
        raise RunError(f"cannot write to {out}: {error.strerror}") from error
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


def play_cells(cells: list[Cell], store: CellStore, engine: Engine, retry: bool, quiet: bool) -> Plan:
    """Play the cells that are not done, show how far they are, and return how each of them stands."""
    from fedcap.cli.grid_progress import GridTable
    from fedcap.experiments.plan import Plan, made_ready

    plan = made_ready(cells, store, retry)
    try:
        with GridTable(plan, quiet) as table:
            engine.run(plan.left, store, table)
    except KeyboardInterrupt:
        plan = Plan.of(cells, store)
        done = f"{len(plan.done)} of {plural(len(plan.runs), 'run')} are done and stay in {store.root}"
        raise Interrupted(f"interrupted: {done}; the same command goes on") from None
    return Plan.of(cells, store)


def tell_failures(plan: Plan, out: Path) -> None:
    """Tell in a line how many runs failed, and where to read why."""
    typer.echo(
        f"fedcap: {len(plan.failed)} of {plural(len(plan.runs), 'run')} failed: why is in {out / 'failed'};"
        " --retry tries them again",
        err=True,
    )
