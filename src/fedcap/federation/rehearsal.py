"""A rehearsal: a whole federation on this machine, with real keys, certificates, processes and TLS.

The operator and each site have their own directory and their own processes, as on separate machines. Some
sites are malicious: they train as honest sites do, and send the negative of their update, many times as long.
That is inner product manipulation (IPM) by attackers that use their own update in place of the others' mean.
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
from fedcap.federation.flower.node import run_site
from fedcap.federation.flower.process import Program, free_port
from fedcap.federation.keys import JoinRequest
from fedcap.federation.messages import Answer, Order
from fedcap.federation.plan import Plan
from fedcap.federation.setup import set_up_operator, set_up_site
from fedcap.federation.site import Site
from fedcap.federation.status import clients_table, is_finished
from fedcap.report.tables import Table

TIMES = 10
"""The length of the update that a malicious site sends, in lengths of its own update."""
ENDS = 30.0
"""Seconds that a process may take to end."""

Say = Callable[[str], None]


class MaliciousSite(Site):
    """A site that sends the negative of its update, many times as long."""

    def answer(self, order: Order) -> Answer:
        """Carry out an order, and change the update."""
        answer = super().answer(order)
        return answer if answer.update is None else replace(answer, update=-TIMES * answer.update)


@dataclass(frozen=True)
class Rehearsal:
    """The result of a rehearsal."""

    folder: Path
    table: Table
    finished: bool
    """Whether all rounds were played."""
    malicious: Sequence[str]
    """The names of the malicious sites."""
    removed: Sequence[str]
    """The names of the sites that were removed."""

    @property
    def is_success(self) -> bool:
        """Whether all rounds were played, and the malicious sites were removed and no others."""
        return self.finished and sorted(self.removed) == sorted(self.malicious)


def rehearse(
    folder: Path, plan: Plan, data: Sequence[Mapping[str, Any]], malicious: int, seconds: float, say: Say
) -> Rehearsal:
    """Play a plan with a site for each of `data`, contents of site.toml; the last ones are malicious."""
    operator, sites = _set_up(folder, plan, data, say)
    names = [site.config.name for site in sites]
    attackers = names[len(names) - malicious :]
    with ExitStack() as stack:
        server = _start("serve", operator.directory, *([] if find_nginx() else ["--own-nginx"]))
        stack.callback(server.stop, ENDS)
        say("the server is starting")
        children = [server]
        for name, site in zip(names, sites, strict=True):
            children.append(_start("malicious" if name in attackers else "site", site.directory))
            stack.callback(children[-1].stop, ENDS)
        say(f"{plural(len(sites), 'site')} start; malicious: {', '.join(attackers) or 'none'}")
        finished = _watch(operator, server, time.monotonic() + seconds, say)
        say("stopping every process")
        for child in children:
            child.signal(signal.SIGTERM)  # all at once, and then wait for each
    removed = [entry.name for entry in operator.ledger.entries().values() if entry.state == "removed"]
    return Rehearsal(folder, clients_table(operator), finished, attackers, removed)


def _set_up(
    folder: Path, plan: Plan, data: Sequence[Mapping[str, Any]], say: Say
) -> tuple[Operator, list[SiteDirectory]]:
    """Make the directories of the operator and of the sites, and approve every site."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists: remove it, or give another folder", code="exists", field="out")
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
        request = JoinRequest.read(made.request)
        assert (made.server, request.fingerprint) == (fingerprint, made.client)
        operator.ledger.ask(request.fingerprint, request.name, request.key)
        operator.ledger.approve(request.fingerprint)
        sites.append(made.site)
        say(f"{content['name']}: key {made.client}, agreed to the plan, approved")
    return operator, sites


def _start(role: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", "fedcap", "federate", role, str(directory), *flags]
    if role == "malicious":
        command = [sys.executable, "-m", "fedcap.federation.rehearsal", str(directory)]
    return Program(command, os.environ, directory / "logs" / "command.log")


def _watch(operator: Operator, server: Program, until: float, say: Say) -> bool:
    """Report the server's output until the last round is done; return whether that happened in time."""
    known = 0
    while True:
        done = is_finished(operator)
        if done:
            time.sleep(1)  # for the server's output about the last round
        lines = server.output().split("\n")[:-1]
        for line in lines[known:]:
            say(line.partition("  ")[2] or line)
        known = len(lines)
        if done:
            return True
        if not server.is_running:
            raise RunError(f"the server ended early; see {server.log}")
        if time.monotonic() > until:
            say("out of time")
            return False
        time.sleep(0.2)


def main() -> None:
    """Run a malicious site."""
    stop = threading.Event()
    run_site(SiteDirectory.open(sys.argv[1]), lambda line: print(line, flush=True), stop, MaliciousSite)


if __name__ == "__main__":
    main()
