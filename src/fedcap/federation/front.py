"""The nginx in front of the server: its configuration in the operator's directory, and itself as a child."""

from __future__ import annotations

import shutil
import subprocess

from fedcap.errors import InputError
from fedcap.federation.flower.nginx import Nginx
from fedcap.federation.flower.processes import Child, environment
from fedcap.federation.operator import Operator
from fedcap.files import write_aside

CONFIGURATION = "nginx.conf"
PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where nginx is, besides the path that people have."""


def write(operator: Operator) -> None:
    """Write nginx.conf, as federation.toml says."""
    federation = operator.federation
    folder = operator.directory / "nginx"
    folder.mkdir(exist_ok=True, mode=0o700)
    listen = f"[::]:{federation.port}" if ":" in federation.host else str(federation.port)
    files = operator.certificate, operator.key, operator.authority
    text = Nginx(folder, listen, federation.link_port, *files).text()
    write_aside(operator.directory / CONFIGURATION, text)


def found() -> str | None:
    """Return the path of nginx, if it is installed."""
    return shutil.which("nginx") or shutil.which("nginx", path=PLACES)


def start(operator: Operator) -> Child:
    """Start nginx with the configuration of the operator's directory."""
    write(operator)
    checked(operator)
    command = [*_command(operator), "-g", "daemon off;"]
    return Child(command, environment(operator.directory / "flower"), operator.logs / "nginx.log")


def checked(operator: Operator) -> str:
    """Let nginx look at its configuration; raise an `InputError` if it is missing or objects."""
    done = subprocess.run([*_command(operator), "-t"], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "[emerg]" in line] or ["it did not say why"]
        raise InputError(f"nginx refuses {operator.directory / CONFIGURATION}: {lines[0]}")
    return f"takes {CONFIGURATION}"


def _command(operator: Operator) -> list[str]:
    program = found()
    if program is None:
        raise InputError(
            "nginx is not installed, and sites reach the server through it: apt install nginx-light"
        )
    folder = operator.directory.absolute()
    return [program, "-p", str(folder / "nginx"), "-c", str(folder / CONFIGURATION)]
