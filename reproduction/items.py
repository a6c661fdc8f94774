"""The paper's tables and figures, and ours, as lists of cells: the run, the measure, and the printed figure.

A `PaperCell` stands in a row and a column of a panel, which is one table, usually of one data set. Cells that
are read from the same run, such as accuracy and detection, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Literal

from fedcap.errors import InputError, nearest
from fedcap.registry import spelling
from fedcap.runs import Outcome
from reproduction import published, setups
from reproduction.setups import (
    ATTACKS,
    FEDCAP,
    FEDFOMO,
    ONE_SETTING,
    PERSONAL,
    ROBUST,
    RULES,
    SCALARS,
    SET_UP_OF,
    STRONG,
    Columns,
    Method,
    always,
    with_stand_ins,
)
from reproduction.templates import section

POINTS: Mapping[str, float] = {"wisdm": 1.5, "cifar10": 2.0, "emnist": 2.0}
"""The largest difference of accuracies that agree, in points, by data set."""


@dataclass(frozen=True)
class Measure:
    """One figure of a run."""

    label: str
    of: Callable[[Outcome], float | None]
    digits: int = 1
    within: float | None = None
    """The largest difference that agrees; none if the measure is not judged. Accuracies have `POINTS`."""
    is_accuracy: bool = False

    def text(self, value: float | None) -> str:
        """Return a figure as text."""
        return "–" if value is None else f"{value:.{self.digits}f}"

    def tolerance(self, dataset: str) -> float | None:
        """Return the largest difference that agrees on a data set; none if it is not judged there."""
        if dataset not in POINTS:
            return None
        return POINTS[dataset] if self.is_accuracy else self.within


def _accuracy(label: str, of: Callable[[Outcome], float | None]) -> Measure:
    return Measure(label, of, is_accuracy=True)


def _after(rounds: int) -> Measure:
    return _accuracy(f"accuracy after {rounds} rounds, %", lambda run: run.curve.after(rounds))


MEASURES: Mapping[str, Measure] = {
    "tacc": _accuracy("accuracy, %", lambda run: run.tacc),
    "tacc_shared": _accuracy("accuracy of the shared model, %", lambda run: run.tacc_shared),
    "tacc_personal": _accuracy("accuracy of the personal models, %", lambda run: run.tacc_personal),
    "tacc_after_12": _after(12),
    "tacc_after_14": _after(14),
    "tacc_after_25": _after(25),
    "dacc": Measure("honest clients kept and malicious ones removed, %", lambda run: run.dacc, within=0.05),
    "fpr": Measure("honest clients removed, %", lambda run: run.fpr, within=0.05),
    "fnr": Measure("malicious clients not removed, %", lambda run: run.fnr, within=0.05),
    "rounds_to_removal": Measure("mean round of removal", lambda run: run.rounds_to_removal),
    "rounds_to_80": Measure("first round at 80 %", lambda run: run.rounds_to_80, digits=0, within=3),
    "clients_minutes": Measure("minutes of all clients", lambda run: (run.seconds - run.seconds_server) / 60),
    "server_seconds": Measure("seconds of the server", lambda run: run.seconds_server),
    "megabytes": Measure("MB a round, both ways", lambda run: run.bytes_per_round / 1e6, digits=0),
}


@dataclass(frozen=True)
class PaperCell:
    """One figure: the run that it is read from, what is read, and the figure that the paper prints."""

    dataset: str
    row: str
    column: str
    method: Method
    attack: str
    read: str = "tacc"
    """The measure that is read."""
    published: float | None = None
    panel: str = ""
    """The heading of its table; the data set if empty."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings other than data set, method, attack, rounds and seed; they replace those of the data set."""

    @property
    def heading(self) -> str:
        """The heading of its table."""
        return self.panel or self.dataset

    @property
    def measure(self) -> Measure:
        """The measure that is read from the run."""
        return MEASURES[self.read]

    def place(self, seed: int) -> dict[str, str]:
        """Return the place of its run in a grid."""
        method = {key: value for key, value in self.method.items() if key != "rule"}
        others = {
            key: spelling(value) for key, value in self.others.items() if key not in ("dataset", "attack")
        }
        usual = {
            "dataset": spelling(self.others.get("dataset", self.dataset)),
            "method": spelling(method),
            "rule": spelling(self.method.get("rule", "")),
            "attack": spelling(self.others.get("attack", self.attack)),
            "seed": str(seed),
        }
        return usual | others

    def settings(self, rounds: int | None = None) -> dict[str, Any]:
        """Return the settings of its run without the seed; rounds are the data set's unless given."""
        others = {**SCALARS.get(self.dataset, {}), **self.others}
        named = {"dataset": self.dataset, "method": dict(self.method), "attack": self.attack}
        return named | others | ({} if rounds is None else {"rounds": rounds})


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper, or one of ours."""

    name: str
    title: str
    cells: Sequence[PaperCell]
    drawn: Literal["bars", "sweep", "curves", "norms"] | None = None
    """How its pictures are drawn, if it has any."""
    varied: str = ""
    """What its rows are, if they are numbers."""

    @property
    def note(self) -> str:
        """What a reader must know before comparing; empty if there is nothing."""
        return section("notes", self.name, briefly=BRIEFLY, until_removed=UNTIL_REMOVED, a_while=A_WHILE)

    def only(self, dataset: str | None = None, column: str | None = None, attack: str | None = None) -> Item:
        """Return the item with these cells only; an unknown name is answered with the known ones.

        A column is named by the text before its colon.
        """
        kept = self.cells
        for what, wanted in (("dataset", dataset), ("column", column), ("attack", attack)):
            if wanted is None:
                continue
            names = [getattr(cell, what).partition(":")[0] for cell in kept]
            if wanted.lower() not in map(str.lower, names):
                raise InputError(f"{self.name} has no {what} {wanted!r}: {nearest(wanted, set(names))}")
            kept = [cell for cell, name in zip(kept, names, strict=True) if name.lower() == wanted.lower()]
        return replace(self, cells=tuple(kept))

    @property
    def datasets(self) -> list[str]:
        """The data sets, in order."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))


@cache
def items() -> Mapping[str, Item]:
    """Return all tables and figures by name."""
    found = [
        table_1(),
        table_2(),
        table_3(),
        table_4(),
        table_5(),
        personal_limits(),
        robust_limits(),
        norms(),
        baselines(),
        ditto_rules(),
        sweep("alpha", "How strongly similarity decides: alpha"),
        automatic(),
        sweep("phi", "A client's share in its model: phi"),
        sweep("lambda_", "The pull on personal models: lambda"),
        malicious_share(),
        sharing(),
        hardened(),
        traps(),
    ]
    return {item.name: item for item in found}


def find(name: str) -> Item:
    """Return a table or a figure; an unknown name is answered with the nearest."""
    found = items().get(name.lower())
    if found is None:
        raise InputError(f"unknown table or figure {name!r}: {nearest(name, items())}")
    return found


def crossed(
    datasets: Iterable[str], attacks: Sequence[str], columns: Columns, reads: Mapping[str, str]
) -> Iterator[PaperCell]:
    """Yield a cell for each data set, attack and column; a row is an attack.

    `reads` has the measures of columns that do not show the accuracy of the better reading.
    """
    for dataset in datasets:
        for attack in attacks:
            for column, method in columns.items():
                read = reads.get(column, "tacc")
                yield PaperCell(dataset, attack, column, method(dataset, attack), attack, read)


def _printed(
    figures: published.Figures, columns: Sequence[str], cell: PaperCell, column: str | None = None
) -> float | None:
    """Return the figure that the paper prints for a cell, or for the data set that the cell's replaces."""
    name = column or ("FedCAP" if cell.column == ONE_SETTING else cell.column)
    values = figures.get((SET_UP_OF.get(cell.dataset, cell.dataset), cell.attack))
    return None if values is None else values[columns.index(name)]


# --- Tables

UPDATED = "tacc_personal"
"""The measure of rules in Tables I and II: the accuracy of the locally updated models."""


def table_1() -> Item:
    """Robust methods."""
    found = crossed(with_stand_ins(), ATTACKS, {**ROBUST, **FEDCAP}, dict.fromkeys(ROBUST, UPDATED))
    cells = [
        replace(cell, published=_printed(published.TABLE_1, published.TABLE_1_COLUMNS, cell))
        for cell in found
    ]
    return Item("table-1", "Table I: FedCAP and robust methods", cells)


def table_2() -> Item:
    """Rules with Bucketing and with GAS."""
    wrapped: dict[str, str] = {}
    for column in published.TABLE_2_COLUMNS[:-1]:
        wrapper, inner = column.rstrip(")").split("(")
        wrapped[column] = f"{wrapper.lower()}({RULES[inner]})"
    columns: Columns = {name: always(setups.fedavg(rule)) for name, rule in wrapped.items()}
    found = crossed(with_stand_ins(), ("lie", "ipm"), {**columns, **FEDCAP}, dict.fromkeys(columns, UPDATED))
    cells = [
        replace(cell, published=_printed(published.TABLE_2, published.TABLE_2_COLUMNS, cell))
        for cell in found
    ]
    return Item("table-2", "Table II: rules with Bucketing and with GAS", cells)


def table_3() -> Item:
    """FedCAP's accuracy and the clients that it removes, with the paper's settings and with one setting."""
    reads = dict(zip(published.TABLE_3_COLUMNS, ("tacc", "dacc", "fpr", "fnr"), strict=True))
    cells = []
    for cell in crossed(with_stand_ins(), ("none", *ATTACKS), FEDCAP, {}):
        for figure, read in reads.items():
            value = _printed(published.TABLE_3, published.TABLE_3_COLUMNS, cell, figure)
            cells.append(replace(cell, column=f"{cell.column}: {figure}", read=read, published=value))
    return Item("table-3", "Table III: FedCAP's accuracy and removals", cells)


def table_4() -> Item:
    """The parts of FedCAP, with the same options in every cell."""
    attacks = published.TABLE_4_COLUMNS
    options = {"name": "fedcap", "alpha": 10, "phi": 0.3, "lambda_": 0.1}
    columns: Columns = {part: always({**options, **off}) for part, off in setups.ABLATION.items()}
    cells = [
        replace(cell, published=published.TABLE_4[cell.column][attacks.index(cell.attack)])
        for cell in crossed(["cifar10"], attacks, columns, {})
    ]
    return Item("table-4", "Table IV: the parts of FedCAP", cells)


def table_5() -> Item:
    """Rounds to 80 %, time and traffic."""
    reads = ("rounds_to_80", "clients_minutes", "server_seconds", "megabytes")
    columns: Columns = {**PERSONAL, **FEDFOMO, **FEDCAP}
    cells = [
        PaperCell("cifar10", name, column, columns[name]("cifar10", "none"), "none", read, figure)
        for name, figures in published.TABLE_5.items()
        for column, read, figure in zip(published.TABLE_5_COLUMNS, reads, figures, strict=True)
    ]
    return Item("table-5", "Table V: efficiency without attack", cells)


# --- Figures

IMAGES = ("cifar10", "emnist")
DISTANT = 1e30
"""A limit of the norm test above every length: lengths are measured, and no client is removed."""
BRIEFLY, UNTIL_REMOVED, A_WHILE = 12, 14, 25
"""Rounds of runs that are shorter than a hundred."""


def personal_limits() -> Item:
    """Personalised methods without attack."""
    personal = dict.fromkeys(PERSONAL, "tacc_personal")
    cells = list(crossed(with_stand_ins(IMAGES), ("none",), PERSONAL, personal))
    return Item("personal-limits", "Limits of personalised methods", cells, "bars")


def robust_limits() -> Item:
    """The global model of robust methods under two attacks."""
    columns: Columns = {
        "FedAvg": ROBUST["Mean"],
        "FLTrust": ROBUST["FLTrust"],
        "Krum": always(setups.fedavg("krum")),
        **{name: ROBUST[name] for name in ("Median", "Trim.", "ClusteredFL")},
    }
    attacks = ("sign-flipping", "model-replacement")
    cells = list(crossed(["cifar10"], attacks, columns, dict.fromkeys(columns, "tacc_shared")))
    return Item("robust-limits", "Limits of robust methods: the global model", cells, "bars")


def norms() -> Item:
    """The lengths of updates under FedAvg."""
    method = {**setups.fedavg("mean"), "detectors": [{"name": "norm", "limit": DISTANT}]}
    attacks = ("sign-flipping", "model-replacement")
    cells = list(crossed(["cifar10"], attacks, {"FedAvg": always(method)}, {}))
    return Item("norms", "Lengths of malicious updates under FedAvg", cells, "norms")


def baselines() -> Item:
    """Personalised methods without attack and under three."""
    local: Columns = {"Local": always({"name": "local"}), "FedAvg": ROBUST["Mean"]}
    attacks = ("none", "label-flipping", "sign-flipping", "model-replacement")
    reads = {"FedAvg": "tacc_shared", "FedAvg-FT": "tacc_personal"}
    columns = {**local, **PERSONAL, **FEDFOMO, **FEDCAP}
    cells = list(crossed(with_stand_ins(), attacks, columns, reads))
    return Item("baselines", "FedCAP and personalised methods", cells, "bars")


def ditto_rules() -> Item:
    """Ditto with a rule on the server."""

    def ruled(rule: str) -> Columns:
        name = next(name for name, known in RULES.items() if known == rule)
        return {f"Ditto + {name}": lambda dataset, attack: setups.ditto(dataset, attack, rule)}

    columns = {
        "Ditto": PERSONAL["Ditto"],
        **ruled("median"),
        **ruled("trimmed-mean"),
        **ruled("clustered"),
        **FEDCAP,
    }
    cells = list(crossed(with_stand_ins(IMAGES), STRONG, columns, {}))
    return Item("ditto-rules", "Rules with Ditto", cells, "curves")


def sweep(option: str, title: str) -> Item:
    """One option of FedCAP, the others as in the paper's cell, without attack and under IPM."""
    cells = [
        PaperCell(dataset, f"{value:g}", attack, setups.fedcap(dataset, attack, **{option: value}), attack)
        for dataset in with_stand_ins()
        for value in setups.SWEEPS[option][SET_UP_OF.get(dataset, dataset)]
        for attack in ("none", "ipm")
    ]
    return Item(option.rstrip("_"), title, cells, "sweep", option.rstrip("_"))


def automatic() -> Item:
    """Alpha set by the spread of similarities, and the alpha that was picked for the data set; no attack."""
    cells = []
    for dataset in ("digits", *with_stand_ins()):
        chosen = {"name": "fedcap"} if dataset == "digits" else setups.fedcap(dataset, "none")
        fixed = PaperCell(dataset, "none", "chosen", chosen, "none", f"tacc_after_{A_WHILE}")
        auto = {**chosen, "alpha": "auto"}
        cells += [fixed, replace(fixed, column="auto", method=auto, others={"rounds": A_WHILE})]
    return Item("auto-alpha", "Alpha without tuning", cells)


def malicious_share() -> Item:
    """Robust methods with a growing share of malicious clients."""
    columns = {**ROBUST, "Ditto": PERSONAL["Ditto"], **FEDCAP}
    cells = [
        replace(cell, row=f"{share:g}", panel=f"{cell.dataset}, {cell.attack}", others={"malicious": share})
        for cell in crossed(with_stand_ins(IMAGES), STRONG, columns, dict.fromkeys(ROBUST, "tacc_personal"))
        for share in setups.SHARES
    ]
    return Item(
        "malicious-share", "The share of malicious clients", cells, "sweep", "share of malicious clients"
    )


def sharing() -> Item:
    """CIFAR-10 with classes assigned to blocks of similar clients, and at random."""
    names = ("FedAvg-FT", "Ditto", "FedCAP")
    columns = {name: {**PERSONAL, **FEDCAP}[name] for name in names}
    cells = [
        replace(
            cell,
            row=cell.column,
            column=f"{way}, {reading}",
            read=f"tacc_{reading}",
            panel=f"cifar10, {cell.attack}",
            others={"dataset": {"name": "cifar10", "partition": {"name": "pathological", "sharing": way}}},
        )
        for cell in crossed(["cifar10"], ("none", "ipm"), columns, {})
        for way in ("blocks", "random")
        for reading in ("shared", "personal")
    ]
    return Item("sharing", "CIFAR-10's classes in blocks and at random", cells)


def _for_a_while(cells: Sequence[PaperCell]) -> Iterator[PaperCell]:
    """Yield CIFAR-10's cells: the hardened preset runs for fewer rounds, and accuracies are after these."""
    for cell in cells:
        flipped = cell.attack == "sign-flipping"
        rounds = A_WHILE if flipped else BRIEFLY
        made = replace(cell, others={"rounds": rounds}) if "hardened" in cell.column else cell
        if cell.read != "tacc":
            yield made
        elif flipped:
            yield replace(made, read=f"tacc_after_{UNTIL_REMOVED}")
            yield replace(made, read=f"tacc_after_{A_WHILE}", row=f"{cell.row}, {A_WHILE} rounds")
        else:
            yield replace(made, read=f"tacc_after_{rounds}")


def hardened() -> Item:
    """FedCAP's two presets, the paper's settings for both."""
    presets: Columns = {
        "paper's": setups.fedcap,
        "hardened": lambda dataset, attack: setups.fedcap(dataset, attack, preset="hardened"),
    }
    reads = {"accuracy": "tacc", "FNR": "fnr", "FPR": "fpr", "round of removal": "rounds_to_removal"}
    cells: list[PaperCell] = []
    for cell in crossed(with_stand_ins(IMAGES), ("none", *ATTACKS), presets, {}):
        made = [replace(cell, column=f"{cell.column}: {figure}", read=read) for figure, read in reads.items()]
        cells += _for_a_while(made) if cell.dataset == "cifar10" else made
    return Item("hardened", "FedCAP hardened, and the paper's preset", cells)


# --- Small runs for REPRODUCING.md

LIE = "LIE as printed, and bounded"
NAN = "Models of NaNs"
PICKED = "FedCAP's options, picked for each attack"
ASSUMED = "The number of attackers that a rule assumes"
LIMIT = "The limit of FedCAP's norm test"
CLAIMS = "Claimed sample counts"
TRUST = "FLTrust under model replacement"
WINDOWS = "Windows of one activity"

ONE = "one setting"
PICKS = tuple(product((2, 10), (0.1, 0.3), (0.1, 1.0)))
"""The combinations of alpha, phi and lambda."""


def traps() -> Item:
    """Return small runs on digits, and some on WISDM, in which each trap of a reproduction shows."""
    parts = (_lie(), _nan(), _picked(), _assumed(), _limit(), _claims(), _trust(), _windows())
    cells = [cell for part in parts for cell in part]
    return Item("traps", "Traps of a reproduction, each with runs in which it shows", cells)


def _lie() -> Iterator[PaperCell]:
    """Ten of 20 clients take part and six are malicious: in a round with all six, LIE's rows are infinite."""
    methods = {
        "FedAvg": setups.fedavg("mean"),
        "Median": setups.fedavg("median"),
        "FedAvg with the norm test": {**setups.fedavg("mean"), "detectors": ["norm"]},
        "FedCAP": {"name": "fedcap"},
    }
    half = {"participation": 0.5}
    for (name, method), attack in product(methods.items(), ("lie", "lie-unbounded")):
        yield PaperCell("digits", name, f"{attack}, accuracy", method, attack, panel=LIE, others=half)
        if name not in ("FedAvg", "Median"):
            yield PaperCell("digits", name, f"{attack}, DAcc", method, attack, "dacc", panel=LIE, others=half)


def _nan() -> Iterator[PaperCell]:
    for dataset, read in product(("digits", "wisdm"), ("tacc_shared", "tacc_personal")):
        reading = read.removeprefix("tacc_")
        yield PaperCell(dataset, dataset, reading, setups.fedavg("mean"), "ipm", read, panel=NAN)


def _picked() -> Iterator[PaperCell]:
    for attack in ("sign-flipping", "lie", "min-max", "ipm"):
        yield PaperCell("digits", attack, ONE, {"name": "fedcap"}, attack, panel=PICKED)
        for alpha, phi, lambda_ in PICKS:
            method = {"name": "fedcap", "alpha": alpha, "phi": phi, "lambda_": lambda_}
            yield PaperCell(
                "digits", attack, f"{alpha:g}, {phi:g}, {lambda_:g}", method, attack, panel=PICKED
            )


def _assumed() -> Iterator[PaperCell]:
    shares = {"half": 0.1, "the true number": 0.2, "twice": 0.4}
    rules = ("multi-krum", "trimmed-mean", "gas(median)")
    for rule, attack, (column, share) in product(rules, ("sign-flipping", "min-max", "ipm"), shares.items()):
        yield PaperCell(
            "digits",
            f"{rule}, {attack}",
            column,
            setups.fedavg(rule),
            attack,
            "tacc_shared",
            panel=ASSUMED,
            others={"malicious": 0.2, "assumed": share},
        )


def _limit() -> Iterator[PaperCell]:
    reads = {
        "accuracy, %": "tacc",
        "honest removed, %": "fpr",
        "malicious not removed, %": "fnr",
        "mean round of removal": "rounds_to_removal",
    }
    for limit, (column, read) in product((1, 2, 4, 6, 10, 20), reads.items()):
        method = {"name": "fedcap", "t_norm": limit}
        yield PaperCell("digits", f"{limit:g}", column, method, "min-max", read, panel=LIMIT)


def _claims() -> Iterator[PaperCell]:
    for row, claim in (("true", {}), ("a billion each", {"claim": 10**9})):
        attack = {"name": "sign-flipping", **claim}
        yield PaperCell(
            "digits",
            row,
            "accuracy of FedAvg's shared model",
            setups.fedavg("mean"),
            "sign-flipping",
            "tacc_shared",
            panel=CLAIMS,
            others={"attack": attack},
        )


def _trust() -> Iterator[PaperCell]:
    for row, method in (("FedAvg", setups.fedavg("mean")), ("FLTrust", {"name": "fltrust"})):
        yield PaperCell("digits", row, "accuracy", method, ATTACKS[1], "tacc_personal", panel=TRUST)


def _windows() -> Iterator[PaperCell]:
    """In the copy of WISDM used here the activity changes at multiples of 200 readings: 199 cut across."""
    attack = "min-max"
    method = setups.fedcap("wisdm", attack)
    across = {"dataset": {"name": "wisdm", "window": 199}, "rounds": 25}
    yield PaperCell("wisdm", attack, "of one activity", method, attack, "tacc_after_25", panel=WINDOWS)
    yield PaperCell("wisdm", attack, "across changes", method, attack, panel=WINDOWS, others=across)
