"""The story of a directory, with what a federation's ledger says of its clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.report.story import Memo, Standing, Story


def story_for(directory: Path, local: Path | None = None, memo: Memo | None = None) -> Story:
    """Return the story of a run, a grid or a federation, finished or not; `memo` is as in `story_of`."""
    from fedcap.report.story import story_of

    return story_of(directory, local, standings_of(directory), memo=memo)


def standings_of(directory: Path) -> Mapping[str, Standing]:
    """Return what a federation's ledger says of its clients; nothing if there is none."""
    from fedcap.federation.audit import AUDIT, Audit
    from fedcap.federation.ledger import LEDGER, Ledger
    from fedcap.report.story import Standing

    for folder in (directory, directory.parent):  # of the operator, or of the run inside
        path = folder / LEDGER
        if path.exists():
            with suppress(InputError):  # a damaged ledger is no reason for no page
                entries = Ledger(path, Audit(folder / AUDIT)).entries().values()
                return {
                    entry.client: Standing(entry.name, str(entry.state), entry.changes[-1].reason)
                    for entry in entries
                }
    return {}
