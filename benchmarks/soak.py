"""Fifty rounds of a real federation whose processes are killed at random: no confirmed round is lost.

Sites are killed with all their processes and started again. Sometimes the ServerApp or the SuperLink is
killed, and the server's command starts it again. At the end, every round that was ever seen on disk is
unchanged, there is one line per round, and the audit is whole. It takes about half an hour on two cores that
do nothing else. On a busy machine, SLOWNESS multiplies the plan's deadline and the seconds between kills:

    python -m benchmarks.soak [ROUNDS [SEED [SLOWNESS]]]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from fedcap.cli.federate.operator import plan_like
from fedcap.federation.audit import AUDIT, verify
from fedcap.federation.config import INVITATION, Federation, Invitation, Operator
from fedcap.federation.flower.node import SITE
from fedcap.federation.flower.process import Program, free_port
from fedcap.federation.flower.server import OPERATOR
from fedcap.federation.keys import JoinRequest
from fedcap.federation.setup import set_up_operator, set_up_site

SITES = 5
PAUSE = (5.0, 25.0)
"""Seconds between two kills."""
AWAY = (1.0, 15.0)
"""Seconds until a killed site is started again."""


def set_up(folder: Path, rounds: int, slowness: int) -> tuple[Operator, list[Path]]:
    dataset = {"name": "digits", "clients": SITES}
    operator = Operator(folder / "operator")
    settings = {"dataset": dataset, "rounds": rounds, "deadline": 20.0 * slowness, "least": 2}
    plan = plan_like("soak", settings)
    federation = Federation(host="localhost", port=free_port(), link_port=free_port())
    set_up_operator(operator.directory, federation, plan)
    invitation = Invitation.read(operator.directory / INVITATION)
    sites = []
    for k in range(SITES):
        content = {"name": f"site{k}", "dataset": dataset, "client": str(k)}
        made = set_up_site(folder / f"site{k}", invitation, content)
        made.site.agree(invitation.plan)
        asked = JoinRequest.read(made.request)
        operator.ledger.approve(operator.ledger.ask(asked.fingerprint, asked.name, asked.key).client)
        sites.append(made.site.directory)
    return operator, sites


def start(role: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", "fedcap", "federate", role, str(directory), *flags]
    return Program(command, os.environ, directory / "logs" / "command.log")


def processes(variable: str, directory: Path, program: str = "") -> list[int]:
    """Return the processes whose environment names a directory, and whose command line a program."""
    wanted, found = f"{variable}={directory.absolute()}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            named = wanted in (process / "environ").read_bytes().split(b"\0")
            if named and program.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def kill(processes: list[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def soak(folder: Path, rounds: int, seed: int, slowness: int) -> None:
    chance = random.Random(seed)
    operator, sites = set_up(folder, rounds, slowness)
    path = operator.run / "rounds.jsonl"
    server = start("serve", operator.directory, "--until-finished")
    running = {site: start("site", site) for site in sites}
    back: dict[Path, float] = {}
    kills = {"site": 0, "server app": 0, "SuperLink": 0}
    confirmed = b""
    next_kill = time.monotonic() + 60 * slowness
    try:
        while server.is_running:
            time.sleep(0.5)
            now = time.monotonic()
            seen = path.read_bytes() if path.exists() else b""
            assert seen.startswith(confirmed), "a confirmed round was lost or changed"
            if seen.count(b"\n") > confirmed.count(b"\n"):
                print(f"round {seen.count(chr(10).encode())}, kills {kills}", flush=True)
            confirmed = seen[: seen.rfind(b"\n") + 1]
            for site in [site for site, when in back.items() if when < now]:
                running[site] = start("site", site)
                del back[site]
            if now < next_kill:
                continue
            next_kill = now + slowness * chance.uniform(*PAUSE)
            draw = chance.random()
            if draw < 0.08:
                kill(processes(OPERATOR, operator.directory, "flwr-serverapp"))
                kills["server app"] += 1
            elif draw < 0.12:
                kill(processes(OPERATOR, operator.directory, "flower-superlink"))
                kills["SuperLink"] += 1
            elif len(back) < SITES - 3:
                site = chance.choice([site for site in sites if site not in back])
                kill(processes(SITE, site))
                running[site].kill()
                back[site] = now + slowness * chance.uniform(*AWAY)
                kills["site"] += 1
    finally:
        for child in [server, *running.values()]:
            child.signal(signal.SIGTERM)
        for child in [server, *running.values()]:
            child.stop()
    numbers = confirmed.count(b"\n")
    problems = verify(operator.directory / AUDIT)
    noted = [event.round for event in operator.audit.events() if event.event == "round"]
    print(
        f"{numbers} of {rounds} rounds, kills {kills}, 0 confirmed rounds lost, audit: {problems or 'whole'}"
    )
    assert numbers == rounds
    assert sorted(set(noted)) == list(range(1, rounds + 1))
    assert not problems


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        given = [int(word) for word in sys.argv[1:]]
        soak(Path(name), *given, *(50, 0, 1)[len(given) :])
