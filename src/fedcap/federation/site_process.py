"""A site at work: the one process that holds its data and its model, and Flower's SuperNode beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fedcap.errors import InputError
from fedcap.federation.config import SiteDirectory, held
from fedcap.federation.flower.compat import require_flower
from fedcap.federation.flower.node import Node, listening
from fedcap.federation.keys import fingerprint, public_key
from fedcap.federation.messages import Answer, Malformed, Order
from fedcap.federation.plan import SLACK
from fedcap.federation.site import Site

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
            f"this site has agreed to no plan: fedcap federate agree {directory.directory}",
            code="not-agreed",
            field="plan",
        )
    with held(directory.directory):
        config, client = directory.config, fingerprint(public_key(directory.directory))
        site = make(directory, client)
        for plan in plans.values():
            site.desk(plan)
        bundles = sorted({plan.bundle for plan in plans.values() if plan.bundle is not None})
        node = Node(directory, config.server, client, bundles)
        most = max(MOST_MODELS * 4 * plan.weights for plan in plans.values()) + SLACK
        directory.audit.write("started", client=client, by="site", server=config.server)
        with listening(directory.directory, lambda message: respond(site, message), most):
            node.run(say, stop)
        directory.audit.write("stopped", client=client, by="site")


def respond(site: Site, message: bytes) -> bytes:
    """Return a site's answer to a message."""
    try:
        return site.answer(Order.from_bytes(message)).to_bytes()
    except Malformed as error:
        return Answer("", 0, refused=f"the order is malformed: {error}").to_bytes()
