"""TensorBoard: an event file per run; `tensorboard --logdir runs` shows many runs next to each other.

A resumed run writes the points of its earlier rounds again, and TensorBoard drops the previous ones.
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
    """The folder for event files, with a subfolder per run; if empty, the run's directory."""
    clients: bool = False
    """Whether each client's accuracies and scores have charts as well."""
    _writer: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        needs("tensorboard", "tensorboard")

    def start(self, run: Tracked) -> None:
        """Write the points of the rounds that were played before; points of other rounds become invalid."""
        from torch.utils.tensorboard import SummaryWriter

        where = Path(self.folder) / run.name if self.folder else run.folder("tensorboard") / "tensorboard"
        self._writer = SummaryWriter(str(where), purge_step=0)  # older files stay; their points are ignored
        settings = to_toml(run.settings).splitlines()
        self._writer.add_text("settings", "\n".join(f"    {line}" for line in settings))
        for record in run.history:
            self._add(record)
        self._writer.flush()

    def log(self, record: RoundRecord) -> None:
        """Write the round's points, and flush them so that they are visible at once."""
        self._add(record)
        self._writer.flush()

    def end(self, result: Result | None) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, record: RoundRecord) -> None:
        for name, value in figures(record, self.clients).items():
            self._writer.add_scalar(name, value, record.round)
