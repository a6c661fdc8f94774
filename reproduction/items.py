"""The paper's tables and figures, and ours, as lists of cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from fedcap.errors import InputError, nearest
from reproduction import published, setups
from reproduction.cells import Item, PaperCell
from reproduction.setups import (
    A_WHILE,
    ATTACKS,
    BRIEFLY,
    FEDCAP,
    FEDFOMO,
    LETTERS,
    ONE_SETTING,
    PERSONAL,
    ROBUST,
    RULES,
    SET_UP_OF,
    SLOW,
    STRONG,
    UNTIL_REMOVED,
    Columns,
    always,
    with_stand_ins,
)
from reproduction.traps import traps


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
        raise InputError(f"unknown table or figure {name!r}: {nearest(name, items())}", code="unknown-name")
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


def hardened() -> Item:
    """FedCAP's two presets: with the paper's settings on CIFAR-10, with one setting on letters and digits."""
    reads = {"accuracy": "tacc", "FNR": "fnr", "FPR": "fpr", "round of removal": "rounds_to_removal"}
    presets: Columns = {
        "paper's": setups.fedcap,
        "hardened": lambda dataset, attack: setups.fedcap(dataset, attack, preset="hardened"),
    }
    same: Columns = {
        "paper's": always({"name": "fedcap"}),
        "hardened": always({"name": "fedcap", "preset": "hardened"}),
    }
    cells: list[PaperCell] = []
    for cell in crossed(["cifar10"], ("none", *ATTACKS), presets, {}):
        cells += _short(
            cell, (UNTIL_REMOVED, A_WHILE) if cell.attack == "sign-flipping" else (BRIEFLY,), reads
        )
    for cell in crossed(with_stand_ins(["emnist"]), ("none", "lie", "cuckoo"), same, {}):
        cells += _short(cell, (LETTERS,), reads)
        if cell.dataset in SET_UP_OF:
            slow = replace(cell, panel=f"{cell.dataset}, learning rate {SLOW:g}")
            cells += _short(replace(slow, others={"training": {"lr": SLOW}}), (LETTERS,), reads)
    return Item("hardened", "FedCAP hardened, and the paper's preset", cells)


def _short(cell: PaperCell, after: Sequence[int], reads: Mapping[str, str]) -> Iterator[PaperCell]:
    """Yield the figures of a run that is shorter than the paper's: accuracies after each number of rounds.

    The paper's preset under an attack of the paper is read from the run of 100 rounds.
    """
    in_paper = not cell.others and cell.column == "paper's" and cell.attack in ("none", *ATTACKS)
    made = cell if in_paper else replace(cell, others={**cell.others, "rounds": after[-1]})
    for figure, read in reads.items():
        column = f"{cell.column}: {figure}"
        if read != "tacc":
            yield replace(made, column=column, read=read)
            continue
        for rounds in after:
            row = cell.row if rounds == after[0] else f"{cell.row}, {rounds} rounds"
            yield replace(made, column=column, row=row, read=f"tacc_after_{rounds}")
