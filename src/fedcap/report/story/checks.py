"""What a reader wants to be sure of, each with a mark and words; and the figures that stand at the top."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fedcap.errors import duration, plural
from fedcap.report.story.held import Held
from fedcap.report.story.local import LOCAL
from fedcap.report.story.series import Client
from fedcap.report.story.story import Check, Headline
from fedcap.report.story.thinning import MOST_WORDS
from fedcap.runs import always_refused
from fedcap.runs.result import has_diverged

FAR_BEHIND = 20.0
"""By how many points the worst client may lie below all together; and not by half of what they reach."""
WORSE_OFF = 0.5
"""By how many points a client may lie below what it reaches alone: a sample or two of its test part."""
HARDLY = 0.98
"""From this cosine on, malicious updates as long as the honest mean hardly differ from it."""
NAMED = 5
"""How many clients a sentence names."""


def headlines(held: Held, clients: Sequence[Client]) -> list[Headline]:
    """Return the figures of a run: accuracy, the worst client, what is gained, who was removed, the cost."""
    found = []
    accuracy = held.evaluated.accuracy if held.evaluated else None
    honest = [client for client in clients if client.role != "attacker"]
    who = "the sites that told theirs" if held.federated else "the honest clients"
    if held.evaluated and accuracy is not None:
        over = f"Over all test samples of {who} in round {held.evaluated.round}"
        read = readings(accuracy.shared, accuracy.personal)
        found.append(Headline(f"{accuracy.best:.1f} %", "accuracy", f"{over}, {read}."))
        if accuracy.clients:
            found.append(
                Headline(
                    f"{accuracy.worst_client:.1f} %",
                    "worst client",
                    f"The accuracy of the one that fares worst, of {len(accuracy.clients):,}.",
                )
            )
    gains = [client.gain for client in honest if client.gain is not None]
    if gains:
        better = sum(gain > 0 for gain in gains)
        found.append(
            Headline(
                _minus(f"{fmean(gains):+.1f}"),
                "points over Local",
                f"On average over clients; {better} of {len(gains)} do better together than each alone.",
            )
        )
    if held.detects:
        found += _removed(held)
    if held.rounds:
        seconds = sum(record.seconds.total for record in held.rounds)
        sent = sum(record.bytes for record in held.rounds) / len(held.rounds)
        found.append(
            Headline(
                duration(seconds), "time", f"For {plural(len(held.rounds), 'round')}; {over_the_wire(sent)}."
            )
        )
    return found


def readings(shared: float | None, personal: float) -> str:
    """Return with which models an accuracy was measured."""
    if shared is None:
        return "each client with a model of its own: nothing is shared"
    return f"with the better of two models: shared {shared:.1f}, personal {personal:.1f}"


def over_the_wire(sent: float) -> str:
    """Return how many bytes went to and from the clients in a round."""
    return f"{sent / 1e6:.3g} MB a round went over the wire" if sent else "nothing went over the wire"


def _removed(held: Held) -> list[Headline]:
    out = held.removed.keys()
    if held.federated or held.provenance is None:
        words = "Put out by the server or the operator since the start."
        return [Headline(f"{len(out)} of {len(held.members)}", "removed", words)]
    made = []
    attackers, honest = held.malicious, len(held.members) - len(held.malicious)
    if attackers:
        rounds = [held.removed[client].round for client in out & attackers]
        when = f"On average in round {fmean(rounds):.1f}." if rounds else "The detectors saw none of them."
        made.append(Headline(f"{len(rounds)} of {len(attackers)}", "attackers removed", when))
    words = "Those whom the server took for attackers, and who are not."
    return [*made, Headline(f"{len(out - attackers)} of {honest}", "honest clients removed", words)]


def checks(held: Held, clients: Sequence[Client]) -> list[Check]:
    """Return what is checked of every run."""
    if not held.rounds:
        return [Check("none", "Rounds", "No round is done yet: there is nothing to check.")]
    found = [Check("bad", "Stopped", held.result.stopped)] if held.result and held.result.stopped else []
    if held.federated:
        found += [_sites(clients), _probation(clients)]
    else:
        found += [_attack(held), _kept(held, clients), _found(held), _diverged(held)]
    return [*found, _worst(held, clients), *_notes(held)]


def _sites(clients: Sequence[Client]) -> Check:
    """Whether a federation lost sites. Nobody knows who of them is honest."""
    out = [client for client in clients if client.state == "removed"]
    there = sum(client.rounds > 0 for client in clients)
    if out:
        return Check("warn", "Sites kept", f"{plural(len(out), 'site')} removed{_names(out)}.")
    return Check("ok", "Sites kept", f"All {there} that took part.")


def _probation(clients: Sequence[Client]) -> Check:
    """Whether a federation suspects anybody."""
    suspected = [client for client in clients if client.state in ("suspected", "probation")]
    if suspected:
        words = f"{plural(len(suspected), 'site')} on probation{_names(suspected)}."
        return Check("warn", "Suspicion", words)
    return Check("ok", "Suspicion", "Nobody is on probation.")


def _attack(held: Held) -> Check:
    """Whether the attack did anything."""
    name, settings = "Attack", held.settings
    attack = settings.attack.name if settings else "the attack"
    if held.provenance is None:
        return Check("none", name, "It is not known who was malicious: provenance.json cannot be read.")
    if not held.malicious:
        planned = settings is not None and attack != "none"
        words = f"No client is malicious, so {attack} was never carried out." if planned else "No attack."
        return Check("warn" if planned else "none", name, words)
    if settings is not None and settings.method.name == LOCAL:
        return Check("none", name, "Nothing is shared, so there is nothing to attack.")
    if always_refused(held.rounds, held.malicious) == held.malicious:
        return Check("warn", name, f"{attack}: whatever the attackers sent was refused, in every round.")
    realised = [record.attack for record in held.rounds if record.attack is not None]
    cosines = [one.cosine for one in realised if one.cosine is not None]
    ratios = [one.length / one.benign_length for one in realised if one.length and one.benign_length]
    if not cosines or not ratios:
        return Check("warn", name, f"{attack}: nothing of what the attackers sent could be measured.")
    cosine, ratio = fmean(cosines), fmean(ratios)
    words = (
        f"{attack}: over {plural(len(realised), 'round')}, malicious updates were {ratio:.3g} times as long"
        f" as the honest mean, at a cosine of {_minus(f'{cosine:.2f}')} to it"
    )
    if cosine > HARDLY and 0.5 < ratio < 2:
        return Check("warn", name, f"{words}: they hardly differ from honest ones.")
    return Check("ok", name, f"{words}.")


def _kept(held: Held, clients: Sequence[Client]) -> Check:
    """Whether honest clients were kept."""
    name = "Honest clients kept"
    if not held.detects:
        return Check("none", name, "Nobody is looked for, so nobody is removed.")
    out = [client for client in clients if client.removed is not None and client.role != "attacker"]
    honest = sum(client.role != "attacker" for client in clients)
    if held.provenance is None:
        return Check("none", name, f"{plural(len(out), 'client')} removed; nobody knows who is honest.")
    if out:
        words = f"{len(out)} of {plural(honest, 'honest client')} were removed{_names(out)}."
        return Check("bad", name, words)
    return Check("ok", name, f"All {honest} of them.")


def _found(held: Held) -> Check:
    """Whether attackers were found."""
    name, attackers = "Attackers found", held.malicious
    if not attackers:
        words = "There are none to find." if held.provenance else "It is not known who attacks."
        return Check("none", name, words)
    if not held.detects:
        return Check("none", name, f"Nobody looks for the {len(attackers)} attackers.")
    out = attackers & held.removed.keys()
    if out == attackers:
        last = max(held.removed[client].round for client in out)
        return Check("ok", name, f"All {len(attackers)} were removed, the last in round {last}.")
    words = f"{len(out)} of {plural(len(attackers), 'attacker')} were removed"
    share = _share_of_attackers(held)
    if share is None:
        return Check("warn" if out else "bad", name, f"{words}.")
    equal = 100 * len(attackers) / len(held.members)
    words = f"{words}; all of them make up {share:.1f} % of the models that honest clients were last sent"
    return Check(
        "warn" if share < equal / 2 else "bad", name, f"{words} (an equal share would be {equal:.0f} %)."
    )


def _share_of_attackers(held: Held) -> float | None:
    """Return the percentage of attackers in the models that honest clients were last sent, if mixed."""
    mixing = held.last_mixing
    if mixing is None:
        return None
    rows = [at for at, client in enumerate(mixing.receivers) if client not in held.malicious]
    columns = [at for at, client in enumerate(mixing.contributors) if client in held.malicious]
    if not rows:
        return None
    return 100 * float(mixing.weights[rows][:, columns].sum(axis=1).mean())


def _diverged(held: Held) -> Check:
    """Whether all stayed finite."""
    name = "Nobody diverged"
    if has_diverged(held.rounds):
        return Check("bad", name, "Weights of honest clients became NaN or infinite; accuracy means nothing.")
    once = {client for record in held.rounds for client in record.diverged}
    if once:
        words = f"Weights of {plural(len(once), 'client')} were not finite in some round, and are again."
        return Check("warn", name, words)
    return Check("ok", name, "All weights of honest clients stayed finite.")


def _worst(held: Held, clients: Sequence[Client]) -> Check:
    """Whether anybody is left behind."""
    name = "Worst client"
    accuracy = held.evaluated.accuracy if held.evaluated else None
    if accuracy is None or not accuracy.clients:
        return Check("none", name, "Accuracy was not measured yet.")
    gains = [client for client in clients if client.role != "attacker" and client.gain is not None]
    losing = sorted((c for c in gains if (c.gain or 0) < -WORSE_OFF), key=lambda c: c.gain or 0)
    if losing:
        words = f"{len(losing)} of {plural(len(gains), 'client')} are worse off than alone"
        return Check("warn", name, f"{words}, by up to {-(losing[0].gain or 0):.1f} points{_names(losing)}.")
    behind = accuracy.best - accuracy.worst_client
    words = f"{accuracy.worst_client:.1f} %, {behind:.1f} points below all together"
    alone = "; nobody is worse off than alone" if gains else ""
    far = behind > min(FAR_BEHIND, accuracy.best / 2)
    return Check("warn" if far and not gains else "ok", name, f"{words}{alone}.")


def _notes(held: Held) -> list[Check]:
    """Return where the server had to do otherwise than it was set to, if it had to."""
    noted = [record for record in held.rounds if record.notes]
    if not noted:
        return []
    often = f"In {plural(len(noted), 'round')}, first in round {noted[0].round}"
    return [Check("warn", "Noted", f"{often}: {noted[0].notes[0][:MOST_WORDS]}")]


def _names(clients: Sequence[Client]) -> str:
    if not clients:
        return ""
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    return f": {', '.join(client.name for client in clients[:NAMED])}{more}"


def _minus(number: str) -> str:
    return number.replace("-", "−")
