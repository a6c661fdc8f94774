"""A worker process: runs the tasks that come through its pipe, on one thread, until the pipe is closed.

It is started with Ctrl-C (SIGINT) blocked: the parent handles that, and then closes the pipe.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from fedcap.training.task import LocalData, TaskResult, TaskRunner
from fedcap.training.workers.base import WorkerError, task_error
from fedcap.training.workers.shared_memory import Assignment, Opening, SharedTensor


class Worker:
    """A runner, the samples of its clients, and the tensors of the last task."""

    def __init__(self) -> None:
        self._runner: TaskRunner | None = None
        self._data: Sequence[LocalData] | None = None
        self._mapped: dict[SharedTensor, Tensor] = {}
        self._error = WorkerError("the worker was given a task before its runner")

    def open(self, message: Opening) -> None:
        """Load the runner and map the samples; if that fails, the next task reports why."""
        sys.path[:] = message.path
        self._runner, self._mapped = None, {}
        try:
            self._data = message.data.open()
            self._runner = pickle.loads(message.runner)
        except Exception as error:
            hint = "move what the script defines into a separate module, or use one worker"
            self._error = WorkerError(f"a worker cannot load the experiment ({error}): {hint}")

    def run(self, message: Assignment) -> TaskResult | WorkerError:
        """Run a task: its update and its client's new state are left in shared memory."""
        task = message.task
        try:
            if self._runner is None or self._data is None:
                raise self._error
            self._map(message)
            received = self._mapped[message.received][: len(task.models)]
            before = {name: self._mapped[handle] for name, handle in message.before.items()}
            result = self._runner.run(task, self._data[task.row], received, before)
            if result.update is not None:
                message.updates.write_row(message.row, result.update)
            for name, tensor in (result.state or {}).items():
                self._mapped[message.after[name]].copy_(tensor)
        except Exception as error:
            failure = task_error(task, error)
            failure.add_note(traceback.format_exc())
            return failure
        return result.without_tensors()

    def _map(self, message: Assignment) -> None:
        """Map the tensors of a task; most of the time they are those of the task before."""
        handles = {message.received, *message.before.values(), *message.after.values()}
        if handles != self._mapped.keys():
            self._mapped = {handle: handle.open() for handle in handles}


def main(descriptor: int) -> None:
    """Answer the messages from the pipe until its other end is closed."""
    torch.set_num_threads(1)
    pipe = Connection(descriptor)
    worker = Worker()
    with suppress(EOFError, ConnectionError):
        while True:
            message = pipe.recv()
            if isinstance(message, Opening):
                worker.open(message)
            else:
                pipe.send(worker.run(message))


if __name__ == "__main__":
    main(int(sys.argv[1]))
