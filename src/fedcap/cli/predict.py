"""`fedcap predict`: a model's predictions for inputs from a file. `fedcap export`: the model as a file."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import AsJson, echo, print_json, print_table, save, to_json, users_code
from fedcap.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np

ROWS_SHOWN = 10
CLASSES_SHOWN = 12
SUFFIXES = (".csv", ".json", ".npz")

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a run, or of a federation's site.")
]
Client = Annotated[
    str | None,
    typer.Option(help="The client whose model it is. Not needed for the global model, nor at a site."),
]
Reading = Annotated[
    str,
    typer.Option(
        help="personal: the client's own model; shared: what the server sends to it; global: one for all."
    ),
]


def _whose(client: str | None, reading: str) -> str:
    """Return a model in words."""
    return f"the {reading} model" + ("" if client is None or reading == "global" else f" of client {client}")


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for n inputs."""

    classes: Sequence[str]
    probabilities: np.ndarray
    """n×classes."""
    answer: Sequence[str]
    """The most probable class of each input."""
    confidence: np.ndarray
    """n: the probability of that class."""
    label: Sequence[str] | None
    """The true classes, if the file has them."""

    @property
    def accuracy(self) -> float | None:
        """Percent of the predictions that are right, if the true classes are known."""
        if self.label is None:
            return None
        return 100 * sum(a == b for a, b in zip(self.answer, self.label, strict=True)) / len(self.label)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each input."""
        rows = zip(self.answer, self.confidence.tolist(), strict=True)
        found = [{"row": at, "answer": name, "confidence": sure} for at, (name, sure) in enumerate(rows)]
        if self.label is not None:
            found = [row | {"label": label} for row, label in zip(found, self.label, strict=True)]
        return found


def predict(
    directory: Directory,
    file: Annotated[Path, typer.Argument(metavar="INPUT.npz", help="Inputs x, and optionally labels y.")],
    client: Client = None,
    reading: Reading = "personal",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save all predictions: FILE.csv, FILE.json or FILE.npz."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the class of each input with a client's model.

    Inputs are prepared as in the run. The confidence is the probability of the class.
    """
    from fedcap.cli.site_models import models_of

    if out is not None and out.suffix not in SUFFIXES:
        raise InputError(
            f"{out} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", code="bad-value", field="out"
        )
    arrays = _arrays(file)
    models, _, client = models_of(directory, client)
    labels = _labels(file, arrays.get("y"), len(arrays["x"]), models.inputs.class_names)
    with users_code():
        probabilities = models.predict(client, arrays["x"], reading).numpy()
    predictions = _predictions(models.inputs.class_names, probabilities, labels)
    if out is not None:
        save(out, _content(predictions, out.suffix))
    if as_json:
        facts = {"client": client, "reading": reading, "accuracy": predictions.accuracy}
        print_json({**facts, "answers": predictions.rows()})
    else:
        _print(predictions, _whose(client, reading), out)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return inputs `x` and, if there, labels `y` of a file; nothing in it is unpickled."""
    import numpy as np

    if path.suffix.lower() not in (".npz", ".npy"):
        raise InputError(
            f"{path} is not a NumPy file: give an .npz with the inputs as x, or an .npy; for a table, use its"
            " feature columns in the order of the run's",
            code="bad-file",
            field=str(path),
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            arrays = {name: loaded[name] for name in ("x", "y") if name in loaded.files}
            names = ", ".join(loaded.files)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a NumPy file of numbers: {error}", code="bad-file", field=str(path)
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", code="missing-file", field=str(path)
        ) from None
    if "x" not in arrays:
        raise InputError(
            f"{path} has no array 'x', only {names or 'nothing'}", code="data-shape", field=str(path)
        )
    if arrays["x"].ndim == 0 or not len(arrays["x"]):
        raise InputError(f"{path}: x has no inputs", code="data-shape", field=str(path))
    return arrays


def _labels(path: Path, y: np.ndarray | None, length: int, classes: Sequence[str]) -> list[str] | None:
    """Return the labels by the run's names of the classes; refuse a class that the run does not have."""
    from fedcap.data.labels import numbered, one_each

    if y is None:
        return None
    known, places = numbered(str(path), "y", one_each(str(path), "y", y, length))
    for name in known:
        if name not in classes:
            raise InputError(
                f"{path}: y has the class {name!r}, which the run does not have: {nearest(name, classes)}",
                code="unknown-name",
                field="y",
            )
    return [known[place] for place in places.tolist()]


def _predictions(classes: Sequence[str], probabilities: np.ndarray, labels: list[str] | None) -> Predictions:
    import numpy as np

    if not np.isfinite(probabilities).all():
        raise InputError(
            "the model predicts NaN: its weights are not finite, since the run diverged", code="diverged"
        )
    best = probabilities.argmax(axis=1)
    answer = [classes[place] for place in best.tolist()]
    return Predictions(classes, probabilities, answer, probabilities[np.arange(len(best)), best], labels)


def _content(predictions: Predictions, suffix: str) -> bytes | str:
    """Return the predictions as a file's content."""
    import numpy as np

    if suffix == ".json":
        return to_json({"accuracy": predictions.accuracy, "answers": predictions.rows()})
    if suffix == ".csv":
        rows, text = predictions.rows(), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    arrays = {
        "answer": np.array(predictions.answer),
        "confidence": predictions.confidence,
        "probabilities": predictions.probabilities,
        "classes": np.array(predictions.classes),
    }
    if predictions.label is not None:
        arrays["label"] = np.array(predictions.label)
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _print(predictions: Predictions, whose: str, out: Path | None) -> None:
    from fedcap.report.tables import Table

    rows = predictions.rows()
    cells = [[row["row"], row["answer"], f"{row['confidence']:.3f}", *list(row.values())[3:]] for row in rows]
    print_table(Table(tuple(rows[0]), cells[:ROWS_SHOWN]))
    left = len(rows) - ROWS_SHOWN
    if left > 0 and out is None:
        echo(f"{left} more: -o answers.csv saves all, --json prints all")
    right = "" if predictions.accuracy is None else f", {predictions.accuracy:.1f} % right"
    echo(f"{len(rows)} answer{'s' * (len(rows) != 1)} by {whose}{right}")
    if out is not None:
        echo(f"  {out}")


def export(
    directory: Directory,
    client: Client = None,
    reading: Reading = "personal",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="FILE.pt2: a whole program; FILE.safetensors: weights.")
    ] = Path("model.pt2"),
    as_json: AsJson = False,
) -> None:
    """Save a model as a file that works without fedcap.

    A .pt2 file is a program that takes raw inputs and returns probabilities. A .safetensors file has the
    weights by the names of the network's own module.
    """
    from fedcap.cli.site_models import models_of
    from fedcap.simulation.export import exported

    with users_code():
        models, run, client = models_of(directory, client)
        content, about = exported(models, run, client, reading, out.suffix)
    save(out, content)
    if as_json:
        print_json({"file": str(out), **about})
        return
    shape = "×".join(map(str, about["shape"]))
    classes = about["classes"]
    more = f", … ({len(classes)} classes)" if len(classes) > CLASSES_SHOWN else ""
    echo(f"{out}: {_whose(client, reading)}")
    echo(f"  input      n×{shape} {about['dtype']}")
    echo(f"  classes    {', '.join(classes[:CLASSES_SHOWN])}{more}")
    if out.suffix == ".pt2":
        echo(f'  use        torch.export.load("{out}").module()(x)  # probabilities, n×{len(classes)}')
    else:
        echo(f'  use        module.load_state_dict(safetensors.torch.load_file("{out}"))')
