"""The summary of RESULTS.md: what was run and found, what contradicts the paper, what was not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fedcap.errors import plural
from fedcap.experiments.comparison import Comparison
from fedcap.report.panel import NO_ATTACK, attack_title
from fedcap.report.tables import Table
from reproduction.cells import Item
from reproduction.compare import (
    NOT_EXPLAINED,
    PARTLY_EXPLAINED,
    Compared,
    Contest,
    contests,
    reason,
    standard_error,
)
from reproduction.items import items
from reproduction.matrix import ENOUGH_FOR_TESTS, Grids, leads, mean_margins, worst_cases
from reproduction.published import TABLE_3
from reproduction.recorded import distinct, run_key
from reproduction.robustness import NO_WORSE
from reproduction.setups import ATTACKS, DATASETS, ONE_SETTING, SET_UP_OF, STAND_IN
from reproduction.templates import fill, section
from reproduction.tuning import SPACES, TUNED_ON, Choice

PAPER_PAGE, MATRIX_PAGE = "results/paper.md", "results/matrix.md"
"""The pages of the long tables, next to RESULTS.md."""
LEFT_OUT = ("malicious-share",)
"""Items that are not planned, since they take more than a day on two cores."""
WITH_RIVALS = ("table-1", "table-2", "baselines", "ditto-rules")
"""Items in which FedCAP stands next to other methods."""
FAR = 2.0
"""Points of accuracy: a rival's figure that differs by more has a reason on the page, or "not explained"."""


def summary(
    compared: Mapping[str, Sequence[Compared]],
    grids: Grids,
    choices: Sequence[Choice],
    reasons: Mapping[str, str],
) -> str:
    """Return the summary of all items, by their names, of the grids, and of the choices of options.

    `reasons` are the figures in the texts of reasons.
    """
    available = {
        name: [each for each in found if each.cell.dataset not in STAND_IN]
        for name, found in compared.items()
    }
    planned = {name: found for name, found in available.items() if name not in LEFT_OUT}
    every = [each for found in planned.values() for each in found]
    rivals = [each for name in WITH_RIVALS for each in planned[name]]
    seeds = Counter(len(each.runs) for each in _one_of_each_run(each for each in every if each.runs))
    knowing = f"{_matrix_finding(grids)} {presets(compared['hardened'])}".strip()
    findings = [_own_figures(every), _rivals(rivals), knowing]
    contradictions = [_contradicted_rates(every), _contradicted_leads(rivals), _drop(compared["table-3"])]
    return fill(
        "results-summary",
        table=_table_of_tables(planned).markdown(),
        findings="\n".join(f"{number}. {text}" for number, text in enumerate(filter(None, findings), 1)),
        contradictions="\n".join(f"- {text}" for text in filter(None, contradictions)) or "- Nothing so far.",
        others=_others(every),
        far=_far(every, reasons),
        points=f"{FAR:g}",
        unfinished=_unfinished(every),
        left_out=plural(progress([each for name in LEFT_OUT for each in available[name]])[1], "run"),
        one_seed=f"{seeds[1]:,}",
        all_seeds=f"{sum(seeds.values()):,}",
        more="\n".join(f"- {text}" for text in (_few_seeds(grids), _untuned(choices)) if text),
    )


def _table_of_tables(planned: Mapping[str, Sequence[Compared]]) -> Table:
    """Return a row for each table or figure: runs planned and finished, figures that agree and differ."""
    rows = [
        [f"[{items()[name].title}]({PAPER_PAGE}#{_anchor(items()[name])})", *_counts(found)]
        for name, found in planned.items()
    ]
    every = [each for found in planned.values() for each in found]
    total = ["**all, each run once**", *_counts(_one_of_each_figure(every))]
    columns = ("table or figure", "runs planned", "finished", "figures that agree", "differ")
    return Table(columns, [*rows, total])


def _counts(found: Sequence[Compared]) -> list[str]:
    done, planned = progress(found)
    verdicts = Counter(each.agrees for each in found)
    judged = [f"{verdicts[True]:,}", f"{verdicts[False]:,}"]
    return [f"{planned:,}", f"{done:,}", *(judged if verdicts[True] + verdicts[False] else ["–", "–"])]


def _own_figures(every: Sequence[Compared]) -> str:
    """Return how many of FedCAP's own figures agree, by data set."""
    texts = []
    for dataset in DATASETS:
        ours = [e for e in every if e.cell.dataset == dataset and e.cell.column.startswith("FedCAP")]
        judged = [each for each in _one_of_each_figure(ours) if each.agrees is not None]
        if judged:
            texts.append(f"{part_of(sum(bool(each.agrees) for each in judged), len(judged))} on {dataset}")
    return section("summary", "own-figures", shares=" and ".join(texts)) if texts else ""


def _rivals(every: Sequence[Compared]) -> str:
    """Return under how many attacks FedCAP leads all rivals that have finished, by data set."""
    texts, without = [], []
    for dataset in dict.fromkeys(each.cell.dataset for each in every):
        found = [each for each in every if each.cell.dataset == dataset]
        rows, settings = contests(found), contests(found, ONE_SETTING)
        if not rows and not settings:
            without.append(dataset)
            continue
        behind = [(row.rival.mean or 0.0) - (row.fedcap.mean or 0.0) for row in rows + settings]
        shares = {
            "picked": part_of(sum(row.is_won for row in rows), len(rows)),
            "one_setting": part_of(sum(row.is_won for row in settings), len(settings)),
            "planned": len({each.cell.row for each in found}),
            "most": f"{max(0.0, *behind):.1f}" if behind else "–",
            "error": f"{standard_error(_best(rows + settings), dataset):.1f}",
        }
        texts.append(section("summary", "rivals-on", dataset=dataset, **shares))
    if not texts:
        return ""
    absent = section("summary", "no-rivals", datasets=" and ".join(without)) if without else ""
    return section("summary", "rivals", texts=" ".join(texts), absent=absent)


def _best(rows: Sequence[Contest]) -> float:
    return max(each.mean or 0.0 for row in rows for each in (row.fedcap, row.rival))


def _few_seeds(grids: Grids) -> str:
    """Return why the grid of every method has no p-values; empty if it has enough seeds."""
    seeds = len({place["seed"] for place, _ in grids.matrix})
    return section("summary", "few-seeds", seeds=seeds) if 0 < seeds < ENOUGH_FOR_TESTS else ""


def _untuned(choices: Sequence[Choice]) -> str:
    """Return which methods were not tuned, by data set."""
    tuned = {(each.dataset, each.method) for each in choices}
    texts = []
    for dataset in TUNED_ON:
        left = [method for method in SPACES if (dataset, method) not in tuned]
        if left:
            texts.append(dataset if len(left) == len(SPACES) else f"{dataset} ({', '.join(left)})")
    return section("summary", "untuned", where=", ".join(texts)) if texts else ""


def _matrix_finding(grids: Grids) -> str:
    """Return how FedCAP's presets stand under attacks that know the defence."""
    if not grids.matrix:
        return ""
    panel = Comparison.of(grids.matrix).panels[0]
    lost = leads(panel)
    cases = {case.method: case for case in worst_cases(grids)}
    if "fedcap" not in cases or "hardened" not in cases:
        return ""
    paper, hardened = cases["fedcap"], cases["hardened"]
    margins = mean_margins(panel)
    behind = [f"{name} ({margin:+.1f} points)" for name, margin in margins.items() if margin < 0]
    trusting = cases.get("fltrust")
    trust = ""
    if trusting is not None:
        trust = section(
            "summary",
            "trust",
            fltrust=f"{trusting.common_worst.mean:.1f}",
            fltrust_attack=attack_title(trusting.common_attack),
            hardened=f"{hardened.common_worst.mean:.1f}",
            hardened_attack=attack_title(hardened.common_attack),
            paper=f"{paper.common_worst.mean:.1f}",
            paper_attack=attack_title(paper.common_attack),
        )
    return section(
        "summary",
        "matrix",
        trust=trust,
        attacks=len(panel.attacks),
        ahead=part_of(len(margins) - len(behind), len(margins)),
        behind=f", and behind {', '.join(behind)}" if behind else "",
        lost=part_of(len(lost), len(panel.attacks)),
        clear=sum(lead.is_clear for lead in lost),
        paper=f"{paper.worst.mean:.1f}",
        paper_attack=paper.attack,
        hardened=f"{hardened.worst.mean:.1f}",
        hardened_attack=hardened.attack,
        calm="–" if paper.calm is None else f"{paper.calm.mean:.1f}",
        hardened_calm="–" if hardened.calm is None else f"{hardened.calm.mean:.1f}",
    )


def presets(found: Sequence[Compared]) -> str:
    """Return where the hardened preset is below the paper's on other data than it was developed on."""
    at = {(each.cell.heading, each.cell.row, each.cell.column): each.mean for each in found if each.runs}
    texts = {}
    for heading, row, column in at:
        theirs, ours = (at.get((heading, row, f"{preset}: accuracy")) for preset in ("paper's", "hardened"))
        if column.startswith("hardened") and theirs is not None and ours is not None:
            texts[heading, row] = (ours, theirs)
    below = [
        f"{attack_title(row)} on {heading} ({ours:.1f}, the paper's preset {theirs:.1f})"
        for (heading, row), (ours, theirs) in texts.items()
        if theirs - ours > NO_WORSE
    ]
    if not below:
        return ""
    count = part_of(len(below), len(texts))
    return section("summary", "presets", where=", ".join(below), count=count, points=f"{NO_WORSE:g}")


def _contradicted_rates(every: Sequence[Compared]) -> str:
    """Return where FedCAP removes other clients than in the paper."""
    ours = (each for each in every if each.cell.read == "fnr" and each.cell.column.startswith("FedCAP:"))
    texts = [
        f"{each.cell.attack} on {each.cell.dataset} ({each.mean:.0f} %, paper {each.cell.published:.0f} %)"
        for each in ours
        if each.agrees is False
    ]
    return section("summary", "rates", where=", ".join(texts)) if texts else ""


def _contradicted_leads(every: Sequence[Compared]) -> str:
    """Return where a rival is ahead though FedCAP leads in the paper."""
    texts = {
        f"{row.row} on {row.fedcap.cell.dataset} (FedCAP {row.fedcap.mean:.1f},"
        f" {row.rival.cell.column} {row.rival.mean:.1f})": None
        for row in contests([each for each in every if each.cell.published is not None])
        if not row.is_won
    }
    return section("summary", "leads", where=", ".join(texts)) if texts else ""


def _drop(found: Sequence[Compared]) -> str:
    """Return how far FedCAP falls under attack on the data that replace EMNIST, and in the paper."""
    for stand_in, dataset in SET_UP_OF.items():
        ours = {
            each.cell.row: each.mean
            for each in found
            if each.cell.dataset == stand_in and each.cell.column == "FedCAP: TAcc" and each.mean is not None
        }
        theirs = {attack: TABLE_3[dataset, attack][0] or 0.0 for attack in (NO_ATTACK, *ATTACKS)}
        lost = {attack: ours[NO_ATTACK] - mean for attack, mean in ours.items()} if NO_ATTACK in ours else {}
        most = max(theirs[NO_ATTACK] - theirs[attack] for attack in ATTACKS)
        fallen = [attack for attack in lost if attack != NO_ATTACK and lost[attack] > most]
        if fallen:
            return section(
                "summary",
                "drop",
                dataset=stand_in,
                calm=f"{ours[NO_ATTACK]:.1f}",
                under=", ".join(f"{attack} {ours[attack]:.1f}" for attack in fallen),
                fallen=part_of(len(fallen), len(lost) - 1),
                replaced=dataset,
                most=f"{most:.1f}",
            )
    return ""


def _others(every: Sequence[Compared]) -> str:
    """Return how many of the other methods' accuracies agree with the paper's."""
    judged = [each for each in _one_of_each_figure(every) if each.agrees is not None and _is_rival(each)]
    return part_of(sum(bool(each.agrees) for each in judged), len(judged))


def _far(every: Sequence[Compared], reasons: Mapping[str, str]) -> str:
    """Return how many rivals' accuracies are far from the paper's, and how many of them have a reason."""
    texts = [reason(each, **reasons) for each in _one_of_each_figure(every) if _is_far(each)]
    partly = sum(text.startswith(PARTLY_EXPLAINED) for text in texts)
    explained = len(texts) - partly - sum(text.startswith(NOT_EXPLAINED) for text in texts)
    return f"{part_of(explained, len(texts))} have an explanation, and {partly} a partial one"


def _is_far(each: Compared) -> bool:
    return _is_rival(each) and abs(each.difference or 0.0) > FAR


def _is_rival(each: Compared) -> bool:
    return each.cell.measure.is_accuracy and not each.cell.column.startswith("FedCAP")


def _unfinished(every: Sequence[Compared]) -> str:
    """Return how many planned runs have not finished, by data set."""
    texts = []
    for dataset in dict.fromkeys(each.cell.dataset for each in every):
        done, planned = progress([each for each in every if each.cell.dataset == dataset])
        if done < planned:
            texts.append(f"{planned - done:,} of {planned:,} on {dataset}")
    return ", ".join(texts) or "none"


def _one_of_each_run(found: Iterable[Compared]) -> list[Compared]:
    return list({run_key(each.cell): each for each in found}.values())


def _one_of_each_figure(found: Iterable[Compared]) -> list[Compared]:
    """Return each figure once: if several cells show it, one that is compared with the paper."""
    judged_last = sorted(found, key=lambda each: each.agrees is not None)
    return list({(run_key(each.cell), each.cell.read): each for each in judged_last}.values())


def progress(found: Sequence[Compared]) -> tuple[int, int]:
    """Return how many runs behind cells have finished with at least one seed, and how many there are."""
    done = distinct(each.cell for each in found if each.runs)
    return len(done), len(distinct(each.cell for each in found))


def part_of(part: int, whole: int) -> str:
    """Return "3 of 7", or a dash if there are none."""
    return f"{part:,} of {whole:,}" if whole else "–"


def _anchor(item: Item) -> str:
    kept = (letter for letter in item.title.lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")
