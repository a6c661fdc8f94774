"""Headless Chromium, driven through chromedriver and the WebDriver protocol by the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENTER, LEFT, RIGHT, DOWN, TAB = "\ue007", "\ue012", "\ue014", "\ue015", "\ue004"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMEDRIVER = shutil.which("chromedriver")
MISSING = "chromium and chromedriver are not installed: apt-get install chromium chromium-driver"
READY = "document.body?.dataset.ready === 'true'"
"""True when our page is drawn."""
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def is_there() -> bool:
    return CHROMIUM is not None and CHROMEDRIVER is not None


class Browser:
    """One window."""

    def __init__(self, address: str, downloads: Path) -> None:
        self._address, self.downloads = address, downloads
        self._session = ""
        options = {
            "binary": CHROMIUM,
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-dev-shm-usage",
            ],
            "prefs": {"download.default_directory": str(downloads)},
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"

    def _call(self, verb: str, path: str, content: Any = None) -> Any:
        data = None if verb != "POST" else json.dumps(content or {}).encode()
        request = urllib.request.Request(self._address + self._session + path, data, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, page: Path | str, fragment: str = "", ready: str = READY) -> None:
        """Open a file or an address, and wait until the page says that it is drawn."""
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        self.leave()
        self._call("POST", "/url", {"url": address + fragment})
        try:
            self.wait(ready)
        except AssertionError as error:
            raise AssertionError(f"{error}; the console says {self.complaints()}") from None
        self.settle()

    def leave(self) -> None:
        """Open an empty page, so that the one before asks for nothing more."""
        self._call("POST", "/url", {"url": "about:blank"})

    def settle(self) -> None:
        """Wait until the page has been drawn again."""
        done = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(1)))"
        self._call("POST", "/execute/async", {"script": done, "args": []})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def value(self, expression: str) -> Any:
        return self.run(f"return {expression}")

    def wait(self, expression: str, seconds: float = 20) -> Any:
        """Wait until an expression is true in the page, and return it."""
        return waited(lambda: self.value(expression), seconds, expression)

    def find(self, selector: str) -> dict[str, str]:
        return self._call("POST", "/element", {"using": "css selector", "value": selector})  # type: ignore[no-any-return]

    def click(self, selector: str) -> None:
        self.run(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})",
            element := self.find(selector),
        )
        self._call("POST", f"/element/{element[_ELEMENT]}/click")
        self.settle()

    def type(self, selector: str, keys: str) -> None:
        """Press keys in an element, which gets the focus."""
        self._call("POST", f"/element/{self.find(selector)[_ELEMENT]}/value", {"text": keys})
        self.settle()

    def press(self, keys: str) -> None:
        """Press keys wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})
        self.settle()

    def texts(self, selector: str) -> list[str]:
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent)", selector
        )  # type: ignore[no-any-return]

    def command(self, name: str, **content: Any) -> Any:
        """Give a command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": content})

    def size(self, width: int, height: int) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefers(self, **features: str) -> None:
        """Emulate what a reader prefers: `color_scheme="dark"`."""
        named = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self.command("Emulation.setEmulatedMedia", features=named)

    def shoot(self, path: Path, whole: bool = True) -> None:
        """Take a picture of the page, or of what is seen of it."""
        taken = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def print(self, path: Path) -> None:
        """Print to a PDF."""
        path.write_bytes(base64.b64decode(self.command("Page.printToPDF", printBackground=True)["data"]))

    def download(self, selector: str) -> str:
        """Press a button that saves a file, and return the file's content."""
        before = set(self.downloads.iterdir())
        self.click(selector)

        def fresh() -> list[Path]:
            files = set(self.downloads.iterdir()) - before
            return [path for path in files if path.suffix != ".crdownload" and path.name[0] != "."]

        return waited(fresh, 10, "a download")[0].read_text(encoding="utf-8-sig")  # type: ignore[no-any-return]

    def complaints(self) -> list[str]:
        """Return the console's new warnings and errors."""
        return [line["message"] for line in self._log("browser") if line["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call."""
        messages = [json.loads(line["message"])["message"] for line in self._log("performance")]
        return [
            it["params"]["request"]["url"] for it in messages if it["method"] == "Network.requestWillBeSent"
        ]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return self._call("POST", "/se/log", {"type": kind})  # type: ignore[no-any-return]

    def close(self) -> None:
        self._call("DELETE", "")


def waited(look: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.05)
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Start chromedriver and a window, and end both."""
    assert CHROMEDRIVER is not None
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        driver = subprocess.Popen(
            [CHROMEDRIVER, "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, text=True
        )
        assert driver.stdout is not None
        window = None
        try:
            port = next(
                line.rsplit(" ", 1)[1].strip(". \n")
                for line in driver.stdout
                if "successfully on port" in line
            )
            (downloads := Path(scratch) / "downloads").mkdir()
            window = Browser(f"http://127.0.0.1:{port}", downloads)
            yield window
        finally:
            if window is not None:
                window.close()
            driver.terminate()
            driver.wait(10)
