"""The operator's SuperLink: on the loopback interface alone, over TLS, for registered keys alone.

Its Control API has no login, so nobody else may reach its port: sites come in through nginx (see `nginx`), which
lets the fleet's own paths through.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap.federation.flower import bundle
from fedcap.federation.flower.processes import Child, environment, listening, program
from fedcap.files import write_aside
from fedcap.registry import InputError

OPERATOR = "FEDCAP_OPERATOR"
"""The variable that names the operator's directory to the ServerApp."""
CONNECTION = "fedcap"
READY = 60.0
"""Seconds that a SuperLink may take to start."""


@dataclass(frozen=True)
class Link:
    """What a SuperLink needs: the operator's directory, its port, and the three files of its TLS."""

    directory: Path
    port: int
    certificate: Path
    key: Path
    authority: Path

    @property
    def home(self) -> Path:
        """The folder that Flower keeps what it keeps in."""
        return self.directory / "flower"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.directory / "logs"

    @property
    def env(self) -> dict[str, str]:
        """The environment of the operator's Flower programs."""
        return environment(self.home, **{OPERATOR: str(self.directory.absolute())})

    def start(self) -> Child:
        """Start the SuperLink, and wait until it listens."""
        if listening(self.port):
            raise InputError(
                f"somebody listens on 127.0.0.1:{self.port} already: stop the other server, or choose another port"
            )
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._describe()
        child = Child(self._command(), self.env, self.logs / "superlink.log")
        deadline = time.monotonic() + READY
        while not listening(self.port):
            if not child.running or time.monotonic() > deadline:
                child.stop()
                raise InputError(f"the SuperLink did not start: {last_line(child)}; see {child.log}")
            time.sleep(0.1)
        return child

    def register(self, keys: Sequence[Path]) -> None:
        """Make public keys known to the SuperLink; those that it knows stay as they are."""
        for key in keys:
            done = self._flwr("supernode", "register", str(key), CONNECTION)
            if done.returncode and "already in use" not in done.stdout + done.stderr:
                raise InputError(f"Flower refuses the key {key}: {_last(done.stdout + done.stderr)}")

    def run(self) -> None:
        """Start our ServerApp under the SuperLink."""
        done = self._flwr("run", str(bundle.write(self.home)), CONNECTION)
        if done.returncode:
            raise InputError(f"Flower does not start the server app: {_last(done.stdout + done.stderr)}")

    def _command(self) -> list[str]:
        tls = ["--ssl-certfile", self.certificate, "--ssl-keyfile", self.key, "--ssl-ca-certfile", self.authority]
        options = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        place = ["--host", "127.0.0.1", "--port", self.port, "--database", self.directory.absolute() / "link.db"]
        return [program("flower-superlink"), *map(str, [*tls, *options, *place])]

    def _describe(self) -> None:
        """Write down for the `flwr` command where the SuperLink is."""
        lines = [f"[superlink.{CONNECTION}]", f'address = "127.0.0.1:{self.port}"']
        write_aside(
            self.home / "config.toml",
            "\n".join([*lines, f'root-certificates = "{self.authority.absolute()}"', ""]),
        )

    def _flwr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = self.env | {"COLUMNS": "400", "NO_COLOR": "1"}
        done = subprocess.run(
            [program("flwr"), *arguments], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
        )
        with open(self.logs / "flwr.log", "a") as log:
            log.write(f"{' '.join(arguments)}{os.linesep}{done.stdout}{done.stderr}")
        return done


def last_line(child: Child) -> str:
    """Return the last line that a program said."""
    return _last(child.said())


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
