"""Take the README's picture from the demo's report; `make pictures` runs this.

It opens fedcap-demo/report.html in headless Chromium and puts three parts of it into docs/demo.png: the map
of methods and attacks, and under Min-Max the scores of each client and the mixing weights.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import MISSING, Browser, browser, is_there  # noqa: E402

FEDCAP = "#cell=digits%2Ffedcap%2Fmin-max%2F0"
ROUND = 8
"""The last round before the malicious clients are removed."""
SCALE, MARGIN = 1.5, 36
BOX = """
    const [selector, title] = arguments;
    const part = document.querySelector(selector);
    const useless = document.querySelectorAll("button, main section > p, .readout");
    useless.forEach((it) => (it.style.display = "none"));
    part.querySelector("h2, figcaption").replaceChildren(
      Object.assign(document.createElement("strong"), { textContent: title }));
    const box = part.getBoundingClientRect();
    return [box.x + scrollX, box.y + scrollY, box.width, box.height];
"""
"""Hides controls and readouts, gives an element a title, and returns its place."""


def shot(window: Browser, selector: str, title: str) -> Image.Image:
    """Return a picture of an element."""
    clip = dict(zip(("x", "y", "width", "height"), window.run(BOX, selector, title), strict=True))
    wanted = {"clip": clip | {"scale": SCALE}, "captureBeyondViewport": True}
    taken = window.command("Page.captureScreenshot", **wanted)
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")


def take(report: Path, to: Path) -> None:
    """Write the picture of a demo's report."""
    with browser() as window:
        window.size(760, 900)
        window.prefers(color_scheme="light")
        window.open(report)
        table = shot(window, "main section", "Accuracy by method and attack, %")
        window.open(report, FEDCAP)
        scores = shot(window, "#detection figure", "FedCAP under Min-Max: the length of each client's update")
        window.open(report, f"{FEDCAP}&round={ROUND}")
        mixing = shot(window, "#mixing figure", f"Mixing weights under Min-Max, round {ROUND}")
    left = max(table.width, scores.width) + 2 * MARGIN
    height = max(table.height + MARGIN + scores.height, mixing.height)
    picture = Image.new("RGB", (left + mixing.width + MARGIN, height + 2 * MARGIN), "white")
    picture.paste(table, (MARGIN, MARGIN))
    picture.paste(scores, (MARGIN, table.height + 2 * MARGIN))
    picture.paste(mixing, (left, MARGIN + (height - mixing.height) // 2))
    picture.quantize(256, dither=Image.Dither.NONE).save(to, optimize=True)


if __name__ == "__main__":
    if not is_there():
        sys.exit(MISSING)
    take(ROOT / "fedcap-demo" / "report.html", ROOT / "docs" / "demo.png")
