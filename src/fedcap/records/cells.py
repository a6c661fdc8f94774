"""Where the runs of grids are kept, and how they are found again without knowing the grid.

root/cells/<name>/          a run's directory, with its outcome.json once it has finished
root/failed/<name>.json     why a run failed; beside it, a run that was damaged and played anew
root/planned.json           the names of the runs that the last grid there set out to play
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedcap.errors import InputError
from fedcap.records.outcome import Outcome

CELLS, FAILED, OUTCOME, PLANNED = "cells", "failed", "outcome.json", "planned.json"


@dataclass(frozen=True)
class Failure:
    """Why a cell failed."""

    name: str
    place: Mapping[str, str]
    why: str
    """One line."""
    where: str = ""
    """The traceback, if there is one."""
    anew: bool = False
    """Whether a retry must begin anew: what the run left behind is of no use."""

    def to_json(self) -> str:
        """Return the content of its file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)
_NAMES: TypeAdapter[frozenset[str]] = TypeAdapter(frozenset[str])


def read_failure(path: Path) -> Failure | None:
    """Read why a cell failed; none if it did not."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        return Failure(path.stem, {}, f"{path} is damaged and does not say why", anew=True)


def read_planned(root: Path) -> frozenset[str]:
    """Read the names of the runs that the last grid set out to play; none if that is not known."""
    try:
        return _NAMES.validate_json((root / PLANNED).read_bytes())
    except (OSError, ValidationError):
        return frozenset()


def read_outcome(path: Path) -> Outcome | None:
    """Read an outcome; none if there is no such file."""
    try:
        return Outcome.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: it is no text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path} is {error}") from None
