"""The nginx in front of the SuperLink: the paths that a SuperNode needs, and no others.

nginx ends the sites' TLS and speaks TLS to the SuperLink on the loopback interface, whose certificate it
checks. All paths that could register a key, or start, list or stop a run, are answered with 404.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from fedcap.errors import InputError
from fedcap.federation.config import Operator
from fedcap.federation.flower.compat import FLEET_CALLS
from fedcap.federation.flower.process import Program, environment
from fedcap.files import write_aside

CONFIGURATION = "nginx.conf"
PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where nginx is, if it is not on the path."""
LOCATION = (
    "        location = /v1/fleet/%s"
    " { limit_except POST { deny all; } proxy_pass https://superlink/v1/fleet/%s; }"
)
TEMPLATE = """\
# Written by fedcap: sites reach the fleet's paths of the SuperLink, and nothing else.
pid "%(folder)s/nginx.pid";
error_log "%(folder)s/error.log" warn;
worker_processes auto;
events { worker_connections 1024; }
http {
    access_log "%(folder)s/access.log";
    client_body_temp_path "%(folder)s/client_body";
    proxy_temp_path "%(folder)s/proxy";
    fastcgi_temp_path "%(folder)s/fastcgi";
    uwsgi_temp_path "%(folder)s/uwsgi";
    scgi_temp_path "%(folder)s/scgi";
    server_tokens off;
    limit_conn_zone $binary_remote_addr zone=sites:1m;
    upstream superlink { server 127.0.0.1:%(link)d; keepalive 16; }
    server {
        listen %(listen)s ssl;
        ssl_certificate "%(certificate)s";
        ssl_certificate_key "%(key)s";
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size 6m;  # Flower cuts arrays into pieces of 5 MiB
        client_body_buffer_size 6m;  # in memory: nginx's workers may not write here
        proxy_max_temp_file_size 0;
        proxy_buffers 8 64k;
        client_header_timeout 30s;
        client_body_timeout 60s;
        send_timeout 60s;
        keepalive_timeout 75s;
        limit_conn sites 64;  # of one address: many sites may share it
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host localhost;
        proxy_connect_timeout 5s;
        proxy_read_timeout 60s;
        proxy_next_upstream off;
        proxy_redirect off;
        proxy_ssl_verify on;
        proxy_ssl_name localhost;
        proxy_ssl_trusted_certificate "%(authority)s";
%(locations)s
        location / { return 404; }
    }
}
"""


def configuration(operator: Operator) -> str:
    """Return the whole configuration, for `nginx -c`."""
    federation, directory = operator.federation, operator.directory.absolute()
    return TEMPLATE % {
        "folder": directory / "nginx",
        "listen": f"[::]:{federation.port}" if ":" in federation.host else federation.port,
        "link": federation.link_port,
        "certificate": operator.certificate.absolute(),
        "key": operator.key.absolute(),
        "authority": operator.authority.absolute(),
        "locations": "\n".join(LOCATION % (name, name) for name in FLEET_CALLS),
    }


def write_configuration(operator: Operator) -> None:
    """Write nginx.conf from federation.toml."""
    (operator.directory / "nginx").mkdir(exist_ok=True, mode=0o700)
    write_aside(operator.directory / CONFIGURATION, configuration(operator))


def find_nginx() -> str | None:
    """Return the path of nginx, if it is installed."""
    return shutil.which("nginx") or shutil.which("nginx", path=PLACES)


def start(operator: Operator) -> Program:
    """Start nginx with the configuration of the operator's directory."""
    write_configuration(operator)
    check(operator)
    command = [*_command(operator.directory), "-g", "daemon off;"]
    return Program(command, environment(operator.directory / "flower"), operator.logs / "nginx.log")


def check(operator: Operator) -> None:
    """Let nginx check its configuration; raise an `InputError` if nginx is missing or rejects it."""
    done = subprocess.run([*_command(operator.directory), "-t"], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "[emerg]" in line] or ["it gave no reason"]
        raise InputError(f"nginx rejects {operator.directory / CONFIGURATION}: {lines[0]}", code="nginx")


def _command(directory: Path) -> list[str]:
    nginx, folder = find_nginx(), directory.absolute()
    if nginx is None:
        raise InputError(
            "nginx is not installed, and sites reach the server through it: apt install nginx-light",
            code="no-nginx",
        )
    return [nginx, "-p", str(folder / "nginx"), "-c", str(folder / CONFIGURATION)]
