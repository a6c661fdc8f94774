"""One round of FedCAP, drawn: the sixth on `digits` under sign flipping, played when the site is built.

Six of its twenty clients are attackers. In this round five of them are found and removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import fedcap
from docs.svg import CELL, drawing, heat, line, mark, text
from fedcap.detection import Batch, RoundView
from fedcap.matrix import Rows, cosines
from fedcap.methods.base import Sent
from fedcap.methods.fedcap import FedCAP, FedCAPState
from fedcap.simulation.settings import preset

ROUND, GROUPS = 6, 4
SETTINGS = {"dataset": "digits", "attack": "sign-flipping", "rounds": ROUND, "seed": 0, "workers": 1}


@dataclass(frozen=True)
class Seen:
    """What the server computed in one round; rows are clients."""

    models: Tensor
    """N×D: the models of the last round."""
    last: Tensor
    """D: the global model of the last round."""
    weights: Tensor
    """N×N: the mixing weights."""
    sent: Tensor
    """N×D: the customised models."""
    recovered: Tensor
    """N×D."""
    reference: Tensor
    """D: the global model of this round."""


_SEEN: list[Seen] = []
"""The rounds that were played, in order."""


@dataclass(frozen=True)
class Watched(FedCAP):
    """FedCAP that stores what it computes in each round."""

    def view(self, state: FedCAPState, sent: Sent, batch: Batch) -> RoundView:
        """Return FedCAP's view, and store what it was computed from."""
        models, mixing = sent.models.clone(), sent.mixing
        view = super().view(state, sent, batch)
        assert view.recovered is not None
        assert view.reference is not None
        if mixing is not None:
            seen = Seen(state.models, state.model, mixing, models, view.recovered.clone(), view.reference)
            _SEEN.append(seen)
        return view


class Drawn:
    """The drawings of a round, by name."""

    def __init__(self) -> None:
        _SEEN.clear()
        method = Watched(**preset("digits", "fedcap"))
        self.limit = method.t_norm
        result = fedcap.Experiment(**SETTINGS, method=method).run()
        self.seen = _SEEN[-1]
        self.record = result.history[-1]
        attackers = {int(client.id) for client in result.clients if client.malicious}
        groups = {k: None if k in attackers else k % GROUPS for k in range(len(result.clients))}
        self.groups = groups
        self.order = sorted(groups, key=lambda k: (GROUPS if groups[k] is None else groups[k], k))
        """The clients as they are drawn: group by group, attackers last."""

    def all(self) -> dict[str, str]:
        """Return the drawings."""
        return {
            "compare.svg": self.compare(),
            "weigh.svg": self.weigh(),
            "mix.svg": self.mix(),
            "judge.svg": self.judge(),
        }

    def _map(self, values: Tensor, said: str, scale: float) -> list[str]:
        """Return a map of clients × clients with a mark for each, and its titles in words."""
        order = self.order
        numbers = values[order][:, order].tolist()
        titles = [
            [said.format(row=a, column=b, value=numbers[i][j]) for j, b in enumerate(order)]
            for i, a in enumerate(order)
        ]
        scaled = [[number / scale for number in row] for row in numbers]
        marks = []
        for at, client in enumerate(order):
            middle = 40 + CELL * (at + 0.5)
            marks.append(mark(26, middle, self.groups[client], f"client {client}"))
            marks.append(mark(middle, 26, self.groups[client], f"client {client}"))
        return [*marks, *heat(40, 40, scaled, titles)]

    def _legend(self, x: float, y: float) -> list[str]:
        shown: list[tuple[int | None, str]] = [
            (g, name) for g, name in enumerate(("low", "high", "even", "odd"))
        ]
        parts = []
        for at, (group, name) in enumerate([*shown, (None, "")]):
            words = "attacker" if group is None else f"honest, {name} digits"
            parts.append(mark(x, y + 24 * at, group))
            parts.append(text(x + 14, y + 24 * at + 4, words, anchor="start"))
        return parts

    def compare(self) -> str:
        """Draw how like the clients' calibrated updates are."""
        rows = Rows(self.seen.models, self.seen.last)
        likeness = cosines(rows, rows)
        parts = self._map(likeness, "cosine of clients {row} and {column}: {value:.2f}", 1.0)
        note = [
            text(325, 190, "blue: alike, +1", anchor="start"),
            text(325, 212, "orange: opposite, −1", anchor="start"),
        ]
        about = "Map of cosines between clients' updates: each group is a block of likeness on the diagonal"
        return drawing(560, 310, about, [*parts, *self._legend(335, 50), *note])

    def weigh(self) -> str:
        """Draw the mixing weights, and those of one client as bars."""
        weights = self.seen.weights
        top = float(weights.max())
        parts = self._map(weights, "client {row} takes {value:.1%} from client {column}", top)
        client = self.order[0]
        parts += self._bars(client, weights[client].tolist())
        about = "Map of mixing weights: who is sent a model in rows, from whom in columns; groups are blocks"
        return drawing(700, 310, about, parts)

    def _bars(self, client: int, weights: Sequence[float]) -> list[str]:
        parts = [text(340, 30, f"what client {client} is sent is mixed from", anchor="start")]
        for at, other in enumerate(self.order):
            y = 40 + CELL * (at + 0.5)
            length = 250 * weights[other] / max(weights)
            parts.append(mark(350, y, self.groups[other], f"client {other}"))
            parts.append(
                f'<rect x="364" y="{y - 4:g}" width="{length:.1f}" height="8" class="above"/>'
                + text(370 + length, y + 4, f"{weights[other]:.1%}", "small", "start")
            )
        return parts

    def mix(self) -> str:
        """Draw last round's models, and those mixed from them, on the plane in which they differ most."""
        updates = self.seen.models - self.seen.last
        points = torch.cat([updates, self.seen.sent - self.seen.last])
        honest = [k for k in self.order if self.groups[k] is not None]
        plane = torch.linalg.svd(updates[honest], full_matrices=False).Vh[:2]
        flat = points @ plane.T
        reach = flat.abs().amax(dim=0)
        at = (flat / reach * torch.tensor([270.0, -120.0]) + torch.tensor([300.0, 140.0])).tolist()
        count = len(self.order)
        parts = [line((300, 132), (300, 148), "axis"), line((292, 140), (308, 140), "axis")]
        parts.append(text(312, 134, "global model", "small", "start"))
        for k in self.order:
            parts.append(line(tuple(at[k]), tuple(at[count + k]), "arrow"))  # type: ignore[arg-type]
        for k in self.order:
            parts.append(mark(*at[k], self.groups[k], f"client {k}, its last model", hollow=True))
            if self.groups[k] is not None:
                parts.append(mark(*at[count + k], self.groups[k], f"client {k}, the model mixed for it"))
        about = "Models on a plane: the model mixed for each client lies among those of its group"
        return drawing(600, 280, about, parts)

    def judge(self) -> str:
        """Draw the length of each calibrated update against the limit."""
        lengths = torch.linalg.vector_norm(self.seen.recovered - self.seen.reference, dim=1).tolist()
        wide = 560 / max(lengths)
        limit = 60 + wide * self.limit
        parts = [line((limit, 24), (limit, 300), "limit"), text(limit, 16, f"t_norm = {self.limit:g}")]
        for at, k in enumerate(self.order):
            y = 34 + CELL * (at + 0.5)
            x = 60 + wide * lengths[k]
            parts.append(line((60, y), (x, y), "stem"))
            parts.append(mark(x, y, self.groups[k], f"client {k}: {lengths[k]:.2f}"))
            parts.append(text(50, y + 4, str(k), "small", "end"))
            if str(k) in self.record.removed:
                parts.append(text(x + 12, y + 4, f"{lengths[k]:.1f}: removed", "small", "start"))
        about = "Length of each client's calibrated update: those of five attackers are over the limit"
        return drawing(720, 310, about, parts)
