"""CSV: `rounds.csv` in the run's directory, with a line per round, for spreadsheets and pandas.

A line is added after each round. A resumed run writes the lines of its earlier rounds again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedcap.files import Row, columns_of, write_csv
from fedcap.runs import RoundRecord
from fedcap.trackers.base import Tracked, Tracker, figures, registry

_FILE = "rounds.csv"


@registry.register("csv")
@dataclass
class Csv(Tracker):
    """A line per round in rounds.csv: accuracies, who was removed, limits, seconds, bytes."""

    clients: bool = False
    """Whether each client's accuracies and scores have columns as well."""
    _path: Path = field(default=Path(_FILE), init=False)
    _rows: list[Row] = field(default_factory=list, init=False)
    _columns: dict[str, None] = field(default_factory=dict, init=False)

    def start(self, run: Tracked) -> None:
        """Write the lines of the rounds that were played before."""
        self._path = run.folder("csv") / _FILE
        self._rows = [self._row(record) for record in run.history]
        self._columns = dict.fromkeys(columns_of(self._rows))
        self._path.unlink(missing_ok=True)
        if self._rows:
            write_csv(self._rows, self._path)

    def log(self, record: RoundRecord) -> None:
        """Add the round's line; if it has a new column, write all lines again."""
        row, known = self._row(record), len(self._columns)
        self._rows.append(row)
        self._columns |= dict.fromkeys(row)
        if len(self._columns) == known:
            with open(self._path, "a", encoding="utf-8", newline="") as file:
                file.write(_line(row, list(self._columns)))
        else:
            write_csv(self._rows, self._path)

    def _row(self, record: RoundRecord) -> Row:
        return {"round": record.round, **figures(record, self.clients)}


def _line(row: Row, columns: Sequence[str]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerow(row)
    return text.getvalue()
