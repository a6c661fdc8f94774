"""Tables of plain values as text, Markdown, LaTeX and JSON, and the tables that summarise runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcap.files import Value
from fedcap.runs.result import Metrics
from fedcap.runs.rounds import TestedClient
from fedcap.runs.run import Run

DIVERGED_NOTE = "† diverged: weights of honest clients became NaN or infinite."
MEASURES = {
    "macro-F1": "macro_f1",
    "balanced accuracy": "balanced_accuracy",
    "AUC": "auc",
    "calibration error": "calibration_error",
}
"""The columns of the measures of the last round, and their fields in results."""
SUMMARY_COLUMNS = (
    "data set",
    "method",
    "attack",
    "seed",
    "rounds",
    "accuracy",
    "shared",
    "personal",
    "worst client",
    *MEASURES,
    "malicious",
    "malicious removed",
    "honest removed",
    "diverged",
)
SUMMARY_NOTE = (
    "Accuracy in percent on the honest clients' own test samples, in the last evaluated round: the better of "
    "shared (the model that a client receives) and personal (its own model). The measures are in percent, "
    "with the same models, in the last round."
)
_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after the end of a line, a bracket begins an option
    "]": "{]}",
    "±": r"$\pm$",
    "−": "$-$",
    "≤": r"$\leq$",
    "–": "--",
    "…": r"\ldots{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "\n": " ",
}
"""How LaTeX writes the characters that it would read as commands."""


@dataclass(frozen=True)
class Table:
    """Rows of values under columns, with a title above and notes below."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    title: str = ""
    notes: Sequence[str] = ()

    def cells(self) -> list[list[str]]:
        """Return the rows as text."""
        return [[_text(value) for value in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table as Markdown, between its title and its notes."""
        title = [f"{self.title}."] if self.title else []
        return "\n\n".join([*title, markdown(self.columns, self.cells()), *self.notes])

    def latex(self) -> str:
        """Return the table as LaTeX, with its title as the caption; it needs the package booktabs."""
        header, *body = [" & ".join(map(escape, row)) + r" \\" for row in [self.columns, *self.cells()]]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                *([rf"\caption{{{escape(self.title)}}}"] if self.title else []),
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                header,
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\par\smallskip\footnotesize {escape(note)}" for note in self.notes),
                r"\end{table}",
            ]
        )

    def dicts(self) -> list[dict[str, Value]]:
        """Return a mapping of column to value for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def _text(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "†" if value else ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def escape(text: str) -> str:
    """Return text in which LaTeX reads no character as a command."""
    return "".join(_LATEX.get(character, character) for character in text)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first column is aligned left, the others right."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, rule, *rows])


def summary_table(runs: Sequence[Run]) -> Table:
    """Return a row per run: its settings, its accuracy, and how many clients were removed."""
    rows = [_summary_row(run) for run in runs]
    diverged = any(run.diverged for run in runs)
    return Table(SUMMARY_COLUMNS, rows, notes=[SUMMARY_NOTE, *[DIVERGED_NOTE] * diverged])


def _summary_row(run: Run) -> list[Value]:
    settings, malicious = run.settings, set(run.provenance.malicious)
    done = len(run.rounds)
    accuracy = None if run.evaluated is None else run.evaluated.accuracy
    accuracies: list[Value] = [None] * 4
    if accuracy is not None:
        accuracies = [accuracy.best, accuracy.shared, accuracy.personal, accuracy.worst_client]
    removed: list[Value] = [None, None]
    if run.detects:
        found = run.removed.keys()
        removed = [len(found & malicious), len(found - malicious)]
    return [
        settings.dataset_name,
        settings.method.name,
        settings.attack.name,
        settings.seed,
        done if run.result else f"{done} of {settings.rounds}",
        *accuracies,
        *_measures(None if run.result is None else run.result.metrics, _reading(run)),
        len(malicious),
        *removed,
        run.diverged,
    ]


def _reading(run: Run) -> str:
    """Return the reading with the higher accuracy, in the last evaluated round."""
    accuracy = None if run.evaluated is None else run.evaluated.accuracy
    return "personal" if accuracy is None else accuracy.reading


def _measures(found: Metrics | TestedClient | None, reading: str) -> list[Value]:
    """Return the measures of one reading; none where they were not recorded."""
    measures = getattr(found, reading, None)
    return [getattr(measures, name, None) for name in MEASURES.values()]


def clients_table(run: Run, most: int | None = None) -> Table:
    """Return a row per client of a run, or of its first clients: accuracies and removal."""
    clients = run.clients if most is None else run.clients[:most]
    rows = [
        [
            client.id,
            "malicious" if client.malicious else "" if run.settings.federated else "honest",
            client.shared,
            client.personal,
            f"in round {client.removed.round}: {client.removed.reason}" if client.removed else "",
        ]
        for client in clients
    ]
    left = len(run.clients) - len(clients)
    notes = [f"… and {left:,} more"] * bool(left)
    return Table(("client", "", "shared, %", "personal, %", "removed"), rows, notes=notes)


def measures_table(run: Run, most: int | None = None) -> Table | None:
    """Return a row per tested client, or for the first ones: its test samples and its measures.

    None if the run did not record any.
    """
    reading = _reading(run)
    rows: list[list[Value]] = [
        [client.id, client.tested.samples, *_measures(client.tested, reading)]
        for client in run.clients
        if client.tested is not None
    ]
    left = 0 if most is None else max(0, len(rows) - most)
    notes = [f"… and {left:,} more"] * bool(left)
    notes.append(f"In percent, with the {reading} models, in the last round.")
    return Table(("client", "test samples", *MEASURES), rows[:most], notes=notes) if rows else None
