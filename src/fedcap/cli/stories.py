"""The report on a directory, with what the ledger of a federation says about its clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.report.grid import Memo
    from fedcap.report.model import Report
    from fedcap.report.run import Standing


def story_for(directory: Path, local: Path | None = None, memo: Memo | None = None) -> Report:
    """Return the report on a run, a grid or a federation; `memo` is that of `build_report`."""
    from fedcap.report.page import build_report

    return build_report(directory, local, standings_of(directory), memo)


def standings_of(directory: Path) -> Mapping[str, Standing]:
    """Return what the ledger of a federation says about its clients; nothing if there is no ledger."""
    from fedcap.federation.audit import AUDIT, Audit
    from fedcap.federation.ledger import LEDGER, OPERATOR, Ledger
    from fedcap.report.run import Standing

    for folder in (directory, directory.parent):  # of the operator, or of the run in it
        path = folder / LEDGER
        if path.exists():
            with suppress(InputError):  # a damaged ledger does not prevent the page
                entries = Ledger(path, Audit(folder / AUDIT)).entries().values()
                return {
                    entry.client: Standing(
                        entry.name, str(entry.state), last.reason, last.by == OPERATOR, last.round
                    )
                    for entry in entries
                    for last in entry.changes[-1:]
                }
    return {}
