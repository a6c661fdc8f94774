"""What crews have in common whose jobs are done in other processes, here or elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from fedcap.state import Tensors
from fedcap.training.bench import Bench, Job
from fedcap.training.client import LocalData
from fedcap.training.crew.base import Crew, Outcome
from fedcap.training.crew.carrying import portable
from fedcap.training.crew.solo import SoloCrew

DEATHS_FORGIVEN = 2
"""A job that has killed more workers than this is given up."""


class RemoteCrew(Crew):
    """Sends the bench to its workers; with one that cannot go there, does the jobs in this process."""

    def __init__(self) -> None:
        self._alone: SoloCrew | None = None
        """Does the jobs of a bench that cannot go to the workers."""

    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Get the workers ready for these clients, never more workers than clients."""
        self._alone = None
        carried = portable(bench)
        if carried is None:
            self._alone = SoloCrew()
            self._alone.open(bench, data)
        else:
            self._send(carried, bench.size, data)

    def run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs, each on the next worker that is free; if one fails, stop all workers."""
        if self._alone is not None:
            return self._alone.run(jobs, models, keeps)
        try:
            return self._run(jobs, models, keeps)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _send(self, bench: bytes, size: int, data: Mapping[str, LocalData]) -> None:
        """Send the workers a bench, whose models have so many weights, and the clients' samples."""

    @abstractmethod
    def _run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs on the workers."""
