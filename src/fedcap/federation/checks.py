"""What is wrong with the directory of an operator or of a site, found before anything starts.

Each check returns its finding, or raises an `InputError` that says what to do.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path

from fedcap import __version__
from fedcap.errors import InputError, plural
from fedcap.federation import audit, keys
from fedcap.federation.build import Built
from fedcap.federation.config import INVITATION, POLICY, Invitation, Operator, SiteDirectory, is_held
from fedcap.federation.flower import nginx
from fedcap.federation.flower.compat import bundle_digest, require_flower
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.site_data import load_root, load_site_data, unusual_features

AHEAD, BEHIND = 5.0, 300.0
"""By how many seconds Flower accepts a site's clock to be ahead of the server's, or behind."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    what: str
    ok: bool
    message: str
    warning: bool = False
    """Whether the message needs attention although the check passed."""


class _Doubt(Exception):
    """A check passed, and its message needs attention."""


def check_operator(operator: Operator) -> list[CheckResult]:
    """Return the results of all checks of an operator's directory."""
    return _run(
        {
            "versions": _versions,
            "directory": lambda: _private(operator.directory),
            "certificate": lambda: _certificate(operator),
            "ports": lambda: _ports(operator),
            "nginx": lambda: _nginx(operator),
            "plan": lambda: _plan(operator.plan, f'write bundle = "{bundle_digest()}" into plan.toml'),
            "root set": lambda: _root(operator),
            "invitation": lambda: _invitation(operator),
            "clients": lambda: _clients(operator),
            "audit": lambda: _audit(operator.audit),
        }
    )


def check_site(site: SiteDirectory) -> list[CheckResult]:
    """Return the results of all checks of a site's directory."""
    return _run(
        {
            "versions": _versions,
            "directory": lambda: _private(site.directory),
            "key": lambda: _key(site),
            "certificate": lambda: _authority(site.authority),
            "server": lambda: _server(site),
            "plan": lambda: _agreed(site),
            "data": lambda: _data(site),
            "features": lambda: _features(site),
            "audit": lambda: _audit(site.audit),
        }
    )


def _run(checks: Mapping[str, Callable[[], str]]) -> list[CheckResult]:
    results = []
    for what, check in checks.items():
        try:
            results.append(CheckResult(what, True, check()))
        except _Doubt as doubt:
            results.append(CheckResult(what, True, str(doubt), warning=True))
        except InputError as error:
            results.append(CheckResult(what, False, str(error)))
    return results


def _versions() -> str:
    require_flower()
    return f"fedcap {__version__}, flwr {version('flwr')}"


def _private(path: Path) -> str:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others on this machine can read {path}: chmod 700 {path}", code="bad-permissions")
    return "only its owner can read it"


def _certificate(operator: Operator) -> str:
    _raise(keys.certificate_problems(operator.certificates, operator.federation.hosts))
    return f"for {operator.federation.host}, until {_end(operator.certificate)}"


def _authority(path: Path) -> str:
    _raise(keys.date_problems(path))
    return f"of the authority {keys.certificate_fingerprint(path)}, until {_end(path)}"


def _end(path: Path) -> str:
    return f"{keys.read_certificate(path).not_valid_after_utc:%Y-%m-%d}"


def _ports(operator: Operator) -> str:
    federation = operator.federation
    ports = f"{federation.port} for sites, {federation.link_port} for this machine only"
    if federation.port == federation.link_port:
        raise InputError(
            "port and link_port are the same: change one of them in federation.toml", code="bad-value"
        )
    if is_held(operator.directory):
        return f"{ports}; the server is running"
    for name, host, port in (
        ("port", "", federation.port),
        ("link_port", "127.0.0.1", federation.link_port),
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise InputError(
                    f"{port} cannot be used ({error.strerror}): change {name} in federation.toml",
                    code="port",
                ) from None
    return f"{ports}, both free"


def _nginx(operator: Operator) -> str:
    nginx.write_configuration(operator)
    nginx.check(operator)
    return f"accepts {nginx.CONFIGURATION}"


def _plan(plan: Plan, remedy: str) -> str:
    if plan.bundle != bundle_digest():
        raise InputError(f"it is for another version of fedcap: {remedy}", code="other-version")
    Built.of(plan)
    return f"{plan.method.name}, {plan.weights:,} weights, {plural(plan.rounds, 'round')}"


def _root(operator: Operator) -> str:
    plan, root = operator.plan, operator.federation.root
    wanted = Built.of(plan).method.root_samples
    if not wanted:
        return f"{plan.method.name} needs none"
    if root is None:
        raise InputError(
            f"{plan.method.name} needs clean samples of the operator: a table [root] in federation.toml",
            code="missing-root",
        )
    return plural(len(load_root(dict(root), wanted, plan)), "sample")


def _invitation(operator: Operator) -> str:
    path = operator.directory / INVITATION
    invitation = Invitation.read(path)
    if (invitation.plan, invitation.server) != (operator.plan, operator.federation.address):
        raise InputError(
            f"{path} does not match plan.toml and federation.toml: write it again with fedcap federate init"
            f" {operator.directory}, and send it to the sites",
            code="other-plan",
        )
    return f"{path.name} matches the plan"


def _clients(operator: Operator) -> str:
    count = sum(entry.allowed for entry in operator.ledger.entries().values())
    least = operator.plan.least
    if count < least:
        raise InputError(
            f"{plural(count, 'client')} may take part, a round needs {least}: approve more, or lower `least`",
            code="too-few-clients",
        )
    return f"{plural(count, 'client')} may take part, a round needs {least}"


def _audit(record: audit.Audit) -> str:
    if not record.path.exists():
        return "no events yet"
    _raise(audit.verify(record.path))
    return f"complete, {plural(sum(1 for _ in record.events()), 'line')}"


def _key(site: SiteDirectory) -> str:
    path = site.directory / keys.KEY
    if not path.exists():
        raise InputError(
            f"{path} is missing: restore it from a backup, or join in a new directory", code="missing-file"
        )
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others can read {path}: chmod 600 {path}", code="bad-permissions")
    return f"fingerprint {keys.fingerprint(keys.public_key(site.directory))}"


def _server(site: SiteDirectory) -> str:
    """Connect to the server over TLS, and compare its clock with this machine's."""
    address = site.config.server
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(site.authority))
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=10, context=context)
    try:
        connection.request("GET", "/")
        date = connection.getresponse().getheader("Date")
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"{address} has a certificate that this site does not trust ({error.verify_message}): compare"
            " fingerprints with the operator by telephone",
            code="bad-certificate",
        ) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"no connection to {address} ({why}): is the server up, and the port open?",
            code="no-connection",
        ) from None
    finally:
        connection.close()
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds() if date else 0.0
    if not -BEHIND < ahead < AHEAD:
        direction = "ahead of" if ahead > 0 else "behind"
        raise InputError(
            f"this machine's clock is {abs(ahead):.0f} s {direction} the server's: set it", code="bad-clock"
        )
    return f"{address} answers, with a certificate that this site trusts"


def _agreed(site: SiteDirectory) -> str:
    plan = Invitation.read(site.directory / INVITATION).plan
    objection = SitePolicy.read(site.directory / POLICY).objection(plan)
    if objection is not None:
        raise InputError(f"{POLICY} forbids it: {objection}", code="forbidden")
    if plan.digest not in site.plans():
        raise InputError(f"not agreed to yet: fedcap federate agree {site.directory}", code="not-agreed")
    return f"agreed to, within {POLICY}; {_plan(plan, 'install the version of the operator')}"


def _data(site: SiteDirectory) -> str:
    config = site.config
    plan = Invitation.read(site.directory / INVITATION).plan
    local = load_site_data(dict(config.dataset), config.client, config.seed, plan).local
    samples = plural(len(local.train), "sample")
    found = f"{samples} to train on, {len(local.test):,} to test on; they fit the plan"
    if bool((local.test.y == local.test.y[0]).all()):
        label = plan.classes[int(local.test.y[0])]
        raise _Doubt(f"{found}, but all test samples are of the class {label!r}: accuracy says little")
    return found


def _features(site: SiteDirectory) -> str:
    config = site.config
    plan = Invitation.read(site.directory / INVITATION).plan
    unusual = unusual_features(dict(config.dataset), plan)
    if unusual:
        raise _Doubt(
            f"{plural(len(unusual), 'feature')} unlike the operator's samples ({'; '.join(unusual[:3])}):"
            " compare the order and the units of the columns with the operator's"
        )
    if plan.means is None:
        return "the plan states no values to compare with"
    return f"the values of {plural(len(plan.means), 'feature')} are like those in the plan"


def _raise(problems: list[str]) -> None:
    if problems:
        raise InputError("; ".join(problems))
