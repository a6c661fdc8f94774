"""What a site keeps between rounds, on its own disk: its personal model, and the last model it received.

There is a file for the last round it took part in, and one for the round before. A round that is played
again, since the server gave it up or was killed, starts from the state before it: nothing is trained twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fedcap.data import Scaling
from fedcap.errors import InputError
from fedcap.federation.config import SiteDirectory
from fedcap.federation.plan import Plan
from fedcap.files import write_aside
from fedcap.runs.checkpoint import About, pack, unpack
from fedcap.state import Tensors, owned, under

GENERATIONS = 2
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class SiteState:
    """What a site has after a round."""

    round: int = 0
    kept: Tensors = field(default_factory=dict)
    """What the method lets it keep, `personal` among it; empty if it never trained."""
    received: Tensor | None = None
    """D: the last model that was made for it, before it trained."""
    scaling: Scaling | None = None
    """How its inputs are standardised, if they are."""


def newest(directory: SiteDirectory) -> tuple[Plan, SiteState]:
    """Return a site's last state, and the plan that it is of; if there is none, raise an `InputError`."""
    folders = [(plan, StateFolder(directory.state, plan)) for plan in directory.plans().values()]
    there = [(folder.changed(), plan, folder) for plan, folder in folders if folder.rounds()]
    if not there:
        raise InputError(f"{directory.directory} has no model yet: the site has taken part in no round")
    _, plan, folder = max(there, key=lambda found: found[0])
    state = folder.last()
    assert state is not None
    return plan, state


class StateFolder:
    """The states of a site under one plan, in `folder/<the plan's course>/round-<n>.safetensors`."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.path = folder / plan.course[:16]
        self._layout, self._course = plan.layout, plan.course

    def rounds(self) -> list[int]:
        """Return the rounds of which there is a state, oldest first."""
        names = (path.name for path in self.path.glob(f"round-*{SUFFIX}"))
        found = (name.removeprefix("round-").removesuffix(SUFFIX) for name in names)
        return sorted(int(number) for number in found if number.isdecimal())

    def changed(self) -> float:
        """Return when the last state was written."""
        return self._file(self.rounds()[-1]).stat().st_mtime

    def before(self, number: int) -> SiteState:
        """Return the state from which a round starts: nothing, if it is the site's first.

        If the server went back further than the site can, it is the oldest there is.
        """
        rounds = self.rounds()
        earlier = [past for past in rounds if past < number]
        if not earlier and number > 1 and len(rounds) == GENERATIONS:
            earlier = rounds[:1]
        return self._read(earlier[-1]) if earlier else SiteState()

    def last(self) -> SiteState | None:
        """Return the state after the last round, none if there was none."""
        rounds = self.rounds()
        return self._read(rounds[-1]) if rounds else None

    def save(self, state: SiteState) -> None:
        """Write a state; it is on disk when this returns. States before the last two go."""
        tensors = under("kept", state.kept)
        if state.received is not None:
            tensors["received"] = state.received
        if state.scaling is not None:
            tensors |= under("scaling", {"mean": state.scaling.mean, "deviation": state.scaling.deviation})
        self.path.mkdir(parents=True, exist_ok=True)
        write_aside(self._file(state.round), pack(About(state.round, self._layout, self._course), tensors))
        for past in self.rounds():
            if past > state.round:  # of a time that the server has forgotten
                self._file(past).unlink()
        for past in self.rounds()[:-GENERATIONS]:
            self._file(past).unlink()

    def _read(self, number: int) -> SiteState:
        path = self._file(number)
        try:
            about, tensors = unpack(path)
        except InputError as error:
            raise InputError(f"{path} {error}; move it away to go on from the round before") from None
        if (about.round, about.layout, about.course) != (number, self._layout, self._course):
            raise InputError(f"{path} is not of this round and plan; move it away to go on without")
        scaling = owned("scaling", tensors)
        return SiteState(
            number,
            owned("kept", tensors),
            tensors.get("received"),
            Scaling(scaling["mean"], scaling["deviation"]) if scaling else None,
        )

    def _file(self, number: int) -> Path:
        return self.path / f"round-{number:06d}{SUFFIX}"
