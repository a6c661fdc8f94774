"""Finished runs, found again by what was planned: neither their data nor their directories are needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fedcap.experiments.grid import Cell
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.store import current_settings
from fedcap.runs import Outcome, settings_key
from fedcap.simulation import Experiment


@cache
def _resolved(planned: str) -> Mapping[str, Any]:
    return Experiment(**json.loads(planned)).settings()


_PLAIN = ("rounds", "malicious", "assumed", "participation", "eval_every")
"""Settings on which no other depends: they can be laid over resolved ones, which are made once for all."""


def resolved(entry: Entry, rounds: int | None = None) -> dict[str, Any]:
    """Return every setting of an entry's run, with seed 0."""
    given = entry.settings(rounds)
    over = {key: given.pop(key) for key in _PLAIN if key in given}
    return {**_resolved(json.dumps(given, sort_keys=True)), **over}


def cells(entries: Iterable[Entry], seeds: Sequence[int], rounds: int | None = None) -> list[Cell]:
    """Return the runs that entries need, each once, seed by seed."""
    found: dict[str, Cell] = {}
    for seed in seeds:
        for entry in entries:
            key = settings_key({**resolved(entry, rounds), "seed": seed})
            if key not in found:
                found[key] = Cell(entry.place(seed), Experiment(**entry.settings(rounds), seed=seed))
    return list(found.values())


class Recorded:
    """Outcomes by what they were planned as."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._by_plan: dict[str, dict[int, Outcome]] = {}
        for outcome in outcomes:
            seed = int(outcome.settings["seed"])
            plan = settings_key({**current_settings(outcome.settings), "seed": 0})
            self._by_plan.setdefault(plan, {})[seed] = outcome

    def of(self, entry: Entry, rounds: int | None = None) -> Mapping[int, Outcome]:
        """Return the outcomes of an entry's runs by seed."""
        found = self._by_plan.get(settings_key(resolved(entry, rounds)), {})
        return dict(sorted(found.items()))


def planned(entries: Iterable[Entry], rounds: int | None = None) -> dict[str, Entry]:
    """Return the distinct runs behind entries, seeds apart, each with the first of its entries."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(settings_key(resolved(entry, rounds)), entry)
    return found


def progress(item: Item, recorded: Recorded, rounds: int | None = None) -> tuple[int, int]:
    """Return how many of an item's runs have finished with at least one seed, and how many there are."""
    plans = planned(item.entries, rounds).values()
    return sum(bool(recorded.of(entry, rounds)) for entry in plans), len(plans)
