"""`docs/REPRODUCING.md`: the commands in order, and the traps of a reproduction with runs that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from scipy.stats import hypergeom

from fedcap.errors import plural
from fedcap.files import Value
from fedcap.report.tables import Table
from reproduction import traps
from reproduction.compare import Compared, by_heading, compare, table
from reproduction.items import items
from reproduction.plan import PLAN
from reproduction.published import CLIENTS, NAN_SCORES, TABLE_1, TABLE_3
from reproduction.recorded import Recorded
from reproduction.replay import TOLERANCE
from reproduction.setups import DATASETS
from reproduction.templates import fill

NOT_YET = "Not run yet: `python -m reproduction run traps`."


def reproducing_page(recorded: Recorded) -> str:
    """Return the page."""
    found = by_heading(compare(items()["traps"], recorded))
    plain = {
        "nan": traps.NAN,
        "assumed": traps.ASSUMED,
        "limit": traps.LIMIT,
        "claims": traps.CLAIMS,
        "trust": traps.TRUST,
        "windows": traps.WINDOWS,
    }
    replaced = {dataset: TABLE_1[dataset, "model-replacement"][6] for dataset in DATASETS}
    return fill(
        "REPRODUCING",
        plan="\n".join(f"{number}. {step}" for number, step in enumerate(PLAN, 1)),
        tolerance=f"{TOLERANCE:g}",
        picks=len(traps.PICKS),
        picked=_picked(found.get(traps.PICKED, ())),
        lie=_lie(found.get(traps.LIE, ())),
        lie_chance=f"{100 * _lie_chance():.0f}",
        lie_missed=f"{(TABLE_3['emnist', 'lie'][3] or 0) * CLIENTS['emnist'][1] / 100:.0f}",
        **{f"nan_{dataset}": score for dataset, score in NAN_SCORES.items()},
        **{f"fltrust_{dataset}": figure for dataset, figure in replaced.items()},
        **{name: _plain(found.get(panel, ())) for name, panel in plain.items()},
        impossible=_impossible().markdown(),
    )


def _lie_chance() -> float:
    """Return the chance that a round of 100 on EMNIST has more malicious than half of the participants."""
    participants, (clients, malicious) = 20, CLIENTS["emnist"]
    return float(1 - hypergeom.cdf(participants // 2, clients, malicious, participants) ** 100)


def _plain(inside: Sequence[Compared]) -> str:
    """Return a table over the seeds that all of its finished cells have."""
    if not inside:
        return NOT_YET
    common = set.intersection(*(set(each.runs) for each in inside if each.runs))
    paired = [
        replace(each, runs={seed: run for seed, run in each.runs.items() if seed in common})
        for each in inside
    ]
    return table("", paired, "<br>").markdown()


def _lie(inside: Sequence[Compared]) -> str:
    """Return a row for each method and seed: what matters is one round of one seed."""
    columns = list(dict.fromkeys(each.cell.column for each in inside))
    rows: list[list[Value]] = []
    for name in dict.fromkeys(each.cell.row for each in inside):
        for seed in sorted({seed for each in inside for seed in each.runs}):
            at = {each.cell.column: each for each in inside if each.cell.row == name}
            texts = [_of_seed(at[column], seed) if column in at else "" for column in columns]
            rows.append([name, seed, *texts])
    return Table(["", "seed", *columns], rows, notes=[_removed(inside)]).markdown() if rows else NOT_YET


def _removed(inside: Sequence[Compared]) -> str:
    """Return how many clients were removed under the unbounded attack, and in which rounds."""
    texts = []
    for each in inside:
        if each.cell.attack == "lie-unbounded" and each.cell.read == "dacc":
            for seed, run in each.runs.items():
                rounds = Counter(client.removed for client in run.clients if client.removed)
                parts = [f"{plural(count, 'client')} in round {number}" for number, count in rounds.items()]
                texts.append(f"{each.cell.row}, seed {seed}: {' and '.join(parts) or 'none'}")
    return f"Removed under `lie-unbounded`: {'; '.join(texts)}." if texts else ""


def _of_seed(compared: Compared, seed: int) -> str:
    run = compared.runs.get(seed)
    if run is None:
        return "–"
    return compared.cell.measure.text(compared.cell.measure.of(run)) + " †" * run.diverged


def _picked(inside: Sequence[Compared]) -> str:
    """Return, for each attack, the gain of the best setting on the first seed, there and on other seeds."""
    rows: list[list[Value]] = []
    for attack in dict.fromkeys(each.cell.row for each in inside):
        here = {each.cell.column: each.runs for each in inside if each.cell.row == attack}
        one = here.pop(traps.ONE, {})
        common = sorted(set(one).intersection(*here.values()))
        if not common:
            continue
        first = common[0]
        best = max(here, key=lambda name: here[name][first].tacc)
        others = [seed for seed in one if seed in here[best] and seed != first]
        if others:
            gain = here[best][first].tacc - one[first].tacc
            again = fmean(here[best][seed].tacc - one[seed].tacc for seed in others)
            rows.append([attack, best, gain, again, len(others)])
    if not rows:
        return NOT_YET
    means = ["**mean**", "", *(fmean(float(row[at] or 0) for row in rows) for at in (2, 3)), None]
    columns = ("attack", "picked", "gain where picked", "gain on other seeds", "other seeds")
    note = (
        "Picked: alpha, phi and lambda. Gain: points of accuracy above the data set's one setting, on the"
        " seed of the choice, and the mean over the other seeds."
    )
    return Table(columns, [*rows, means], notes=[note]).markdown()


def _impossible() -> Table:
    """Return the rows of Table III whose rates contradict each other."""
    rows: list[list[Value]] = []
    for (dataset, attack), (_, dacc, fpr, fnr) in TABLE_3.items():
        clients, malicious = CLIENTS[dataset]
        if dacc is not None and fnr is not None and not fpr:
            implied = (100 - dacc) * clients / malicious
            if abs(implied - fnr) > 0.05:
                rows.append([dataset, attack, f"{dacc:g}", f"{fnr:g}", f"{implied:.2f}"])
    return Table(("data set", "attack", "DAcc", "FNR as printed", "FNR by DAcc"), rows)
