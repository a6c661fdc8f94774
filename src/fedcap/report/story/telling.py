"""`story_of`: the story of any directory that a run, a grid or a federation has left, or is still writing."""

from __future__ import annotations

from pathlib import Path

from fedcap.errors import InputError
from fedcap.report.story.cells import is_grid
from fedcap.report.story.clients import Standings
from fedcap.report.story.grid import Memo, grid_story
from fedcap.report.story.held import Held
from fedcap.report.story.local import read_local
from fedcap.report.story.paper import Paper, nothing_published
from fedcap.report.story.run import Known, run_story
from fedcap.report.story.story import Story
from fedcap.report.story.thinning import Thinning
from fedcap.runs import CONFIG, ROUNDS

FEDERATION = "federation.toml"


class NothingThere(InputError):
    """A directory holds no run, grid or federation, or not yet."""


def story_of(
    path: Path | str,
    local: Path | str | None = None,
    standings: Standings | None = None,
    paper: Paper = nothing_published,
    memo: Memo | None = None,
) -> Story:
    """Return the story of a directory, finished or not. What cannot be read is told in its `troubles`.

    `local` is a run of the method `local` with the same data, to compare clients with. `standings` are what a
    federation's ledger says of its clients, `paper` says what the paper does of a setting. Whoever asks again
    while a grid goes on gives the same `memo` each time: runs that are as they were are not read again.
    """
    path = Path(path)
    in_federation = (path / FEDERATION).exists()
    where = path / "run" if in_federation else path
    if in_federation or (where / CONFIG).exists() or (where / ROUNDS).exists():
        held = Held.read(where, in_federation)
        alone = None if local is None else read_local(Path(local), held)
        said = None
        if held.settings is not None and not held.federated:
            said = paper(held.settings.model_dump(mode="json"))
        return run_story(held, Known(alone, standings or {}, said), Thinning())
    if is_grid(path):
        if local is not None:
            raise InputError("--local is for one run: a grid has its own, if local is among its methods")
        return grid_story(path, paper, {} if memo is None else memo)
    raise NothingThere(
        f"{path} holds no run, grid or federation: give a directory that one of them has written"
    )
