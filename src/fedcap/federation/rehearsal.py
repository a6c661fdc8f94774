"""A federation on this machine, with everything real but the distance: keys, certificates, processes, TLS.

The operator and each site have their own directory and their own processes, as they would have elsewhere.
Some sites are hostile: they train as honest ones do, and send the opposite of what they learnt, many times as
long. That is inner product manipulation (IPM) by attackers who take their own update for the others' mean.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, RunError, plural
from fedcap.federation.config import INVITATION, Federation, Invitation, Operator, SiteDirectory
from fedcap.federation.flower.nginx import find_nginx
from fedcap.federation.flower.process import Program, free_port
from fedcap.federation.keys import JoinRequest
from fedcap.federation.messages import Answer, Order
from fedcap.federation.plan import Plan
from fedcap.federation.setup import set_up_operator, set_up_site
from fedcap.federation.site import Site
from fedcap.federation.site_process import run_site
from fedcap.federation.status import clients_table, is_finished
from fedcap.report.tables import Table

TIMES = 10
"""How many times as long as its own is the update that a hostile site sends."""
ENDS = 30.0
"""Seconds that a process may take to end what it started, and itself."""

Say = Callable[[str], None]


class Hostile(Site):
    """A site that sends the opposite of what it learnt."""

    def answer(self, order: Order) -> Answer:
        """Do what is asked, and turn it round."""
        answer = super().answer(order)
        return answer if answer.update is None else replace(answer, update=-TIMES * answer.update)


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal came to."""

    folder: Path
    table: Table
    finished: bool
    """Whether all rounds were played."""
    hostile: Sequence[str]
    """The names of the hostile sites."""
    removed: Sequence[str]
    """The names of the sites that were removed."""

    @property
    def well(self) -> bool:
        """Whether it came to what it should: all rounds played, the hostile out, and nobody else."""
        return self.finished and sorted(self.removed) == sorted(self.hostile)


def rehearse(
    folder: Path, plan: Plan, data: Sequence[Mapping[str, Any]], hostile: int, seconds: float, say: Say
) -> Rehearsal:
    """Play a plan with a site for each of `data`, which are contents of site.toml; the last are hostile."""
    operator, sites = _set_up(folder, plan, data, say)
    names = [site.config.name for site in sites]
    enemies = names[len(names) - hostile :]
    with ExitStack() as stack:
        server = _start("serve", operator.directory, *([] if find_nginx() else ["--own-nginx"]))
        stack.callback(server.stop, ENDS)
        say("the server is starting")
        children = [server]
        for name, site in zip(names, sites, strict=True):
            children.append(_start("hostile" if name in enemies else "site", site.directory))
            stack.callback(children[-1].stop, ENDS)
        say(f"{plural(len(sites), 'site')} start; hostile: {', '.join(enemies) or 'none'}")
        finished = _watch(operator, server, time.monotonic() + seconds, say)
        say("stopping every process")
        for child in children:
            child.signal(signal.SIGTERM)  # all at once, and then wait for each
    removed = [entry.name for entry in operator.ledger.entries().values() if entry.state == "removed"]
    return Rehearsal(folder, clients_table(operator), finished, enemies, removed)


def _set_up(
    folder: Path, plan: Plan, data: Sequence[Mapping[str, Any]], say: Say
) -> tuple[Operator, list[SiteDirectory]]:
    """Make the operator's directory and the sites', and take every site in."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not empty: remove it, or give another folder")
    link = free_port()
    federation = Federation(host="127.0.0.1", port=free_port() if find_nginx() else link, link_port=link)
    operator = Operator(folder / "operator")
    fingerprint = set_up_operator(operator.directory, federation, plan)
    way = "through nginx" if find_nginx() else "directly: nginx is not installed"
    say(f"operator: certificates, plan and invitation; TLS at {federation.address}, {way}")
    invitation = Invitation.read(operator.directory / INVITATION)
    sites = []
    for content in data:
        made = set_up_site(folder / "sites" / str(content["name"]), invitation, content)
        made.site.agree(invitation.plan)
        asked = JoinRequest.read(made.request)
        assert (made.server, asked.client) == (fingerprint, made.client)
        operator.ledger.approve(operator.ledger.ask(asked.client, asked.name, asked.key).client)
        sites.append(made.site)
        say(f"{content['name']}: key {made.client}, agreed to the plan, approved")
    return operator, sites


def _start(role: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", "fedcap", "federate", role, str(directory), *flags]
    if role == "hostile":
        command = [sys.executable, "-m", "fedcap.federation.rehearsal", str(directory)]
    return Program(command, os.environ, directory / "logs" / "command.log")


def _watch(operator: Operator, server: Program, until: float, say: Say) -> bool:
    """Tell what the server says until the last round is done; return whether it came to that."""
    told = 0
    while True:
        done = is_finished(operator)
        if done:
            time.sleep(1)  # for what the server has to say of the last round
        lines = server.output().split("\n")[:-1]
        for line in lines[told:]:
            say(line.partition("  ")[2] or line)
        told = len(lines)
        if done:
            return True
        if not server.is_running:
            raise RunError(f"the server ended early; see {server.log}")
        if time.monotonic() > until:
            say("out of time")
            return False
        time.sleep(0.2)


def main() -> None:
    """Run a hostile site."""
    stop = threading.Event()
    run_site(SiteDirectory.open(sys.argv[1]), lambda line: print(line, flush=True), stop, Hostile)


if __name__ == "__main__":
    main()
