"""A site at work: the one process that holds its data and its model, and Flower's SuperNode beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fedcap.errors import InputError
from fedcap.federation.flower.door import opened
from fedcap.federation.flower.node import Node
from fedcap.federation.flower.version import require_flower
from fedcap.federation.identity import KEY, fingerprint, public_key
from fedcap.federation.lock import held
from fedcap.federation.messages import Answer, Arrays, Config, Malformed, Order
from fedcap.federation.plan import SLACK
from fedcap.federation.site import Site
from fedcap.federation.site_config import SiteDirectory

MOST_MODELS = 64
"""How many models an order may have, as far as this process reads it; the policy bounds the bytes."""


def run_site(
    directory: SiteDirectory,
    say: Callable[[str], None],
    stop: threading.Event,
    make: Callable[[SiteDirectory, str], Site] = Site,
) -> None:
    """Take part until `stop` is set, and say whenever something changes; call it from the main thread."""
    require_flower()
    plans = directory.plans()
    if not plans:
        raise InputError(
            "this site has agreed to no plan: read it with fedcap federate show-plan"
            f" {directory.directory}, and agree with --agree"
        )
    with held(directory.directory):
        config, client = directory.config, fingerprint(public_key(directory.directory))
        site = make(directory, client)
        for plan in plans.values():
            site.desk(plan)
        bundles = sorted({plan.bundle for plan in plans.values() if plan.bundle is not None})
        node = Node(
            directory.directory,
            config.server,
            directory.directory / KEY,
            client,
            directory.authority,
            bundles,
        )
        most = max(MOST_MODELS * 4 * plan.weights for plan in plans.values()) + SLACK
        directory.audit.write("started", client=client, by="site", server=config.server)
        with opened(directory.directory, lambda arrays, config: respond(site, arrays, config), most):
            node.keep(say, stop)
        directory.audit.write("stopped", client=client, by="site")


def respond(site: Site, arrays: Arrays, config: dict[str, Any]) -> tuple[Arrays, Config]:
    """Return a site's answer to a message."""
    try:
        return site.answer(Order.unpack(arrays, config)).pack()
    except Malformed as error:
        return Answer("", 0, refused=f"the order is malformed: {error}").pack()
