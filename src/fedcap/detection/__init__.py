"""Detection of malicious clients: one file per detector and per policy.

`RoundView` is what the server sees of a round. Detectors score it, a policy decides over rounds which clients
are removed, and a `Defence` combines both into a `Verdict`. `fedcap.detectors` is the same package.
"""

import fedcap.detection.robust_norm  # noqa: F401 (lists of detectors begin with it, as they always did)
from fedcap.detection.base import (
    Accusation,
    Defence,
    Detector,
    Policy,
    Score,
    Verdict,
    as_policy,
    get_values,
    make_defence,
    policies,
    registry,
    set_values,
)
from fedcap.detection.view import Batch, RoundView

names = registry.names
make = registry.make

__all__ = [
    "Accusation",
    "Batch",
    "Defence",
    "Detector",
    "Policy",
    "RoundView",
    "Score",
    "Verdict",
    "as_policy",
    "get_values",
    "make",
    "make_defence",
    "names",
    "policies",
    "registry",
    "set_values",
]
