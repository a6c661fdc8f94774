"""`fedcap data`: what is installed where, fetching, checking, and pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedcap.cli.app import App
from fedcap.cli.output import AsJson, Quiet, print_json, print_table
from fedcap.cli.settings import Overrides, parse_setting
from fedcap.registry import InputError
from fedcap.words import plural

if TYPE_CHECKING:
    from fedcap.data import Source

app = App("See, fetch, check and show data sets.")

NEEDS_PATH = ("arrays", "folder", "npz")
"""The sources for the user's own data, which is not installed anywhere."""

Name = Annotated[str, typer.Argument(help="Data set, FILE.npz, or folder of images.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets, and which of them are here."""
    from fedcap.data.files import data_folders
    from fedcap.records import Table

    found = [{"name": name, **_status(source)} for name, source in _installable().items()]
    if as_json:
        print_json({"folders": [str(folder) for folder in data_folders()], "datasets": found})
        return
    rows = [[row["name"], row["here"], row["where"]] for row in found]
    print_table(Table(("data set", "here", "where"), rows), numbers=False)
    typer.echo(f"Looked in {' and '.join(map(str, data_folders()))} (FEDCAP_DATA names another folder).")
    typer.echo("Your own data: --dataset FILE.npz, or a folder of images by class or by client.")


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
    as_json: AsJson = False,
) -> None:
    """Load what is here, and tell what is in it, what was skipped, what is missing or broken."""
    from fedcap.data import make, table

    if name is not None:
        options = table(name)
        sources = {name: make(options.pop("name"), **options)}
    else:
        sources = _installable()
    found = [{"name": key, **_checked(source)} for key, source in sources.items()]
    if name is not None and found[0]["state"] == "missing":
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
    from fedcap.records import overlay
    from fedcap.report.data import draw_partition, draw_samples
    from fedcap.simulation import Experiment

    given: dict[str, Any] = {"dataset": name, "seed": seed}
    for setting in settings or []:
        given = overlay(given, parse_setting(setting))
    experiment = Experiment(**given)
    federated = experiment.load_data()
    out.mkdir(parents=True, exist_ok=True)
    label = experiment.dataset_name
    paths = {kind: out / f"{label}-{kind}.png" for kind in ("partition", "samples")}
    draw_partition(label, federated.train, federated.test, federated.class_names, paths["partition"])
    draw_samples(label, federated.train, federated.class_names, paths["samples"])
    facts = {
        "name": label,
        "clients": len(federated),
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
    typer.echo(f"  {paths['partition']}\n  {paths['samples']}")


def _installable() -> dict[str, Source]:
    from fedcap.data import make, names

    return {name: make(name) for name in names() if name not in NEEDS_PATH}


def _refuse_own(name: str) -> None:
    from fedcap.data import table

    if table(name)["name"] in NEEDS_PATH:
        raise InputError(f"{name} is your own data: there is nothing to fetch")


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
        "shape": list(dataset.samples.x.shape[1:]),
        "owners": len(dataset.owner_names) or None,
        "hash": dataset.digest(),
        "notes": list(dataset.notes),
    }
    shape = "×".join(map(str, facts["shape"]))
    line = f"{plural(facts['samples'], 'sample')} of {shape}, {plural(facts['classes'], 'class')}"
    if dataset.owner_names:
        line += f", {plural(len(dataset.owner_names), 'owner')}"
    return {"state": "ok", "line": "; ".join([line, *dataset.notes]), **facts}
