"""Create the operator's directory, and the directory of a site that accepts an invitation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.errors import InputError
from fedcap.federation import keys
from fedcap.federation.config import (
    AUTHORITY,
    FEDERATION,
    INVITATION,
    POLICY,
    SITE,
    Federation,
    Invitation,
    Operator,
    SiteConfig,
    SiteDirectory,
)
from fedcap.federation.flower import nginx
from fedcap.federation.plan import PLAN, Plan, SitePolicy
from fedcap.files import write_aside


def set_up_operator(directory: Path, federation: Federation, plan: Plan) -> str:
    """Write a new federation's directory; return the fingerprint by which sites know the server."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # it will hold the sites' updates
    write_aside(directory / PLAN, plan.text())
    write_aside(directory / FEDERATION, federation.text())
    return refresh(Operator(directory))


def refresh(operator: Operator, renew: bool = False) -> str:
    """Write what follows from federation.toml and plan.toml; return the fingerprint of the authority.

    The authority never changes, and the server's certificate only if `renew`.
    """
    federation, plan = operator.federation, operator.plan
    operator.certificates.mkdir(mode=0o700, exist_ok=True)
    fingerprint = keys.make_authority(operator.certificates, plan.name)
    if renew or not operator.certificate.exists():
        keys.make_certificate(operator.certificates, federation.hosts)
    operator.invite()
    nginx.write_configuration(operator)
    if plan.digest not in (event.facts.get("plan") for event in operator.audit.events()):
        operator.audit.write("plan", by="operator", plan=plan.digest, bundle=plan.bundle)
    return fingerprint


@dataclass(frozen=True)
class NewSite:
    """A site that was set up."""

    site: SiteDirectory
    client: str
    """The fingerprint of its key."""
    server: str
    """The fingerprint of the authority that it trusts."""
    request: Path
    """The file that it sends to the operator."""


def set_up_site(directory: Path, invitation: Invitation, content: Mapping[str, Any]) -> NewSite:
    """Write a new site's directory; `content` is its site.toml without the server's address."""
    config = SiteConfig.of({**content, "server": invitation.server}, SITE)
    keys.check_name(config.name)
    if (directory / SITE).exists():
        raise InputError(
            f"{directory} is a site already: change its {SITE}, or give another directory",
            code="exists",
            field="directory",
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    client = keys.make_key(directory)
    request = directory / f"{config.name}.request.toml"
    key = keys.public_key(directory)
    write_aside(request, keys.JoinRequest(name=config.name, fingerprint=client, key=key).text())
    write_aside(directory / AUTHORITY, invitation.certificate)
    write_aside(directory / INVITATION, invitation.text())
    write_aside(directory / POLICY, SitePolicy().text())
    write_aside(directory / SITE, config.text())
    site = SiteDirectory(directory)
    site.audit.write("asked", client=client, by="site", name=config.name, server=config.server)
    return NewSite(site, client, keys.certificate_fingerprint(site.authority), request)
