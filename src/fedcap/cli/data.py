"""`fedcap data`: download data sets, check them, and draw them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import FAILED, App, AsJson, DataOverrides, Quiet, echo, print_json, with_settings
from fedcap.cli.list import NEEDS_PATH, installable, installation
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from torch import Tensor

    from fedcap.data import Dataset, Source
    from fedcap.data.own import Own

app = App("Download, check and draw data sets.\n\nfedcap list data shows which are installed.")

NAME_WIDTH = 40
NAMES_SHOWN = 10
"""How many clients are named in a line."""

Name = Annotated[str, typer.Argument(help="Data set, FILE.csv, FILE.npz, or folder of images.")]


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Data set.")], quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Download a data set from its official source.

    The files are checked. After an interruption, the same command continues.
    """
    from fedcap.cli.progress import DownloadProgress
    from fedcap.data import make
    from fedcap.data.files import install_folder

    if _is_own(name):
        raise InputError(
            f"{name} is your own data: there is nothing to download", code="nothing-to-fetch", field=name
        )
    source, folder = make(name), install_folder()
    with DownloadProgress(quiet) as progress:
        source.install(folder, progress)
    status = {"name": name, **installation(source)}
    if as_json:
        print_json(status)
    else:
        echo(f"{name}: {status['here']} in {status['where']}")


@app.command()
def check(
    name: Annotated[
        str | None, typer.Argument(help="Data set, file or folder. [default: all that are installed]")
    ] = None,
    settings: DataOverrides = None,
    as_json: AsJson = False,
) -> None:
    """Load data sets, and print what they contain.

    It reports what is skipped, missing or broken.
    """
    from fedcap.data.labels import refuse_identifiers

    if name is not None:
        sources = {name: _chosen(name, settings or [])}
    elif settings:
        raise InputError("--set needs the name of a data set", code="bad-option", field="set")
    else:
        sources = installable()
    if name is not None and (_is_own(name) or sources[name].files() == []):
        dataset = sources[name].load()  # raises the reason if the user's data, or a file, cannot be loaded
        if dataset.classes > 1:  # the data of a federation's site may be of one class
            refuse_identifiers(dataset.class_names, len(dataset.samples))
    found = [{"name": key, **_checked(source)} for key, source in sources.items()]
    if as_json:
        print_json([{key: value for key, value in facts.items() if key != "more"} for facts in found])
    else:
        for facts in found:
            if facts["state"] != "missing":
                echo(f"{facts['name']}: {facts['line']}")
            for line in facts.get("more", ()):
                echo(f"  {line}")
        absent = [facts["name"] for facts in found if facts["state"] == "missing"]
        if absent:
            echo(f"not installed: {', '.join(absent)} (fedcap data get NAME)")
    broken = [facts["name"] for facts in found if facts["state"] == "broken"]
    if broken:
        echo(f"fedcap: broken: {', '.join(broken)}", err=True)
        raise typer.Exit(FAILED)


@app.command()
def plot(
    name: Name,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures.")] = Path("."),
    settings: DataOverrides = None,
    as_json: AsJson = False,
) -> None:
    """Draw the partition over the clients, and some samples.

    Both pictures are PNG files.
    """
    from fedcap.report.data import draw_partition, draw_samples
    from fedcap.simulation import Experiment

    experiment = Experiment(**with_settings({"dataset": name}, settings))
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
    echo(
        f"{label}: {plural(len(federated), 'client')}, {plural(federated.classes, 'class')},"
        f" {facts['train']:,} training and {plural(sum(map(len, federated.test)), 'test sample')}"
        f" of {'×'.join(map(str, federated.shape))}"
    )
    if not all(map(str.isdecimal, federated.names)):
        shown = federated.names[:NAMES_SHOWN]
        echo(f"  clients: {', '.join(shown)}{', …' * (len(federated) > len(shown))}")
    echo(f"  {paths['partition']}\n  {paths['samples']}")


def _chosen(name: str, settings: list[str]) -> Source:
    """Return a data set by its name or path, with options of the form dataset.KEY=VALUE."""
    from fedcap.data import make, table

    given = with_settings({"dataset": {"name": name}}, settings)
    if given.keys() != {"dataset"}:
        raise InputError(
            "only settings of the data set are allowed here, such as --set dataset.label=NAME",
            code="bad-option",
            field="set",
        )
    options = table(given["dataset"])
    return make(options.pop("name"), **options)


def _is_own(name: str) -> bool:
    from fedcap.data import table

    return table(name)["name"] in NEEDS_PATH


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
    from fedcap.data.own import Own

    own = _own_facts(source, dataset) if isinstance(source, Own) else {}
    return {"state": "ok", "line": "; ".join([line, *dataset.notes]), **facts, **own}


def _own_facts(source: Own, dataset: Dataset) -> dict[str, Any]:
    """Return the sizes of classes and clients of the user's data, and what may be wrong with it."""
    from fedcap.data import federate_source
    from fedcap.data.doubts import doubts

    counts = {"classes": _counted(dataset.class_names, dataset.samples.y)}
    if dataset.owners is None or dataset.classes == 1:  # the data of a federation's site may be such
        found = doubts(dataset)
    else:
        counts["clients"] = _counted(dataset.owner_names, dataset.owners)
        found = source.doubts(dataset, federate_source(source, dataset, seed=0))
    more = [*(f"{kind:<9}{each}" for kind, each in counts.items()), *(f"note     {note}" for note in found)]
    return {"more": more, "notes": [*dataset.notes, *found]}


def _counted(names: Sequence[str], places: Tensor) -> str:
    """Return names with the number of samples of each."""
    counts = places.bincount(minlength=len(names)).tolist()
    texts = [" ".join(name.split()) for name in names[:NAMES_SHOWN]]
    shown = [f"{text[:NAME_WIDTH]} {count:,}" for text, count in zip(texts, counts, strict=False)]
    return ", ".join(shown) + ", …" * (len(names) > NAMES_SHOWN)
