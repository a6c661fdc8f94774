"""`fedcap predict`: a client's model answers, for inputs from a NumPy file."""

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

from fedcap.cli.models import Client, Directory, Reading, whose
from fedcap.cli.output import AsJson, print_json, print_table, save, to_json, users_code
from fedcap.errors import InputError, nearest

if TYPE_CHECKING:
    import numpy as np

FIRST = 10
"""How many rows are printed."""
SUFFIXES = (".csv", ".json", ".npz")


@dataclass(frozen=True)
class Answers:
    """What a model says of n inputs."""

    classes: Sequence[str]
    probabilities: np.ndarray
    """n×classes."""
    answer: Sequence[str]
    """The most probable class of each input."""
    confidence: np.ndarray
    """n: how probable it is."""
    label: Sequence[str] | None
    """The true classes, if the file has them."""

    @property
    def accuracy(self) -> float | None:
        """Percent of the answers that are right, if the true classes are known."""
        if self.label is None:
            return None
        return 100 * sum(a == b for a, b in zip(self.answer, self.label, strict=True)) / len(self.label)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each input."""
        rows = zip(self.answer, self.confidence.tolist(), strict=True)
        found = [{"row": at, "answer": said, "confidence": sure} for at, (said, sure) in enumerate(rows)]
        if self.label is not None:
            found = [row | {"label": label} for row, label in zip(found, self.label, strict=True)]
        return found


def predict(
    directory: Directory,
    file: Annotated[Path, typer.Argument(metavar="INPUT.npz", help="Inputs x, and optionally labels y.")],
    client: Client = None,
    reading: Reading = "personal",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the answers: FILE.csv, FILE.json or FILE.npz.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a client's model answer: the class and the confidence of each input, prepared as in the run."""
    from fedcap.cli.site_models import models_of

    if out is not None and out.suffix not in SUFFIXES:
        raise InputError(f"{out} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    arrays = _arrays(file)
    models, _, client = models_of(directory, client)
    labels = _labels(file, arrays.get("y"), len(arrays["x"]), models.inputs.class_names)
    with users_code():
        probabilities = models.predict(client, arrays["x"], reading).numpy()
    answers = _answers(models.inputs.class_names, probabilities, labels)
    if out is not None:
        save(out, _content(answers, out.suffix))
    if as_json:
        facts = {"client": client, "reading": reading, "accuracy": answers.accuracy}
        print_json({**facts, "answers": answers.rows()})
    else:
        _print(answers, whose(client, reading), out)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return inputs `x` and, if there, labels `y` of a file; nothing in it is unpickled."""
    import numpy as np

    if path.suffix.lower() not in (".npz", ".npy"):
        raise InputError(
            f"{path} is not a NumPy file: give an .npz with the inputs as x, or an .npy; of a table, the"
            " feature columns in the order in which the run had them"
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            arrays = {name: loaded[name] for name in ("x", "y") if name in loaded.files}
            names = ", ".join(loaded.files)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not a NumPy file of numbers: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if "x" not in arrays:
        raise InputError(f"{path} has no array 'x', only {names or 'nothing'}")
    if arrays["x"].ndim == 0 or not len(arrays["x"]):
        raise InputError(f"{path}: x has no inputs")
    return arrays


def _labels(path: Path, y: np.ndarray | None, length: int, classes: Sequence[str]) -> list[str] | None:
    """Return the labels by the run's names of the classes; refuse a class that the run does not know."""
    from fedcap.data.labels import numbered, one_each

    if y is None:
        return None
    known, places = numbered(str(path), "y", one_each(str(path), "y", y, length))
    for name in known:
        if name not in classes:
            raise InputError(
                f"{path}: y has the class {name!r}, which the run does not have: {nearest(name, classes)}"
            )
    return [known[place] for place in places.tolist()]


def _answers(classes: Sequence[str], probabilities: np.ndarray, labels: list[str] | None) -> Answers:
    import numpy as np

    if not np.isfinite(probabilities).all():
        raise InputError("the model answers NaN: its weights are not finite, the run has diverged")
    best = probabilities.argmax(axis=1)
    answer = [classes[place] for place in best.tolist()]
    return Answers(classes, probabilities, answer, probabilities[np.arange(len(best)), best], labels)


def _content(answers: Answers, suffix: str) -> bytes | str:
    """Return the answers as a file's content."""
    import numpy as np

    if suffix == ".json":
        return to_json({"accuracy": answers.accuracy, "answers": answers.rows()})
    if suffix == ".csv":
        rows, text = answers.rows(), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    arrays = {
        "answer": np.array(answers.answer),
        "confidence": answers.confidence,
        "probabilities": answers.probabilities,
        "classes": np.array(answers.classes),
    }
    if answers.label is not None:
        arrays["label"] = np.array(answers.label)
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _print(answers: Answers, who: str, out: Path | None) -> None:
    from fedcap.report.tables import Table

    rows = answers.rows()
    cells = [[row["row"], row["answer"], f"{row['confidence']:.3f}", *list(row.values())[3:]] for row in rows]
    print_table(Table(tuple(rows[0]), cells[:FIRST]))
    left = len(rows) - FIRST
    if left > 0 and out is None:
        typer.echo(f"{left} more: save all with -o answers.csv, or print them with --json")
    right = "" if answers.accuracy is None else f", {answers.accuracy:.1f} % of them right"
    typer.echo(f"{len(rows)} answer{'s' * (len(rows) != 1)} by {who}{right}")
    if out is not None:
        typer.echo(f"  {out}")
