"""The programs that Flower runs: the ServerApp at the operator, and the ClientApp for every message at a
site.

The ServerApp plays the rounds that are left and then stays for newcomers; everything that counts is on disk,
so a killed ServerApp continues when it is started again. The ClientApp checks the operator's seal, passes the
order to the site's process and returns its answer; it always answers, and it loads no torch. `python -m
fedcap.federation.flower.apps` is the site's `flwr-clientapp`, which runs no bundle that the site has not
agreed to.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcap.errors import InputError, plural
from fedcap.federation.config import Operator
from fedcap.federation.flower.compat import run_client_app
from fedcap.federation.flower.node import AUTHORITY, BUNDLES, CLIENT, SITE, ask
from fedcap.federation.flower.transport import FlowerTransport, Seal, check_seal, from_records, to_records
from fedcap.federation.messages import Answer, Malformed, Order
from fedcap.runs import RoundRecord
from fedcap.trackers import make_trackers

BETWEEN = 10.0
"""Seconds between two questions to newcomers."""
log = logging.getLogger("fedcap")
server = ServerApp()
client = ClientApp()


# --- The operator


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Play the federation of the operator's directory."""
    from fedcap.federation.flower.server import LOG, OPERATOR, locked

    operator = Operator.open(os.environ[OPERATOR])
    with locked(operator.directory), logged(operator.logs / LOG):
        try:
            conduct(operator, grid)
        except Exception as error:
            log.error("the server app ends: %s", error, exc_info=not isinstance(error, InputError))
            raise


def conduct(operator: Operator, grid: Grid) -> None:
    """Play the rounds that are left, then serve newcomers until the process is ended."""
    from fedcap.federation.build import Built
    from fedcap.federation.rounds import Conductor
    from fedcap.federation.run_files import tracked
    from fedcap.federation.site_data import load_root

    plan, root = operator.plan, operator.federation.root
    transport = FlowerTransport(grid, plan.most_bytes, Seal(operator.key, operator.certificate))
    samples = None if root is None else load_root(dict(root), Built.of(plan).method.root_samples, plan)
    with Conductor(plan, operator.run, operator.ledger, transport, samples) as conductor:
        if conductor.history:
            log.info("continuing after round %s", len(conductor.history))
        trackers = make_trackers(operator.federation.track or ())
        with tracked(plan, operator.run, conductor.history, trackers) as track:

            def report(record: RoundRecord | None) -> None:
                if record is not None:
                    log.info(round_line(record, operator.ledger.names()))
                    track(record)

            conductor.run(report)
        log.info("all %s are done; newcomers may ask for a model", plural(plan.rounds, "round"))
        while True:
            conductor.welcome()
            conductor.inform()
            time.sleep(BETWEEN)


def round_line(record: RoundRecord, names: Mapping[str, str]) -> str:
    """Return a round as a line of the log; `names` are the clients' names."""
    parts = [f"round {record.round}: {plural(len(record.participants), 'site')}"]
    if record.accuracy is not None:
        parts.append(f"accuracy {record.accuracy.best:.1f} %")
    parts += [f"{names.get(client, client)} refused: {why}" for client, why in record.refused.items()]
    parts += [f"{names.get(client, client)} removed: {reason}" for client, reason in record.removed.items()]
    return ", ".join([*parts, f"{record.seconds.total:.1f} s"])


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Append log messages to a file; a message that repeats the one before is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    last = ""

    def is_new(record: logging.LogRecord) -> bool:
        nonlocal last
        before, last = last, record.getMessage()
        return before != last

    handler = logging.FileHandler(path)
    handler.addFilter(is_new)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


# --- A site


@client.train()
def train(message: Message, context: Context) -> Message:
    """Answer a message."""
    return Message(to_records(answer(message.content, message.metadata.ttl)), reply_to=message)


def answer(content: Any, seconds: float) -> bytes:
    """Return the site's answer to an order, or its refusal."""
    nonce, number = "", 0
    try:
        blob, seal = from_records(content)
        order = Order.from_bytes(blob)
        nonce, number = order.nonce, order.round
        check_seal(blob, seal, os.environ[CLIENT], Path(os.environ[AUTHORITY]).read_bytes())
        return ask(Path(os.environ[SITE]), blob, seconds)
    except Exception as error:  # a node whose app raises stays deaf until it is restarted
        known = isinstance(error, Malformed)
        print(f"refused: {error if known else repr(error)}", flush=True)
        reason = str(error) if known else "something failed at this site: its log says what"
        return Answer(nonce, number, refused=reason).to_bytes()


def main() -> None:
    """Run Flower's ClientApp process for the bundles that the site has agreed to."""
    run_client_app(frozenset(filter(None, os.environ.get(BUNDLES, "").split(","))))


if __name__ == "__main__":
    main()
