"""A site's SuperNode, kept running: when it ends it is started again, and the site is told why it waits.

After a crash the SuperLink turns a node away for up to a minute, with the same words as for a key that it
does not know. Nothing is wrong then, and nothing is to be done but to wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap.federation.flower.guard import AUTHORITY, BUNDLES, CLIENT, SITE, write_programs
from fedcap.federation.flower.processes import Child, environment, free_port, program

PAUSE = 5.0
"""Seconds between two attempts."""
CONNECTED = "SuperNode ID"
"""What a SuperNode says once the SuperLink has let it in."""
REASONS = {
    "code: 305": "the server turned this site away: either its key is not approved yet (fingerprint"
    " {client}), or the site was cut off less than a minute ago and the server still takes it for connected",
    "certificate": "the server's certificate is not by the authority in {authority}, or not for this name",
    "ssl": "no TLS with {server}: is this the address of the federation's server?",
    "retrying": "no answer from {server}: is the server up, and is the address right?",
    "401": "the server does not accept this site's signature: set this machine's clock",
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
        place = ["--superlink", self.server, "--host", "127.0.0.1", "--port", free_port(), "--max-retries", 3]
        command = [program("flower-supernode"), *map(str, [*tls, *place])]
        return Child(command, env, self.directory / "logs" / "supernode.log")

    def why(self, said: str) -> str:
        """Return why a SuperNode ended, from what it said."""
        for words, meaning in REASONS.items():
            if words.lower() in said.lower():
                return meaning.format(client=self.client, authority=self.authority, server=self.server)
        return f"Flower's SuperNode ended; see {self.directory / 'logs' / 'supernode.log'}"

    def keep(self, say: Callable[[str], None], stop: threading.Event) -> None:
        """Keep a SuperNode running until `stop` is set, and say whenever something changes.

        Call it from the main thread: the SuperNode ends with the thread that started it.
        """
        told = ""
        while not stop.is_set():
            with self.start() as child:
                connected = False
                while child.running and not stop.wait(0.3):
                    if not connected and CONNECTED in child.said():
                        connected, told = True, ""
                        say(f"connected to {self.server}")
                if stop.is_set():
                    return
                why = self.why(child.said())
            if why != told:
                say(f"{why}; trying again every {PAUSE:.0f} s")
                told = why
            stop.wait(PAUSE)
