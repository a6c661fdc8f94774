"""Drawings of one round of FedCAP: the sixth on `digits` under sign flipping, played when the site is built.

Six of the twenty clients are malicious. In this round five of them are removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

import fedcap
from fedcap.detection import Batch, RoundView
from fedcap.matrix import Rows, cosines
from fedcap.methods.base import Sent
from fedcap.methods.fedcap import FedCAP, FedCAPState
from fedcap.simulation.settings import preset

ROUND, GROUPS = 6, 4
SETTINGS = {"dataset": "digits", "attack": "sign-flipping", "rounds": ROUND, "seed": 0, "workers": 1}
CELL = 13
"""The side of a cell of a map."""


@dataclass(frozen=True)
class Computed:
    """The values that the server computed in one round; rows are clients."""

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


_ROUNDS: list[Computed] = []
"""The rounds that were played, in order."""


@dataclass(frozen=True)
class RecordingFedCAP(FedCAP):
    """FedCAP that stores the values of each round."""

    def view(self, state: FedCAPState, sent: Sent, batch: Batch) -> RoundView:
        """Return FedCAP's view, and store the values behind it."""
        models, mixing = sent.models.clone(), sent.mixing
        view = super().view(state, sent, batch)
        assert view.recovered is not None
        assert view.reference is not None
        if mixing is not None:
            recovered = view.recovered.clone()
            _ROUNDS.append(Computed(state.models, state.model, mixing, models, recovered, view.reference))
        return view


class DrawnRound:
    """The round, and its drawings."""

    def __init__(self) -> None:
        _ROUNDS.clear()
        method = RecordingFedCAP(**preset("digits", "fedcap"))
        self.limit = method.t_norm
        result = fedcap.Experiment(**SETTINGS, method=method).run()
        self.computed = _ROUNDS[-1]
        self.record = result.history[-1]
        attackers = {int(client.id) for client in result.clients if client.malicious}
        groups = {k: None if k in attackers else k % GROUPS for k in range(len(result.clients))}
        self.groups = groups
        self.order = sorted(groups, key=lambda k: (GROUPS if groups[k] is None else groups[k], k))
        """The clients in the order of the drawings: group by group, then the malicious ones."""

    def drawings(self) -> dict[str, str]:
        """Return the drawings by the names of their files."""
        return {
            "compare.svg": self.compare(),
            "weigh.svg": self.weigh(),
            "mix.svg": self.mix(),
            "remove.svg": self.remove(),
        }

    def _map(self, values: Tensor, title: str, scale: float) -> list[str]:
        """Return a map of clients × clients with a mark for each; `title` is the text of a cell."""
        order = self.order
        numbers = values[order][:, order].tolist()
        titles = [
            [title.format(row=a, column=b, value=numbers[i][j]) for j, b in enumerate(order)]
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
            words = "malicious" if group is None else f"honest, {name} digits"
            parts.append(mark(x, y + 24 * at, group))
            parts.append(text(x + 14, y + 24 * at + 4, words, anchor="start"))
        return parts

    def compare(self) -> str:
        """Draw the cosines between the clients' calibrated updates."""
        rows = Rows(self.computed.models, self.computed.last)
        similarity = cosines(rows, rows)
        parts = self._map(similarity, "cosine of clients {row} and {column}: {value:.2f}", 1.0)
        note = [
            text(325, 190, "blue: similar, +1", anchor="start"),
            text(325, 212, "orange: opposite, −1", anchor="start"),
        ]
        about = (
            "Map of cosines between clients' updates: groups are blocks of similar clients on the diagonal"
        )
        return drawing(560, 310, about, [*parts, *self._legend(335, 50), *note])

    def weigh(self) -> str:
        """Draw the mixing weights, and those of one client as bars."""
        weights = self.computed.weights
        top = float(weights.max())
        parts = self._map(weights, "client {row}: {value:.1%} from client {column}", top)
        client = self.order[0]
        parts += self._bars(client, weights[client].tolist())
        about = "Map of mixing weights: receivers in rows, contributors in columns; groups are blocks"
        return drawing(700, 310, about, parts)

    def _bars(self, client: int, weights: Sequence[float]) -> list[str]:
        parts = [text(340, 30, f"the model for client {client} is mixed from", anchor="start")]
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
        updates = self.computed.models - self.computed.last
        points = torch.cat([updates, self.computed.sent - self.computed.last])
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

    def remove(self) -> str:
        """Draw the length of each calibrated update against the limit."""
        lengths = torch.linalg.vector_norm(self.computed.recovered - self.computed.reference, dim=1).tolist()
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
        about = (
            "Length of each client's calibrated update: those of five malicious clients are over the limit"
        )
        return drawing(720, 310, about, parts)


# --- SVG that is part of the page: extra.css gives it the page's colours, light or dark


def drawing(width: float, height: float, about: str, parts: Iterable[str]) -> str:
    """Return a figure as one block without empty lines; `about` describes it."""
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(about)}">'
    )
    lines = ["<figure class='drawing'>", head, *parts, "</svg>", "</figure>"]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return text at a place; `anchor` is start, middle or end."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(a: tuple[float, float], b: tuple[float, float], kind: str = "") -> str:
    """Return a line between two places."""
    return f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" class="{kind}"/>'


def mark(x: float, y: float, group: int | None, title: str = "", hollow: bool = False) -> str:
    """Return the mark of a client: a shape for each group, a cross for a malicious client (no group)."""
    r = 6.0
    if group is None:
        path = f"M{-r} {-r}L{r} {r}M{-r} {r}L{r} {-r}"
        kind = "attacker"
    else:
        turns = {0: (), 1: (4, math.pi / 4), 2: (3, -math.pi / 2), 3: (4, 0.0)}[group]
        path = _polygon(r * 1.15, *turns) if turns else f"M{-r} 0A{r} {r} 0 1 1 {r} 0A{r} {r} 0 1 1 {-r} 0Z"
        kind = f"group{group}{' hollow' if hollow else ''}"
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<path d="{path}" transform="translate({x:.1f} {y:.1f})" class="mark {kind}">{inside}</path>'


def _polygon(radius: float, corners: int, turn: float) -> str:
    angles = (turn + 2 * math.pi * corner / corners for corner in range(corners))
    points = (f"{radius * math.cos(angle):.2f} {radius * math.sin(angle):.2f}" for angle in angles)
    return f"M{'L'.join(points)}Z"


def heat(x: float, y: float, values: Sequence[Sequence[float]], titles: Sequence[Sequence[str]]) -> list[str]:
    """Return a map of values from −1 to 1: opacity shows the size, and colour shows the sign."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{CELL * len(values[0])}" height="{CELL * len(values)}" class="frame"/>'
    ]
    for row, (numbers, texts) in enumerate(zip(values, titles, strict=True)):
        for column, (number, title) in enumerate(zip(numbers, texts, strict=True)):
            kind = "below" if number < 0 else "above"
            place = f'x="{x + CELL * column:g}" y="{y + CELL * row:g}" width="{CELL}" height="{CELL}"'
            fill = f'class="{kind}" fill-opacity="{min(1, abs(number)):.2f}"'
            parts.append(f"<rect {place} {fill}><title>{escape(title)}</title></rect>")
    return parts
