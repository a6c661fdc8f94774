"""How the two kinds of directories come to be: the operator's, and a site's that took up its invitation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.errors import InputError
from fedcap.federation import front
from fedcap.federation.certificates import certificate_fingerprint, make_authority, make_certificate
from fedcap.federation.identity import Request, make_key, public_key
from fedcap.federation.operator import FEDERATION, INVITATION, Federation, Invitation, Operator
from fedcap.federation.plan import PLAN, Plan
from fedcap.federation.policy import Policy
from fedcap.federation.site_config import AUTHORITY, POLICY, SITE, SiteConfig, SiteDirectory
from fedcap.files import write_aside


def set_up_operator(directory: Path, federation: Federation, plan: Plan) -> str:
    """Write a new federation's directory; return the fingerprint by which sites know the server."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # it will hold the sites' updates
    write_aside(directory / PLAN, plan.text())
    write_aside(directory / FEDERATION, federation.text())
    return refresh(Operator(directory))


def refresh(operator: Operator, renew: bool = False) -> str:
    """Write what follows from federation.toml and plan.toml; return the fingerprint of the authority.

    The authority stays for good, and the server's certificate unless it is to be renewed.
    """
    federation, plan = operator.federation, operator.plan
    operator.certificates.mkdir(mode=0o700, exist_ok=True)
    fingerprint = make_authority(operator.certificates, plan.name)
    if renew or not operator.certificate.exists():
        make_certificate(operator.certificates, federation.hosts)
    operator.invite()
    front.write(operator)
    if plan.digest not in (event.facts.get("plan") for event in operator.audit.events()):
        operator.audit.write("plan", by="operator", plan=plan.digest, bundle=plan.bundle)
    return fingerprint


@dataclass(frozen=True)
class Enrolled:
    """A site that was set up."""

    site: SiteDirectory
    client: str
    """The fingerprint of its key."""
    server: str
    """The fingerprint by which it knows the server."""
    request: Path
    """What it sends to the operator."""


def set_up_site(directory: Path, invitation: Invitation, content: Mapping[str, Any]) -> Enrolled:
    """Write a new site's directory; `content` is that of its site.toml, but for the server's address."""
    config = SiteConfig.of({**content, "server": invitation.server}, "federate enrol")
    if (directory / SITE).exists():
        raise InputError(f"{directory} is a site already: change its {SITE}, or give another directory")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    client = make_key(directory)
    request = directory / f"{config.name}.request.toml"
    Request(config.name, public_key(directory)).write(request)
    write_aside(directory / AUTHORITY, invitation.certificate)
    server = certificate_fingerprint(directory / AUTHORITY)
    write_aside(directory / INVITATION, invitation.text())
    write_aside(directory / POLICY, Policy().text())
    write_aside(directory / SITE, config.text())
    site = SiteDirectory(directory)
    site.audit.write("asked", client=client, by="site", name=config.name, server=config.server)
    return Enrolled(site, client, server, request)
