"""How far a run's detectors ever went against each client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcap.records.rounds import RoundRecord


@dataclass(frozen=True)
class Peaks:
    """The largest value that a detector's score had for each client, in any round before it was removed."""

    benign: Sequence[float]
    malicious: Sequence[float]

    @classmethod
    def of(cls, history: Sequence[RoundRecord], malicious: frozenset[str]) -> dict[str, Peaks]:
        """Read the peaks off the rounds' records, by score; rounds without a number do not count."""
        found: dict[str, dict[str, float]] = {}
        for record in history:
            for name, values in record.scores.items():
                peaks = found.setdefault(name, {})
                for client, value in values.items():
                    if value is not None and math.isfinite(value):
                        peaks[client] = max(value, peaks.get(client, -math.inf))
        return {
            name: cls(
                [float(f"{peaks[k]:.4g}") for k in sorted(peaks) if k not in malicious],
                [float(f"{peaks[k]:.4g}") for k in sorted(peaks) if k in malicious],
            )
            for name, peaks in found.items()
        }
