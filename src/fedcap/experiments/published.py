"""Outcomes that were published without their runs: `<name>.json` each, or whole grids as `<name>.jsonl`.

They are found by what was planned, not by their names: a run that was published before there was an option
is the same run still, since the default of a new option leaves results as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcap.experiments.cells import Cell
from fedcap.experiments.packing import unpack
from fedcap.records import Outcome, settings_key
from fedcap.records.cells import read_outcome
from fedcap.registry import InputError
from fedcap.simulation import Experiment


class Published:
    """The outcomes in some folders and packed files."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._places = list(places)

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return what a cell came to, if that was published: with the same data, code and version."""
        for place in self._places:  # by its name first, for what other grids have published meanwhile
            found = read_outcome(place / f"{cell.name}.json") if place.is_dir() else None
            if found is not None and found.digest == cell.experiment.digest():
                return found
        candidates = self._by_key.get(cell.key, [])
        return next((found for found in candidates if _came_of(found, cell)), None)

    @cached_property
    def _by_key(self) -> Mapping[str, list[Outcome]]:
        """All outcomes by the key that their settings have now."""
        found: dict[str, list[Outcome]] = {}
        for place in self._places:
            for outcome in _outcomes(place):
                found.setdefault(settings_key(as_of_now(outcome.settings)), []).append(outcome)
        return found


def _came_of(outcome: Outcome, cell: Cell) -> bool:
    """Whether a run of the cell's data, code and version, with the settings recorded, is the one recorded."""
    return outcome.digest == cell.experiment.digest(outcome.settings)


def _outcomes(place: Path) -> Iterator[Outcome]:
    """Yield the outcomes of a folder or of a packed file; none if it is not there."""
    yield from single_outcomes(place)
    for path in [place] if place.is_file() else sorted(place.glob("*.jsonl")):
        yield from (outcome for _, outcome in unpack(path))


def single_outcomes(folder: Path) -> Iterator[Outcome]:
    """Yield the outcomes that have a file each."""
    for path in sorted(folder.glob("*.json")):
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
