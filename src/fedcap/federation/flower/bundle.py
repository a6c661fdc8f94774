"""The app that Flower carries to every site: a name for code that is installed there already, and no code.

Its bytes follow from this package's version alone, so that the digest which a site agrees to, as part of the plan,
can be computed by anybody who has the same version.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

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


def write(folder: Path) -> Path:
    """Write the app's folder into `folder`, as `flwr run` takes it, and return it."""
    app = folder / NAME
    app.mkdir(parents=True, exist_ok=True)
    (app / "pyproject.toml").write_text(content())
    return app


def digest() -> str:
    """Return the SHA-256 of the bundle that Flower makes of the folder."""
    from flwr.cli.build import build_fab_from_files

    return hashlib.sha256(build_fab_from_files({"pyproject.toml": content().encode()})[0]).hexdigest()
