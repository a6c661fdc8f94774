"""The live page: a server on this machine alone, which tells the story of a directory as it is now.

    http://127.0.0.1:PORT/TOKEN/            the page
    http://127.0.0.1:PORT/TOKEN/story.json  the story, with an ETag: one that has not changed costs nothing

Whoever does not know the token finds nothing, and neither does a page of another host that pretends to be
this one (DNS rebinding): the Host header must be ours. Nothing is written, and ending it ends nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from fedcap.errors import InputError
from fedcap.report.page import page
from fedcap.report.story import NothingThere, Story, packed, story_of

LOOPBACK = "127.0.0.1"
STORY = "story.json"
REST = 10.0
"""For so many times as long as a story took to tell, it is not told again: runs need the processor more."""
LEAST_REST = 0.5
LOG = logging.getLogger("fedcap")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Latest:
    """The story of a directory as it is now, packed; told anew only if a file there has changed."""

    def __init__(self, directory: Path, tell: Callable[[Path], Story]) -> None:
        self._directory = directory
        self._tell = tell
        self._lock = threading.Lock()
        self._stamp: object = None
        self._next = 0.0
        self._text, self._version = "", ""

    def get(self) -> tuple[str, str]:
        """Return the packed story, and its version, which is another if the story is."""
        with self._lock:
            now = time.monotonic()
            if now >= self._next and (stamp := _stamp(self._directory)) != self._stamp:
                self._stamp = stamp
                self._text = self._told()
                self._version = hashlib.sha256(self._text.encode()).hexdigest()[:16]
                done = time.monotonic()
                self._next = done + max(LEAST_REST, REST * (done - now))
            return self._text, self._version

    def _told(self) -> str:
        try:
            return packed(self._tell(self._directory))
        except NothingThere:
            return packed(waiting(self._directory))
        except InputError as error:  # what the story is to be told with does not go with it
            return packed(replace(waiting(self._directory), sentence=f"{error}."))
        except Exception as error:  # the directory may be in the middle of anything; soon it is not
            LOG.warning("the story could not be told: %s: %s", type(error).__name__, error)
            self._stamp = None
            return self._text or packed(waiting(self._directory))


def waiting(directory: Path) -> Story:
    """Return the story of a directory that holds nothing yet."""
    there = "holds no rounds yet" if directory.exists() else "does not exist yet"
    sentence = f"{directory} {there}. What starts in it is shown here."
    return Story("run", directory.name, sentence, "unfinished", 0, 0)


def _stamp(directory: Path) -> list[tuple[str, int, int]]:
    """Return what changes whenever a record in a directory, or in those in it, does."""
    found = []
    for folder, folders, files in os.walk(directory):
        depth = len(Path(folder).relative_to(directory).parts)
        folders[:] = [] if depth > 1 else folders
        for name in files:
            if name.endswith((".toml", ".json", ".jsonl", ".bin")):
                try:
                    about = os.stat(path := os.path.join(folder, name))
                except OSError:  # it was renamed meanwhile
                    continue
                found.append((path, about.st_mtime_ns, about.st_size))
    return sorted(found)


class Watch:
    """Serves the live page of a directory: `with Watch(directory) as watch: print(watch.address)`."""

    def __init__(
        self, directory: Path | str, port: int = 0, tell: Callable[[Path], Story] = story_of
    ) -> None:
        self._latest = Latest(Path(directory), tell)
        self._token = secrets.token_urlsafe(16)
        try:
            self._server = _Server((LOOPBACK, port), self._latest, self._token)
        except OSError as error:
            raise InputError(f"cannot listen on port {port}: {error.strerror}; give another --port") from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self._server.server_port}/{self._token}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # whoever connects and says nothing is not waited for

    def __init__(self, address: tuple[str, int], latest: Latest, token: str) -> None:
        super().__init__(address, _Handler)
        self.latest = latest
        self.token = token

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a browser that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30
    # HTTP/1.0, a connection per question: none is left to be served once the page is closed.

    def do_GET(self) -> None:
        what = self._asked()
        if what is None:
            self.send_error(404)
            return
        text, version = self.server.latest.get()
        if what == STORY:
            tag = f'"{version}"'
            known = self.headers.get("If-None-Match") == tag
            self._answer(304 if known else 200, "" if known else text, "application/json", {"ETag": tag})
        else:
            self._answer(200, page(text, live=STORY), "text/html")

    do_HEAD = do_GET

    def _asked(self) -> str | None:
        """Return what is asked for; none if it is not there, or if whoever asks may not know that it is."""
        here = [f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")]
        if self.headers.get("Host") not in here:
            return None
        _, token, *rest = self.path.split("?")[0].split("/") if self.path.startswith("/") else ("", "")
        known = hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode())
        return rest[0] if known and rest in ([""], [STORY]) else None

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
        """Send the code and not a word."""
        self._answer(code, "", "text/plain")

    def version_string(self) -> str:
        """Do not say what serves this."""
        return "fedcap"

    def log_message(self, *_: object) -> None:
        """Say nothing of each question."""
