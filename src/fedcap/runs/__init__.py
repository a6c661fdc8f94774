"""What a run leaves behind and how it is read: settings, provenance, rounds, result, tables.

Nothing here needs torch. Clients are named by strings.
"""

from fedcap.runs.findings import absent_attack, always_refused, refusals
from fedcap.runs.directory import checked_provenance, checked_result
from fedcap.runs.directory import checksum
from fedcap.runs.directory import CHECKPOINT, CONFIG, PROVENANCE, RESULT, ROUNDS, BusyError, NewDirectory, RunDirectory
from fedcap.runs.findings import mass_removal, nobody_left
from fedcap.runs.result import Measures, Metrics
from fedcap.runs.mixing import MIXING, Mixing
from fedcap.runs.outcome import ClientOutcome, Curve, Evidence, Norms, Outcome, Place, percentile, settings_key
from fedcap.runs.provenance import Provenance, Shorter
from fedcap.runs.result import ClientResult, Removal, Result, removals, summarise
from fedcap.runs.rounds import Accuracy, ClientAccuracy, Reading, Realised, Reason, RoundRecord, Seconds, Tallies, Tally, finite, recorded
from fedcap.runs.run import Run, read
from fedcap.runs.settings import FREE_TO_CHANGE, Named, Settings, digest, flattened, overlay
from fedcap.runs.settings import read_toml, to_toml

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
    "Evidence",
    "Measures",
    "Metrics",
    "Mixing",
    "Named",
    "NewDirectory",
    "Norms",
    "Outcome",
    "Place",
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
    "Tallies",
    "Tally",
    "absent_attack",
    "always_refused",
    "checked_provenance",
    "checked_result",
    "checksum",
    "digest",
    "finite",
    "flattened",
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
    "to_toml",
]
