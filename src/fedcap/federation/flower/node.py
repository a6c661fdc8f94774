"""A site at work: its own process, which holds data and model, and Flower's SuperNode, which is kept running.

Flower starts a process for every message. That process stays small: it passes the message to the site's
process through a unix socket in the site's directory, which only the owner can open, and takes the answer
back. The SuperNode is started again whenever it ends. After a crash the SuperLink rejects a node for up to a
minute, with the same words as a node whose key it does not know; the site then only has to wait.
"""

from __future__ import annotations

import os
import queue
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING

from fedcap.errors import InputError
from fedcap.federation.config import SiteDirectory, held
from fedcap.federation.flower.compat import CONNECTED, LOG_MEANINGS, NO_ANSWER, bundle_digest, require_flower
from fedcap.federation.flower.process import Program, Tail, environment, free_port, program, supervise
from fedcap.federation.keys import KEY, fingerprint, public_key
from fedcap.federation.messages import Malformed
from fedcap.federation.plan import SLACK

if TYPE_CHECKING:
    from fedcap.federation.site import Site

SOCKET = "socket"
"""The name of the socket in a site's directory."""
PAUSE = 5.0
"""Seconds between two starts of a SuperNode."""
ACCEPT_PAUSE = 0.5
"""Seconds until the socket accepts again after an error, such as too many open files."""
MAX_MODELS = 64
"""How many models of an order the socket accepts; the policy bounds their bytes."""
BUNDLES = "FEDCAP_BUNDLES"
"""The variable with the digests of the bundles that the site has agreed to, separated by commas."""
SITE, CLIENT, AUTHORITY = "FEDCAP_SITE", "FEDCAP_CLIENT", "FEDCAP_AUTHORITY"
"""The variables with the site's directory, the fingerprint of its key, and the file of the authority."""


@dataclass(frozen=True)
class Node:
    """What a SuperNode needs."""

    site: SiteDirectory
    server: str
    """host:port"""
    client: str
    """The fingerprint of the site's key."""
    bundles: Sequence[str]
    """The SHA-256 of each bundle that the site has agreed to."""

    @property
    def log(self) -> Path:
        """The SuperNode's log."""
        return self.site.logs / "supernode.log"

    def start(self) -> Program:
        """Start the SuperNode."""
        home = self.site.directory.absolute() / "flower"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        env = environment(home) | {
            "PATH": str(write_programs(home / "bin")),
            BUNDLES: ",".join(self.bundles),
            SITE: str(self.site.directory.absolute()),
            CLIENT: self.client,
            AUTHORITY: str(self.site.authority.absolute()),
        }
        tls = ["--root-certificates", self.site.authority]
        tls += ["--auth-supernode-private-key", self.site.directory / KEY]
        address = ["--superlink", self.server, "--host", "127.0.0.1", "--port", free_port()]
        return Program([program("flower-supernode"), *map(str, [*tls, *address])], env, self.log)

    def explain(self, line: str) -> str | None:
        """Return the meaning of a line of a SuperNode's log, if it has one for the site's people."""
        for phrase, meaning in LOG_MEANINGS.items():
            if phrase in line:
                return meaning.format(client=self.client, authority=self.site.authority, server=self.server)
        return None

    def run(
        self,
        say: Callable[[str], None],
        stop: threading.Event,
        is_finished: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep a SuperNode running until `stop` is set, and report its state whenever it changes.

        It also ends when the server no longer answers after the federation is finished.
        """
        log, last, finished = Tail(self.log), "", False
        no_answer = self.explain(NO_ANSWER)

        def report(_: Program) -> bool:
            nonlocal last, finished
            if is_finished() and not finished:
                say("the federation is finished: all rounds are done")
            finished = is_finished()
            for meaning in filter(None, map(self.explain, log.read())):
                if meaning == no_answer and finished:
                    return True
                if meaning != last:
                    say(meaning)
                last = meaning
            return False

        def ended(node: Program) -> None:
            nonlocal last
            report(node)
            if last in (LOG_MEANINGS[CONNECTED].format(server=self.server), ""):
                last = f"Flower's SuperNode ended and is started again; see {self.log}"
                say(last)

        supervise(self.start, report, ended, stop, PAUSE)


def write_programs(folder: Path) -> Path:
    """Write the two programs that a SuperNode may start, and return their folder: the node's whole path.

    The bundle of a run is code that goes first on the path of the process that answers a message. So our own
    flwr-clientapp takes the place of Flower's: it compares the bundle with the list of the site.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in {
        "flower-superexec": [program("flower-superexec")],
        "flwr-clientapp": [sys.executable, "-m", "fedcap.federation.flower.apps"],
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


# --- The site's process


def run_site(
    directory: SiteDirectory,
    say: Callable[[str], None],
    stop: threading.Event,
    make: Callable[[SiteDirectory, str], Site] | None = None,
) -> None:
    """Take part until `stop` is set or the federation is finished; call this from the main thread.

    `make` creates the site that answers; tests and rehearsals have malicious ones.
    """
    from fedcap.federation.site import Site, respond

    require_flower()
    plans = directory.plans()
    if not plans:
        raise InputError(
            f"this site has agreed to no plan: fedcap federate agree {directory.directory}",
            code="not-agreed",
            field="plan",
        )
    bundles = sorted({plan.bundle for plan in plans.values() if plan.bundle is not None})
    if bundles and bundle_digest() not in bundles:
        raise InputError(
            "the plan that this site has agreed to is for another version of fedcap: install that version, or"
            " agree to a new plan of the operator",
            code="bundle",
        )
    with held(directory.directory):
        client = fingerprint(public_key(directory.directory))
        site = (make or Site)(directory, client)
        for plan in plans.values():
            site.prepare(plan)
        server = directory.config.server
        limit = max(MAX_MODELS * 4 * plan.weights for plan in plans.values()) + SLACK
        directory.audit.write("started", client=client, by="site", server=server)
        with listening(directory.directory, lambda message: respond(site, message), limit):
            Node(directory, server, client, bundles).run(say, stop, lambda: site.is_finished)
        directory.audit.write("stopped", client=client, by="site")


# --- The socket of the site's process


@contextmanager
def listening(directory: Path, respond: Callable[[bytes], bytes], limit: int) -> Iterator[None]:
    """Answer messages of up to `limit` bytes at the site's socket, until the block ends.

    Messages are answered one after the other. A peer that is slow to send does not delay the others. If a
    peer hangs up while its message waits, the message is dropped. `respond` must not raise.
    """
    turn, stopping = threading.Lock(), threading.Event()

    def accept(listener: Listener) -> None:
        while not stopping.is_set():
            try:
                connection = listener.accept()
            except OSError:  # too many open files, for example: the site must not become deaf
                stopping.wait(ACCEPT_PAUSE)
                continue
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            message = connection.recv_bytes(limit)
            with turn:
                if not connection.poll():  # a peer sends one message: there is more only if it hung up
                    connection.send_bytes(respond(message))

    with _short_path(directory) as path:
        Path(path).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener = Listener(path, "AF_UNIX", backlog=16)
        finally:
            os.umask(before)
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        try:
            yield
        finally:
            stopping.set()
            with suppress(OSError):
                Client(path, "AF_UNIX").close()  # ends the accepting thread
            listener.close()
            Path(path).unlink(missing_ok=True)


def ask(directory: Path, message: bytes, seconds: float) -> bytes:
    """Pass a message to the site's process and return its answer; raise `Malformed` if there is none."""
    answers: queue.Queue[bytes | Exception] = queue.Queue()

    def converse() -> None:  # in a thread, as sending has no time limit
        try:
            with _short_path(directory) as path, Client(path, "AF_UNIX") as connection:
                connection.send_bytes(message)
                answers.put(connection.recv_bytes())
        except (OSError, EOFError) as error:
            answers.put(error)

    threading.Thread(target=converse, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise Malformed("the site did not answer in time") from None
    if isinstance(answer, FileNotFoundError | ConnectionRefusedError):
        raise Malformed("the site's process is not running")
    if isinstance(answer, Exception):
        raise Malformed(f"the site's process ended ({type(answer).__name__})")
    return answer


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a short path of the socket: a socket's may have 107 characters."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)
