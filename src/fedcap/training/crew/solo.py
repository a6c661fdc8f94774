"""A crew of one: does the jobs in this process, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fedcap.state import Tensors
from fedcap.training.bench import Bench, Job
from fedcap.training.client import LocalData
from fedcap.training.crew.base import Crew, Outcome, WorkerError, explain, single_thread
from fedcap.training.crew.packing import Packing
from fedcap.training.network import PROCESS_WIDE


class SoloCrew(Crew):
    """Does the jobs in this process, in order."""

    _bench: Bench | None = None
    _data: Mapping[str, LocalData]

    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Take a bench and its clients."""
        self._bench, self._data = bench, data

    def run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs in order."""
        if self._bench is None:
            raise WorkerError("the crew has no bench: open it first")
        packing = Packing.of(keeps)
        updates = models.new_empty(len(jobs), self._bench.size)
        kept_rows = models.new_empty(len(jobs), packing.size)
        performed = []
        with PROCESS_WIDE, single_thread():
            for job, kept, update, kept_row in zip(jobs, keeps, updates, kept_rows, strict=True):
                try:
                    received = models[list(job.rows)]
                    work = self._bench.perform(job, self._data[job.client], received, kept)
                except Exception as error:
                    raise WorkerError(f"client {job.client}: {explain(error)}") from error
                packing.store(work, update, kept_row)
                performed.append(work.performed)
        return Outcome(updates, packing.keeps(jobs, keeps, kept_rows), performed)
