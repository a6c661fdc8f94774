"""The key figures at the top of a page, and the checks: each has a mark, a name and a sentence.

A check never guesses: where nothing can be said, for example because a file cannot be read, its mark is
`none`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from fedcap.errors import duration, plural
from fedcap.report.model import Check, Client, Fact, GridTable, KeyFigure, Report
from fedcap.report.pack import MAX_TEXT
from fedcap.runs import always_refused
from fedcap.runs.result import has_diverged

if TYPE_CHECKING:
    from fedcap.report.run import RunFiles

FAR_BEHIND = 20.0
"""The worst client may be this many points below the overall accuracy, and not below half of it."""
WORSE_OFF = 0.5
"""A client may be this many points below its accuracy with Local: one or two of its test samples."""
HARDLY_DIFFERENT = 0.98
"""From this cosine on, malicious updates of the same length hardly differ from the honest mean."""
MAX_CLIENTS, MAX_RUNS = 5, 3
"""How many clients and runs a sentence names."""


def key_figures(files: RunFiles, clients: Sequence[Client]) -> list[KeyFigure]:
    """Return accuracy, worst client, gain over Local, removals and cost of a run."""
    figures = []
    accuracy = files.evaluated.accuracy if files.evaluated else None
    if files.evaluated and accuracy is not None:
        whose = "the sites that reported theirs" if files.federated else "the honest clients"
        models = "each client has its own model, nothing is shared"
        if accuracy.shared is not None:
            models = (
                f"the better of shared ({accuracy.shared:.1f}) and personal ({accuracy.personal:.1f}) models"
            )
        sentence = f"Over all test samples of {whose} in round {files.evaluated.round}; {models}."
        figures.append(KeyFigure(f"{accuracy.best:.1f} %", "accuracy", sentence))
        if accuracy.clients:
            sentence = f"The lowest accuracy of {plural(len(accuracy.clients), 'client')}."
            figures.append(KeyFigure(f"{accuracy.worst_client:.1f} %", "worst client", sentence))
    gains = [client.gain for client in clients if client.gain is not None]
    if files.evaluated and gains:
        better = sum(gain > 0 for gain in gains)
        sentence = (
            f"Mean over clients of the personal models, compared with Local in the same round "
            f"({files.evaluated.round}). {better} of {len(gains)} clients are better than alone."
        )
        figures.append(KeyFigure(_minus(f"{fmean(gains):+.1f}"), "points over Local", sentence))
    figures += _removals(files, clients)
    if files.rounds:
        seconds = sum(record.seconds.total for record in files.rounds)
        sent = sum(record.bytes for record in files.rounds) / len(files.rounds)
        sentence = f"For {plural(len(files.rounds), 'round')}; {sent / 1e6:.3g} MB sent per round."
        figures.append(KeyFigure(duration(seconds), "time", sentence))
    return figures


def _removals(files: RunFiles, clients: Sequence[Client]) -> list[KeyFigure]:
    removed = [client for client in clients if client.state == "removed"]
    if files.federated or files.provenance is None:
        if not files.detects and not removed:
            return []
        sentence = "Removed by the server or by the operator since the start."
        return [KeyFigure(f"{len(removed)} of {len(clients)}", "removed", sentence)]
    if not files.detects:
        return []
    figures = []
    malicious, honest = len(files.malicious), len(clients) - len(files.malicious)
    if malicious:
        rounds = [files.removed[client].round for client in files.malicious & files.removed.keys()]
        sentence = (
            f"In round {fmean(rounds):.1f} on average." if rounds else "The detection found none of them."
        )
        figures.append(KeyFigure(f"{len(rounds)} of {malicious}", "malicious clients removed", sentence))
    wrong = sum(client.role == "honest" for client in removed)
    sentence = "Honest clients that the server took for malicious ones."
    return [*figures, KeyFigure(f"{wrong} of {honest}", "honest clients removed", sentence)]


def run_checks(files: RunFiles, clients: Sequence[Client]) -> list[Check]:
    """Return the checks of a run."""
    if not files.rounds:
        return [Check("none", "Rounds", "No round has finished yet: there is nothing to check.")]
    stopped = files.result.stopped if files.result else None
    found = [Check("bad", "Stopped", stopped)] if stopped else []
    if files.federated:
        found += [_sites(clients), _suspected(clients)]
    else:
        found += [_attack(files), _honest(files, clients), _malicious(files), _diverged(files)]
    return [*found, _worst(files, clients), *_notes(files)]


def _sites(clients: Sequence[Client]) -> Check:
    removed = [client for client in clients if client.state == "removed"]
    if removed:
        return Check("warn", "Removed sites", f"{plural(len(removed), 'site')} removed{_names(removed)}.")
    took_part = sum(client.rounds > 0 for client in clients)
    return Check("ok", "Removed sites", f"None of the {took_part} that took part.")


def _suspected(clients: Sequence[Client]) -> Check:
    suspected = [client for client in clients if client.state in ("suspected", "probation")]
    if suspected:
        return Check(
            "warn", "Suspected sites", f"{plural(len(suspected), 'site')} suspected{_names(suspected)}."
        )
    return Check("ok", "Suspected sites", "None.")


def _attack(files: RunFiles) -> Check:
    """Check whether the attack had any effect on what was sent."""
    name, settings = "Attack", files.settings
    attack = settings.attack.name if settings else "the attack"
    if files.provenance is None:
        return Check("none", name, "It is not known which clients are malicious: provenance.json is missing.")
    if not files.malicious:
        if settings is not None and attack != "none":
            return Check("warn", name, f"No client is malicious, so {attack} was not used.")
        return Check("none", name, "No attack.")
    if settings is not None and settings.method.name == "local":
        return Check("none", name, "Nothing is shared, so an attack has no effect.")
    if always_refused(files.rounds, files.malicious) == files.malicious:
        return Check("warn", name, f"{attack}: no malicious update was counted in any round.")
    sent = [record.attack for record in files.rounds if record.attack is not None]
    cosines = [one.cosine for one in sent if one.cosine is not None]
    ratios = [one.length / one.benign_length for one in sent if one.length and one.benign_length]
    if not cosines or not ratios:
        return Check("warn", name, f"{attack}: the malicious updates could not be measured.")
    cosine, ratio = fmean(cosines), fmean(ratios)
    text = (
        f"{attack}: malicious updates are {ratio:.3g} times as long as the honest mean, with a cosine of "
        f"{_minus(f'{cosine:.2f}')} to it (mean of {plural(len(sent), 'round')})"
    )
    if cosine > HARDLY_DIFFERENT and 0.5 < ratio < 2:
        return Check("warn", name, f"{text}; they hardly differ from honest updates.")
    return Check("ok", name, f"{text}.")


def _honest(files: RunFiles, clients: Sequence[Client]) -> Check:
    name = "Honest clients removed"
    if not files.detects:
        return Check("none", name, "The method does not detect malicious clients.")
    removed = [client for client in clients if client.removed is not None and client.role == "honest"]
    if files.provenance is None:
        return Check(
            "none", name, f"{plural(len(removed), 'client')} removed; it is not known which are honest."
        )
    honest = sum(client.role == "honest" for client in clients)
    if removed:
        return Check("bad", name, f"{len(removed)} of {plural(honest, 'honest client')}{_names(removed)}.")
    return Check("ok", name, f"None of {honest}.")


def _malicious(files: RunFiles) -> Check:
    name, malicious = "Malicious clients removed", files.malicious
    if files.provenance is None:
        return Check("none", name, "It is not known which clients are malicious.")
    if not malicious:
        return Check("none", name, "No client is malicious.")
    if not files.detects:
        return Check("none", name, "The method does not detect malicious clients.")
    removed = malicious & files.removed.keys()
    if removed == malicious:
        last = max(files.removed[client].round for client in removed)
        return Check("ok", name, f"All {len(malicious)}, the last in round {last}.")
    text = f"{len(removed)} of {len(malicious)}"
    share = _share_of_malicious(files)
    if share is None:
        return Check("warn" if removed else "bad", name, f"{text}.")
    equal = 100 * len(malicious) / len(files.clients)
    text = f"{text}; malicious clients make up {share:.1f} % of the models that honest clients were last sent"
    text = f"{text} (with equal shares: {equal:.0f} %)."
    return Check("warn" if share < equal / 2 else "bad", name, text)


def _share_of_malicious(files: RunFiles) -> float | None:
    """Return the share, in percent, of malicious clients in the models that honest clients were last sent."""
    mixing = files.last_mixing
    if mixing is None:
        return None
    rows = [at for at, client in enumerate(mixing.receivers) if client not in files.malicious]
    columns = [at for at, client in enumerate(mixing.contributors) if client in files.malicious]
    return 100 * float(mixing.weights[rows][:, columns].sum(axis=1).mean()) if rows else None


def _diverged(files: RunFiles) -> Check:
    name = "Divergence"
    if has_diverged(files.rounds):
        text = "Weights of honest clients became NaN or infinite; the accuracy means nothing."
        return Check("bad", name, text)
    once = {client for record in files.rounds for client in record.diverged}
    if once:
        text = (
            f"Weights of {plural(len(once), 'client')} were not finite in some round, and are finite again."
        )
        return Check("warn", name, text)
    return Check("ok", name, "All weights of honest clients are finite.")


def _worst(files: RunFiles, clients: Sequence[Client]) -> Check:
    name = "Worst client"
    accuracy = files.evaluated.accuracy if files.evaluated else None
    if accuracy is None or not accuracy.clients:
        return Check("none", name, "Accuracy was not measured yet.")
    gains = {client.name: client.gain for client in clients if client.gain is not None}
    losing = sorted((gain, name) for name, gain in gains.items() if gain < -WORSE_OFF)
    if losing:
        names = ", ".join(client for _, client in losing[:MAX_CLIENTS])
        text = f"{len(losing)} of {plural(len(gains), 'client')} are worse than alone"
        worst = f"by up to {-losing[0][0]:.1f} points"
        return Check("warn", name, f"{text}, {worst}: {names}{_more(losing, MAX_CLIENTS)}.")
    behind = accuracy.best - accuracy.worst_client
    text = f"{accuracy.worst_client:.1f} %, {behind:.1f} points below the overall accuracy"
    if gains:
        return Check("ok", name, f"{text}; no client is worse than alone.")
    return Check("warn" if behind > min(FAR_BEHIND, accuracy.best / 2) else "ok", name, f"{text}.")


def _notes(files: RunFiles) -> list[Check]:
    """Return a check if the server had to depart from its settings."""
    noted = [record for record in files.rounds if record.notes]
    if not noted:
        return []
    where = f"In {plural(len(noted), 'round')}, first in round {noted[0].round}"
    return [Check("warn", "Notes of the server", f"{where}: {noted[0].notes[0][:MAX_TEXT]}")]


def _names(clients: Sequence[Client]) -> str:
    names = ", ".join(client.name for client in clients[:MAX_CLIENTS])
    return f": {names}{_more(clients, MAX_CLIENTS)}"


def _more(items: Sequence[object], named: int) -> str:
    return f" and {len(items) - named} more" if len(items) > named else ""


def _minus(number: str) -> str:
    return number.replace("-", "−")


def grid_figures(tables: Sequence[GridTable]) -> list[KeyFigure]:
    """Return, for each of the first tables, the method that is best under its worst attack."""
    return [figure for table in tables[:MAX_RUNS] if (figure := _best(table)) is not None]


def _best(table: GridTable) -> KeyFigure | None:
    """Return the accuracy of the first method: methods are in order of their worst attack."""
    if not table.methods:
        return None
    method, at = table.methods[0], table.worst[0]
    mean = table.cells[0][at or 0].mean
    if mean is None:
        return None
    if at is None:
        return KeyFigure(f"{mean:.1f} %", method, f"{table.title}: {method} without attack.")
    second = ""
    if len(table.methods) > 1 and table.worst[1] is not None:
        attack = table.attacks[table.worst[1]]
        second = (
            f" The next is {table.methods[1]}: {table.cells[1][table.worst[1]].mean:.1f} % under {attack}."
        )
    finished = " of those that have finished" * any(cell.mean is None for cell in table.cells[0])
    sentence = f"{table.title}: {method} under {table.attacks[at]}, its worst attack{finished}.{second}"
    return KeyFigure(f"{mean:.1f} %", f"{method}, worst attack", sentence)


def grid_checks(runs: Sequence[Report], planned: int, failed: Sequence[Fact]) -> list[Check]:
    """Return whether all runs have finished, and each check of single runs over all of them."""
    done = sum(run.state != "unfinished" for run in runs)
    text = f"{done} of {planned} finished"
    if failed:
        names = ", ".join(each.name for each in failed[:MAX_RUNS])
        text += f", {len(failed)} failed: {names}{_more(failed, MAX_RUNS)}"
    complete = done == planned and not failed
    found = [Check("ok" if complete else "bad" if failed else "warn", "Runs", f"{text}.")]
    for name in dict.fromkeys(check.name for run in runs for check in run.checks):
        marks = [(run.title, check.mark) for run in runs for check in run.checks if check.name == name]
        known = [(title, mark) for title, mark in marks if mark != "none"]
        wrong = list(dict.fromkeys(title.rpartition(" · seed ")[0] for title, mark in known if mark != "ok"))
        if known and not wrong:
            found.append(Check("ok", name, f"As it should be in {plural(len(known), 'run')}."))
        elif known:
            count = sum(mark != "ok" for _, mark in known)
            text = f"Look at {count} of {plural(len(known), 'run')}: {', '.join(wrong[:MAX_RUNS])}"
            found.append(Check("warn", name, f"{text}{_more(wrong, MAX_RUNS)}."))
    return found
