"""The directory of a run and its files: settings, provenance, rounds, mixing weights, result, outcome.

Nothing in this package needs torch, except `checkpoint`, which is imported by its own name. Clients are
identified by their names.
"""

from fedcap.runs.directory import (
    CHECKPOINT,
    CONFIG,
    PROVENANCE,
    RESULT,
    ROUNDS,
    BusyError,
    NewDirectory,
    RunDirectory,
    checked_provenance,
    checked_result,
)
from fedcap.runs.findings import absent_attack, always_refused, mass_removal, refusals, still_rising
from fedcap.runs.history import History
from fedcap.runs.mixing import MIXING, Mixing
from fedcap.runs.outcome import (
    Curve,
    Evidence,
    Norms,
    Outcome,
    Place,
    percentile,
    settings_key,
)
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import (
    ClientResult,
    Measures,
    Metrics,
    Removal,
    Result,
    recorded_clients,
    removals,
    summarise,
)
from fedcap.runs.rounds import (
    Accuracy,
    AttackStats,
    ClassCounts,
    ClassCountsRecord,
    ClientAccuracy,
    Reason,
    RoundRecord,
    Seconds,
    finite,
    outcome_fields,
)
from fedcap.runs.run import Run, read
from fedcap.runs.settings import (
    FREE_TO_CHANGE,
    Named,
    Settings,
    digest,
    flattened,
    overlay,
    read_toml,
    to_toml,
)

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "FREE_TO_CHANGE",
    "MIXING",
    "PROVENANCE",
    "RESULT",
    "ROUNDS",
    "Accuracy",
    "AttackStats",
    "BusyError",
    "ClassCounts",
    "ClassCountsRecord",
    "ClientAccuracy",
    "ClientResult",
    "Curve",
    "Evidence",
    "History",
    "Measures",
    "Metrics",
    "Mixing",
    "Named",
    "NewDirectory",
    "Norms",
    "Outcome",
    "Place",
    "Provenance",
    "Reason",
    "Removal",
    "Result",
    "RoundRecord",
    "Run",
    "RunDirectory",
    "Seconds",
    "Settings",
    "absent_attack",
    "always_refused",
    "checked_provenance",
    "checked_result",
    "digest",
    "finite",
    "flattened",
    "mass_removal",
    "outcome_fields",
    "overlay",
    "percentile",
    "read",
    "read_toml",
    "recorded_clients",
    "refusals",
    "removals",
    "settings_key",
    "still_rising",
    "summarise",
    "to_toml",
]
