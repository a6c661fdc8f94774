"""What a grid came to: its runs as tidy rows, means and paired differences as rows, and tables of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedcap.errors import InputError, nearest
from fedcap.experiments.cells import Cell, Found
from fedcap.experiments.panel import Difference, Estimate, Panel, panels
from fedcap.experiments.tables import (
    DETECTION,
    FIGURES,
    accuracy_table,
    clients_table,
    detection_table,
    difference_table,
    heading,
    marks,
)
from fedcap.files import Value, can_write_parquet, write_aside, write_csv, write_parquet
from fedcap.report.tables import Table
from fedcap.runs.outcome import AS_IN_RESULT, Outcome

FAVOURITE = "fedcap"
"""The method that others are compared with, where none is named and this one is there."""
LATEX_HEAD = "% Needs \\usepackage{booktabs}."
_ALONGSIDE = {"tacc_worst_client": "worst_client", "tacc_p10": "p10"} | {name: name for name in DETECTION}
"""Figures whose means stand beside that which is compared, and what they are called there."""


@dataclass(frozen=True)
class Comparison:
    """The finished cells of a grid, compared."""

    found: Found
    against: str | None
    """The method that the others are compared with; none if there is none to compare with."""
    figure: str
    panels: Sequence[Panel] = field(repr=False)

    @classmethod
    def of(
        cls,
        found: Found,
        against: str | None = None,
        planned: Sequence[Cell] = (),
        figure: str = "tacc",
    ) -> Comparison:
        """Compare finished cells; planned ones that are not among them are shown as missing.

        `against` is a method as tables call it, such as `fedavg+median`: FedCAP if none is given and it is
        there. `figure` is what is compared: the better reading's accuracy if none is given.
        """
        sorted_in = panels(found, planned)
        methods = list(dict.fromkeys(method for panel in sorted_in for method in panel.methods))
        if figure not in FIGURES:
            raise InputError(f"unknown figure {figure!r}: {nearest(figure, FIGURES)}")
        if against is not None and against not in methods:
            raise InputError(
                f"no method {against!r} in this grid to compare with: {nearest(against, methods)}"
            )
        if against is None and FAVOURITE in methods:
            against = FAVOURITE
        return cls(found, against, figure, sorted_in)

    def tidy(self) -> list[dict[str, Value]]:
        """Return a row for each finished run: its place in the grid, and every figure of its outcome."""
        return [_tidy(cell, outcome) for cell, outcome in self.found]

    def dicts(self) -> list[dict[str, Value]]:
        """Return a row for each method and attack: means over seeds, and the difference to `against`."""
        return [row for panel in self.panels for method in panel.methods for row in self._rows(panel, method)]

    def tables(self) -> list[Table]:
        """Return the tables of each panel: accuracy, differences, the clients worst off, detection."""
        return [table for panel in self.panels for table in self._tables(panel)]

    def markdown(self) -> str:
        """Return all tables as Markdown."""
        return "\n\n".join(table.markdown() for table in self.tables()) + "\n"

    def latex(self) -> str:
        """Return all tables as LaTeX."""
        return "\n\n".join([LATEX_HEAD, *(table.latex() for table in self.tables())]) + "\n"

    def save(self, folder: Path | str, parquet: bool | None = None) -> list[Path]:
        """Write results.csv (a row per run), means.csv (per method and attack), tables.md and tables.tex.

        results.parquet too, if pyarrow is installed; `parquet=True` insists on it, `False` leaves it out.
        Return what was written.
        """
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        names = ["results.csv", "means.csv", "tables.md", "tables.tex"]
        rows = self.tidy()
        if can_write_parquet() if parquet is None else parquet:
            write_parquet(rows, where / "results.parquet")
            names.append("results.parquet")
        write_csv(rows, where / "results.csv")
        write_csv(self.dicts(), where / "means.csv")
        write_aside(where / "tables.md", self.markdown())
        write_aside(where / "tables.tex", self.latex())
        return [where / name for name in names]

    def draw(self, folder: Path | str, prefix: str = "map", ending: str = "") -> list[Path]:
        """Draw a map of methods × attacks for each panel, as PNG, PDF and SVG, or with one ending alone.

        Return what was written.
        """
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for panel in self.panels:
            written += _draw_map(panel, self.figure, where / f"{map_name(panel, prefix)}{ending}")
        return written

    def _tables(self, panel: Panel) -> list[Table]:
        made: list[Table | None] = [accuracy_table(panel, self.figure)]
        if self.against is not None and self.against in panel.methods and len(panel.methods) > 1:
            made.append(difference_table(panel, self.against, self.figure))
        made += [clients_table(panel), detection_table(panel)]
        return [table for table in made if table is not None]

    def _rows(self, panel: Panel, method: str) -> list[dict[str, Value]]:
        worst = panel.worst(method, self.figure)
        compared = {}
        if self.against is not None and method != self.against:
            compared = panel.differences(method, self.against, self.figure)
        return [
            {
                **panel.place,
                "method": method,
                "attack": attack,
                "worst_attack": worst is not None and worst.attack == attack,
                **_mean(panel.estimate(method, attack, self.figure)),
                **{
                    name: getattr(panel.estimate(method, attack, figure), "mean", None)
                    for figure, name in _ALONGSIDE.items()
                },
                "against": self.against if attack in compared else None,
                **_difference(compared.get(attack)),
            }
            for attack in panel.columns
        ]


def map_name(panel: Panel, prefix: str = "map") -> str:
    """Return what the picture of a panel is called."""
    return re.sub(r"[^\w.]+", "-", f"{prefix}-{panel.title}")


def _draw_map(panel: Panel, figure: str, path: Path) -> list[Path]:
    from fedcap.report.charts import draw_map

    lines = [[panel.estimate(method, attack, figure) for attack in panel.columns] for method in panel.methods]
    return draw_map(
        panel.methods,
        [heading(attack) for attack in panel.columns],
        [[None if one is None else (one.mean, one.half_width) for one in line] for line in lines],
        path,
        f"{panel.title}: {FIGURES[figure]}, %",
        [["" if one is None else marks(one, len(one.seeds)) for one in line] for line in lines],
    )


def _mean(found: Estimate | None) -> dict[str, Value]:
    return {
        "mean": None if found is None else found.mean,
        "half_width": None if found is None else found.half_width,
        "seeds": "" if found is None else " ".join(found.seeds),
        "diverged": 0 if found is None else found.diverged,
        "stopped": 0 if found is None else found.stopped,
    }


def _difference(found: Difference | None) -> dict[str, Value]:
    low, high = (None, None) if found is None or found.interval is None else found.interval
    return {
        "difference": None if found is None else found.mean,
        "low": low,
        "high": high,
        "pairs": 0 if found is None else len(found.seeds),
        "p": None if found is None else found.p,
        "p_holm": None if found is None else found.p_holm,
    }


def _tidy(cell: Cell, outcome: Outcome) -> dict[str, Value]:
    """Return a run's row; a figure called as an axis of the grid is gets another name."""
    figures = {name: getattr(outcome, name) for name in (*AS_IN_RESULT, "tacc_p10", "digest")}
    renamed = {f"result_{name}" if name in cell.place else name: value for name, value in figures.items()}
    return {**cell.place, **renamed}
