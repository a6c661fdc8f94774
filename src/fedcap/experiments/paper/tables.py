"""Tables I to V of the paper: which runs, what is read off them, and what was printed."""

from __future__ import annotations

from dataclasses import replace

from fedcap.experiments.paper import published, setups
from fedcap.experiments.paper.columns import (
    FEDCAP,
    FEDFOMO,
    PERSONAL,
    ROBUST,
    Columns,
    always,
    crossed,
    printed,
    with_stand_ins,
)
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.paper.setups import ATTACKS, RULES

UPDATED = "tacc_personal"
"""What Tables I and II read off rules: the accuracy of the locally updated models."""


def table_1() -> Item:
    """Robust methods."""
    found = crossed(with_stand_ins(), ATTACKS, {**ROBUST, **FEDCAP}, dict.fromkeys(ROBUST, UPDATED))
    entries = [
        replace(entry, published=printed(published.TABLE_1, published.TABLE_1_COLUMNS, entry))
        for entry in found
    ]
    return Item("table-1", "Table I: FedCAP beside robust methods", entries)


def table_2() -> Item:
    """Rules with Bucketing and with GAS."""
    wrapped: dict[str, str] = {}
    for column in published.TABLE_2_COLUMNS[:-1]:
        wrapper, inner = column.rstrip(")").split("(")
        wrapped[column] = f"{wrapper.lower()}({RULES[inner]})"
    columns: Columns = {name: always(setups.fedavg(rule)) for name, rule in wrapped.items()}
    found = crossed(with_stand_ins(), ("lie", "ipm"), {**columns, **FEDCAP}, dict.fromkeys(columns, UPDATED))
    entries = [
        replace(entry, published=printed(published.TABLE_2, published.TABLE_2_COLUMNS, entry))
        for entry in found
    ]
    return Item("table-2", "Table II: rules with Bucketing and with GAS", entries)


def table_3() -> Item:
    """FedCAP's accuracy, and whom it removes, with the paper's settings and with one."""
    reads = dict(zip(published.TABLE_3_COLUMNS, ("tacc", "dacc", "fpr", "fnr"), strict=True))
    entries = []
    for entry in crossed(with_stand_ins(), ("none", *ATTACKS), FEDCAP, {}):
        for figure, read in reads.items():
            value = printed(published.TABLE_3, published.TABLE_3_COLUMNS, entry, figure)
            entries.append(replace(entry, column=f"{entry.column}: {figure}", read=read, published=value))
    return Item("table-3", "Table III: FedCAP's accuracy, and whom it removes", entries)


def table_4() -> Item:
    """The parts of FedCAP, one set of options throughout."""
    attacks = published.TABLE_4_COLUMNS
    options = {"name": "fedcap", "alpha": 10, "phi": 0.3, "lambda_": 0.1}
    columns: Columns = {part: always({**options, **off}) for part, off in setups.ABLATION.items()}
    entries = [
        replace(entry, published=published.TABLE_4[entry.column][attacks.index(entry.attack)])
        for entry in crossed(["cifar10"], attacks, columns, {})
    ]
    note = (
        "Rows without calibration have no detection either, as in the paper. All have alpha 10, phi 0.3 and"
        " lambda 0.1; the paper's figures for FedCAP itself are those of Table III, which has others."
    )
    return Item("table-4", "Table IV: the parts of FedCAP", entries, note=note)


def table_5() -> Item:
    """Rounds to 80 %, time and traffic."""
    reads = ("rounds_to_80", "clients_minutes", "server_seconds", "megabytes")
    columns: Columns = {**PERSONAL, **FEDFOMO, **FEDCAP}
    entries = [
        Entry("cifar10", name, column, columns[name]("cifar10", "none"), "none", read, figure)
        for name, figures in published.TABLE_5.items()
        for column, read, figure in zip(published.TABLE_5_COLUMNS, reads, figures, strict=True)
    ]
    note = (
        "Time is of the whole run on one core, testing included; the paper does not say of how many rounds,"
        " or on what. Traffic is counted both ways here, one way in the paper."
    )
    return Item("table-5", "Table V: efficiency without attack", entries, note=note)
