"""The one release of Flower that this room was written for and tested with."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from fedcap.registry import InputError

FLOWER = "1.41.0"
PRIVATE = (
    ("flwr.supernode.runtime.run_clientapp", "install_from_fab"),
    ("flwr.supernode.runtime.run_clientapp", "run_clientapp"),
    ("flwr.superlink.grid.http_grid", "HttpGrid._runtime_client"),
    ("flwr.supercore.control", "ControlHttpClient.StartRun"),
    ("flwr.cli.build", "build_fab_from_files"),
)
"""Names without a promise that `guard`, `pulling`, `link` and `bundle` stand on."""


def require_flower() -> None:
    """Raise an `InputError` that says what to install unless Flower is here, in the release we know."""
    install = f"pip install 'fedcap[flower]' (flwr {FLOWER})"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(f"a federation needs Flower: {install}") from None
    if found != FLOWER:
        raise InputError(
            f"this is flwr {found}, and the checks on what it runs are written for another: {install}"
        )
    for module, name in PRIVATE:
        if not has(module, name):
            raise InputError(
                f"this flwr {found} has no {module}.{name}, on which a site's safety rests: {install}"
            )


def has(module: str, name: str) -> bool:
    """Return whether a module has a name, dots included."""
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return True
