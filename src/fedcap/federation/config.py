"""The directories of the operator and of a site, and the files in them that people edit or send.

The operator's: federation.toml (the server's address), plan.toml, invitation.toml (for the sites),
certificates/, ledger.json, audit.jsonl, run/ (the run, for `fedcap show` and `fedcap report`), logs/. A
site's: site.toml (its name, the server, its data), policy.toml, key and key.pub, ca.crt (the authority that
it trusts), agreed/ (the plans that it has agreed to), state/ (its own model), audit.jsonl, logs/. A
directory's lock is held by its one running process.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Self

from filelock import FileLock, Timeout
from pydantic import AfterValidator, Field

from fedcap.errors import InputError
from fedcap.federation.audit import AUDIT, Audit
from fedcap.federation.ledger import LEDGER, Ledger
from fedcap.federation.plan import PLAN, ConfigFile, Plan
from fedcap.files import write_aside
from fedcap.runs import Named
from fedcap.trackers import Words

FEDERATION, INVITATION = "federation.toml", "invitation.toml"
SITE, POLICY = "site.toml", "policy.toml"
AUTHORITY, CERTIFICATE, CERTIFICATE_KEY = "ca.crt", "server.crt", "server.key"
LOCK = ".lock"
LOCK_SECONDS = 2.0
"""How long a lock is waited for: `is_held` holds it for an instant."""

Port = Annotated[int, Field(ge=1, le=65535)]


def _no_port(host: str) -> str:
    """Return a host; one with a colon must be an IPv6 address, not a name with a port."""
    try:
        return host if ":" not in host else str(ipaddress.IPv6Address(host))
    except ValueError:
        raise ValueError("should be a name or address without the port") from None


Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]+$", max_length=253), AfterValidator(_no_port)]


# --- The operator


class Federation(ConfigFile):
    """federation.toml: where the server is."""

    HEADING = "Where sites reach this federation's server. What is learned is in plan.toml."

    host: Host
    """The name or address by which sites reach the server."""
    port: Port = 9443
    """The port that sites reach, on which nginx listens."""
    link_port: Port = 9092
    """The port of Flower's SuperLink, on this machine only. No other machine may reach it."""
    root: Named | None = None
    """The operator's own clean samples, for methods that need some: any data set."""
    track: Words | None = None
    """Trackers that follow the rounds, such as ["csv"]: fedcap list names them."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the server's certificate: its host, and this machine, from where nginx reaches it."""
        return self.host, "localhost", "127.0.0.1"

    @property
    def address(self) -> str:
        """The address by which sites reach the server."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Operator:
    """The operator's directory."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.audit = Audit(self.directory / AUDIT)
        self.ledger = Ledger(self.directory / LEDGER, self.audit)
        self.certificates = self.directory / "certificates"
        self.authority = self.certificates / AUTHORITY
        """The certificate that sites trust."""
        self.certificate = self.certificates / CERTIFICATE
        self.key = self.certificates / CERTIFICATE_KEY
        """The private key of the server's certificate."""
        self.run = self.directory / "run"
        self.logs = self.directory / "logs"

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Return the operator's directory; refuse any other."""
        operator = cls(directory)
        if not (operator.directory / FEDERATION).is_file():
            what = "a site's" if (operator.directory / SITE).exists() else "no federation's"
            raise InputError(
                f"{directory} is {what} directory, not an operator's; fedcap federate init makes one",
                code="not-operator",
            )
        return operator

    @property
    def federation(self) -> Federation:
        """The content of federation.toml."""
        return Federation.read(self.directory / FEDERATION)

    @property
    def plan(self) -> Plan:
        """The content of plan.toml."""
        return Plan.read(self.directory / PLAN)

    def invite(self) -> Path:
        """Write the invitation from the other files."""
        path = self.directory / INVITATION
        certificate = self.authority.read_text()
        invitation = Invitation(server=self.federation.address, certificate=certificate, plan=self.plan)
        write_aside(path, invitation.text())
        return path


class Invitation(ConfigFile):
    """invitation.toml, which the operator sends to sites."""

    HEADING = (
        "An invitation to a federation; nothing in it is secret. A site accepts it with: fedcap federate join"
        " DIR --invitation THIS --name NAME --dataset DATA"
    )

    server: str
    """The server's address."""
    certificate: str
    """The certificate of the authority that sites trust."""
    plan: Plan
    """The plan that sites agree to."""

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read an invitation; its certificate must be the only one."""
        from fedcap.federation.keys import only_certificate

        invitation = super().read(path)
        certificate = only_certificate(invitation.certificate, Path(path))
        return invitation.model_copy(update={"certificate": certificate})


# --- A site


class SiteConfig(ConfigFile):
    """site.toml: the site's name, the server's address, and the site's data."""

    HEADING = "A site of a federation. Its samples and its own model stay here."

    name: str
    """The site's name for people."""
    server: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):\d{1,5}$")]
    """The server's address, as host:port."""
    dataset: Named
    """The site's data: anything that `fedcap run --dataset` takes, and its options."""
    client: str | None = None
    """The client of the data set whose samples the site has; if not set, all samples."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed by which the samples are partitioned, and split into training and test samples."""


class SiteDirectory:
    """A site's directory."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.audit = Audit(self.directory / AUDIT)
        self.authority = self.directory / AUTHORITY
        """The certificate of the authority that the site trusts."""
        self.agreed = self.directory / "agreed"
        """The folder of the plans that the site has agreed to."""
        self.state = self.directory / "state"
        """The folder of the site's state between rounds."""
        self.logs = self.directory / "logs"
        self.wish = self.directory / "wish"
        """A file that exists while the site asks for a model made for it."""

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Return a site's directory; refuse any other."""
        site = cls(directory)
        if not (site.directory / SITE).is_file():
            what = "the operator's" if (site.directory / FEDERATION).exists() else "no site's"
            raise InputError(
                f"{directory} is {what} directory, not a site's; fedcap federate join makes one",
                code="not-site",
            )
        return site

    @property
    def config(self) -> SiteConfig:
        """The content of site.toml."""
        return SiteConfig.read(self.directory / SITE)

    def agree(self, plan: Plan) -> Path:
        """Record that the site agrees to a plan; return the plan's file."""
        self.agreed.mkdir(parents=True, exist_ok=True)
        path = self.agreed / f"{plan.digest}.toml"
        if not path.exists():
            write_aside(path, plan.text())
            self.audit.write("plan", by="site", plan=plan.digest, bundle=plan.bundle)
        return path

    def plans(self) -> dict[str, Plan]:
        """Return the plans that the site has agreed to, by digest; a changed file does not count."""
        plans = {path.stem: Plan.read(path) for path in sorted(self.agreed.glob("*.toml"))}
        return {digest: plan for digest, plan in plans.items() if plan.digest == digest}


# --- One process in a directory


@contextmanager
def held(directory: Path, name: str = LOCK, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a lock of a directory for this process; raise an `InputError` if another holds it for too long.

    A negative number of seconds waits without end.
    """
    lock = FileLock(directory / name, timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"another process is running in {directory}: stop it first", code="busy") from None
    try:
        yield
    finally:
        lock.release()


def is_held(directory: Path, name: str = LOCK) -> bool:
    """Return whether a process holds a lock of a directory."""
    if not (directory / name).exists():
        return False
    try:
        with FileLock(directory / name, blocking=False):
            return False
    except Timeout:
        return True
