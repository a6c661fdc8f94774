"""TensorBoard: an event file that `tensorboard --logdir runs` shows, many runs beside each other.

A resumed run writes the points of its earlier rounds anew, and TensorBoard drops those of before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcap.runs import Result, RoundRecord, to_toml
from fedcap.trackers.base import Tracked, Tracker, figures, needs, registry


@registry.register("tensorboard")
@dataclass
class TensorBoard(Tracker):
    """Points per round for TensorBoard: accuracies, who was removed, limits, seconds, bytes."""

    folder: str = ""
    """Where the runs' event files are, each in a folder with the run's name; if empty, in the run's own."""
    clients: bool = False
    """Whether each client's accuracies and scores have charts too."""
    _writer: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        needs("tensorboard", "tensorboard")

    def start(self, run: Tracked) -> None:
        """Write the points of the rounds that were played before; no others count from now on."""
        from torch.utils.tensorboard import SummaryWriter

        where = Path(self.folder) / run.name if self.folder else run.folder("tensorboard") / "tensorboard"
        self._writer = SummaryWriter(str(where), purge_step=0)  # older files stay; their points are void
        self._writer.add_text("settings", "\n".join(f"    {line}" for line in _lines(run)))
        for record in run.history:
            self._add(record)
        self._writer.flush()

    def log(self, record: RoundRecord) -> None:
        """Write the round's points, to be seen at once."""
        self._add(record)
        self._writer.flush()

    def end(self, result: Result | None) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, record: RoundRecord) -> None:
        for name, value in figures(record, self.clients).items():
            self._writer.add_scalar(name, value, record.round)


def _lines(run: Tracked) -> list[str]:
    return to_toml(run.settings).splitlines()
