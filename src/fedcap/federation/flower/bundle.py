"""The app that Flower carries to every site: a name for code that is installed there already, and no code.

Its bytes follow from this package's version alone, so that the digest which a site agrees to, as part of the
plan, can be computed by anybody who has the same version.
"""

from __future__ import annotations

import hashlib

import fedcap

NAME = "fedcap-federation"


def content() -> str:
    """Return the bundle's only file."""
    return "\n".join(
        [
            "[project]",
            f'name = "{NAME}"',
            f'version = "{fedcap.__version__}"',
            'description = "fedcap on Flower; the code is the installed package\'s"',
            'license = "Apache-2.0"',
            "dependencies = []",
            "",
            "[tool.flwr.app]",
            'publisher = "fedcap"',
            "",
            "[tool.flwr.app.components]",
            'serverapp = "fedcap.federation.flower.server_app:app"',
            'clientapp = "fedcap.federation.flower.client_app:app"',
            "",
        ]
    )


def build() -> bytes:
    """Return the bundle, as `flwr build` makes it of a folder with that file."""
    from flwr.cli.build import build_fab_from_files

    return build_fab_from_files({"pyproject.toml": content().encode()})[0]


def digest() -> str:
    """Return the SHA-256 of the bundle."""
    return hashlib.sha256(build()).hexdigest()
