"""The generated pages: docs/RESULTS.md, results/, REPRODUCING.md, ROBUSTNESS.md, and their pictures.

Every figure is computed from recorded outcomes: `<digest>.json` of single runs, and grids as `.jsonl.gz`. The
prose is in templates/.
"""

from __future__ import annotations

from pathlib import Path

from fedcap.errors import InputError
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.store import CellStore, read_outcomes
from fedcap.files import write_aside
from fedcap.report.panel import Finished
from reproduction.compare import compare
from reproduction.items import find, items
from reproduction.matrix import Grids, without_repeats
from reproduction.pictures import pictures
from reproduction.recorded import Recorded
from reproduction.reproducing import reproducing_page
from reproduction.results import FIGURES, results_pages
from reproduction.robustness import robustness_page, roc_curves
from reproduction.summary import LEFT_OUT, presets
from reproduction.tuning import read_choices

MATRIX, ROBUSTNESS, TRAINED = "headline*.jsonl.gz", "robustness.jsonl.gz", "own-attack.jsonl.gz"
VARIANTS = "variants.jsonl.gz"
MORE_ROBUSTNESS, HONEST, WISDM = "robustness-*.jsonl.gz", "honest*.jsonl.gz", "honest-wisdm.jsonl.gz"


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Write the pages, and the pictures into a folder next to them; return what was written."""
    recorded = read_results(results)
    figures = docs / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    written = []
    for name, item in items().items():
        if name not in LEFT_OUT:
            for picture, draw in pictures(item, compare(item, recorded)).items():
                written += draw(figures / f"{picture}.png")
    matrix, _ = without_repeats(_read(results, MATRIX))
    if matrix:
        written += Comparison.of(matrix).draw(figures, "headline", ".png")
    variants = _read(results, ROBUSTNESS)
    if variants:
        for name, draw in roc_curves(variants).items():
            written += draw(figures / f"roc-{name}.png")
    for name, text in pages(results).items():
        (docs / name).parent.mkdir(exist_ok=True)
        write_aside(docs / name, text)
        written.append(docs / name)
    return written


def pages(results: Path) -> dict[str, str]:
    """Return the text of each page by its name."""
    recorded = read_results(results)
    grids = read_grids(results)
    made = results_pages(recorded, grids, read_choices(results))
    made["REPRODUCING.md"] = reproducing_page(recorded)
    if grids.variants:
        others = _read(results, MORE_ROBUSTNESS)
        honest = [read_outcomes(path) for path in sorted(results.glob(HONEST))]
        elsewhere = presets(compare(find("hardened"), recorded))
        made["ROBUSTNESS.md"] = robustness_page(
            [*grids.variants, *others], grids.matrix, honest, grids.trained, elsewhere
        )
    return made


def read_grids(results: Path) -> Grids:
    """Return the saved grids of a folder."""
    return Grids(*(_read(results, name) for name in (MATRIX, ROBUSTNESS, VARIANTS, TRAINED, WISDM)))


def read_results(results: Path) -> Recorded:
    """Return all outcomes of a folder; a folder without any is an error."""
    outcomes = CellStore(results, results).outcomes().values()
    if not outcomes and not any(results.glob("*.jsonl.gz")):
        raise InputError(f"there are no outcomes in {results}: give a folder that has some")
    return Recorded(outcomes)


def _read(results: Path, pattern: str) -> Finished:
    """Return the runs of the saved grids with such a name, the shortest name first; none without a file."""
    paths = sorted(results.glob(pattern), key=lambda path: (len(path.name), path.name))
    return [run for path in paths for run in read_outcomes(path)]
