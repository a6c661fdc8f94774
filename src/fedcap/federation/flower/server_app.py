"""What Flower runs at the operator: our conductor, over Flower's Grid.

It plays the rounds that are left, and stays for newcomers who wish for a model. All that counts is on disk:
killed at any instant and started again, it goes on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcap.errors import InputError, plural
from fedcap.federation.building import Built
from fedcap.federation.conductor import Conductor
from fedcap.federation.flower.link import OPERATOR
from fedcap.federation.flower.sealing import Seal
from fedcap.federation.flower.serving import LOG, locked
from fedcap.federation.flower.transport import FlowerTransport
from fedcap.federation.following import followed
from fedcap.federation.operator import Operator
from fedcap.federation.site_data import load_root
from fedcap.runs import RoundRecord
from fedcap.trackers import make_trackers

BETWEEN = 10.0
"""Seconds between two questions to newcomers."""
app = ServerApp()
log = logging.getLogger("fedcap")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the federation of the operator's directory."""
    operator = Operator.open(os.environ[OPERATOR])
    with locked(operator.directory), logged(operator.logs / LOG):
        try:
            conduct(operator, grid)
        except Exception as error:
            log.error("the server app ends: %s", error, exc_info=not isinstance(error, InputError))
            raise


def conduct(operator: Operator, grid: Grid) -> None:
    """Play the rounds that are left, then serve newcomers until the process is ended."""
    plan, root = operator.plan, operator.federation.root
    transport = FlowerTransport(grid, plan.most_bytes, Seal(operator.key, operator.certificate))
    samples = None if root is None else load_root(dict(root), Built.of(plan).method.root_samples, plan)
    with Conductor(plan, operator.run, operator.ledger, transport, samples) as conductor:
        if conductor.history:
            log.info("going on after round %s", len(conductor.history))
        told = len(conductor.history)

        def tell(conductor: Conductor) -> None:
            nonlocal told
            for record in conductor.history[told:]:
                log.info(line(record, operator.ledger.names()))
            told = len(conductor.history)
            follow(conductor)

        with followed(conductor, operator.run, make_trackers(operator.federation.track or ())) as follow:
            conductor.run(tell)
        log.info("all %s are done; newcomers may ask for a model", plural(plan.rounds, "round"))
        while True:
            conductor.welcome()
            time.sleep(BETWEEN)


def line(record: RoundRecord, names: Mapping[str, str]) -> str:
    """Return what a person wants to know of a round; `names` are what clients are called."""
    parts = [f"round {record.round}: {plural(len(record.participants), 'site')}"]
    if record.accuracy is not None:
        parts.append(f"accuracy {record.accuracy.best:.1f} %")
    parts += [f"{names.get(client, client)} refused: {why}" for client, why in record.refused.items()]
    parts += [f"{names.get(client, client)} removed: {reason}" for client, reason in record.removed.items()]
    return ", ".join([*parts, f"{record.seconds.total:.1f} s"])


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Append what is logged to a file, a line each time that something else is said."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.addFilter(Once())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


class Once(logging.Filter):
    """Lets no line through that is the same as the one before."""

    last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is a new one."""
        before, self.last = self.last, record.getMessage()
        return before != self.last
