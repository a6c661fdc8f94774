"""`fedcap predict`: a model's predictions for inputs from a file. `fedcap export`: the model as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import AsJson, echo, print_json, print_table, save, to_json, users_code
from fedcap.errors import InputError

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
    typer.Option(help="The client whose model it is. Not needed for the global model or for a site."),
]
Reading = Annotated[
    str,
    typer.Option(
        help="personal: the client's own model; shared: the model that the server sends it; global: one for"
        " all."
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
    identifiers: Sequence[str] | None = None
    """The identifier of each row in the file, if it has one."""
    identifier: str = ""
    """The name of the column of identifiers."""

    @property
    def accuracy(self) -> float | None:
        """Percent of the predictions that are right, if the true classes are known."""
        if self.label is None:
            return None
        return 100 * sum(a == b for a, b in zip(self.answer, self.label, strict=True)) / len(self.label)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each input: its identifier or number, the answer, and the label if known."""
        rows = zip(self.answer, self.confidence.tolist(), strict=True)
        found = [{"row": at, "answer": name, "confidence": sure} for at, (name, sure) in enumerate(rows)]
        if self.identifiers is not None:
            found = [{self.identifier: i} | row for i, row in zip(self.identifiers, found, strict=True)]
        if self.label is not None:
            found = [row | {"label": label} for row, label in zip(found, self.label, strict=True)]
        return found

    def full_rows(self) -> list[dict[str, Any]]:
        """Return a row for each input with the probability of each class."""
        names = [f"p({name})" for name in self.classes]
        rows = zip(self.rows(), self.probabilities.tolist(), strict=True)
        return [row | dict(zip(names, each, strict=True)) for row, each in rows]


def predict(
    directory: Directory,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="FILE.csv, FILE.parquet, FILE.npz with x and optionally y, or FILE.npy.",
        ),
    ],
    client: Client = None,
    reading: Reading = "personal",
    identifier: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="The column that identifies each row. [default: id]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save all predictions: FILE.csv, FILE.json or FILE.npz."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the class of each input with a client's model.

    Inputs are prepared as in the run. The columns of a table are matched by name, in any order. The
    confidence is the probability of the class. A file of answers has the probability of every class.
    """
    from fedcap.cli.inputs import known_labels, read_inputs
    from fedcap.cli.site_models import models_of

    if out is not None and out.suffix not in SUFFIXES:
        raise InputError(
            f"{out} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}", code="bad-value", field="out"
        )
    if out is not None and out.exists() and file.exists() and out.samefile(file):
        raise InputError(
            f"{out} is the file of the inputs: give another file for the answers",
            code="bad-value",
            field="out",
        )
    found = models_of(directory, client)
    models, client = found.models, found.client
    inputs = read_inputs(file, found.dataset, models.inputs.features, identifier)
    labels = known_labels(file, inputs.y, len(inputs.x), models.inputs.class_names)
    with users_code():
        probabilities = models.predict(client, inputs.x, reading).numpy()
    predictions = replace(
        _predictions(models.inputs.class_names, probabilities, labels),
        identifiers=inputs.identifiers,
        identifier=inputs.identifier,
    )
    tested = found.tested(reading)
    if out is not None:
        save(out, _content(predictions, out.suffix))
    if as_json:
        facts = {"client": client, "reading": reading, "accuracy": predictions.accuracy, "tested": tested}
        print_json({**facts, "answers": predictions.full_rows()})
    else:
        _print(predictions, _whose(client, reading), tested, out)


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
        return to_json({"accuracy": predictions.accuracy, "answers": predictions.full_rows()})
    if suffix == ".csv":
        rows, text = predictions.full_rows(), io.StringIO()
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
    if predictions.identifiers is not None:
        arrays["id"] = np.array(predictions.identifiers)
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _print(predictions: Predictions, whose: str, tested: float | None, out: Path | None) -> None:
    from fedcap.report.tables import Table

    rows = predictions.rows()
    cells = [list((row | {"confidence": f"{row['confidence']:.3f}"}).values()) for row in rows[:ROWS_SHOWN]]
    print_table(Table(tuple(rows[0]), cells))
    left = len(rows) - ROWS_SHOWN
    if left > 0 and out is None:
        echo(f"{left} more: -o answers.csv saves all, --json prints all")
    right = "" if predictions.accuracy is None else f", {predictions.accuracy:.1f} % right"
    echo(f"{len(rows)} answer{'s' * (len(rows) != 1)} by {whose}{right}")
    if tested is not None:
        echo(f"the model is {tested:.1f} % accurate on the test samples of its own client")
    if out is not None:
        echo(f"  {out}")


def export(
    directory: Directory,
    client: Client = None,
    reading: Reading = "personal",
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="FILE.pt2 or FILE.onnx: a whole program; FILE.safetensors: weights."
        ),
    ] = Path("model.pt2"),
    as_json: AsJson = False,
) -> None:
    """Save a model as a file that works without fedcap.

    A .pt2 file is a program that takes raw inputs and returns probabilities. An .onnx file is the same
    program for ONNX Runtime. A .safetensors file has the weights by the names of the network's own module.
    """
    from fedcap.cli.site_models import models_of
    from fedcap.simulation.export import exported

    with users_code():
        found = models_of(directory, client)
        client = found.client
        content, about = exported(found.models, found.digest, client, reading, out.suffix)
    save(out, content)
    if as_json:
        print_json({"file": str(out), **about})
        return
    shape = "×".join(map(str, about["shape"]))
    classes = about["classes"]
    more = f", … ({len(classes)} classes)" if len(classes) > CLASSES_SHOWN else ""
    echo(f"{out}: {_whose(client, reading)}")
    echo(f"  input      n×{shape} {about['dtype']}")
    if names := about.get("features"):
        rest = f", … ({len(names)} columns, in this order)" if len(names) > CLASSES_SHOWN else ""
        echo(f"  features   {', '.join(names[:CLASSES_SHOWN])}{rest}")
    echo(f"  classes    {', '.join(classes[:CLASSES_SHOWN])}{more}")
    if out.suffix == ".pt2":
        echo(f'  use        torch.export.load("{out}").module()(x)  # probabilities, n×{len(classes)}')
    elif out.suffix == ".onnx":
        echo(f'  use        onnxruntime.InferenceSession("{out}").run(None, {{"x": x}})[0]')
    else:
        echo(f'  use        module.load_state_dict(safetensors.torch.load_file("{out}"))')
