"""`fedcap data`: what is installed where, fetching, checking, and pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedcap.cli.app import App
from fedcap.cli.output import AsJson, Quiet, print_json, print_table
from fedcap.cli.settings import Overrides, parse_setting
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.data import Source

app = App("See, fetch, check and show data sets.")

NEEDS_PATH = ("arrays", "csv", "folder", "npz")
"""The sources for the user's own data, which is not installed anywhere."""
NAMES_SHOWN = 10
"""How many clients are named in a line."""

Name = Annotated[str, typer.Argument(help="Data set, FILE.csv, FILE.npz, or folder of images.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, and which of them are here."""
    from fedcap.data.files import data_folders
    from fedcap.report.tables import Table

    found = [{"name": name, **_status(source)} for name, source in _installable().items()]
    if as_json:
        print_json({"folders": [str(folder) for folder in data_folders()], "datasets": found})
        return
    rows = [[row["name"], row["here"], row["where"]] for row in found]
    print_table(Table(("data set", "here", "where"), rows), numbers=False)
    typer.echo(f"Looked in {' and '.join(map(str, data_folders()))} (FEDCAP_DATA names another folder).")
    typer.echo("Your own data: --dataset FILE.csv, FILE.npz, or a folder of images by class or by client.")


@app.command()
def get(name: Name, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Fetch a data set from its official source, with checksum; an interrupted download is resumed."""
    from fedcap.cli.progress import DownloadProgress
    from fedcap.data import make
    from fedcap.data.files import install_folder

    _refuse_own(name)
    source, folder = make(name), install_folder()
    with DownloadProgress(quiet) as progress:
        source.install(folder, progress)
    status = {"name": name, **_status(source)}
    if as_json:
        print_json(status)
    else:
        typer.echo(f"{name}: {status['here']} in {status['where']}")


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="Data set or path. [default: all that are here]")] = None,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Load what is here, and tell what is in it, what was skipped, what is missing or broken."""
    if name is not None:
        sources = {name: _chosen(name, settings or [])}
    elif settings:
        raise InputError("--set goes with the name of a data set")
    else:
        sources = _installable()
    found = [{"name": key, **_checked(source)} for key, source in sources.items()]
    if name is not None and (
        found[0]["state"] == "missing" or (_is_own(name) and found[0]["state"] == "broken")
    ):
        raise InputError(found[0]["line"])
    if as_json:
        print_json(found)
    else:
        for facts in found:
            typer.echo(f"{facts['name']}: {facts['line']}")
    broken = [facts["name"] for facts in found if facts["state"] == "broken"]
    if broken:
        raise click.ClickException(f"broken: {', '.join(broken)}")


@app.command()
def show(
    name: Name,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to put the pictures.")] = Path("."),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Draw who has what (clients × classes) and a sheet of samples, as PNG."""
    from fedcap.report.data import draw_partition, draw_samples
    from fedcap.simulation import Experiment

    experiment = Experiment(**_overlaid({"dataset": name, "seed": seed}, settings or []))
    federated = experiment.load_data()
    out.mkdir(parents=True, exist_ok=True)
    label = experiment.dataset_name
    paths = {kind: out / f"{label}-{kind}.png" for kind in ("partition", "samples")}
    draw_partition(
        label, federated.names, federated.train, federated.test, federated.class_names, paths["partition"]
    )
    draw_samples(label, federated.train, federated.class_names, paths["samples"])
    facts = {
        "name": label,
        "clients": len(federated),
        "names": list(federated.names),
        "classes": federated.classes,
        "train": sum(map(len, federated.train)),
        "test": sum(map(len, federated.test)),
        "shape": list(federated.shape),
        "data_hash": federated.data_hash,
        "partition_hash": federated.partition_hash,
        **{kind: str(path) for kind, path in paths.items()},
    }
    if as_json:
        print_json(facts)
        return
    typer.echo(
        f"{label}: {plural(len(federated), 'client')}, {plural(federated.classes, 'class')},"
        f" {facts['train']:,} training and {plural(sum(map(len, federated.test)), 'test sample')}"
        f" of {'×'.join(map(str, federated.shape))}"
    )
    if not all(map(str.isdecimal, federated.names)):
        shown = federated.names[:NAMES_SHOWN]
        typer.echo(f"  clients: {', '.join(shown)}{', …' * (len(federated) > len(shown))}")
    typer.echo(f"  {paths['partition']}\n  {paths['samples']}")


def _overlaid(given: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    from fedcap.runs import overlay

    for setting in settings:
        given = overlay(given, parse_setting(setting))
    return given


def _chosen(name: str, settings: list[str]) -> Source:
    """Return a data set by its name or path, with options of the form dataset.KEY=VALUE."""
    from fedcap.data import make, table

    given = _overlaid({"dataset": {"name": name}}, settings)
    if given.keys() != {"dataset"}:
        raise InputError("only settings of the data set can be given here, such as --set dataset.label=NAME")
    options = table(given["dataset"])
    return make(options.pop("name"), **options)


def _installable() -> dict[str, Source]:
    from fedcap.data import make, names

    return {name: make(name) for name in names() if name not in NEEDS_PATH}


def _refuse_own(name: str) -> None:
    if _is_own(name):
        raise InputError(f"{name} is your own data: there is nothing to fetch")


def _is_own(name: str) -> bool:
    from fedcap.data import table

    return table(name)["name"] in NEEDS_PATH


def _status(source: Source) -> dict[str, str]:
    """Return whether a data set is here, and where, without reading it."""
    files = source.files()
    if files is None:
        return {"here": "embedded", "where": "comes with fedcap"}
    if not files:
        return {"here": "no", "where": ""}
    size = sum(path.stat().st_size for path in files)
    return {"here": f"{plural(len(files), 'file')}, {size / 1e6:,.0f} MB", "where": str(files[0].parent)}


def _checked(source: Source) -> dict[str, Any]:
    """Load a data set; return its facts, or why it cannot be loaded."""
    files = source.files()
    try:
        dataset = source.load()
    except InputError as error:
        return {"state": "missing" if files == [] else "broken", "line": str(error)}
    facts: dict[str, Any] = {
        "samples": len(dataset.samples),
        "classes": dataset.classes,
        "class_names": list(dataset.class_names),
        "shape": list(dataset.samples.x.shape[1:]),
        "owners": len(dataset.owner_names) or None,
        "owner_names": list(dataset.owner_names),
        "hash": dataset.digest(),
        "notes": list(dataset.notes),
    }
    tests = "" if dataset.test is None else f" ({int(dataset.test.sum()):,} for testing only)"
    shape = "×".join(map(str, facts["shape"]))
    line = f"{plural(facts['samples'], 'sample')} of {shape}{tests}, {plural(facts['classes'], 'class')}"
    if dataset.owner_names:
        line += f", {plural(len(dataset.owner_names), 'owner')}"
    return {"state": "ok", "line": "; ".join([line, *dataset.notes]), **facts}
