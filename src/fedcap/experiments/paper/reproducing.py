"""`docs/REPRODUCING.md`: what misleads when figures are compared, each with runs in which it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from fedcap.errors import plural
from fedcap.experiments.paper import traps
from fedcap.experiments.paper.items import items
from fedcap.experiments.paper.published import TABLE_3
from fedcap.experiments.paper.recorded import Recorded
from fedcap.experiments.paper.show import Compared, compare, panels, table
from fedcap.files import Value
from fedcap.report.tables import Table

HEAD = """# Reproducing

What misleads when one's figures are compared with the paper's, or with anybody's. Each point has evidence
from recorded runs: those of `fedcap paper run traps --seeds 0-2`, and of the paper's tables in
[RESULTS.md](RESULTS.md). The figures are computed from [`results/`](../results) by `make results`."""

PICKED = """## Options picked for each attack

The paper's figures for FedCAP and Ditto have options (alpha, phi, lambda) that were picked for each
attack by the accuracy under it. No defender can do that: the attack is not known beforehand, and test
data are not to choose by. It also flatters: the best of several runs is above what the same options give
again. Below, on `digits`, the best of {count} settings is picked for each attack on one seed, then run
with other seeds."""

LIE = """## LIE when attackers are half of a round

LIE's `z_max` comes from `s = ⌊N/2⌋ + 1 − M`, with N participants and M attackers among them. On EMNIST,
20 of 100 clients take part in a round and 30 attack: for about one seed in two, some round of a hundred
has 11 attackers or more. Then `s` is 0, `z_max` infinite, and the attackers send infinities. A server
that averages them has a model of NaNs from then on; one that checks for finite numbers is rid of 11
attackers at once. The paper's EMNIST row under LIE (every rival at 2.87 %, FedCAP with 19 of 30 attackers
missed) fits one such round. It tells whether a server checks for finite numbers, and nothing of LIE.

`lie` here keeps `z_max` finite; `lie-unbounded` is the attack as printed. All servers here refuse what is
not finite, so no rule collapses. But a server that removes whoever sends it, such as FedAvg with the norm
test, owes what it detects to one round of one seed. With FedCAP it does not come to that round: few
newcomers are asked for an update at once, so theirs are infinite sooner, and are refused, and they sit
the round out. On `digits`, where 10 of 20 clients take part and 6 attack:"""

NAN = """## What a model of NaNs scores

It does not score 0. The largest of NaNs is the first, so it answers class 0 to everything, and its
accuracy is that class's share of the test samples: 10.95 % on the paper's CIFAR-10, 2.87 % on EMNIST, and
on WISDM, where class 0 is the commonest, 37.36 %. A table that prints the figure alone makes a run that
broke look like one that learnt little. Runs are reported as diverged here, and tables mark them †. FedAvg
under IPM:"""

TOLD = """## How many attackers a rule is told

Multi-Krum, the trimmed mean and GAS take a number M of attackers to guard against. Experiments tell them
the true one, and 0 where there is no attack; a defender does not know it. Told too few, a rule lets the
rest in, which under a strong attack is as bad as no rule; told too many, it drops honest clients, which
costs little. So the guess should be high. The trimmed mean cuts M/2 at each end, as the paper defines it:
under IPM it falls even when told right. On `digits`, with 4 attackers of 20 clients, accuracy of the
shared model when M is told right, and wrong by a factor of two (`assumed` sets it):"""

LIMIT = """## A limit that is a length

FedCAP removes clients whose calibrated update is longer than `T_norm`, 10 in the paper, and does not
depend much on it as long as honest updates stay well below: attackers' grow without end, and a higher
limit finds them a few rounds later. But a length depends on the size of the model, the learning rate and
the number of steps. Where honest updates are longer than the limit, honest clients are removed, for good.
On `digits`, under Min-Max, by `t_norm`:"""

CLAIMS = """## Claimed sample counts

A mean weighted by sample counts believes what clients claim: who claims a billion samples owns it. Here
one claim counts for ten medians at most, and those that may be malicious count for no more than the
honest together. That keeps a claim from deciding alone, and it is still no defence: FedAvg on `digits`
under sign flipping, by what each attacker claims:"""

TRUST = """## FLTrust's rescaling

FLTrust rescales every update to the length of the server's own. The published figures under model
replacement (20.67, 3.01 and 37.36 %) are most likely due to rescaling only the first tensor of each,
which leaves a step many times too long. As its paper defines it, FLTrust holds under that attack. On
`digits`:"""

WINDOWS = """## Windows of one activity

WISDM is cut into windows of 200 readings, and where the activity changes within one, it has readings of
both and the label of one. In the copy at hand each window of 200 is of one activity: it seems to have been
cut before. That makes it easier. With windows of 199 readings, which lie across the changes as those of the
original file do, FedCAP under Min-Max has after 25 rounds, in percent:"""

PRINTED = """## Figures that cannot all be right

Detection accuracy, false positives and false negatives are tied: with no honest client removed, `FNR =
(100 − DAcc) · N / M`. Of Table III this does not hold for:"""

REST = """## What else the published figures rest on

- **CIFAR-10's split.** Classes are dealt in blocks: each to the next four clients that lack one, so that
  there are five groups of four clients alike. The paper says two classes per client, which may also be
  drawn at random; then clients have less in common, and customising has less to gain.
  [RESULTS.md](RESULTS.md) has both.
- **Ablation.** The rows of Table IV without calibration ran without detection too; ours do the same.
- **Bucketing.** The buckets were the same in every round, and the inner rule was told half as many
  attackers. Ours are drawn anew each round, and the rule is told all of them, since each may spoil a
  bucket of its own.
- **FedFomo.** The clients' weighting of models was never called: what was measured is local training on
  80 % of the data. Ours weighs them.
- **Attacks.** LIE's deviation is over N − 1 there, over N in LIE's paper and here. Min-Max and Min-Sum
  are searched with a coarse step there, and Min-Sum bounds distances rather than their squares; here both
  reach the exact maximum. Labels are flipped to `C − 1 − y` there, to `y + 1` in the paper's text and
  here.
- **The shared model of the last round** is measured there after one more customisation; here it is the
  one that clients received in the last round.
- **Order of samples.** Each client's order is the same in every epoch, and the last short batch is
  dropped; ours too, on the paper's data sets."""

NOT_YET = "Not run yet: `fedcap paper run traps --results results`."


def reproducing_page(recorded: Recorded) -> str:
    """Return the page."""
    found = panels(compare(items()["traps"], recorded))
    sections = [
        HEAD,
        f"{PICKED.format(count=len(traps.PICKS))}\n\n{_picked(found.get(traps.PICKED, ()))}",
        f"{LIE}\n\n{_lie(found.get(traps.LIE, ()))}",
        *(
            f"{prose}\n\n{_plain(found.get(panel, ()))}"
            for panel, prose in (
                (traps.NAN, NAN),
                (traps.TOLD, TOLD),
                (traps.LIMIT, LIMIT),
                (traps.CLAIMS, CLAIMS),
                (traps.TRUST, TRUST),
                (traps.WINDOWS, WINDOWS),
            )
        ),
        f"{PRINTED}\n\n{_impossible()}",
        REST,
    ]
    return "\n\n".join(sections) + "\n"


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
    """Return a row for each method and seed, since it is one round of one seed that counts, and its round."""
    columns = list(dict.fromkeys(each.entry.column for each in inside))
    seeds = sorted({seed for each in inside for seed in each.runs})
    rows: list[list[Value]] = []
    for name in dict.fromkeys(each.entry.row for each in inside):
        for seed in seeds:
            at = {each.entry.column: each for each in inside if each.entry.row == name}
            texts = [_of_seed(at[column], seed) if column in at else "" for column in columns]
            rows.append([name, seed, *texts])
    return Table(["", "seed", *columns], rows, notes=[_removed(inside)]).markdown() if rows else NOT_YET


def _removed(inside: Sequence[Compared]) -> str:
    """Return who was removed under the unbounded attack, and in which rounds."""
    said = []
    for each in inside:
        if each.entry.attack == "lie-unbounded" and each.entry.read == "dacc":
            for seed, run in each.runs.items():
                rounds = Counter(client.removed for client in run.clients if client.removed)
                parts = [f"{plural(count, 'client')} in round {number}" for number, count in rounds.items()]
                said.append(f"{each.entry.row}, seed {seed}: {' and '.join(parts) or 'nobody'}")
    return f"Removed under `lie-unbounded`: {'; '.join(said)}." if said else ""


def _of_seed(compared: Compared, seed: int) -> str:
    run = compared.runs.get(seed)
    if run is None:
        return "–"
    return compared.entry.measure.text(compared.entry.measure.of(run)) + " †" * run.diverged


def _picked(inside: Sequence[Compared]) -> str:
    """Return, for each attack, the best setting on the first seed, there and on the other seeds."""
    rows: list[list[Value]] = []
    for attack in dict.fromkeys(each.entry.row for each in inside):
        here = {each.entry.column: each.runs for each in inside if each.entry.row == attack}
        one = here.pop(traps.ONE, {})
        whole = sorted(set(one).intersection(*here.values()))
        if not whole:
            continue
        first = whole[0]
        best = max(here, key=lambda name: here[name][first].tacc)
        others = [seed for seed in one if seed in here[best] and seed != first]
        if not others:
            continue
        rows.append(
            [
                attack,
                best,
                here[best][first].tacc - one[first].tacc,
                fmean(here[best][seed].tacc - one[seed].tacc for seed in others),
                len(others),
            ]
        )
    if not rows:
        return NOT_YET
    gains = ["**mean**", "", *(fmean(float(row[at] or 0) for row in rows) for at in (2, 3)), None]
    columns = ("attack", "picked", "gain where picked", "gain on other seeds", "other seeds")
    note = (
        "Picked: alpha, phi and lambda. Gain: points of accuracy above the data set's one setting, on the"
        " seed that was picked on, and on average over the others."
    )
    return Table(columns, [*rows, gains], notes=[note]).markdown()


CLIENTS: Mapping[str, tuple[int, int]] = {"cifar10": (20, 6), "emnist": (100, 30), "wisdm": (36, 10)}
"""How many clients there are, and how many of them attack."""


def _impossible() -> str:
    """Return the rows of Table III whose rates contradict each other."""
    rows: list[list[Value]] = []
    for (dataset, attack), (_, dacc, fpr, fnr) in TABLE_3.items():
        clients, malicious = CLIENTS[dataset]
        if dacc is not None and fnr is not None and not fpr:
            implied = (100 - dacc) * clients / malicious
            if abs(implied - fnr) > 0.05:
                rows.append([dataset, attack, f"{dacc:g}", f"{fnr:g}", f"{implied:.2f}"])
    return Table(("data set", "attack", "DAcc", "FNR as printed", "FNR by DAcc"), rows).markdown()
