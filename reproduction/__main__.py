"""Run the paper's tables and figures, show them, write the pages, and replay recorded runs.

python -m reproduction run NAME...        play what has not finished of tables and figures
python -m reproduction run --all          play everything that is planned, in order
python -m reproduction show [NAME]        list the tables and figures, or show one
python -m reproduction tune               choose the methods' main options before any attack is seen
python -m reproduction write              write docs/RESULTS.md, REPRODUCING.md and ROBUSTNESS.md
python -m reproduction replay             play recorded runs again and compare
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcap import InputError, attacks
from fedcap.data import make
from fedcap.errors import RunError, plural
from fedcap.experiments import LocalEngine
from fedcap.experiments.engine import Engine
from fedcap.experiments.grid import Cell, parse_seeds
from fedcap.experiments.store import CellStore, GridStatus, prepare
from fedcap.report.tables import Table
from fedcap.runs import Outcome
from reproduction.cells import Item
from reproduction.compare import by_heading, compare, table
from reproduction.items import find, items
from reproduction.pictures import pictures
from reproduction.plan import PLAN
from reproduction.recorded import Recorded, grid_cells
from reproduction.replay import choose, replay
from reproduction.setups import STAND_IN
from reproduction.tuning import SPACES, TUNED_ON, record
from reproduction.tuning import choose as choose_options
from reproduction.tuning import table as tuning_table
from reproduction.write import write_pages

FIT = 7
"""The number of columns with intervals that fit a terminal."""
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class PrintProgress:
    """A watcher that prints a line for each run that ends."""

    def __init__(self, total: int) -> None:
        self._ended, self._total = 0, total

    def started(self, cell: Cell) -> None:
        """Do nothing."""

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Do nothing."""

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Print the accuracy."""
        self._print(f"{cell}: accuracy {outcome.tacc:.1f} %")

    def failed(self, cell: Cell, why: str) -> None:
        """Print the reason."""
        self._print(f"{cell} failed: {why}")

    def _print(self, line: str) -> None:
        self._ended += 1
        print(f"{self._ended}/{self._total}  {line}", file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    """Play what has not finished of tables and figures."""
    if args.all:
        if args.names or args.dataset or args.column or args.attack:
            raise InputError("--all plays everything that is planned: leave out names and filters")
        return _run_plan(args)
    if not args.names:
        raise InputError("nothing to run: give tables or figures (see show), or --all")
    chosen = [
        _available(find(name), args.dataset).only(None, args.column, _attack(args.attack))
        for name in args.names
    ]
    cells = grid_cells([cell for item in chosen for cell in item.cells], parse_seeds(args.seeds), args.rounds)
    store = CellStore(args.out, args.results)
    if args.dry_run:
        status = GridStatus.of(cells, store)
        print(
            f"{plural(len(status.runs), 'run')}: {len(status.done)} done, {len(status.left)} would be played"
        )
        print("\n".join(f"  {cell}" for cell in status.left))
        return DONE
    status = prepare(cells, store, args.retry)
    _engine(args).run(status.left, store, PrintProgress(len(status.left)))
    status = GridStatus.of(cells, store)
    print(f"{len(status.done)} of {plural(len(status.runs), 'run')} done, in {args.out} and {args.results}")
    return FAILED if status.failed else DONE


def _run_plan(args: argparse.Namespace) -> int:
    """Run every step of the plan, also after one that fails."""
    worst = DONE
    for step in PLAN:
        print(step, flush=True)
        if not args.dry_run:
            worst = max(worst, step.run(args.workers))
    return worst


def show(args: argparse.Namespace) -> int:
    """List the tables and figures, or show one: our figures and the paper's."""
    recorded = Recorded(CellStore(args.out, args.results).outcomes().values())
    if args.name is None:
        return _show_list(recorded, args)
    item = find(args.name).only(args.dataset, args.column, _attack(args.attack))
    found = compare(item, recorded, args.rounds, parse_seeds(args.seeds) if args.seeds else None)
    drawn = []
    if args.figures is not None:
        args.figures.mkdir(parents=True, exist_ok=True)
        drawn = [path for name, draw in pictures(item, found).items() for path in draw(args.figures / name)]
    if args.json:
        facts = {"name": item.name, "title": item.title, "cells": [each.facts() for each in found]}
        print(json.dumps({**facts, "figures": [*map(str, drawn)]}, indent=2))
        return DONE
    print("\n".join(filter(None, (item.title, item.note))))
    shown = by_heading(found)
    for heading, inside in shown.items():
        print(f"\n{table(heading, inside, ' / ', most=FIT).markdown()}")
    absent = [heading for heading in dict.fromkeys(c.heading for c in item.cells) if heading not in shown]
    if absent:
        print(f"\nNo finished runs of {', '.join(absent)}: python -m reproduction run {item.name}")
    print("\n".join(f"  {path}" for path in drawn))
    return DONE


def _show_list(recorded: Recorded, args: argparse.Namespace) -> int:
    progress = {
        item.name: {dataset: recorded.progress(item.only(dataset).cells) for dataset in item.datasets}
        for item in items().values()
    }
    if args.json:
        found = {
            name: {dataset: {"finished": done, "of": whole} for dataset, (done, whole) in own.items()}
            for name, own in progress.items()
        }
        print(json.dumps(found, indent=2))
        return DONE
    datasets = list(dict.fromkeys(dataset for own in progress.values() for dataset in own))
    rows = [
        [name, items()[name].title, *("{}/{}".format(*own[d]) if d in own else "" for d in datasets)]
        for name, own in progress.items()
    ]
    note = "Runs that have finished with at least one seed, of those planned."
    print(Table(("name", "title", *datasets), rows, notes=[note]).markdown())
    return DONE


def write(args: argparse.Namespace) -> int:
    """Write the pages and their pictures."""
    written = write_pages(args.results, args.docs)
    print(f"Written: {', '.join(map(str, written))}")
    return DONE


def tune(args: argparse.Namespace) -> int:
    """Choose the methods' main options before any attack is seen; record the choices."""
    for name in SPACES:
        choice = choose_options(args.dataset, name, parse_seeds(args.seeds), args.out, _engine(args))
        record(choice, args.results)
        print(tuning_table([choice]).markdown(), flush=True)
    return DONE


def play_again(args: argparse.Namespace) -> int:
    """Play recorded runs again and compare."""
    chosen = choose([args.results], args.sample, args.seed)
    if not chosen:
        raise InputError(f"no outcome in {args.results} can be played here: its data or its code is not here")
    folder = nullcontext(args.out) if args.out else tempfile.TemporaryDirectory(prefix="fedcap-replay-")
    with folder as out:
        found = replay(chosen, Path(out), _engine(args), PrintProgress(len(chosen)))
    for each in found:
        print(each)
    agree = sum(each.agrees for each in found)
    weights = sum(each.agrees and each.compares_weights for each in found)
    print(f"{agree} of {plural(len(found), 'run')} agree, {weights} of them in all weights")
    return DONE if agree == len(found) else FAILED


def _engine(args: argparse.Namespace) -> Engine:
    if args.ray is None:
        return LocalEngine(args.workers)
    if args.workers is not None:
        raise InputError("--workers is for this machine: a Ray cluster has its own slots")
    from fedcap.experiments import RayEngine

    return RayEngine(args.ray or None)


def _attack(name: str | None) -> str | None:
    """Return an attack's registered name: SF is sign-flipping."""
    return name if name is None or name.lower() == "none" else attacks.registry.resolve(name)


def _available(item: Item, dataset: str | None) -> Item:
    """Return the item with the data sets that are here; one that is not is replaced, or left out."""
    if dataset is not None:
        (dataset,) = item.only(dataset).datasets
    absent = [name for name in item.datasets if make(name).files() == []]
    kept = []
    for name in [dataset] if dataset else item.datasets:
        stand_in = STAND_IN.get(name)
        if name not in absent:
            kept.append(name)
        elif stand_in in item.datasets and stand_in not in absent:
            print(f"{name} is not here: {stand_in} replaces it, under its own name", file=sys.stderr)
            kept.append(stand_in)
        elif dataset is not None or len(item.datasets) == 1:
            raise make(name).absent()
        else:
            print(f"leaving out {name}, which is not here (see fedcap data get)", file=sys.stderr)
    spare = {STAND_IN[name] for name in STAND_IN if name in kept}  # the data set itself is here
    wanted = [name for name in kept if name not in spare or name == dataset]
    if not wanted:
        raise InputError(f"no data of {item.name} is here: fedcap data get fetches data sets")
    return replace(item, cells=[cell for cell in item.cells if cell.dataset in wanted])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m reproduction", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=function.__doc__)
        made.set_defaults(function=function)
        made.add_argument("--results", type=Path, default=Path("results"), help="folder of outcomes")
        return made

    playing, showing = command("run", run), command("show", show)
    writing, replaying, tuning = (
        command("write", write),
        command("replay", play_again),
        command("tune", tune),
    )
    playing.add_argument("names", nargs="*", metavar="NAME", help="tables or figures: see show")
    playing.add_argument("--all", action="store_true", help="everything that is planned, in order")
    playing.add_argument("--seeds", default="0", help="seeds: 0-2,7")
    playing.add_argument("--retry", action="store_true", help="try runs again that failed before")
    playing.add_argument("--dry-run", action="store_true", help="print what would be played, and stop")
    showing.add_argument("name", nargs="?", metavar="NAME", help="a table or a figure")
    showing.add_argument("--seeds", help="only these seeds: 0-2,7")
    showing.add_argument("--figures", type=Path, help="draw the figures into this folder")
    showing.add_argument("--json", action="store_true", help="print JSON")
    for part in (playing, showing):
        part.add_argument("--dataset", help="only this data set")
        part.add_argument("--column", help="only this column, such as FedCAP")
        part.add_argument("--attack", help="only this attack, or none")
        part.add_argument("--rounds", type=int, help="rounds of each run")
        part.add_argument("--out", type=Path, default=Path("fedcap-paper"), help="folder of the runs")
    tuning.add_argument("--dataset", choices=TUNED_ON, default=TUNED_ON[0], help="the data set")
    tuning.add_argument("--seeds", default="0-2", help="seeds: 0-2,7")
    tuning.add_argument("--out", type=Path, default=Path("fedcap-tuning"), help="folder of the runs")
    for part in (playing, replaying, tuning):
        part.add_argument("--workers", type=int, help="runs at once; by default one per core")
        part.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="play on a Ray cluster")
    replaying.add_argument("--sample", type=int, help="only this number of runs, chosen at random")
    replaying.add_argument("--seed", type=int, default=0, help="seed of the choice")
    replaying.add_argument("--out", type=Path, help="keep the runs in this folder")
    writing.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    args = _parser().parse_args(arguments)
    try:
        code: int = args.function(args)
    except KeyboardInterrupt:
        print("interrupted: runs that have finished stay; the same command continues", file=sys.stderr)
        return INTERRUPTED
    except (InputError, RunError) as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
