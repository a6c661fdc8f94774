"""Outcomes that were published without their runs: `<name>.json` each, or whole grids as `<name>.jsonl`.

They are found by what was planned, not by their names: a run that was published before there was an option
is the same run still, since the default of a new option leaves results as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from fedcap.errors import InputError
from fedcap.experiments.cells import Cell
from fedcap.experiments.packing import unpack
from fedcap.runs import Outcome, settings_key
from fedcap.runs.outcome import CELLS, OUTCOME, read_outcome
from fedcap.simulation import Experiment


class Published:
    """The outcomes of a folder of single ones, and of whatever else is known: a folder or a packed file."""

    def __init__(self, results: Path | None, known: Path | None) -> None:
        self._results, self._known = results, known

    def __getstate__(self) -> dict[str, Any]:
        """Go to worker processes without what was read: they are handed what is not there."""
        return {"_results": self._results, "_known": self._known}

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return what a cell came to, if that was published: with the same data, code and version."""
        if self._results is not None:  # by its name first, for what others have published meanwhile
            found = read_outcome(self._results / f"{cell.name}.json")
            if found is not None and _came_of(found, cell):
                return found
        candidates = self._by_key.get(cell.key, [])
        return next((found for found in candidates if _came_of(found, cell)), None)

    @cached_property
    def _by_key(self) -> Mapping[str, list[Outcome]]:
        """All outcomes by the key that their settings have now."""
        found: dict[str, list[Outcome]] = {}
        single = () if self._results is None else single_outcomes(self._results)
        for outcome in chain(single, () if self._known is None else _outcomes(self._known)):
            found.setdefault(settings_key(as_of_now(outcome.settings)), []).append(outcome)
        return found


def _came_of(outcome: Outcome, cell: Cell) -> bool:
    """Whether a run of the cell's data, code and version, with the settings recorded, is the one recorded."""
    return outcome.digest == cell.experiment.digest(outcome.settings)


def _outcomes(place: Path) -> Iterator[Outcome]:
    """Yield the outcomes of a packed file, of a grid's folder, or of a folder with either kind of file."""
    if place.is_file():
        yield from (outcome for _, outcome in unpack(place))
    elif (place / CELLS).is_dir():
        yield from _read(place.glob(f"{CELLS}/*/{OUTCOME}"))
    else:
        yield from single_outcomes(place)
        yield from chain.from_iterable(map(_outcomes, sorted(place.glob("*.jsonl"))))


def single_outcomes(folder: Path) -> Iterator[Outcome]:
    """Yield the outcomes that have a file each."""
    return _read(folder.glob("*.json"))


def _read(paths: Iterable[Path]) -> Iterator[Outcome]:
    for path in sorted(paths):
        if (found := read_outcome(path)) is not None:
            yield found


def as_of_now(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return recorded settings with the defaults of options that there were not yet when they were recorded.

    Such a default leaves results as they were. Settings that are no longer understood stay as they are.
    """
    try:
        return Experiment(**settings).settings()
    except InputError:
        return settings
