"""Small runs for REPRODUCING.md: each group shows one trap of a reproduction, on digits and some on WISDM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from reproduction import setups
from reproduction.cells import Item, PaperCell
from reproduction.setups import ATTACKS

LIE = "LIE as printed, and bounded"
NAN = "Models of NaNs"
PICKED = "FedCAP's options, picked for each attack"
ASSUMED = "The number of attackers that a rule assumes"
LIMIT = "The limit of FedCAP's norm test"
CLAIMS = "Claimed sample counts"
TRUST = "FLTrust under model replacement"
WINDOWS = "Windows of one activity"
ONE_ACTIVITY, ACROSS = "of one activity", "across changes"

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
    yield PaperCell("wisdm", attack, ONE_ACTIVITY, method, attack, "tacc_after_25", panel=WINDOWS)
    yield PaperCell("wisdm", attack, ACROSS, method, attack, panel=WINDOWS, others=across)
