"""What a run leaves behind and how it is read: settings, provenance, rounds, result, tables.

Nothing here needs torch. Clients are named by strings.
"""

from fedcap.records.attackers import absent_attack, always_refused, refusals
from fedcap.records.checks import checked_provenance, checked_result
from fedcap.records.checksum import checksum
from fedcap.records.directory import (
    CHECKPOINT,
    CONFIG,
    PROVENANCE,
    RESULT,
    ROUNDS,
    BusyError,
    NewDirectory,
    RunDirectory,
)
from fedcap.records.mass_removal import mass_removal, nobody_left
from fedcap.records.metrics import Measures, Metrics
from fedcap.records.mixing import MIXING, Mixing
from fedcap.records.outcome import ClientOutcome, Curve, Norms, Outcome, percentile, settings_key
from fedcap.records.provenance import Provenance, Shorter
from fedcap.records.result import ClientResult, Removal, Result, removals, summarise
from fedcap.records.rounds import (
    Accuracy,
    ClientAccuracy,
    Reading,
    Realised,
    Reason,
    RoundRecord,
    Seconds,
    Tallies,
    Tally,
    finite,
    recorded,
)
from fedcap.records.run import Run, read
from fedcap.records.settings import FREE_TO_CHANGE, Named, Settings, digest, flattened, overlay
from fedcap.records.tables import Table, clients_table, markdown, summary_table
from fedcap.records.toml import read_toml, to_toml

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "FREE_TO_CHANGE",
    "MIXING",
    "PROVENANCE",
    "RESULT",
    "ROUNDS",
    "Accuracy",
    "BusyError",
    "ClientAccuracy",
    "ClientOutcome",
    "ClientResult",
    "Curve",
    "Measures",
    "Metrics",
    "Mixing",
    "Named",
    "NewDirectory",
    "Norms",
    "Outcome",
    "Provenance",
    "Reading",
    "Realised",
    "Reason",
    "Removal",
    "Result",
    "RoundRecord",
    "Run",
    "RunDirectory",
    "Seconds",
    "Settings",
    "Shorter",
    "Table",
    "Tallies",
    "Tally",
    "absent_attack",
    "always_refused",
    "checked_provenance",
    "checked_result",
    "checksum",
    "clients_table",
    "digest",
    "finite",
    "flattened",
    "markdown",
    "mass_removal",
    "nobody_left",
    "overlay",
    "percentile",
    "read",
    "read_toml",
    "recorded",
    "refusals",
    "removals",
    "settings_key",
    "summarise",
    "summary_table",
    "to_toml",
]
