"""The operator's directory: what a person edits, what is handed to sites, and what the server keeps.

federation.toml    where sites reach the server, and its ports
plan.toml          what is learnt, by which method, for how long
invitation.toml    what sites are sent: the address, the authority's certificate, the plan
certificates/      the authority and the server's certificate, with their private keys
ledger.json        who may take part;  audit.jsonl: what happened
run/               the run, as `fedcap show` and `fedcap report` read it;  logs/: what the programs said
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.federation.audit import AUDIT, Audit
from fedcap.federation.certificates import CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY, only_certificate
from fedcap.federation.commented import commented
from fedcap.federation.identity import read_bytes
from fedcap.federation.ledger import LEDGER, Ledger
from fedcap.federation.plan import PLAN, Plan
from fedcap.files import write_aside
from fedcap.runs import Named, read_toml, to_toml
from fedcap.trackers import Words

FEDERATION, INVITATION = "federation.toml", "invitation.toml"
MOST_INVITATION = 1_000_000
"""How many bytes an invitation may have."""

Port = Annotated[int, Field(ge=1, le=65535)]


def _no_port(host: str) -> str:
    """Return a host; one with a colon must be an address, lest somebody has added the port."""
    try:
        return host if ":" not in host else str(ipaddress.IPv6Address(host))
    except ValueError:
        raise ValueError("a name or address is wanted, without the port") from None


Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]+$", max_length=253), AfterValidator(_no_port)]


class Federation(BaseModel):
    """federation.toml: where the server is."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: Host
    """The name or address by which sites reach the server."""
    port: Port = 9443
    """The port that sites reach, which nginx listens on."""
    link_port: Port = 9092
    """The port of Flower's SuperLink, on this machine alone. Nobody else may ever reach it."""
    root: Named | None = None
    """The operator's own clean samples, for methods that need some: any data set."""
    track: Words | None = None
    """Trackers that follow the rounds, such as ["csv"]: fedcap list names them."""

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str = FEDERATION) -> Self:
        """Return the content of the file; a mistake is an `InputError` of one line."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(f"{where}: {validation_message(error)}") from None

    @property
    def hosts(self) -> tuple[str, ...]:
        """What the server's certificate is for: its host, and this machine, from where nginx reaches it."""
        return self.host, "localhost", "127.0.0.1"

    @property
    def address(self) -> str:
        """Where sites reach the server."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def text(self) -> str:
        """Return the content of the file, with a note at each entry."""
        return commented(self, "Where sites reach this federation's server. What is learnt is in plan.toml.")


class Operator:
    """One operator's directory."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.audit = Audit(self.directory / AUDIT)
        self.ledger = Ledger(self.directory / LEDGER, self.audit)

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """Return the directory of an operator; refuse any other."""
        made = cls(directory)
        if not (made.directory / FEDERATION).is_file():
            hint = (
                "that is a site's directory" if (made.directory / "site.toml").exists() else "no federation"
            )
            raise InputError(
                f"{directory}: {hint}, and this is for its operator; fedcap federate init makes one"
            )
        return made

    @property
    def federation(self) -> Federation:
        """Where the server is, as federation.toml says now."""
        path = self.directory / FEDERATION
        return Federation.of(read_toml(path), str(path))

    @property
    def plan(self) -> Plan:
        """The plan, as plan.toml says now."""
        return Plan.read(self.directory / PLAN)

    @property
    def certificates(self) -> Path:
        """The folder of the certificates."""
        return self.directory / "certificates"

    @property
    def authority(self) -> Path:
        """The certificate that sites trust."""
        return self.certificates / CA_CERTIFICATE

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.certificates / SERVER_CERTIFICATE

    @property
    def key(self) -> Path:
        """The private key of the server's certificate."""
        return self.certificates / SERVER_KEY

    @property
    def run(self) -> Path:
        """The directory of the run."""
        return self.directory / "run"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.directory / "logs"

    def invite(self) -> Path:
        """Write the invitation, as the other files say now."""
        path = self.directory / INVITATION
        certificate = read_bytes(self.authority).decode()
        write_aside(path, Invitation(self.federation.address, certificate, self.plan).text())
        return path


class Invitation:
    """What the operator sends to a site: where the server is, whom to trust, and the plan."""

    def __init__(self, server: str, certificate: str, plan: Plan) -> None:
        self.server = server
        self.certificate = certificate
        self.plan = plan

    def text(self) -> str:
        """Return the content of the file."""
        head = [
            "# An invitation to a federation; nothing in it is secret. A site takes it up with",
            "# fedcap federate enrol DIR --invitation THIS --name NAME --dataset DATA",
            "",
            to_toml({"server": self.server}),
        ]
        plan = self.plan.model_dump(mode="json", exclude_none=True)
        return "\n".join([*head, f'certificate = """\n{self.certificate}"""\n', to_toml({"plan": plan})])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an invitation; raise an `InputError` for anything else."""
        if path.is_file() and path.stat().st_size > MOST_INVITATION:
            raise InputError(f"{path} is no invitation: it has more than {MOST_INVITATION:,} bytes")
        content: dict[str, Any] = read_toml(path)
        server, certificate, plan = (content.get(key) for key in ("server", "certificate", "plan"))
        if not (isinstance(server, str) and isinstance(certificate, str) and isinstance(plan, dict)):
            raise InputError(f"{path} is no invitation: it has no server, certificate and plan")
        certificate = only_certificate(certificate, path)
        return cls(server, certificate, Plan.of(plan, f"{path}, plan"))
