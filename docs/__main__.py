"""Gather the pages, build the site, and check it: `python -m docs [FOLDER]`, by default into `site/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fedcap
from docs.gather import HERE, ROOT, gather
from docs.links import troubles


def main(site: Path) -> None:
    """Build the site; end with a line for each trouble if there is any."""
    if site.exists() and not (site / "objects.inv").is_file():  # an older site is replaced, nothing else
        sys.exit(f"{site} is there and is no site: name a new folder")
    work = ROOT / "build" / "docs"
    gather(work / "pages")
    settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
    (work / "zensical.toml").write_text(
        settings.replace("SOURCES", str(Path(fedcap.__file__).parents[1])), encoding="utf-8"
    )
    shutil.rmtree(work / "site", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=work, check=True)
    found = troubles(work / "site")
    if found:
        sys.exit("\n".join(found))
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(work / "site", site)
    print(f"Open {site / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site"))
