"""The clients' table: how accurate each one is, what it gains, how much it weighs, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fedcap.report.story.held import Held
from fedcap.report.story.local import Local
from fedcap.report.story.series import Client
from fedcap.report.story.thinning import Thinning


@dataclass(frozen=True)
class Standing:
    """What a federation's ledger says of a client."""

    name: str
    """What people call it."""
    state: str
    reason: str = ""


Standings = Mapping[str, Standing]
"""By identity; empty for a run that is no federation."""


def client_rows(held: Held, local: Local | None, standings: Standings, thin: Thinning) -> list[Client]:
    """Return a line for each client, in their order; sites of the ledger that never took part come last."""
    tested = held.evaluated.accuracy.clients if held.evaluated and held.evaluated.accuracy else {}
    took_part = Counter(client for record in held.rounds for client in record.participants)
    refused = Counter(client for record in held.rounds for client in record.refused)
    suspected = held.rounds[-1].suspected if held.rounds else {}
    shares = last_shares(held)
    alone = local.accuracy if local else {}
    rows = []
    for client in held.clients:
        own, out, standing = tested.get(client), held.removed.get(client), standings.get(client)
        shared, personal = (own.shared, own.personal) if own else (None, None)
        state = "removed" if out else "suspected" if client in suspected else "kept"
        state = standing.state if standing else state
        reason = out.reason if out else str(suspected[client]) if client in suspected else ""
        rows.append(
            Client(
                name=thin.name(standing.name if standing else client),
                role="site" if held.federated else "attacker" if client in held.malicious else "honest",
                state=state,
                shared=shared,
                personal=personal,
                local=alone.get(client),
                gain=gain_over(alone.get(client), shared, personal),
                share=100 * shares[client] if client in shares else None,
                rounds=took_part[client],
                refused=refused[client],
                removed=out.round if out and state == "removed" else None,
                reason=thin.words((standing.reason if standing else "") or reason),
                identity=client if standing else "",
            )
        )
    return rows


def gain_over(alone: float | None, shared: float | None, personal: float | None) -> float | None:
    """Return the better of two accuracies less a third, where known.

    It is rounded: outcomes keep two digits, and what is equal but for that is neither a gain nor a loss.
    """
    best = max((value for value in (shared, personal) if value is not None), default=None)
    return None if best is None or alone is None else round(best - alone, 1) + 0.0


def last_shares(held: Held) -> Mapping[str, float]:
    """Return each client's mean share in the models that were last sent out, if those were mixtures."""
    mixing = held.last_mixing
    if mixing is None:
        return {}
    return dict(zip(mixing.contributors, mixing.weights.mean(axis=0).tolist(), strict=True))
