"""Evidence for `docs/REPRODUCING.md`: small runs in which each trap of a reproduction shows.

They are entries like those of the paper's tables, but the paper prints none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fedcap.experiments.paper import setups
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.paper.setups import ATTACKS

LIE = "LIE as printed, and bounded"
NAN = "Models of NaNs"
PICKED = "FedCAP's options, picked for each attack"
TOLD = "How many attackers a rule is told"
LIMIT = "The limit of FedCAP's norm test"
CLAIMS = "Claimed sample counts"
TRUST = "FLTrust under model replacement"
WINDOWS = "Windows of one activity"

ONE = "one setting"
PICKS = tuple(product((2, 10), (0.1, 0.3), (0.1, 1.0)))
"""The alpha, phi and lambda that are tried."""


def traps() -> Item:
    """Return all of them: runs of seconds on digits, and three on WISDM, two of them Table I's."""
    parts = (_lie(), _nan(), _picked(), _told(), _limit(), _claims(), _trust(), _windows())
    entries = [entry for part in parts for entry in part]
    return Item("traps", "Traps of a reproduction, each with runs in which it shows", entries)


def _lie() -> Iterator[Entry]:
    """Ten of twenty clients take part, six attack: a round in which all six do makes LIE's rows infinite."""
    methods = {
        "FedAvg": setups.fedavg("mean"),
        "Median": setups.fedavg("median"),
        "FedAvg with the norm test": {**setups.fedavg("mean"), "detectors": ["norm"]},
        "FedCAP": {"name": "fedcap"},
    }
    half = {"participation": 0.5}
    for (name, method), attack in product(methods.items(), ("lie", "lie-unbounded")):
        yield Entry("digits", name, f"{attack}, accuracy", method, attack, panel=LIE, others=half)
        if name not in ("FedAvg", "Median"):
            yield Entry("digits", name, f"{attack}, DAcc", method, attack, "dacc", panel=LIE, others=half)


def _nan() -> Iterator[Entry]:
    for dataset, read in product(("digits", "wisdm"), ("tacc_shared", "tacc_personal")):
        reading = read.removeprefix("tacc_")
        yield Entry(dataset, dataset, reading, setups.fedavg("mean"), "ipm", read, panel=NAN)


def _picked() -> Iterator[Entry]:
    for attack in ("sign-flipping", "lie", "min-max", "ipm"):
        yield Entry("digits", attack, ONE, {"name": "fedcap"}, attack, panel=PICKED)
        for alpha, phi, lambda_ in PICKS:
            method = {"name": "fedcap", "alpha": alpha, "phi": phi, "lambda_": lambda_}
            yield Entry("digits", attack, f"{alpha:g}, {phi:g}, {lambda_:g}", method, attack, panel=PICKED)


def _told() -> Iterator[Entry]:
    shares = {"half as many": 0.1, "as many as there are": 0.2, "twice as many": 0.4}
    rules = ("multi-krum", "trimmed-mean", "gas(median)")
    for rule, attack, (column, share) in product(rules, ("sign-flipping", "min-max", "ipm"), shares.items()):
        yield Entry(
            "digits",
            f"{rule}, {attack}",
            column,
            setups.fedavg(rule),
            attack,
            "tacc_shared",
            panel=TOLD,
            others={"malicious": 0.2, "assumed": share},
        )


def _limit() -> Iterator[Entry]:
    reads = {
        "accuracy, %": "tacc",
        "honest removed, %": "fpr",
        "attackers not removed, %": "fnr",
        "mean round of removal": "rounds_to_removal",
    }
    for limit, (column, read) in product((1, 2, 4, 6, 10, 20), reads.items()):
        method = {"name": "fedcap", "t_norm": limit}
        yield Entry("digits", f"{limit:g}", column, method, "min-max", read, panel=LIMIT)


def _claims() -> Iterator[Entry]:
    for row, claim in (("true", {}), ("a billion each", {"claim": 10**9})):
        attack = {"name": "sign-flipping", **claim}
        yield Entry(
            "digits",
            row,
            "accuracy of FedAvg's shared model",
            setups.fedavg("mean"),
            "sign-flipping",
            "tacc_shared",
            panel=CLAIMS,
            others={"attack": attack},
        )


def _trust() -> Iterator[Entry]:
    for row, method in (("FedAvg", setups.fedavg("mean")), ("FLTrust", {"name": "fltrust"})):
        yield Entry("digits", row, "accuracy", method, ATTACKS[1], "tacc_personal", panel=TRUST)


def _windows() -> Iterator[Entry]:
    """The copy of WISDM at hand changes activity only at multiples of 200 readings: 199 cut across."""
    attack = "min-max"
    method = setups.fedcap("wisdm", attack)
    across = {"dataset": {"name": "wisdm", "window": 199}, "rounds": 25}
    yield Entry("wisdm", attack, "of one activity", method, attack, "tacc_after_25", panel=WINDOWS)
    yield Entry("wisdm", attack, "across changes", method, attack, panel=WINDOWS, others=across)
