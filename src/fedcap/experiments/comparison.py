"""The comparison of a grid: its runs as rows, means and paired differences as rows, and tables of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedcap.errors import InputError, nearest
from fedcap.experiments.tables import (
    DETECTION,
    FIGURES,
    accuracy_table,
    clients_table,
    detection_table,
    difference_table,
    marks,
)
from fedcap.files import Value, can_write_parquet, write_aside, write_csv, write_parquet
from fedcap.report.panel import Difference, Estimate, Finished, Panel, attack_title, make_panels
from fedcap.report.tables import Table
from fedcap.runs import Outcome, Place
from fedcap.runs.outcome import AS_IN_RESULT

FAVOURITE = "fedcap"
"""The method that others are compared with, if none is named and this one is in the grid."""
LATEX_HEAD = "% Needs \\usepackage{booktabs}."
_MORE_MEANS = {"tacc_worst_client": "worst_client", "tacc_p10": "p10"} | {name: name for name in DETECTION}
"""Figures whose means are in the rows of means too, and their columns."""


@dataclass(frozen=True)
class Comparison:
    """The finished cells of a grid, compared."""

    finished: Finished
    against: str | None
    """The method that the others are compared with; none if there is none to compare with."""
    figure: str
    panels: Sequence[Panel] = field(repr=False)

    @classmethod
    def of(
        cls,
        finished: Finished,
        against: str | None = None,
        planned: Sequence[Place] = (),
        figure: str = "tacc",
    ) -> Comparison:
        """Compare finished cells; planned places without an outcome are shown as missing.

        `against` is a method as in tables, such as `fedavg+median`; by default FedCAP if it is in the grid.
        `figure` is what is compared; by default the accuracy in the better reading.
        """
        panels = make_panels(finished, planned)
        methods = list(dict.fromkeys(method for panel in panels for method in panel.methods))
        if figure not in FIGURES:
            raise InputError(
                f"unknown figure {figure!r}: {nearest(figure, FIGURES)}", code="unknown-name", field="figure"
            )
        if against is not None and against not in methods:
            raise InputError(
                f"no method {against!r} in this grid to compare with: {nearest(against, methods)}",
                code="unknown-name",
                field="against",
            )
        if against is None and FAVOURITE in methods:
            against = FAVOURITE
        return cls(finished, against, figure, panels)

    def tidy(self) -> list[dict[str, Value]]:
        """Return a row for each finished cell: its place in the grid, and every figure of its outcome."""
        return [_tidy_row(place, outcome) for place, outcome in self.finished]

    def dicts(self) -> list[dict[str, Value]]:
        """Return a row for each method and attack: means over seeds, and the difference to `against`."""
        return [row for panel in self.panels for method in panel.methods for row in self._rows(panel, method)]

    def tables(self) -> list[Table]:
        """Return the tables of each panel: accuracy, differences, worst clients, detection."""
        return [table for panel in self.panels for table in self._tables(panel)]

    def markdown(self) -> str:
        """Return all tables as Markdown."""
        return "\n\n".join(table.markdown() for table in self.tables()) + "\n"

    def latex(self) -> str:
        """Return all tables as LaTeX."""
        return "\n\n".join([LATEX_HEAD, *(table.latex() for table in self.tables())]) + "\n"

    def save(self, folder: Path | str, parquet: bool | None = None) -> list[Path]:
        """Write results.csv (a row per cell), means.csv (per method and attack), tables.md and tables.tex.

        results.parquet is written if pyarrow is installed; `parquet=True` requires it, `False` leaves it out.
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
        """Draw a map of methods × attacks for each panel, as PNG, PDF and SVG, or with one ending only.

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
                **_mean_columns(panel.estimate(method, attack, self.figure)),
                **{
                    name: getattr(panel.estimate(method, attack, figure), "mean", None)
                    for figure, name in _MORE_MEANS.items()
                },
                "against": self.against if attack in compared else None,
                **_difference_columns(compared.get(attack)),
            }
            for attack in panel.columns
        ]


def map_name(panel: Panel, prefix: str = "map") -> str:
    """Return the name of a panel's picture."""
    return re.sub(r"[^\w.]+", "-", f"{prefix}-{panel.title}")


def _draw_map(panel: Panel, figure: str, path: Path) -> list[Path]:
    from fedcap.report.charts import draw_map

    lines = [[panel.estimate(method, attack, figure) for attack in panel.columns] for method in panel.methods]
    return draw_map(
        panel.methods,
        [attack_title(attack) for attack in panel.columns],
        [[None if one is None else (one.mean, one.half_width) for one in line] for line in lines],
        path,
        f"{panel.title}: {FIGURES[figure]}, %",
        [["" if one is None else marks(one, len(one.seeds)) for one in line] for line in lines],
    )


def _mean_columns(found: Estimate | None) -> dict[str, Value]:
    return {
        "mean": None if found is None else found.mean,
        "half_width": None if found is None else found.half_width,
        "seeds": "" if found is None else " ".join(found.seeds),
        "diverged": 0 if found is None else found.diverged,
        "stopped": 0 if found is None else found.stopped,
    }


def _difference_columns(found: Difference | None) -> dict[str, Value]:
    return {
        "difference": None if found is None else found.mean,
        "difference_half_width": None if found is None else found.half_width,
        "pairs": 0 if found is None else len(found.seeds),
        "p": None if found is None else found.p,
        "p_holm": None if found is None else found.p_holm,
    }


def _tidy_row(place: Place, outcome: Outcome) -> dict[str, Value]:
    """Return a cell's row; a figure with the name of an axis gets another name."""
    figures = {name: getattr(outcome, name) for name in (*AS_IN_RESULT, "tacc_p10", "digest")}
    renamed = {f"result_{name}" if name in place else name: value for name, value in figures.items()}
    return {**place, **renamed}
