"""The live page: a web server on this machine that always returns the current report on a directory.

    http://127.0.0.1:PORT/TOKEN/             the page
    http://127.0.0.1:PORT/TOKEN/report.json  the report, with an ETag: an unchanged one is not sent again

A request without the token gets 404, and so does one with another Host header: a page of another host cannot
pretend to be this one (DNS rebinding). The server writes nothing, and ending it does not end the run.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from fedcap.errors import InputError
from fedcap.report.grid import stamp_of
from fedcap.report.model import Report
from fedcap.report.pack import pack
from fedcap.report.page import NothingThere, build_report, page

LOOPBACK = "127.0.0.1"
REPORT = "report.json"
PAUSE = 10.0
"""After a report was made, none is made for this many times as long: the run needs the processor."""
SHORTEST_PAUSE = 0.5
LOG = logging.getLogger("fedcap")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Build = Callable[[Path], Report]


class Current:
    """The current report on a directory, packed; it is made again only if a file there has changed."""

    def __init__(self, directory: Path, build: Build) -> None:
        self._directory = directory
        self._build = build
        self._lock = threading.Lock()
        self._stamp: object = None
        self._next = 0.0
        self._text, self._version = "", ""

    def get(self) -> tuple[str, str]:
        """Return the packed report and its version, which changes whenever the report does."""
        with self._lock:
            start = time.monotonic()
            if start >= self._next and (stamp := stamp_of(self._directory)) != self._stamp:
                self._stamp = stamp
                self._text = self._packed()
                self._version = hashlib.sha256(self._text.encode()).hexdigest()[:16]
                end = time.monotonic()
                self._next = end + max(SHORTEST_PAUSE, PAUSE * (end - start))
            return self._text, self._version

    def _packed(self) -> str:
        try:
            return pack(self._build(self._directory))
        except NothingThere:
            return pack(waiting(self._directory))
        except InputError as error:  # for example a run of Local that does not fit
            return pack(replace(waiting(self._directory), summary=f"{error}."))
        except Exception as error:  # the files may be incomplete at this moment
            LOG.warning("the report could not be made: %s: %s", type(error).__name__, error)
            self._stamp = None
            return self._text or pack(waiting(self._directory))


def waiting(directory: Path) -> Report:
    """Return the report on a directory that holds nothing yet."""
    state = "holds no rounds yet" if directory.exists() else "does not exist yet"
    summary = f"{directory} {state}. This page shows the run as soon as it starts."
    return Report("run", directory.name, summary, "unfinished", 0, 0)


class LivePage:
    """Serves the live page of a directory: `with LivePage(directory) as live: print(live.address)`."""

    def __init__(self, directory: Path | str, port: int = 0, build: Build = build_report) -> None:
        token = secrets.token_urlsafe(16)
        try:
            self._server = _Server((LOOPBACK, port), Current(Path(directory), build), token)
        except OSError as error:
            raise InputError(f"cannot listen on port {port}: {error.strerror}", code="port") from None
        self.address = f"http://{LOOPBACK}:{self._server.server_port}/{token}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # do not wait for connections that send nothing

    def __init__(self, address: tuple[str, int], current: Current, token: str) -> None:
        super().__init__(address, _Handler)
        self.current = current
        self.token = token

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that the browser closed."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30
    # HTTP/1.0, one connection per request: no connection is left open when the page is closed.

    def do_GET(self) -> None:
        name = self._requested()
        if name is None:
            self.send_error(404)
            return
        text, version = self.server.current.get()
        if name == REPORT:
            tag = f'"{version}"'
            known = self.headers.get("If-None-Match") == tag
            self._answer(304 if known else 200, "" if known else text, "application/json", {"ETag": tag})
        else:
            self._answer(200, page(text, live=REPORT), "text/html")

    do_HEAD = do_GET

    def _requested(self) -> str | None:
        """Return the requested name; None if there is no such thing, or the token or the host is wrong."""
        if self.headers.get("Host") not in [
            f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")
        ]:
            return None
        _, token, *rest = self.path.split("?")[0].split("/") if self.path.startswith("/") else ("", "")
        known = hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode())
        return rest[0] if known and rest in ([""], [REPORT]) else None

    def _answer(self, code: int, text: str, kind: str, more: dict[str, str] | None = None) -> None:
        content = text.encode()
        self.send_response(code)
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        if code != 304:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the code alone."""
        self._answer(code, "", "text/plain")

    def version_string(self) -> str:
        """Return the name of the server, without any version."""
        return "fedcap"

    def log_message(self, *_: object) -> None:
        """Do not log requests."""
