"""The story of a grid: maps of methods × attacks, what they come to, and the story of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from fedcap.errors import plural
from fedcap.report.statistics import half_width
from fedcap.report.story.cells import Cell, read_cells
from fedcap.report.story.grid_checks import grid_checks, grid_headlines
from fedcap.report.story.held import Held
from fedcap.report.story.local import LOCAL, Local
from fedcap.report.story.outcome import outcome_story
from fedcap.report.story.paper import Paper
from fedcap.report.story.run import Known, run_story
from fedcap.report.story.series import Fact
from fedcap.report.story.story import Failed, Field, Map, Panel, Story
from fedcap.report.story.thinning import ROOM, Thinning
from fedcap.runs import CONFIG, PROVENANCE, RESULT, ROUNDS

ROOM_OF_ALL = 1_000_000
"""How many numbers the arrays of one kind may have in all runs together."""
NO_ATTACK = "no attack"
NAMED = 5
"""How many runs with troubles are told."""

Memo = dict[Path, tuple[object, Story]]
"""Stories of a grid's runs, each with the state of the files it was made from."""


def grid_story(path: Path, paper: Paper, memo: Memo) -> Story:
    """Return the story of a folder of runs; of those that are as they were, the story in `memo` is taken."""
    folder = read_cells(path, paper)
    cells, thin = folder.cells, Thinning()
    stories = _stories(cells, memo)
    sizes = Counter(title for cell in cells for title in cell.panels)
    panels = [_panel(title, cells) for title in sorted(sizes, key=lambda title: (-sizes[title], title))]
    failed = [
        Failed(thin.name(_place(each.place) or each.name), thin.words(each.why)) for each in folder.failures
    ]
    done, planned = sum(cell.outcome is not None for cell in cells), len(cells) + folder.to_come
    thin.say(
        "In the views of single runs, curves of single clients have 8 bits: a 250th of their range,"
        " or of its logarithm if that is wide."
    )
    names = ", ".join(dict.fromkeys(cell.settings.dataset_name for cell in cells))
    return Story(
        kind="grid",
        title=f"Comparison on {thin.name(names or path.name)}",
        sentence=_sentence(panels, cells, done, planned),
        state="finished" if 0 < done == planned and not failed else "unfinished",
        played=done,
        planned=planned,
        headlines=grid_headlines(panels),
        checks=grid_checks(panels, stories, planned, failed),
        troubles=[*folder.troubles, *_troubles(stories)],
        thinned=[*thin.sentences, *dict.fromkeys(said for story in stories for said in story.thinned)],
        map=Map(panels, stories, failed),
        settings=_common([story.settings for story in stories]),
        provenance=_common([story.provenance for story in stories]),
    )


def _troubles(stories: Sequence[Story]) -> list[str]:
    """Return what could not be read of single runs: the first of each, of the first runs."""
    found = [f"{story.title}: {story.troubles[0]}" for story in stories if story.troubles]
    more = [f"… and of {plural(len(found) - NAMED, 'more run')}"] if len(found) > NAMED else []
    return [*found[:NAMED], *more]


def _common(tables: Sequence[Sequence[Fact]]) -> list[Fact]:
    """Return what all runs have in common."""
    if not tables:
        return []
    shared = set(tables[0]).intersection(*tables[1:])
    return [fact for fact in tables[0] if fact in shared]


def _stories(cells: Sequence[Cell], memo: Memo) -> list[Story]:
    """Return each run's own story, beside what clients reach alone if the grid has that."""
    room = min(ROOM, ROOM_OF_ALL // max(1, len(cells)))
    alone = {_setting(cell): local for cell in cells if (local := _local(cell)) is not None}
    found = []
    for cell in cells:
        local = None if cell.settings.method.name == LOCAL else alone.get(_setting(cell))
        known = Known(local, said=cell.said)
        if cell.path is None:
            assert cell.outcome is not None
            found.append(outcome_story(cell.outcome, cell.settings, known, Thinning(room)))
            continue
        stamp = (room, local is None, _stamp(cell.path))
        if cell.path not in memo or memo[cell.path][0] != stamp:
            memo[cell.path] = stamp, run_story(Held.read(cell.path), known, Thinning(room))
        found.append(memo[cell.path][1])
    return found


def _stamp(path: Path) -> tuple[object, ...]:
    """Return what changes whenever the run in a directory does."""
    found = []
    for name in (CONFIG, PROVENANCE, ROUNDS, RESULT):
        with suppress(OSError):
            status = (path / name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _setting(cell: Cell) -> tuple[object, ...]:
    """Return what must be equal for a run to be compared with one of clients alone."""
    return (*cell.panels, cell.settings.seed, cell.partition, cell.roster)


def _local(cell: Cell) -> Local | None:
    if cell.settings.method.name != LOCAL or cell.outcome is None or cell.roster is None:
        return None
    return Local.of_outcome(cell.outcome, f"Each client alone, in the same grid: seed {cell.settings.seed}.")


def _panel(title: str, cells: Sequence[Cell]) -> Panel:
    own = [(at, cell) for at, cell in enumerate(cells) if title in cell.panels]
    attacks = sorted({cell.column for _, cell in own}, key=lambda name: (name != NO_ATTACK, name))
    lines = {
        row: [_field([one for one in own if row in one[1].rows and one[1].column == at]) for at in attacks]
        for row in {row for _, cell in own for row in cell.rows}
    }
    worst = {row: _worst(line, attacks) for row, line in lines.items()}

    def rank(row: str) -> tuple[int, bool, float, str]:
        at, missing = worst[row], sum(field.mean is None for field in lines[row])
        return missing, at is None, -(lines[row][at or 0].mean or 0.0), row

    methods = sorted(lines, key=rank)
    return Panel(title, methods, attacks, [lines[row] for row in methods], [worst[row] for row in methods])


def _worst(line: Sequence[Field], attacks: Sequence[str]) -> int | None:
    """Return the attack with the lowest mean."""
    means = {at: field.mean for at, field in enumerate(line) if attacks[at] != NO_ATTACK}
    there = {at: mean for at, mean in means.items() if mean is not None}
    return min(there, key=lambda at: there[at]) if there else None


def _field(cells: Sequence[tuple[int, Cell]]) -> Field:
    """Return a field of the map: the means over the runs that have finished."""
    ordered = sorted(cells, key=lambda found: found[1].settings.seed)
    done = [outcome for _, cell in ordered if (outcome := cell.outcome) is not None]
    values = [outcome.tacc for outcome in done]
    judged = [outcome.dacc for outcome in done if outcome.dacc is not None]
    said = next((cell.said for _, cell in ordered if cell.said and cell.said.published is not None), None)
    read = [value for outcome in done if said and (value := getattr(outcome, said.read)) is not None]
    return Field(
        mean=fmean(values) if values else None,
        half_width=half_width(values),
        cells=[at for at, _ in ordered],
        seeds=[str(cell.settings.seed) for _, cell in ordered],
        missing=len(ordered) - len(done),
        diverged=sum(outcome.diverged for outcome in done),
        stopped=sum(outcome.stopped is not None for outcome in done),
        worst_client=fmean(outcome.tacc_worst_client for outcome in done) if done else None,
        dacc=fmean(judged) if judged else None,
        published=said.published if said else None,
        read=fmean(read) if read else None,
        source=said.source if said else "",
    )


def _sentence(panels: Sequence[Panel], cells: Sequence[Cell], done: int, planned: int) -> str:
    methods = {method for panel in panels for method in panel.methods}
    attacks = {attack for panel in panels for attack in panel.attacks} - {NO_ATTACK}
    datasets = sorted({cell.settings.dataset_name for cell in cells})
    seeds = plural(len({cell.settings.seed for cell in cells}), "seed")
    under = f"under {plural(len(attacks), 'attack')}" if attacks else "without attack"
    if not cells:
        return f"A comparison that has not begun: 0 of {plural(planned, 'run')} are done."
    many = "all" if done == planned > 1 else f"{done:,} of"
    runs = f"{many} {plural(planned, 'run')} {'is' if planned == 1 else 'are'} done"
    return f"{plural(len(methods), 'method')} {under} on {', '.join(datasets)}, with {seeds}: {runs}."


def _place(place: Mapping[str, str]) -> str:
    return " · ".join(f"seed {label}" if axis == "seed" else label for axis, label in place.items() if label)
