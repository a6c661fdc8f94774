"""Tables of plain values, as text, Markdown, LaTeX (package booktabs) and JSON, and the tables of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcap.files import Value
from fedcap.runs.run import Run

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",
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
"""How LaTeX writes what it would read as a command; a bracket is one after the end of a line."""


def escaped(text: str) -> str:
    """Return text as LaTeX prints it."""
    return "".join(_WRITTEN.get(character, character) for character in text)


def latex(
    columns: Sequence[str], lines: Sequence[Sequence[str]], title: str = "", notes: Sequence[str] = ()
) -> str:
    """Return a LaTeX table: first column left, others right; the document needs the package booktabs."""
    content = [" & ".join(map(escaped, cells)) + r" \\" for cells in [columns, *lines]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{escaped(title)}}}"] if title else []),
            rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
            r"\toprule",
            content[0],
            r"\midrule",
            *content[1:],
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\smallskip\footnotesize {escaped(note)}" for note in notes),
            r"\end{table}",
        ]
    )


DIVERGED_NOTE = "† diverged: weights of honest clients became NaN or infinite."
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
    "attackers",
    "attackers removed",
    "honest removed",
    "diverged",
)
SUMMARY_NOTE = (
    "Accuracy in percent on the honest clients' own test samples, in the last round that was evaluated: the "
    "better of shared (with the model a client receives) and personal (with its own)."
)


@dataclass(frozen=True)
class Table:
    """Rows of values under columns, with a title above them and notes below."""

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
        """Return the table as LaTeX, its title as caption; the document needs the package booktabs."""
        return latex(self.columns, self.cells(), self.title, self.notes)

    def dicts(self) -> list[dict[str, Value]]:
        """Return a mapping of column to value for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def _text(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "†" if value else ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first column is aligned left, the others right."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, rule, *lines])


def summary_table(runs: Sequence[Run]) -> Table:
    """Return a line for each run: what it was, how accurate its clients are, and who was removed."""
    rows = [_summary_row(run) for run in runs]
    diverged = any(row[-1] for row in rows)
    return Table(SUMMARY_COLUMNS, rows, notes=[SUMMARY_NOTE, *[DIVERGED_NOTE] * diverged])


def _summary_row(run: Run) -> list[Value]:
    settings = run.settings
    played = len(run.rounds)
    accuracy = None if run.evaluated is None else run.evaluated.accuracy
    figures: list[Value] = [None] * 4
    if accuracy is not None:
        figures = [accuracy.best, accuracy.shared, accuracy.personal, accuracy.worst_client]
    return [
        settings.dataset_name,
        settings.method.name,
        settings.attack.name,
        settings.seed,
        played if run.result else f"{played} of {settings.rounds}",
        *figures,
        *_removed(run),
        run.diverged,
    ]


def _removed(run: Run) -> list[Value]:
    """Return how many attackers there are, and how many of them and of the honest clients were removed.

    The last two are none without detection.
    """
    attackers, removed = set(run.provenance.malicious), run.removed.keys()
    found = [len(removed & attackers), len(removed - attackers)]
    return [len(attackers), *(found if run.detects else [None, None])]


def clients_table(run: Run, most: int | None = None) -> Table:
    """Return a line for each client of a run, or for the first so many: its accuracies, and its removal."""
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
    return Table(
        ("client", "", "shared, %", "personal, %", "removed"),
        rows,
        notes=[f"… and {left:,} more: --json has all"] * bool(left),
    )
