"""The configuration of the nginx in front of a SuperLink: the paths that a SuperNode needs, and nothing else.

nginx ends the sites' TLS and speaks TLS again to the SuperLink on the loopback interface, whose certificate
it checks. Everything that could register a key, or start, list or stop a run, is answered with 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FLEET = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""What a SuperNode calls. Not among them: registering and unregistering, which are the operator's."""
PIECE = 5 << 20
"""Bytes of the largest object that Flower sends: it cuts arrays into pieces of this size."""
LIMIT = "6m"
"""The largest request: a piece and its envelope."""
CONNECTIONS = 64
"""How many connections one address may have: many sites may share one."""


@dataclass(frozen=True)
class Nginx:
    """What nginx needs to know; `folder` is where it keeps its own files."""

    folder: Path
    listen: str
    """Where sites connect: a port, or address:port."""
    link: int
    """The SuperLink's port on the loopback interface."""
    certificate: Path
    key: Path
    authority: Path

    def text(self) -> str:
        """Return the whole configuration, for `nginx -c`."""
        folder = self.folder.absolute()
        return "\n".join(
            [
                "# Written by fedcap: sites reach the fleet's paths of the SuperLink, and nothing else.",
                f'pid "{folder}/nginx.pid";',
                f'error_log "{folder}/error.log" warn;',
                "worker_processes auto;",
                "events { worker_connections 1024; }",
                "http {",
                f'    access_log "{folder}/access.log";',
                *(
                    f'    {kind}_temp_path "{folder}/{kind}";'
                    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
                ),
                "    server_tokens off;",
                "    limit_conn_zone $binary_remote_addr zone=sites:1m;",
                f"    upstream superlink {{ server 127.0.0.1:{self.link}; keepalive 16; }}",
                *(f"    {line}" for line in self.server()),
                "}",
                "",
            ]
        )

    def server(self) -> list[str]:
        """Return the lines of the `server` block, for whoever has an nginx already."""
        return [
            "server {",
            f"    listen {self.listen} ssl;",
            f'    ssl_certificate "{self.certificate.absolute()}";',
            f'    ssl_certificate_key "{self.key.absolute()}";',
            "    ssl_protocols TLSv1.2 TLSv1.3;",
            f"    client_max_body_size {LIMIT};",
            f"    client_body_buffer_size {LIMIT};  # in memory: nginx's workers may not write here",
            "    proxy_max_temp_file_size 0;",
            "    proxy_buffers 8 64k;",
            "    client_header_timeout 30s;",
            "    client_body_timeout 60s;",
            "    send_timeout 60s;",
            "    keepalive_timeout 75s;",
            f"    limit_conn sites {CONNECTIONS};",
            "    proxy_http_version 1.1;",
            '    proxy_set_header Connection "";',
            "    proxy_set_header Host localhost;",
            "    proxy_connect_timeout 5s;",
            "    proxy_read_timeout 60s;",
            "    proxy_next_upstream off;",
            "    proxy_redirect off;",
            "    proxy_ssl_verify on;",
            "    proxy_ssl_name localhost;",
            f'    proxy_ssl_trusted_certificate "{self.authority.absolute()}";',
            *(
                f"    location = /v1/fleet/{name} {{ limit_except POST {{ deny all; }}"
                f" proxy_pass https://superlink/v1/fleet/{name}; }}"
                for name in FLEET
            ),
            "    location / { return 404; }",
            "}",
        ]
