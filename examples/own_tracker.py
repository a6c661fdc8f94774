"""An example of a tracker: fedcap run --track own_tracker:Beacon, in the directory of this file."""

import sys
from dataclasses import dataclass

from fedcap.trackers import Tracker


@dataclass
class Beacon(Tracker):
    """Print each round's accuracy; `start` and `end` may be overridden too."""

    def log(self, record):
        """Print a line for a round that was evaluated."""
        if record.accuracy is not None:
            print(f"round {record.round}: {record.accuracy.best:.1f} %", file=sys.stderr)
