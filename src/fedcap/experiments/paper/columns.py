"""The columns that the paper's tables and figures have in common: each a method, by data set and attack.

Wherever FedCAP stands with the paper's settings, which differ by attack, it stands a second time with one
setting for all attacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedcap.experiments.paper import setups
from fedcap.experiments.paper.entry import Entry
from fedcap.experiments.paper.published import Figures
from fedcap.experiments.paper.setups import RULES, SET_UP_OF, STAND_IN, Method

Columns = Mapping[str, Callable[[str, str], Method]]
"""The name of a column → from data set and attack to the method."""


def always(method: Method) -> Callable[[str, str], Method]:
    """Return a column whose method is the same for every data set and attack."""
    return lambda dataset, attack: method


ONE_SETTING = "FedCAP, one setting"
FEDCAP: Columns = {"FedCAP": setups.fedcap, ONE_SETTING: always({"name": "fedcap"})}
ROBUST: Columns = {
    **{name: always(setups.fedavg(rule)) for name, rule in RULES.items()},
    "FLTrust": always({"name": "fltrust"}),
}
PERSONAL: Columns = {
    "FedAvg-FT": always(setups.fedavg("mean")),
    "Ditto": lambda dataset, attack: setups.ditto(dataset, attack),
    "FedRoD": always({"name": "fedrod"}),
}
FEDFOMO: Columns = {"FedFomo": lambda dataset, attack: setups.fedfomo(dataset)}


def with_stand_ins(datasets: Iterable[str] = setups.DATASETS) -> Iterator[str]:
    """Yield the data sets, each followed by the one that stands in for it."""
    for dataset in datasets:
        yield dataset
        if dataset in STAND_IN:
            yield STAND_IN[dataset]


def printed(
    figures: Figures, columns: Sequence[str], entry: Entry, column: str | None = None
) -> float | None:
    """Return what the paper prints for an entry; for a stand-in, the figure of the data set it replaces."""
    name = column or ("FedCAP" if entry.column == ONE_SETTING else entry.column)
    values = figures.get((SET_UP_OF.get(entry.dataset, entry.dataset), entry.attack))
    return None if values is None else values[columns.index(name)]


def crossed(
    datasets: Iterable[str], attacks: Sequence[str], columns: Columns, reads: Mapping[str, str]
) -> Iterator[Entry]:
    """Yield an entry for each data set, attack and column; a row is an attack.

    `reads` has the measures of columns that do not show the headline accuracy.
    """
    for dataset in datasets:
        for attack in attacks:
            for column, method in columns.items():
                read = reads.get(column, "tacc")
                yield Entry(dataset, attack, column, method(dataset, attack), attack, read)
