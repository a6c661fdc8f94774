"""The key figures at the top of a page, and the checks: each has a mark, a name and a sentence.

A check never guesses: where nothing can be said, for example because a file cannot be read, its mark is
`none`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from fedcap.errors import duration, plural
from fedcap.report.model import Check, Client, Fact, GridTable, KeyFigure, Mark, Report
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
MAX_CLIENTS, MAX_RUNS = 8, 3
"""How many clients and runs a sentence names."""
NO_DETECTION = "The method does not detect malicious clients."
BY_OPERATOR = "by the operator: "
"""How the reason of a removal by the operator begins."""


def key_figures(files: RunFiles, clients: Sequence[Client]) -> list[KeyFigure]:
    """Return accuracy, worst client, gain over Local, removals and cost of a run."""
    figures = []
    accuracy = files.evaluated.accuracy if files.evaluated else None
    if files.evaluated and accuracy is not None:
        count = len(accuracy.clients)
        whose = plural(count, "honest client")
        if files.federated:
            whose = f"{plural(count, 'site')} that reported {'its' if count == 1 else 'their'} accuracy"
        models = "Each client has its own model; nothing is shared."
        if accuracy.shared is not None:
            shared, personal = f"shared ({accuracy.shared:.1f})", f"personal ({accuracy.personal:.1f})"
            models = f"The better of {shared} and {personal} models."
        sentence = f"On all test samples of {whose}, in round {files.evaluated.round}. {models}"
        figures.append(KeyFigure(f"{accuracy.best:.1f} %", "accuracy", sentence))
        if accuracy.clients:
            sentence = f"The lowest accuracy of {plural(count, 'client')}."
            figures.append(KeyFigure(f"{accuracy.worst_client:.1f} %", "worst client", sentence))
    gains = [client.gain for client in clients if client.gain is not None]
    if files.evaluated and gains:
        better = sum(gain > 0 for gain in gains)
        sentence = (
            f"Personal models compared with training alone (Local), both in round {files.evaluated.round}: "
            f"mean over clients. {better} of {len(gains)} clients are better than alone."
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
            f"Rightly removed, in round {fmean(rounds):.3g} on average."
            if rounds
            else "The server detected none of them."
        )
        figures.append(KeyFigure(f"{len(rounds)} of {malicious}", "malicious clients removed", sentence))
    wrong = sum(client.role == "honest" for client in removed)
    sentence = (
        "Wrongly removed: the server took them for malicious clients."
        if wrong
        else "No client was wrongly removed."
    )
    return [*figures, KeyFigure(f"{wrong} of {honest}", "honest clients removed", sentence)]


def run_checks(files: RunFiles, clients: Sequence[Client]) -> list[Check]:
    """Return the checks of a run: first who was removed, and whether rightly."""
    if not files.rounds:
        return [Check("none", "Rounds", "No round has finished yet: there is nothing to check.")]
    stopped = files.result.stopped if files.result else None
    found = [Check("bad", "Stopped", stopped, "detection")] if stopped else []
    answers = {
        ("Malicious clients removed", "detection" if files.last_mixing is None else "mixing"): _malicious,
        ("Honest clients removed", "detection"): _honest,
        ("Attack", "attack"): _attack,
        ("Divergence", "detection"): _diverged,
        ("Worst client", "clients"): _worst,
    }
    if files.federated:
        answers = {
            ("Removed sites", "detection"): _removed_sites,
            ("Suspected sites", "detection"): _suspected_sites,
            ("Worst client", "clients"): _worst,
        }
    for (name, section), answer in answers.items():
        mark, text = answer(files, clients)
        found.append(Check(mark, name, text, section))
    return [*found, *_notes(files)]


Answer = tuple[Mark, str]


def _removed_sites(files: RunFiles, clients: Sequence[Client]) -> Answer:
    removed = [client for client in clients if client.state == "removed"]
    if not removed:
        return "ok", f"None of the {sum(client.rounds > 0 for client in clients)} that took part."
    by_operator = [client.name for client in removed if client.reason.startswith(BY_OPERATOR)]
    by_server = [client.name for client in removed if not client.reason.startswith(BY_OPERATOR)]
    who = {"server": by_server, "operator": by_operator}
    return "warn", " ".join(f"By the {name}: {_names(sites)}." for name, sites in who.items() if sites)


def _suspected_sites(files: RunFiles, clients: Sequence[Client]) -> Answer:
    suspected = [client.name for client in clients if client.state in ("suspected", "probation")]
    if not suspected:
        return "ok", "None."
    return "warn", f"{plural(len(suspected), 'site')}: {_names(suspected)}."


def _malicious(files: RunFiles, clients: Sequence[Client]) -> Answer:
    if files.provenance is None:
        return "none", "It is not known which clients are malicious."
    malicious = [client for client in clients if client.role == "malicious"]
    if not malicious:
        return "none", "No client is malicious."
    if not files.detects:
        return "none", NO_DETECTION
    removed = [client for client in malicious if client.removed is not None]
    if removed == malicious:
        last = max(client.removed or 0 for client in removed)
        text = f"{len(removed)} of {len(malicious)}, the last in round {last}"
        return "ok", f"{text}: {_which([client.name for client in removed])}."
    missed = [client.name for client in malicious if client.removed is None]
    text = f"{len(removed)} of {len(malicious)}. Not removed: {_which(missed)}."
    share = _share_of_malicious(files)
    if share is None:
        return "warn" if removed else "bad", text
    equal = 100 * len(malicious) / len(files.clients)
    text = f"{text} Malicious clients make up {share:.1f} % of the models that honest clients were last sent"
    return "warn" if share < equal / 2 else "bad", f"{text} (with equal shares: {equal:.0f} %)."


def _honest(files: RunFiles, clients: Sequence[Client]) -> Answer:
    if not files.detects:
        return "none", NO_DETECTION
    removed = [client.name for client in clients if client.removed is not None and client.role == "honest"]
    if files.provenance is None:
        return "none", f"{plural(len(removed), 'client')} removed; it is not known which are honest."
    honest = sum(client.role == "honest" for client in clients)
    if removed:
        return "bad", f"{len(removed)} of {plural(honest, 'honest client')}: {_names(removed)}."
    return "ok", f"None of {honest}."


def _attack(files: RunFiles, clients: Sequence[Client]) -> Answer:
    """Check whether the attack had any effect on what was sent."""
    settings = files.settings
    attack = settings.attack.name if settings else "the attack"
    if files.provenance is None:
        return "none", "It is not known which clients are malicious: provenance.json is missing."
    if not files.malicious:
        if settings is not None and attack != "none":
            return "warn", f"No client is malicious, so {attack} was not used."
        return "none", "No attack."
    if settings is not None and settings.method.name == "local":
        return "none", "Nothing is shared, so an attack has no effect."
    if always_refused(files.rounds, files.malicious) == files.malicious:
        return "warn", f"{attack}: no malicious update was counted in any round."
    sent = [record.attack for record in files.rounds if record.attack is not None]
    cosines = [one.cosine for one in sent if one.cosine is not None]
    ratios = [one.length / one.benign_length for one in sent if one.length and one.benign_length]
    if not cosines or not ratios:
        return "warn", f"{attack}: the malicious updates could not be measured."
    cosine, ratio = fmean(cosines), fmean(ratios)
    text = (
        f"{attack}: malicious updates are {ratio:.3g} times as long as the mean honest update, and their "
        f"cosine to it is {_minus(f'{cosine:.2f}')} (mean of {plural(len(sent), 'round')})"
    )
    if cosine > HARDLY_DIFFERENT and 0.5 < ratio < 2:
        return "warn", f"{text}. They hardly differ from honest updates."
    return "ok", f"{text}."


def _diverged(files: RunFiles, clients: Sequence[Client]) -> Answer:
    if has_diverged(files.rounds):
        return "bad", "Weights of honest clients became NaN or infinite; the accuracy means nothing."
    once = {client for record in files.rounds for client in record.diverged}
    if once:
        whose = plural(len(once), "client")
        return "warn", f"Weights of {whose} were not finite in some round, and are finite again."
    return "ok", "All weights of honest clients are finite."


def _worst(files: RunFiles, clients: Sequence[Client]) -> Answer:
    accuracy = files.evaluated.accuracy if files.evaluated else None
    if accuracy is None or not accuracy.clients:
        return "none", "Accuracy was not measured yet."
    gains = sorted((client.gain, client.name) for client in clients if client.gain is not None)
    losing = [(gain, name) for gain, name in gains if gain < -WORSE_OFF]
    if losing:
        text = f"{len(losing)} of {plural(len(gains), 'client')} are worse than with Local"
        names = _names([name for _, name in losing])
        return "warn", f"{text}, by up to {-losing[0][0]:.1f} points: {names}."
    behind = accuracy.best - accuracy.worst_client
    text = f"{accuracy.worst_client:.1f} %, {behind:.1f} points below the overall accuracy"
    if gains:
        return "ok", f"{text}; no client is worse than with Local."
    return "warn" if behind > min(FAR_BEHIND, accuracy.best / 2) else "ok", f"{text}."


def _share_of_malicious(files: RunFiles) -> float | None:
    """Return the share, in percent, of malicious clients in the models that honest clients were last sent."""
    mixing = files.last_mixing
    if mixing is None:
        return None
    rows = [at for at, client in enumerate(mixing.receivers) if client not in files.malicious]
    columns = [at for at, client in enumerate(mixing.contributors) if client in files.malicious]
    return 100 * float(mixing.weights[rows][:, columns].sum(axis=1).mean()) if rows else None


def _notes(files: RunFiles) -> list[Check]:
    """Return a check if the server had to depart from its settings."""
    noted = [record for record in files.rounds if record.notes]
    if not noted:
        return []
    where = f"In {plural(len(noted), 'round')}, first in round {noted[0].round}"
    return [Check("warn", "Notes of the server", f"{where}: {noted[0].notes[0][:MAX_TEXT]}")]


def _which(clients: Sequence[str]) -> str:
    return f"{'client' if len(clients) == 1 else 'clients'} {_names(clients)}"


def _names(names: Sequence[str], most: int = MAX_CLIENTS) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


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
        return KeyFigure(
            f"{mean:.1f} %", f"best method: {method}", f"Accuracy on {table.title}, without attack."
        )
    finished = " (some attacks have not finished)" * any(cell.mean is None for cell in table.cells[0])
    sentence = f"Accuracy on {table.title} under its worst attack, {table.attacks[at]}{finished}."
    if len(table.methods) > 1 and table.worst[1] is not None:
        second = table.cells[1][table.worst[1]].mean
        attack = table.attacks[table.worst[1]]
        sentence = f"{sentence} The next method is {table.methods[1]}: {second:.1f} % under {attack}."
    return KeyFigure(f"{mean:.1f} %", f"best method: {method}", sentence)


def grid_checks(
    names: Sequence[str], runs: Sequence[Report], planned: int, failed: Sequence[Fact]
) -> list[Check]:
    """Return whether all runs have finished, and each check of single runs over all of them.

    `names` are those of the runs, the same for all seeds.
    """
    done = sum(run.state != "unfinished" for run in runs)
    text = f"{done} of {planned} finished"
    if failed:
        text += f", {len(failed)} failed: {_names([each.name for each in failed], MAX_RUNS)}"
    complete = done == planned and not failed
    found = [Check("ok" if complete else "bad" if failed else "warn", "Runs", f"{text}.")]
    marks: dict[str, list[tuple[str, Mark]]] = {}
    for run_name, run in zip(names, runs, strict=True):
        for check in run.checks:
            marks.setdefault(check.name, []).append((run_name, check.mark))
    for name, all_marks in marks.items():
        known = plural(sum(mark != "none" for _, mark in all_marks), "run")
        wrong = [run_name for run_name, mark in all_marks if mark in ("warn", "bad")]
        if wrong:
            text = f"Look at {len(wrong)} of {known}: {_names(list(dict.fromkeys(wrong)), MAX_RUNS)}."
            found.append(Check("warn", name, text))
        elif any(mark == "ok" for _, mark in all_marks):
            found.append(Check("ok", name, f"No problem in {known}."))
    return found
