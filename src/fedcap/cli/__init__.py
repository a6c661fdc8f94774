"""The command line: arguments to calls, and nothing else.

Everything heavy is imported inside the commands, so that `fedcap --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedcap.cli import data
from fedcap.cli.output import AsJson, print_json, print_table
from fedcap.cli.settings import Settings, parse_setting
from fedcap.registry import InputError

if TYPE_CHECKING:
    from fedcap.simulation import Experiment, Result

app = typer.Typer(
    name="fedcap",
    help="Federated learning that stays accurate when clients' data differ and some are hostile.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")

Workers = Annotated[int | None, typer.Option(help="Processes that train clients. [default: one per core]")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedcap {version('fedcap')}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to save the table and the picture.")] = Path("fedcap-demo"),
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run. [default: 30]")] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Take the two-minute tour: what attacks do to FedAvg, and what FedCAP does about it."""
    from fedcap.experiments import demo as tour
    from fedcap.progress import GridProgress
    from fedcap.report.tables import DEMO_COLUMNS
    from fedcap.training import make_pool

    planned = tour.cells(seed, rounds)
    with make_pool(workers) as pool, GridProgress(len(planned)) as progress:
        results = []
        for cell, result in tour.run(planned, out, pool, [progress]):
            results.append((cell, result))
            progress.cell_done()
    tour.save(results, out)
    table = tour.table(results)
    if as_json:
        print_json([row.to_dict() for row in table.rows])
        return
    print_table(table.title, DEMO_COLUMNS, [row.cells() for row in table.rows])
    for note in table.notes:
        typer.echo(note)
    typer.echo(f"\nSaved: {out}/report.md, {out}/accuracy.png, and every run in {out}/runs")


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.toml]", help="Settings.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, FILE.npz, or folder of images. [default: digits]")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Network, or module:function.")] = None,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    rule: Annotated[str | None, typer.Option(help="The server's rule, for methods that take any.")] = None,
    attack: Annotated[str | None, typer.Option(help="Attack, or none. [default: none]")] = None,
    malicious: Annotated[
        float | None, typer.Option(help="Share of malicious clients. [default: 0.3]")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed. [default: 0]")] = None,
    workers: Workers = None,
    eval_every: Annotated[int | None, typer.Option(help="Evaluate every so many rounds.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, … [default: cpu]")] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's directory. [default: a new one in runs/]")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run one method under one attack, and keep its records."""
    from fedcap.progress import RunProgress
    from fedcap.simulation.directory import load_experiment
    from fedcap.simulation.experiment import Experiment, overlay, read_toml

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
    }
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    if rule is not None:
        given = overlay(given, {"method": {"rule": rule}})
    for setting in settings or []:
        given = overlay(given, parse_setting(setting))
    if resume is not None:
        if file or given or out:
            raise InputError("--resume continues a run as it was: only --workers and --json go with it")
        experiment = load_experiment(resume, workers)
        out = resume
    else:
        experiment = Experiment(**overlay(read_toml(file) if file else {}, given))
        out = out or _new_directory(experiment)
    try:
        with RunProgress(experiment.rounds) as progress:
            result = experiment.run(out=out, observers=[progress])
    except KeyboardInterrupt:
        raise click.ClickException(f"interrupted: continue with fedcap run --resume {out}") from None
    if as_json:
        typer.echo(result.to_json())
    else:
        typer.echo(_summary(experiment, result, out))


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List methods, attacks, aggregators, data sets, partitions and models, each with a line."""
    from fedcap import aggregators, attacks, methods, models
    from fedcap.data import partitions
    from fedcap.data import registry as datasets

    rooms: dict[str, Any] = {
        "methods": methods.registry,
        "attacks": attacks.registry,
        "aggregators": aggregators.registry,
        "data sets": datasets,
        "partitions": partitions.registry,
        "models": models.registry,
    }
    found = {
        room: {name: registry.summary(name) for name in registry.names()} for room, registry in rooms.items()
    }
    if as_json:
        print_json(found)
        return
    width = max(len(name) for names in found.values() for name in names)
    for room, names in found.items():
        typer.echo(typer.style(room, bold=True))
        for name, line in names.items():
            typer.echo(f"  {name:<{width}}  {line}")


def _new_directory(experiment: Experiment) -> Path:
    """Return a directory that no run has had: named by what runs, and when."""
    names = (experiment.dataset_name, experiment.method.name, experiment.attack.name)
    what = "-".join(Path(name).stem.replace(":", ".") for name in names)
    path = Path("runs") / f"{what}-seed{experiment.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    count = 1
    while path.exists():
        count += 1
        path = path.with_name(f"{path.name.split('+')[0]}+{count}")
    return path


def _summary(experiment: Experiment, result: Result, out: Path) -> str:
    shared = "none" if result.tacc_shared is None else f"{result.tacc_shared:.1f}"
    attackers = [client.id for client in result.clients if client.malicious]
    attack = f"{experiment.attack.name}, {len(attackers)} of {len(result.clients)} clients malicious"
    lines = [
        f"{experiment.dataset_name} · {experiment.method.name} · {attack if attackers else 'no attack'}"
        f" · seed {experiment.seed} · {result.rounds} rounds in {result.seconds:.1f} s",
        f"  accuracy   {result.tacc:.1f} %  (shared {shared}, personal {result.tacc_personal:.1f};"
        f" worst client {result.tacc_worst_client:.1f})",
    ]
    if result.diverged:
        lines.append("  diverged   the model is no longer numbers; its accuracy means nothing")
    if result.fpr is not None:
        caught = [client for client in attackers if client in result.removed]
        benign = len(result.removed) - len(caught)
        when = (
            ""
            if result.rounds_to_removal is None
            else f", on average in round {result.rounds_to_removal:.1f}"
        )
        found = f"{len(caught)} of {len(attackers)} attackers removed{when}; " if attackers else ""
        lines.append(f"  detection  {found}{benign or 'no'} honest client{'s' * (benign != 1)} removed")
    lines.append(f"  records    {out}")
    return "\n".join(lines)


def _fail(message: str, code: int) -> int:
    typer.echo(f"fedcap: {' '.join(message.split())}", err=True)
    return code


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors are one line, and the exit code says whose they are."""
    if (here := os.getcwd()) not in sys.path:  # for `module:name`; last, so that it hides nothing
        sys.path.append(here)
    sys.exit(_main(arguments))


def _main(arguments: list[str] | None) -> int:
    try:
        code = app(arguments, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error), 2)
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return 0
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return _fail(error.format_message() + hint, 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", 1)
    except Exception as error:
        if os.environ.get("FEDCAP_DEBUG"):
            raise
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        where = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return _fail(f"{type(error).__name__}{where}: {what} (FEDCAP_DEBUG=1 shows where)", 1)
