"""The figures that the paper prints: Tables I to V of FedCAP (ACSAC 2024).

Accuracies and rates are in percent. Data sets and attacks have the names that they have in fedcap, columns
those of the paper. None stands for a dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Figures = Mapping[tuple[str, str], Sequence[float | None]]
"""(data set, attack) → a figure for each column."""

TABLE_1_COLUMNS = ("Mean", "M-Krum", "Median", "RFA", "Trim.", "ClusteredFL", "FLTrust", "FedCAP")
TABLE_1: Figures = {
    ("cifar10", "sign-flipping"): (10.95, 80.57, 78.86, 78.57, 74.38, 79.71, 82.19, 84.00),
    ("cifar10", "model-replacement"): (10.19, 82.38, 82.38, 82.38, 81.24, 17.24, 20.67, 84.10),
    ("cifar10", "lie"): (80.86, 79.90, 77.24, 78.00, 80.19, 82.57, 72.10, 84.95),
    ("cifar10", "min-max"): (77.24, 52.00, 69.81, 74.76, 72.61, 78.95, 81.05, 84.00),
    ("cifar10", "min-sum"): (78.48, 67.43, 66.86, 73.71, 72.29, 78.86, 80.19, 84.38),
    ("cifar10", "ipm"): (10.95, 82.38, 75.05, 36.48, 10.95, 42.00, 81.14, 84.29),
    ("emnist", "sign-flipping"): (78.15, 81.80, 79.55, 80.27, 79.66, 80.04, 84.05, 85.24),
    ("emnist", "model-replacement"): (12.56, 83.64, 84.30, 84.97, 4.47, 2.96, 3.01, 85.82),
    ("emnist", "lie"): (2.87, 2.87, 2.87, 2.87, 2.87, 2.87, 2.87, 85.16),
    ("emnist", "min-max"): (76.86, 71.08, 70.31, 71.55, 69.59, 81.28, 83.01, 85.39),
    ("emnist", "min-sum"): (78.76, 71.68, 71.06, 71.80, 72.02, 81.61, 83.37, 85.58),
    ("emnist", "ipm"): (2.87, 2.06, 65.88, 19.06, 2.87, 83.72, 84.13, 85.43),
    ("wisdm", "sign-flipping"): (37.36, 90.23, 92.25, 91.04, 89.53, 89.02, 93.35, 94.16),
    ("wisdm", "model-replacement"): (37.36, 93.45, 93.66, 93.15, 91.74, 37.36, 37.36, 95.07),
    ("wisdm", "lie"): (94.36, 94.56, 92.75, 92.55, 93.76, 94.36, 37.36, 94.56),
    ("wisdm", "min-max"): (90.13, 92.35, 91.44, 92.65, 82.78, 91.84, 91.54, 94.06),
    ("wisdm", "min-sum"): (90.23, 93.45, 91.34, 92.75, 83.69, 93.35, 92.15, 94.26),
    ("wisdm", "ipm"): (37.36, 93.35, 81.67, 82.38, 37.36, 37.36, 93.25, 94.06),
}
"""Robust methods; accuracy of the locally updated models."""

TABLE_2_COLUMNS = (
    "Bucketing(M-Krum)",
    "GAS(M-Krum)",
    "Bucketing(Median)",
    "GAS(Median)",
    "Bucketing(RFA)",
    "GAS(RFA)",
    "FedCAP",
)
TABLE_2: Figures = {
    ("cifar10", "lie"): (80.57, 80.86, 79.43, 80.00, 80.38, 80.19, 84.95),
    ("cifar10", "ipm"): (10.95, 82.38, 10.95, 82.76, 10.95, 82.76, 84.29),
    ("emnist", "lie"): (25.01, 2.87, 27.31, 2.87, 30.28, 2.87, 85.16),
    ("emnist", "ipm"): (10.60, 3.96, 10.60, 4.02, 10.60, 2.87, 85.43),
    ("wisdm", "lie"): (93.57, 94.71, 93.19, 94.14, 94.26, 94.86, 94.56),
    ("wisdm", "ipm"): (38.94, 91.49, 38.94, 92.06, 37.36, 93.55, 94.06),
}
"""Rules with Bucketing and with GAS."""

TABLE_3_COLUMNS = ("TAcc", "DAcc", "FPR", "FNR")
TABLE_3: Figures = {
    ("cifar10", "none"): (85.60, None, None, None),
    ("cifar10", "sign-flipping"): (84.00, 100, 0, 0),
    ("cifar10", "model-replacement"): (84.10, 100, 0, 0),
    ("cifar10", "lie"): (84.95, 70, 0, 100),
    ("cifar10", "min-max"): (84.00, 100, 0, 0),
    ("cifar10", "min-sum"): (84.38, 100, 0, 0),
    ("cifar10", "ipm"): (84.29, 100, 0, 0),
    ("emnist", "none"): (86.59, None, None, None),
    ("emnist", "sign-flipping"): (85.24, 80, 0, 20),
    ("emnist", "model-replacement"): (85.82, 100, 0, 0),
    ("emnist", "lie"): (85.16, 81, 0, 63.33),
    ("emnist", "min-max"): (85.39, 93, 0, 23.33),
    ("emnist", "min-sum"): (85.58, 96, 0, 13.33),
    ("emnist", "ipm"): (85.43, 98, 0, 6.67),
    ("wisdm", "none"): (93.78, None, None, None),
    ("wisdm", "sign-flipping"): (94.16, 100, 0, 0),
    ("wisdm", "model-replacement"): (95.07, 100, 0, 0),
    ("wisdm", "lie"): (94.56, 72.22, 0, 100),
    ("wisdm", "min-max"): (94.06, 100, 0, 0),
    ("wisdm", "min-sum"): (94.26, 100, 0, 0),
    ("wisdm", "ipm"): (94.06, 100, 0, 0),
}
"""FedCAP: accuracy and detection."""

TABLE_4_COLUMNS = ("none", "lie", "min-max", "min-sum", "ipm")
TABLE_4: Mapping[str, Sequence[float]] = {
    "customised": (83.53, 78.67, 48.76, 56.29, 83.14),
    "personal": (82.73, 82.10, 79.33, 79.33, 10.95),
    "customised + calibrated": (85.07, 84.29, 83.52, 83.81, 83.71),
    "customised + personal": (83.60, 80.10, 69.81, 70.95, 83.14),
    "FedCAP": (85.60, 84.95, 84.00, 84.38, 84.29),
}
"""Parts of FedCAP on CIFAR-10, under each attack."""

TABLE_5_COLUMNS = ("R2Acc", "clients, min", "server, s", "MB a round")
TABLE_5: Mapping[str, Sequence[float]] = {
    "FedAvg-FT": (52, 3.2, 0.2, 12),
    "FedRoD": (34, 4.0, 0.2, 12),
    "FedFomo": (11, 2.6, 0.9, 120),
    "Ditto": (44, 6.2, 0.2, 12),
    "FedCAP": (9, 6.2, 2.6, 12),
}
"""The round that reaches 80 % on CIFAR-10 without attack, seconds and megabytes."""

NAN_SCORES: Mapping[str, float] = {"cifar10": 10.95, "emnist": 2.87, "wisdm": 37.36}
"""The accuracy of a model of NaNs in the paper's tables, by data set."""

CLIENTS: Mapping[str, tuple[int, int]] = {"cifar10": (20, 6), "emnist": (100, 30), "wisdm": (36, 10)}
"""The number of clients, and of malicious ones among them."""
