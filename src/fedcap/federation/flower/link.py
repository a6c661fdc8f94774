"""The operator's SuperLink: on the loopback interface alone, over TLS, for registered keys alone.

Its Control API has no login, so nobody else may reach its port: sites come in through nginx (see `nginx`),
which lets the fleet's own paths through.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedcap.errors import InputError
from fedcap.federation.flower import bundle
from fedcap.federation.flower.processes import Child, environment, listening, program

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

OPERATOR = "FEDCAP_OPERATOR"
"""The variable that names the operator's directory to the ServerApp."""
KNOWN = "Public key already in use"
"""What Flower says of a key that it has."""
READY = 60.0
"""Seconds that a SuperLink may take to start."""

LINGERS = 10.0
"""Seconds for which the one before may still be there after a kill."""


class Away(Exception):
    """The SuperLink does not answer."""


@dataclass(frozen=True)
class Link:
    """What a SuperLink needs: the operator's directory, its port, and the three files of its TLS."""

    directory: Path
    port: int
    certificate: Path
    key: Path
    authority: Path

    def start(self) -> Child:
        """Start the SuperLink, and wait until it listens."""
        free = time.monotonic() + LINGERS
        while listening(self.port) and time.monotonic() < free:
            time.sleep(0.2)
        if listening(self.port):
            raise InputError(
                f"somebody listens on 127.0.0.1:{self.port} already: stop it, or choose another port"
            )
        directory = self.directory.absolute()
        (directory / "flower").mkdir(exist_ok=True, mode=0o700)
        tls = [
            "--ssl-certfile",
            self.certificate,
            "--ssl-keyfile",
            self.key,
            "--ssl-ca-certfile",
            self.authority,
        ]
        options = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        place = ["--host", "127.0.0.1", "--port", self.port, "--database", directory / "link.db"]
        command = [program("flower-superlink"), *map(str, [*tls, *options, *place])]
        env = environment(directory / "flower", **{OPERATOR: str(directory)})
        child = Child(command, env, directory / "logs" / "superlink.log")
        deadline = time.monotonic() + READY
        while not listening(self.port):
            if not child.running or time.monotonic() > deadline:
                child.stop()
                raise InputError(f"the SuperLink did not start; see {child.log}")
            time.sleep(0.1)
        return child

    def register(self, keys: Iterable[str]) -> None:
        """Make public keys, in OpenSSH format, known to the SuperLink; those it knows stay as they are."""
        import httpx
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
        from flwr.proto.control_pb2 import RegisterNodeRequest

        with self._control() as control:
            for key in keys:
                pem = load_ssh_public_key(key.encode()).public_bytes(
                    Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
                )
                try:
                    control.RegisterNode(RegisterNodeRequest(public_key=pem))
                except httpx.HTTPStatusError as error:
                    if KNOWN not in error.response.text:
                        raise

    def run(self) -> None:
        """Start our ServerApp under the SuperLink."""
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.fab_pb2 import Fab

        content = bundle.build()
        with self._control() as control:
            control.StartRun(StartRunRequest(fab=Fab(hash_str=bundle.digest(), content=content)))

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        import httpx
        from flwr.supercore.control import ControlHttpClient

        address = f"127.0.0.1:{self.port}"
        try:
            with ControlHttpClient.from_server_address(address, False, str(self.authority), []) as control:
                yield control
        except httpx.TransportError as error:
            raise Away(f"no answer from the SuperLink: {error}") from None
