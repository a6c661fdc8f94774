"""Gather the pages, build the site, and check it: `python -m docs [FOLDER]`, by default into `site/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fedcap
from docs.gather import HERE, ROOT, gather
from docs.links import find_problems


def main(site: Path) -> None:
    """Build the site; if there are problems, print a line for each, and fail."""
    if site.exists() and not (site / "objects.inv").is_file():
        sys.exit(f"{site} exists and is not a site: name a new folder")
    work = ROOT / "build" / "docs"
    gather(work / "pages")
    settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
    (work / "zensical.toml").write_text(
        settings.replace("SOURCES", str(Path(fedcap.__file__).parents[1])), encoding="utf-8"
    )
    shutil.rmtree(work / "site", ignore_errors=True)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if code := subprocess.run(build, cwd=work, check=False).returncode:
        sys.exit(code)
    if problems := find_problems(work / "site"):
        sys.exit("\n".join(problems))
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(work / "site", site)
    print(f"Open {site / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site"))
