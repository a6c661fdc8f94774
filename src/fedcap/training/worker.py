"""A worker process: takes orders from its pipe, does them with one thread, and ends with the pipe."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from fedcap.training.bench import Bench, Performed
from fedcap.training.messages import Buffers, Failure, Opening, Order, explain


def main(descriptor: int) -> None:
    """Serve the pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    pipe = Connection(descriptor)
    bench: Bench | None = None
    tensors: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    broken = ""
    while True:
        try:
            message = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if isinstance(message, Opening):
            sys.path[:] = message.path
            try:
                bench, broken = _open(message), ""
            except Exception as error:
                hint = "what a script defines itself must be in a module of its own, or --workers 1"
                bench, broken = None, f"a worker cannot load the experiment ({error}): {hint}"
        elif isinstance(message, Buffers):
            tensors = None
            with suppress(OSError, RuntimeError):  # gone already: newer ones are on their way
                tensors = message.open()
        elif bench is None or tensors is None:
            pipe.send(Failure(broken or "the worker was given a job before its bench"))
        else:
            pipe.send(_perform(bench, message, tensors))


def _open(message: Opening) -> Bench:
    bench: Bench = pickle.loads(message.bench)
    return replace(bench, train=message.train.unpack(), test=message.test.unpack())


def _perform(
    bench: Bench, order: Order, tensors: tuple[Tensor, Tensor, Tensor, Tensor]
) -> Performed | Failure:
    models, personal, updates, kept = tensors
    row = order.row
    updates[row], kept[row] = 0, 0
    try:
        return bench.perform(order.job, models, personal[row], updates[row], kept[row])
    except Exception as error:
        return Failure(explain(error), traceback.format_exc())


if __name__ == "__main__":
    main(int(sys.argv[1]))
