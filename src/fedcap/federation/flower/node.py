"""A site's SuperNode, kept running: when it ends it is started again, and the site is told why it waits.

After a crash the SuperLink turns a node away for up to a minute, with the same words as for a key that it
does not know. Nothing is wrong then, and nothing is to be done but to wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap.federation.flower.guard import AUTHORITY, BUNDLES, CLIENT, SITE, write_programs
from fedcap.federation.flower.processes import Child, Tail, environment, free_port, program

PAUSE = 5.0
"""Seconds between two attempts."""
LOOK = 0.3
NEWS = {
    "SuperNode ID": "connected to {server}",
    "retrying in": "no answer from {server}: is the server up, and is the address right? Trying again",
    "Connection successful": "the server at {server} answers again",
}
"""What a SuperNode says while it runs, and what it means."""
REASONS = {
    "[code: 2004]": "the server turned this site away: either its key is not approved yet (fingerprint"
    " {client}), or the site was cut off less than a minute ago and the server still takes it for connected",
    "certificate verify failed": "the server's certificate is not by the authority in {authority}, or not for"
    " this name: {server}",
    "SSL/TLS": "no TLS with {server}: is this the address of the federation's server?",
    "401 Unauthorized": "the server does not accept this site's signature: set this machine's clock",
    "for url 'https": "{server} is no federation's server",
}
"""What is found in a SuperNode's last words, and what it means."""


@dataclass(frozen=True)
class Node:
    """What a SuperNode needs to know."""

    directory: Path
    server: str
    """host:port"""
    key: Path
    client: str
    """The fingerprint of the key."""
    authority: Path
    bundles: Sequence[str]
    """The SHA-256 of each bundle that the site has agreed to."""

    @property
    def log(self) -> Path:
        """What the SuperNode says."""
        return self.directory / "logs" / "supernode.log"

    def start(self) -> Child:
        """Start the SuperNode."""
        home = self.directory.absolute() / "flower"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        env = environment(home) | {
            "PATH": str(write_programs(home / "bin")),
            BUNDLES: ",".join(self.bundles),
            SITE: str(self.directory.absolute()),
            CLIENT: self.client,
            AUTHORITY: str(self.authority.absolute()),
        }
        tls = ["--root-certificates", self.authority, "--auth-supernode-private-key", self.key]
        place = ["--superlink", self.server, "--host", "127.0.0.1", "--port", free_port()]
        command = [program("flower-supernode"), *map(str, [*tls, *place])]
        return Child(command, env, self.log)

    def means(self, said: str, known: Mapping[str, str]) -> str | None:
        """Return what a SuperNode's words mean, if we know."""
        for words, meaning in known.items():
            if words in said:
                return meaning.format(client=self.client, authority=self.authority, server=self.server)
        return None

    def keep(self, say: Callable[[str], None], stop: threading.Event) -> None:
        """Keep a SuperNode running until `stop` is set, and say whenever something changes.

        Call it from the main thread: the SuperNode ends with the thread that started it.
        """
        told = None

        def tell(line: str | None) -> None:
            nonlocal told
            if line not in (None, told):
                say(str(line))
                told = line

        while not stop.is_set():
            log = Tail(self.log)
            with self.start() as child:
                while child.running and not stop.wait(LOOK):
                    for line in log.read():
                        tell(self.means(line, NEWS))
                said = child.said()
            if not stop.is_set():
                tell(
                    self.means(said, REASONS)
                    or f"Flower's SuperNode ended, and is started again; see {self.log}"
                )
                stop.wait(PAUSE)
