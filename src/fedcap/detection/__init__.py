"""Who is suspicious, and who is removed: one file per detector, and the policies that judge over rounds.

The server *looks* at a round's uploads (`Look`), detectors *score* what it sees, and a policy decides who is
removed (`Judge`, `Verdict`). `fedcap.detectors` is another name for this room.
"""

from fedcap.detection.base import (
    Detector,
    Judge,
    Policy,
    Reason,
    Score,
    Verdict,
    as_policy,
    make_judge,
    policies,
    recall,
    registry,
    remember,
)
from fedcap.detection.view import Look

names = registry.names
make = registry.make

__all__ = [
    "Detector",
    "Judge",
    "Look",
    "Policy",
    "Reason",
    "Score",
    "Verdict",
    "as_policy",
    "make",
    "make_judge",
    "names",
    "policies",
    "recall",
    "registry",
    "remember",
]
