"""What a grid comes to: its headline figures, and what is checked over all of its runs."""

from __future__ import annotations

from collections.abc import Sequence

from fedcap.errors import plural
from fedcap.report.story.story import Check, Failed, Headline, Panel, Story

NAMED = 3
"""How many runs a sentence names, and how many maps have a headline."""


def grid_headlines(panels: Sequence[Panel]) -> list[Headline]:
    """Return, for each of the first maps, the method that loses least to the attack that hurts it most."""
    return [headline for panel in panels[:NAMED] if (headline := _best(panel)) is not None]


def _best(panel: Panel) -> Headline | None:
    """Return the best method under its worst attack, or without one: methods are in that order."""
    if not panel.methods:
        return None
    at = panel.worst[0]
    field = panel.fields[0][at or 0]
    if field.mean is None:
        return None
    if at is None:
        words = f"{panel.title}: {panel.methods[0]} without attack."
        return Headline(f"{field.mean:.1f} %", panel.methods[0], words)
    second = ""
    if len(panel.methods) > 1 and panel.worst[1] is not None:
        next_best = panel.fields[1][panel.worst[1]]
        its_worst = panel.attacks[panel.worst[1]]
        second = f" The next is {panel.methods[1]} with {next_best.mean:.1f} %, under {its_worst}."
    done = "" if all(one.mean is not None for one in panel.fields[0]) else " of those that are done"
    under = f"under {panel.attacks[at]}, the attack that hurts it most{done}"
    words = f"{panel.title}: {panel.methods[0]} {under}.{second}"
    return Headline(f"{field.mean:.1f} %", f"{panel.methods[0]}, at worst", words)


def grid_checks(
    panels: Sequence[Panel], stories: Sequence[Story], planned: int, failed: Sequence[Failed]
) -> list[Check]:
    """Return whether all runs are done, what is checked of single runs, and how near the paper is."""
    done = sum(story.state != "unfinished" for story in stories)
    words = f"{done} of {plural(planned, 'run')} {'has' if planned == 1 else 'have'} finished"
    if failed:
        words += f", {len(failed)} failed: {', '.join(each.title for each in failed[:NAMED])}"
    complete = done == planned and not failed
    runs = Check("ok" if complete else "bad" if failed else "warn", "Runs", f"{words}.")
    names = dict.fromkeys(check.name for story in stories for check in story.checks)
    every = [_over_all(name, stories) for name in names]
    return [runs, *(check for check in every if check is not None), *_beside_the_paper(panels)]


def _over_all(name: str, stories: Sequence[Story]) -> Check | None:
    """Return what a check comes to over all runs in which it says anything; none if there are none."""
    marks = [(story.title, c.mark) for story in stories for c in story.checks if c.name == name]
    told = [(title, mark) for title, mark in marks if mark != "none"]
    if not told:
        return None
    bad = [title for title, mark in told if mark != "ok"]
    kinds = list(dict.fromkeys(title.rpartition(" · seed ")[0] for title in bad))
    if not bad:
        return Check("ok", name, f"In order in all {plural(len(told), 'run')} in which it can be told.")
    more = f" and {len(kinds) - NAMED} more" if len(kinds) > NAMED else ""
    fine = f"In order in {len(told) - len(bad)} of {plural(len(told), 'run')}; not in "
    words = fine if len(bad) < len(told) else f"Not in order in {plural(len(told), 'run')}: "
    return Check("warn", name, f"{words}{', '.join(kinds[:NAMED])}{more}.")


def _beside_the_paper(panels: Sequence[Panel]) -> list[Check]:
    """Return how far our figures lie from the paper's, if it has any."""
    fields = [field for panel in panels for line in panel.fields for field in line]
    gaps = [f.read - f.published for f in fields if f.read is not None and f.published is not None]
    if not gaps:
        return []
    near = sum(abs(gap) <= 2 for gap in gaps)
    words = f"{near} of {plural(len(gaps), 'figure')} lie within 2 points of the paper's."
    return [Check("ok" if near == len(gaps) else "warn", "The paper's figures", words)]
