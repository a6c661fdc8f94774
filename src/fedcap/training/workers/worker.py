"""A worker process: takes orders from its pipe, does them on one thread, and ends when the pipe is closed.

It is started with Ctrl-C (SIGINT) blocked: the parent handles that, and then closes the pipe.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from fedcap.training.task import Bench, LocalData, Performed
from fedcap.training.workers.base import explain
from fedcap.training.workers.shared_memory import Buffers, Failure, Matrices, Opening, Order


class Desk:
    """What a worker has been given so far: a bench, the clients' samples, and the matrices."""

    def __init__(self) -> None:
        self._bench: Bench | None = None
        self._data: dict[str, LocalData] = {}
        self._matrices: Matrices | None = None
        self._broken = ""

    def open(self, message: Opening) -> None:
        """Load the bench and map the samples; if that fails, say why at the first job."""
        sys.path[:] = message.path
        self._bench, self._broken = None, ""
        try:
            self._data = message.data()
            self._bench = pickle.loads(message.bench)
        except Exception as error:
            hint = "move what the script defines into a separate module, or use one worker"
            self._broken = f"a worker cannot load the experiment ({error}): {hint}"

    def take(self, message: Buffers) -> None:
        """Map the matrices; if their memory is freed already, a message with newer ones follows."""
        self._matrices = None
        with suppress(OSError, RuntimeError):
            self._matrices = message.open()

    def perform(self, order: Order) -> Performed | Failure:
        """Do one job, and leave what it made in its rows."""
        if self._bench is None or self._matrices is None:
            return Failure(self._broken or "the worker was given a job before its bench")
        models, before, updates, after = self._matrices
        job, row, packing = order.job, order.row, order.packing
        try:
            received = models[list(job.rows)]
            kept = packing.unpack(before[row])
            work = self._bench.perform(job, self._data[job.client], received, kept)
            packing.store(work, updates[row], after[row])
        except Exception as error:
            return Failure(explain(error), traceback.format_exc())
        return work.performed


def main(descriptor: int) -> None:
    """Serve the pipe until its other end is closed."""
    torch.set_num_threads(1)
    pipe = Connection(descriptor)
    desk = Desk()
    with suppress(EOFError, ConnectionError):
        while True:
            message = pipe.recv()
            if isinstance(message, Opening):
                desk.open(message)
            elif isinstance(message, Buffers):
                desk.take(message)
            else:
                pipe.send(desk.perform(message))


if __name__ == "__main__":
    main(int(sys.argv[1]))
