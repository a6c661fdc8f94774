"""The paper's figures, as entries: which runs and what is read off them. It prints none of their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedcap.experiments.paper import setups
from fedcap.experiments.paper.columns import (
    FEDCAP,
    FEDFOMO,
    PERSONAL,
    ROBUST,
    Columns,
    always,
    crossed,
    with_stand_ins,
)
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.paper.setups import ATTACKS, RULES, SET_UP_OF, STRONG

IMAGES = ("cifar10", "emnist")
DISTANT = 1e30
"""A limit of the norm test that nobody passes: lengths are measured, and nobody is removed."""
BRIEFLY, UNTIL_REMOVED, A_WHILE = 12, 14, 25
"""Rounds of runs that need not last a hundred."""


def personal_limits() -> Item:
    """Personalised methods without attack."""
    personal = dict.fromkeys(PERSONAL, "tacc_personal")
    entries = list(crossed(with_stand_ins(IMAGES), ("none",), PERSONAL, personal))
    return Item("personal-limits", "Limits of personalised methods", entries, "bars")


def robust_limits() -> Item:
    """The global model of robust methods under two attacks."""
    columns: Columns = {
        "FedAvg": ROBUST["Mean"],
        "FLTrust": ROBUST["FLTrust"],
        "Krum": always(setups.fedavg("krum")),
        **{name: ROBUST[name] for name in ("Median", "Trim.", "ClusteredFL")},
    }
    attacks = ("sign-flipping", "model-replacement")
    entries = list(crossed(["cifar10"], attacks, columns, dict.fromkeys(columns, "tacc_shared")))
    return Item("robust-limits", "Limits of robust methods: the global model", entries, "bars")


def norms() -> Item:
    """The lengths of updates under FedAvg."""
    method = {**setups.fedavg("mean"), "detectors": [{"name": "norm", "limit": DISTANT}]}
    attacks = ("sign-flipping", "model-replacement")
    entries = list(crossed(["cifar10"], attacks, {"FedAvg": always(method)}, {}))
    return Item("norms", "Lengths of malicious updates under FedAvg", entries, "norms")


def baselines() -> Item:
    """Personalised methods without attack and under three."""
    local: Columns = {"Local": always({"name": "local"}), "FedAvg": ROBUST["Mean"]}
    attacks = ("none", "label-flipping", "sign-flipping", "model-replacement")
    reads = {"FedAvg": "tacc_shared", "FedAvg-FT": "tacc_personal"}
    columns = {**local, **PERSONAL, **FEDFOMO, **FEDCAP}
    entries = list(crossed(with_stand_ins(), attacks, columns, reads))
    return Item("baselines", "FedCAP beside personalised methods", entries, "bars")


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
    entries = list(crossed(with_stand_ins(IMAGES), STRONG, columns, {}))
    return Item("ditto-rules", "Rules with Ditto", entries, "curves")


def sweep(option: str, title: str) -> Item:
    """One option of FedCAP, the others as in the paper's cell, without attack and under IPM."""
    entries = [
        Entry(dataset, f"{value:g}", attack, setups.fedcap(dataset, attack, **{option: value}), attack)
        for dataset in with_stand_ins()
        for value in setups.SWEEPS[option][SET_UP_OF.get(dataset, dataset)]
        for attack in ("none", "ipm")
    ]
    return Item(option.rstrip("_"), title, entries, "sweep", option.rstrip("_"))


def automatic() -> Item:
    """Alpha by how much likeness varies, beside the alpha that was chosen for the data set; no attack."""
    entries = []
    for dataset in ("digits", *with_stand_ins()):
        chosen = {"name": "fedcap"} if dataset == "digits" else setups.fedcap(dataset, "none")
        fixed = Entry(dataset, "none", "chosen", chosen, "none", f"tacc_after_{A_WHILE}")
        auto = {**chosen, "alpha": "auto"}
        entries += [fixed, replace(fixed, column="auto", method=auto, others={"rounds": A_WHILE})]
    note = (
        f'`alpha = "auto"` was run for {A_WHILE} rounds; the other figure is that after as many rounds with'
        " the alpha that the paper used, its best, and on `digits` with the one that this package uses."
    )
    return Item("auto-alpha", "Alpha without tuning", entries, note=note)


def malicious_share() -> Item:
    """Robust methods as there are more attackers."""
    columns = {**ROBUST, "Ditto": PERSONAL["Ditto"], **FEDCAP}
    entries = [
        replace(
            entry, row=f"{share:g}", panel=f"{entry.dataset}, {entry.attack}", others={"malicious": share}
        )
        for entry in crossed(with_stand_ins(IMAGES), STRONG, columns, dict.fromkeys(ROBUST, "tacc_personal"))
        for share in setups.SHARES
    ]
    return Item(
        "malicious-share", "The share of malicious clients", entries, "sweep", "share of malicious clients"
    )


def sharing() -> Item:
    """CIFAR-10 with classes dealt in blocks of clients alike, and at random."""
    names = ("FedAvg-FT", "Ditto", "FedCAP")
    columns = {name: {**PERSONAL, **FEDCAP}[name] for name in names}
    entries = [
        replace(
            entry,
            row=entry.column,
            column=f"{way}, {reading}",
            read=f"tacc_{reading}",
            panel=f"cifar10, {entry.attack}",
            others={"dataset": {"name": "cifar10", "partition": {"name": "pathological", "sharing": way}}},
        )
        for entry in crossed(["cifar10"], ("none", "ipm"), columns, {})
        for way in ("blocks", "random")
        for reading in ("shared", "personal")
    ]
    note = (
        "In blocks, the paper's way, clients come in five groups of four that have the same two classes; at"
        " random, few have both in common. What clients have in common is what customising lives on."
    )
    return Item("sharing", "CIFAR-10's classes dealt in blocks, and at random", entries, note=note)


def _for_a_while(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield a CIFAR-10 cell's entries, the hardened preset's for some rounds, accuracy after as many."""
    for entry in entries:
        flipped = entry.attack == "sign-flipping"
        rounds = A_WHILE if flipped else BRIEFLY
        made = replace(entry, others={"rounds": rounds}) if "hardened" in entry.column else entry
        if entry.read != "tacc":
            yield made
        elif flipped:
            yield replace(made, read=f"tacc_after_{UNTIL_REMOVED}")
            yield replace(made, read=f"tacc_after_{A_WHILE}", row=f"{entry.row}, {A_WHILE} rounds")
        else:
            yield replace(made, read=f"tacc_after_{rounds}")


def hardened() -> Item:
    """FedCAP's two presets, the paper's settings for both."""
    presets: Columns = {
        "paper's": setups.fedcap,
        "hardened": lambda dataset, attack: setups.fedcap(dataset, attack, preset="hardened"),
    }
    reads = {"accuracy": "tacc", "FNR": "fnr", "FPR": "fpr", "round of removal": "rounds_to_removal"}
    entries: list[Entry] = []
    for entry in crossed(with_stand_ins(IMAGES), ("none", *ATTACKS), presets, {}):
        made = [
            replace(entry, column=f"{entry.column}: {figure}", read=read) for figure, read in reads.items()
        ]
        entries += _for_a_while(made) if entry.dataset == "cifar10" else made
    note = (
        f"On CIFAR-10 the hardened preset was run for {BRIEFLY} rounds, under sign flipping for {A_WHILE}:"
        " accuracy is that after as many rounds with the paper's preset too, and detection there is of all"
        f" its rounds. Under sign flipping accuracy is given after {UNTIL_REMOVED} rounds too, the last in"
        " which the paper's preset removes an attacker."
    )
    return Item("hardened", "FedCAP hardened, beside the paper's preset", entries, note=note)
