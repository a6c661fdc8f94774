"""The site's own `flwr-clientapp`: it runs no bundle but those that the site has agreed to.

Whatever a run uploads is code that goes first on the path of the process that answers a message. This program
takes the place of Flower's on the SuperNode's path, and compares the bundle's SHA-256 with the site's list
before anything is unpacked. Flower's other kinds of tasks have no business at a site: their programs are
turned into refusals.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

BUNDLES = "FEDCAP_BUNDLES"
"""The variable that holds the digests of the bundles that the site has agreed to, with commas between."""
SITE, CLIENT, AUTHORITY = "FEDCAP_SITE", "FEDCAP_CLIENT", "FEDCAP_AUTHORITY"
"""The variables that name the site's directory, the fingerprint of its key, and the file of the authority's
certificate, for our app."""
INSTALL = "install_from_fab"
"""Flower's own function that unpacks a bundle; it comes without a promise."""
ALLOWED = ("flower-superexec", "flwr-clientapp")
OTHERS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


class NotAgreed(Exception):
    """A bundle that the site has not agreed to."""


def guarded(install: Callable[..., Any], agreed: frozenset[str]) -> Callable[..., Any]:
    """Return Flower's function that unpacks a bundle, made to refuse any that is not agreed to."""

    def check(content: bytes, *arguments: Any, **options: Any) -> Any:
        found = hashlib.sha256(content).hexdigest()
        if found not in agreed:
            raise NotAgreed(f"this site has not agreed to the bundle {found}")
        return install(content, *arguments, **options)

    return check


def main() -> None:
    """Run Flower's ClientApp process, guarded."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    from fedcap.federation.flower.version import require_flower

    require_flower()
    agreed = frozenset(filter(None, os.environ.get(BUNDLES, "").split(",")))
    flower: Any = import_module("flwr.supernode.runtime.run_clientapp")
    if not hasattr(flower, INSTALL):
        raise SystemExit(f"Flower has no {INSTALL} here, by which bundles are checked: nothing is run")
    setattr(flower, INSTALL, guarded(getattr(flower, INSTALL), agreed))
    flwr_clientapp()


def write_programs(folder: Path) -> Path:
    """Write the programs that a SuperNode may start, and return their folder: the whole of its path."""
    folder.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable)
    lines = {
        "flower-superexec": f'exec "{python.parent / "flower-superexec"}" "$@"',
        "flwr-clientapp": f'exec "{python}" -m fedcap.federation.flower.guard "$@"',
    }
    refusal = 'echo "a site runs no such task: $0" >&2; exit 1'
    for name in (*ALLOWED, *OTHERS):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{lines.get(name, refusal)}\n")
        program.chmod(0o755)
    return folder


if __name__ == "__main__":
    main()
