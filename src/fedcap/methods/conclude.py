"""The end of a round as one step over state and memory: look at the uploads, judge, absorb what counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedcap.detection import Look, Verdict
from fedcap.methods.base import Judged, Method, Uploads
from fedcap.methods.dispatch import Dispatch
from fedcap.state import Tensors


@dataclass(frozen=True)
class Conclusion:
    """The outcome of a round on the server."""

    state: Any
    """The method's state after the round."""
    memory: Tensors
    """What the detectors and their policy remember."""
    look: Look
    verdict: Verdict
    refused: Mapping[int, str]
    """Whose upload did not count though they are not removed, and why; by rows of the roster."""
    notes: Sequence[str]
    """Where the method departed from the settings."""


def conclude(
    method: Method[Any], state: Any, memory: Tensors, dispatch: Dispatch, uploads: Uploads
) -> Conclusion:
    """Return what follows from a round's uploads.

    State and memory stay as they are, but the dispatch may hand its models over: it is used once. Whoever
    is removed or suspected does not count, nor does a row that cannot be computed with.
    """
    look = method.look(state, dispatch, uploads)
    verdict = Verdict()
    if method.judge is not None:
        verdict, memory = method.judge(look, memory)
    refused = dict.fromkeys(look.ids[~look.finite].tolist(), "not finite")
    refused |= {client: reason.sentence for client, reason in verdict.suspected.items()}
    refused = {client: why for client, why in refused.items() if client not in verdict.removed}
    removed = torch.tensor(list(verdict.removed), dtype=torch.long)
    out = torch.cat([removed, torch.tensor(list(refused), dtype=torch.long)])
    judged = Judged(dispatch, uploads, look, ~torch.isin(look.ids, out), removed)
    state, notes = method.absorb(state, judged)
    return Conclusion(state, memory, look, verdict, refused, [*verdict.notes, *notes])
