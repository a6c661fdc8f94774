"""What is wrong with a federation or a site, found before anything starts.

Each check tells what it looked at, and either that it is well or what to do about it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedcap.errors import InputError, plural
from fedcap.federation import audit, certificates, front
from fedcap.federation.building import Built
from fedcap.federation.flower import bundle
from fedcap.federation.flower.version import require_flower
from fedcap.federation.identity import KEY, fingerprint, public_key
from fedcap.federation.ledger import ALLOWED
from fedcap.federation.lock import is_held
from fedcap.federation.operator import INVITATION, Invitation, Operator
from fedcap.federation.plan import Plan
from fedcap.federation.policy import Policy
from fedcap.federation.site_config import POLICY, SiteDirectory
from fedcap.federation.site_data import load_root, load_site_data

AHEAD, BEHIND = 5.0, 300.0
"""By how many seconds a site's clock may be ahead of the server's, or behind, for Flower to accept it."""


@dataclass(frozen=True)
class Check:
    """What was looked at, and what was found."""

    what: str
    well: bool
    said: str


Looks = Iterator[tuple[str, Callable[[], str]]]


def check_operator(operator: Operator) -> list[Check]:
    """Return what is well and what is wrong with an operator's directory."""
    return _all(_looks_of_operator(operator))


def check_site(site: SiteDirectory) -> list[Check]:
    """Return what is well and what is wrong with a site's directory."""
    return _all(_looks_of_site(site))


def _all(looks: Looks) -> list[Check]:
    found = []
    for what, look in looks:
        try:
            found.append(Check(what, True, look()))
        except InputError as error:
            found.append(Check(what, False, str(error)))
    return found


def _looks_of_operator(operator: Operator) -> Looks:
    yield "versions", _versions
    yield "directory", lambda: _private(operator.directory)
    yield "certificate", lambda: _certificate(operator)
    yield "ports", lambda: _ports(operator)
    yield "nginx", lambda: _nginx(operator)
    yield "plan", lambda: _plan(operator.plan, f'write bundle = "{bundle.digest()}" into plan.toml')
    yield "root set", lambda: _root(operator)
    yield "invitation", lambda: _invitation(operator)
    yield "clients", lambda: _clients(operator)
    yield "audit", lambda: _audit(operator.audit)


def _looks_of_site(site: SiteDirectory) -> Looks:
    yield "versions", _versions
    yield "directory", lambda: _private(site.directory)
    yield "key", lambda: _key(site)
    yield "certificate", lambda: _dates(site.authority)
    yield "server", lambda: _server(site)
    yield "plan", lambda: _agreed(site)
    yield "data", lambda: _data(site)
    yield "audit", lambda: _audit(site.audit)


def _versions() -> str:
    from importlib.metadata import version

    from fedcap import __version__

    require_flower()
    return f"fedcap {__version__}, flwr {version('flwr')}"


def _private(path: Path) -> str:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others on this machine may look into {path}: chmod 700 {path}")
    return "for its owner alone"


def _certificate(operator: Operator) -> str:
    _raise(certificates.problems(operator.certificates, operator.federation.hosts))
    return f"for {operator.federation.host}, until {_ends(operator.certificate)}"


def _dates(path: Path) -> str:
    _raise(certificates.dates(path))
    return f"of the authority {certificates.certificate_fingerprint(path)}, until {_ends(path)}"


def _ends(path: Path) -> str:
    return f"{certificates.read_certificate(path).not_valid_after_utc:%Y-%m-%d}"


def _ports(operator: Operator) -> str:
    federation = operator.federation
    ports = f"{federation.port} for sites, {federation.link_port} on this machine alone"
    if federation.port == federation.link_port:
        raise InputError("port and link_port are the same: change one of them in federation.toml")
    if is_held(operator.directory):
        return f"{ports}; the server is running"
    for port, name in ((federation.port, "port"), (federation.link_port, "link_port")):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1" if name == "link_port" else "", port))
            except OSError as error:
                raise InputError(
                    f"{port} cannot be used ({error.strerror}): change {name} in federation.toml"
                ) from None
    return f"{ports}, both free"


def _nginx(operator: Operator) -> str:
    front.write(operator)
    return front.checked(operator)


def _plan(plan: Plan, remedy: str) -> str:
    if plan.bundle != bundle.digest():
        raise InputError(f"it is for another version of fedcap: {remedy}")
    Built.of(plan)
    return f"{plan.method.name}, {plan.weights:,} weights, {plural(plan.rounds, 'round')}"


def _root(operator: Operator) -> str:
    plan, root = operator.plan, operator.federation.root
    wanted = Built.of(plan).method.root_samples
    if not wanted:
        return f"{plan.method.name} needs none"
    if root is None:
        raise InputError(
            f"{plan.method.name} needs clean samples of yours: a table [root] in federation.toml"
        )
    return f"{plural(len(load_root(dict(root), wanted, plan)), 'sample')}"


def _invitation(operator: Operator) -> str:
    path = operator.directory / INVITATION
    invited = Invitation.read(path)
    if (invited.plan, invited.server) != (operator.plan, operator.federation.address):
        raise InputError(
            f"{path} is not of this plan and address: write it anew with fedcap federate init"
            f" {operator.directory}, and send it to the sites"
        )
    return f"{path.name} is of this plan"


def _clients(operator: Operator) -> str:
    entries = operator.ledger.entries().values()
    count, least = sum(entry.state in ALLOWED for entry in entries), operator.plan.least
    if count < least:
        raise InputError(
            f"{plural(count, 'client')} may take part, a round needs {least}: approve more, or lower `least`"
        )
    return f"{plural(count, 'client')} may take part, a round needs {least}"


def _audit(record: audit.Audit) -> str:
    if not record.path.exists():
        return "nothing yet"
    _raise(audit.verify(record.path))
    return f"whole, {plural(sum(1 for _ in record.events()), 'line')}"


def _key(site: SiteDirectory) -> str:
    path = site.directory / KEY
    if not path.exists():
        raise InputError(f"{path} is missing: bring it back from a backup, or enrol anew")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others may read {path}: chmod 600 {path}")
    return f"fingerprint {fingerprint(public_key(site.directory))}"


def _server(site: SiteDirectory) -> str:
    """Meet the server over TLS, and compare its clock with this one."""
    address = site.config.server
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(site.authority))
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=10, context=context)
    try:
        connection.request("GET", "/")
        date = connection.getresponse().getheader("Date")
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"{address} shows a certificate that this site does not trust ({error.verify_message}): compare"
            " fingerprints with the operator by telephone"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"no connection to {address} ({why}): is the server up, and the way open?") from None
    finally:
        connection.close()
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds() if date else 0.0
    if not -BEHIND < ahead < AHEAD:
        way = "ahead of" if ahead > 0 else "behind"
        raise InputError(f"this machine's clock is {abs(ahead):.0f} s {way} the server's: set it")
    return f"{address} answers, with a certificate that this site trusts"


def _agreed(site: SiteDirectory) -> str:
    plan = Invitation.read(site.directory / INVITATION).plan
    objection = Policy.read(site.directory / POLICY).objection(plan)
    if objection is not None:
        raise InputError(f"{POLICY} forbids it: {objection}")
    if plan.digest not in site.plans():
        raise InputError(f"not agreed to yet: fedcap federate show-plan {site.directory} --agree")
    return f"agreed to, within {POLICY}; {_plan(plan, 'install the one that the operator has')}"


def _data(site: SiteDirectory) -> str:
    config = site.config
    plan = Invitation.read(site.directory / INVITATION).plan
    local = load_site_data(dict(config.dataset), config.client, config.seed, plan).local
    return (
        f"{plural(len(local.train), 'sample')} to train on, {len(local.test):,} to test on; they fit the plan"
    )


def _raise(problems: list[str]) -> None:
    if problems:
        raise InputError("; ".join(problems))
