"""The operator's server, kept running: the SuperLink, the keys that it knows, and our ServerApp under it.

Flower resumes nothing. Whoever of the two dies is started again, and the ServerApp goes on from the last
round on disk. The ServerApp holds a lock while it runs, so that there is never a second one, and so that its
end is seen at once.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcap.errors import RunError
from fedcap.federation.flower.link import Away, Link
from fedcap.federation.flower.processes import Child, Tail
from fedcap.federation.operator import Operator

LOCK = "server.lock"
LOG = "server.log"
"""What the ServerApp says, a line for each round."""
APPEARS = 60.0
"""Seconds within which a ServerApp that was asked for takes the lock."""
STEADY = 60.0
"""Seconds after which a ServerApp is taken to run well."""
TRIES = 3
"""How often in a row a ServerApp may end before that."""
LINGER = 5.0
"""Seconds that a ServerApp has for its end."""
LOOK = 0.5


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, and say in its file which process does; wait for whoever has it."""
    with open(directory / LOCK, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def is_locked(directory: Path) -> bool:
    """Return whether a ServerApp runs on this directory."""
    with open(directory / LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def end(directory: Path) -> None:
    """End the ServerApp of this directory, if there is one; Flower lets it linger."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + LINGER
        if is_locked(directory):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int((directory / LOCK).read_text()), how)
        while is_locked(directory) and time.monotonic() < until:
            time.sleep(0.1)


def link_of(operator: Operator) -> Link:
    """Return the SuperLink of an operator."""
    port = operator.federation.link_port
    return Link(operator.directory, port, operator.certificate, operator.key, operator.authority)


def serve(
    operator: Operator, finished: Callable[[], bool], say: Callable[[str], None], stop: threading.Event
) -> None:
    """Run the federation until it is finished or `stop` is set; call it from the main thread."""
    link, lines = link_of(operator), Tail(operator.logs / LOG)
    while not (stop.is_set() or finished()):
        with link.start() as child:
            say(f"the SuperLink listens on 127.0.0.1:{link.port}")
            try:
                _attend(operator, link, child, finished, lines, say, stop)
            finally:
                end(operator.directory)
        if not (stop.is_set() or finished()):
            say("the SuperLink ended; starting it again")
    _tell(lines, say)


def _attend(
    operator: Operator,
    link: Link,
    child: Child,
    finished: Callable[[], bool],
    lines: Tail,
    say: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Keep a ServerApp running under the SuperLink and its keys known, for as long as the SuperLink lives."""
    known: set[str] = set()
    asked, seen, ended = 0.0, True, -1
    while child.running and not (stop.wait(LOOK) or finished()):
        seen |= _tell(lines, say)
        since = time.monotonic() - asked
        with suppress(Away):
            known |= _register(operator, link, known)
            if is_locked(operator.directory):
                seen, ended = True, 0 if since > STEADY else ended
            elif seen or since > APPEARS:
                ended += 1
                if ended >= TRIES:
                    raise RunError(
                        f"the server app ended {TRIES} times in a row: {lines.last}; see {lines.path}"
                    )
                if ended:
                    say("the server app ended; starting it again")
                link.run()
                asked, seen = time.monotonic(), False


def _register(operator: Operator, link: Link, known: set[str]) -> set[str]:
    """Make the keys of clients that were taken in known to the SuperLink; return those that are new."""
    entries = operator.ledger.entries().values()
    new = {entry.client: entry.key for entry in entries if entry.allowed and entry.client not in known}
    link.register(new.values())
    return set(new)


def _tell(lines: Tail, say: Callable[[str], None]) -> bool:
    """Say every new line; return whether there was one."""
    new = lines.read()
    for line in new:
        say(line)
    return bool(new)
