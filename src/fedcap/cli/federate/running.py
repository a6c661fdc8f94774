"""`fedcap federate server`, `site` and `customise`: the two roles at work."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fedcap.cli.federate.app import OperatorDirectory, SiteFolder
from fedcap.cli.output import AsJson, print_json
from fedcap.errors import InputError, plural

WISH_SECONDS = 600.0


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def teller(as_json: bool) -> Callable[[str], None]:
    """Return what prints a line with its time, or an object of JSON per line."""

    def say(line: str) -> None:
        if as_json:
            line = json.dumps(
                {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "said": line}, ensure_ascii=False
            )
        else:
            line = f"{time.strftime('%H:%M:%S')}  {line}"
        print(line, flush=True)

    return say


def server(
    directory: OperatorDirectory,
    until_finished: Annotated[
        bool, typer.Option("--until-finished", help="End after the last round; else stay, for newcomers.")
    ] = False,
    own_nginx: Annotated[
        bool, typer.Option("--own-nginx", help="Start no nginx: you run your own, with nginx.conf.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the federation's server, from where it stood; started again after a crash, it goes on.

    It prints what happens, with --json a line of JSON each. Ctrl-C or SIGTERM stops it, and nothing that was
    confirmed is lost.
    """
    from fedcap.federation.config import Operator
    from fedcap.federation.flower.server import run_server

    operator, say = Operator.open(directory), teller(as_json)
    with until_stopped() as stop:
        run_server(operator, say, stop, own_nginx, until_finished)
        say("stopped" if stop.is_set() else "finished")


def site(directory: SiteFolder, as_json: AsJson = False) -> None:
    """Take part, with this site's data and under its policy; the site waits for the server, and says so.

    It prints what happens, with --json a line of JSON each. Ctrl-C or SIGTERM stops it.
    """
    from fedcap.federation.config import SiteDirectory
    from fedcap.federation.flower.node import run_site

    opened, say = SiteDirectory.open(directory), teller(as_json)
    log = logging.getLogger("fedcap")
    log.addHandler(logging.StreamHandler(sys.stderr))
    with until_stopped() as stop:
        run_site(opened, say, stop)
        say("stopped")


def customise(
    directory: SiteFolder,
    seconds: Annotated[float, typer.Option(help="How long to wait for it.")] = WISH_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Ask the server for a model made for this site, without taking part in rounds.

    The site must be running, and trains once, from the global model. The plan bounds how many such
    models a site may have: each tells it something about the sites most like it.
    """
    from fedcap.federation.config import SiteDirectory, is_held

    opened = SiteDirectory.open(directory)
    if not is_held(directory):
        raise InputError(f"start the site first: fedcap federate site {directory}")
    told = sum(event.event == "customised" for event in opened.audit.events())
    most = sum(plan.customised for plan in opened.plans().values())
    if told >= most:
        raise InputError(f"this site was given {plural(told, 'model')} already, and its plan has no more")
    opened.wish.touch()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            came = [event for event in opened.audit.events() if event.event == "customised"]
            if len(came) > told:
                break
            time.sleep(0.5)
        else:
            raise InputError(
                f"no model came within {seconds:g} s: is the site connected, and was a round played?"
                " Sites that take part in rounds are given none besides"
            )
    finally:
        opened.wish.unlink(missing_ok=True)
    if as_json:
        print_json({"directory": str(directory), "round": came[-1].round})
    else:
        typer.echo(
            f"a model made for this site after round {came[-1].round}: fedcap predict {directory} INPUT.npz"
        )
