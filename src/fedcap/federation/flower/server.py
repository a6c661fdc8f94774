"""The operator's server, kept running: nginx, the SuperLink with the keys it knows, and our ServerApp under
it.

The SuperLink listens on the loopback interface only, over TLS, and accepts registered keys only. Its Control
API has no login, so sites reach it through nginx. Flower resumes nothing: a SuperLink or ServerApp that ends
is started again, and the ServerApp continues after the last round on disk. The ServerApp holds a lock while
it runs, so that there is never a second one and its end is noticed at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import tomli_w

from fedcap.errors import InputError, RunError
from fedcap.federation.config import Operator, held, is_held
from fedcap.federation.flower import nginx
from fedcap.federation.flower.compat import KEY_IS_KNOWN, bundle_digest, bundle_file, require_flower
from fedcap.federation.flower.process import (
    Program,
    Tail,
    environment,
    is_listening,
    program,
    supervise,
)
from fedcap.federation.ledger import OPERATOR as BY_OPERATOR
from fedcap.federation.status import is_finished
from fedcap.files import write_aside

OPERATOR = "FEDCAP_OPERATOR"
"""The variable with the operator's directory, for the ServerApp."""
LOCK, PROCESS = "server.lock", "server.pid"
LOG = "server.log"
"""The ServerApp's log, a line for each round."""
CONNECTION = "fedcap"
"""The name of the SuperLink in the configuration of the `flwr` command."""
START_SECONDS = 60.0
"""How long a SuperLink may take to start, or a ServerApp to take its lock."""
STEADY_SECONDS = 60.0
"""After this time a ServerApp is considered to run well."""
TRIES = 3
"""How often in a row a ServerApp may end before that."""
LINGER_SECONDS = 10.0
"""How long an earlier SuperLink may take to end after a kill."""
END_SECONDS = 5.0
"""How long a ServerApp may take to end after a signal."""
COMMAND_SECONDS = 300.0
"""How long a `flwr` command may take: long enough for a busy machine."""


def run_server(
    operator: Operator,
    say: Callable[[str], None],
    stop: threading.Event,
    own_nginx: bool = False,
    until_finished: bool = False,
) -> None:
    """Run the federation until `stop` is set or, if `until_finished`, until its last round is done.

    Call this from the main thread. With `own_nginx` the operator runs nginx.
    """
    require_flower()
    check_bundle(operator)
    with held(operator.directory), nullcontext() if own_nginx else nginx.start(operator) as front:
        say(f"{operator.plan.name}: sites reach this server at {operator.federation.address}")

        def is_done() -> bool:
            if front is not None and not front.is_running:
                raise RunError(f"nginx ended, and sites reach the server through it: see {front.log}")
            return until_finished and is_finished(operator)

        SuperLink(operator, say, is_done).run(stop)
        operator.audit.write("stopped", by=BY_OPERATOR)


def check_bundle(operator: Operator) -> None:
    """Refuse a plan that sites agreed to with another version of fedcap."""
    if operator.plan.bundle not in (None, bundle_digest()):
        raise InputError(
            "the plan is for another version of fedcap: finish the federation with that version, or write"
            f' bundle = "{bundle_digest()}" into plan.toml and let the sites agree to the plan again',
            code="bundle",
            field="bundle",
        )


class SuperLink:
    """Keeps the SuperLink of an operator running, its keys registered, and a ServerApp under it."""

    def __init__(self, operator: Operator, say: Callable[[str], None], is_done: Callable[[], bool]) -> None:
        self._operator, self._say, self._is_done = operator, say, is_done
        self._lines = Tail(operator.logs / LOG)
        self._asked = 0.0
        """When a ServerApp was asked for."""
        self._seen = True
        """Whether there was a sign of it since."""
        self._ended = -1
        """How often in a row it has ended."""
        self._failure = ""
        """Why the last `flwr` command failed."""

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set or the federation is done."""
        if not self._is_done():
            supervise(self._running, self._attend, self._restarts, stop)
        self._report()

    @contextmanager
    def _running(self) -> Iterator[Program]:
        with start_superlink(self._operator) as running:
            self._asked, self._seen, self._ended = 0.0, True, -1
            self._say(f"the SuperLink listens on 127.0.0.1:{self._operator.federation.link_port}")
            try:
                yield running
            finally:
                end_server_app(self._operator.directory)

    def _restarts(self, _: Program) -> None:
        if not self._is_done():
            self._say("the SuperLink ended; starting it again")

    def _attend(self, running: Program) -> bool:
        """Register new keys and start the ServerApp if it does not run; return whether all is done."""
        if self._is_done():
            return True
        self._seen |= self._report()
        since = time.monotonic() - self._asked
        try:
            register(self._operator, [e.key for e in self._operator.ledger.entries().values() if e.allowed])
            if is_held(self._operator.directory, LOCK):
                self._seen, self._ended = True, 0 if since > STEADY_SECONDS else self._ended
            elif self._seen or since > START_SECONDS:
                self._start_server_app()
        except CommandFailed as error:
            if running.is_running and str(error) != self._failure:
                self._say(str(error))
            self._failure = str(error)
        return False

    def _start_server_app(self) -> None:
        self._ended += 1
        if self._ended >= TRIES:
            lines = self._lines
            raise RunError(f"the server app ended {TRIES} times in a row: {lines.last}; see {lines.path}")
        if self._ended:
            self._say("the server app ended; starting it again")
        app = self._operator.directory / "flower" / "app"
        app.mkdir(exist_ok=True)
        write_aside(app / "pyproject.toml", bundle_file())
        flwr(self._operator, "run", str(app), CONNECTION)
        self._asked, self._seen = time.monotonic(), False

    def _report(self) -> bool:
        """Report the new lines of the ServerApp's log; return whether there were any."""
        lines = self._lines.read()
        for line in lines:
            self._say(line)
        return bool(lines)


def start_superlink(operator: Operator) -> Program:
    """Start the SuperLink, and wait until it listens."""
    directory, port = operator.directory.absolute(), operator.federation.link_port
    deadline = time.monotonic() + LINGER_SECONDS
    while is_listening(port):
        if time.monotonic() > deadline:
            raise InputError(
                f"127.0.0.1:{port} is in use by another program: stop it, or change link_port",
                code="port",
                field="link_port",
            )
        time.sleep(0.2)
    home = directory / "flower"
    home.mkdir(exist_ok=True, mode=0o700)
    if not (directory / "link.db").exists():
        (home / "registered").unlink(missing_ok=True)
    tls = ["--ssl-certfile", operator.certificate, "--ssl-keyfile", operator.key]
    tls += ["--ssl-ca-certfile", operator.authority]
    options = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    address = ["--host", "127.0.0.1", "--port", port, "--database", directory / "link.db"]
    command = [program("flower-superlink"), *map(str, [*tls, *options, *address])]
    env = environment(home, **{OPERATOR: str(directory)})
    running = Program(command, env, directory / "logs" / "superlink.log")
    deadline = time.monotonic() + START_SECONDS
    while not is_listening(port):
        if not running.is_running or time.monotonic() > deadline:
            running.stop()
            raise InputError(f"the SuperLink did not start; see {running.log}", code="superlink")
        time.sleep(0.1)
    return running


# --- Flower's commands


class CommandFailed(Exception):
    """A `flwr` command failed."""


def flwr(operator: Operator, *arguments: str) -> None:
    """Run a `flwr` command for the operator's SuperLink."""
    home = operator.directory.absolute() / "flower"
    address = f"127.0.0.1:{operator.federation.link_port}"
    link = {"address": address, "root-certificates": str(operator.authority.absolute())}
    write_aside(home / "config.toml", tomli_w.dumps({"superlink": {CONNECTION: link}}))
    command = [program("flwr"), *arguments]
    try:
        done = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"flwr {arguments[0]} did not end within {COMMAND_SECONDS:g} s") from None
    if done.returncode:
        output = " ".join(f"{done.stdout} {done.stderr}".split())
        raise CommandFailed(f"flwr {arguments[0]} failed: {output[-300:]}")


def register(operator: Operator, keys: Iterable[str]) -> None:
    """Register public keys, in OpenSSH format, at the SuperLink; keys that it knows stay as they are.

    The SuperLink keeps them in its database. `flower/registered` lists them, as each command takes a second.
    """
    home = operator.directory / "flower"
    path = home / "registered"
    known = set(path.read_text().splitlines()) if path.exists() else set()
    for key in keys:
        if key not in known:
            (home / "new.pub").write_text(key + "\n")
            try:
                flwr(operator, "supernode", "register", str(home / "new.pub"), CONNECTION)
            except CommandFailed as error:
                if KEY_IS_KNOWN not in str(error):
                    raise
            known.add(key)
            write_aside(path, "".join(f"{key}\n" for key in sorted(known)))


# --- The ServerApp's lock


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the ServerApp for this process; wait while another process holds it."""
    with held(directory, LOCK, seconds=-1):
        write_aside(directory / PROCESS, str(os.getpid()))
        yield


def end_server_app(directory: Path) -> None:
    """End the ServerApp of this directory, if there is one: it outlives its SuperLink for some seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_SECONDS
        if is_held(directory, LOCK):
            _signal_server_app(directory, number)
        while is_held(directory, LOCK) and time.monotonic() < deadline:
            time.sleep(0.1)


def _signal_server_app(directory: Path, number: int) -> None:
    """Signal the process that the file names, if it is a ServerApp of this directory.

    The id may belong to another process by now: the file descriptor of the process rules out a change after
    the check.
    """
    with suppress(OSError, ValueError):
        process = int((directory / PROCESS).read_text())
        descriptor = os.pidfd_open(process)
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            if f"{OPERATOR}={directory.absolute()}".encode() in variables:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
