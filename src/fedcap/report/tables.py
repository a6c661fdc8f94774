"""Tables that a newcomer can read, from the results of runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from fedcap.simulation.record import Result


@dataclass(frozen=True)
class DemoRow:
    """One attack: how accurate each method stays, and what FedCAP does about the attackers."""

    attack: str
    local: float
    fedavg: float
    fedavg_diverged: bool
    fedavg_ft: float
    fedcap: float
    attackers: int
    attackers_removed: int
    benign_removed: int
    rounds_to_removal: float | None

    @classmethod
    def of(cls, attack: str, local: Result, fedavg: Result, fedcap: Result) -> Self:
        """Read the row off the three runs."""
        attackers = {client.id for client in fedcap.clients if client.malicious}
        return cls(
            attack=attack,
            local=local.tacc,
            fedavg=fedavg.tacc_shared or 0.0,
            fedavg_diverged=fedavg.diverged,
            fedavg_ft=fedavg.tacc_personal,
            fedcap=fedcap.tacc,
            attackers=len(attackers),
            attackers_removed=len(attackers & fedcap.removed.keys()),
            benign_removed=len(fedcap.removed.keys() - attackers),
            rounds_to_removal=fedcap.rounds_to_removal,
        )

    def cells(self) -> list[str]:
        """Return the row as text, a string per column."""
        return [
            "no attack" if self.attack == "none" else self.attack,
            f"{self.local:.1f}",
            f"{self.fedavg:.1f}{' †' if self.fedavg_diverged else ''}",
            f"{self.fedavg_ft:.1f}",
            f"{self.fedcap:.1f}",
            f"{self.attackers_removed} of {self.attackers}" if self.attackers else "–",
            str(self.benign_removed),
            "–" if self.rounds_to_removal is None else f"{self.rounds_to_removal:.1f}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return asdict(self)


DEMO_COLUMNS = (
    "attack",
    "Local",
    "FedAvg",
    "FedAvg fine-tuned",
    "FedCAP",
    "attackers removed",
    "benign removed",
    "rounds to removal",
)
DEMO_NOTES = (
    "Accuracy in percent on the honest clients' own test samples, in the last round. Local: every client "
    "alone. FedAvg: one shared model. Fine-tuned: that model after a client trained it on its own data. "
    "The last three columns are FedCAP's: attackers found, honest clients wrongly removed, and the round in "
    "which attackers were removed, on average."
)
DIVERGED_NOTE = "† diverged: the model is no longer numbers."


def markdown(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    """Return a Markdown table: the first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [list(columns), rule, *lines])


@dataclass(frozen=True)
class DemoTable:
    """The demo's table: a row per attack, and what all of its runs have in common."""

    rows: list[DemoRow]
    clients: int
    rounds: int
    seed: int

    @property
    def title(self) -> str:
        """What the table is about, in a line."""
        attackers = max(row.attackers for row in self.rows)
        return (
            f"Handwritten digits over {self.clients} clients whose data differ, {attackers} of them hostile;"
            f" {self.rounds} rounds, seed {self.seed}"
        )

    @property
    def notes(self) -> list[str]:
        """What a newcomer needs to read the table."""
        diverged = any(row.fedavg_diverged for row in self.rows)
        return [DEMO_NOTES, *([DIVERGED_NOTE] if diverged else [])]

    def markdown(self) -> str:
        """Return the demo's report."""
        parts = [
            "# What attacks do to FedAvg, and what FedCAP does about it",
            self.title + ".",
            markdown(DEMO_COLUMNS, [row.cells() for row in self.rows]),
            *self.notes,
            "![Accuracy by attack, and what the server sees of each client](accuracy.png)",
        ]
        return "\n\n".join(parts) + "\n"
