"""From a directory to what a page tells of it: `story_of`, and `packed` for the page."""

from fedcap.report.story.clients import Standing, Standings
from fedcap.report.story.grid import Memo
from fedcap.report.story.packing import packed, unpacked
from fedcap.report.story.paper import Paper, Said
from fedcap.report.story.story import Check, Story
from fedcap.report.story.telling import NothingThere, story_of

__all__ = [
    "Check",
    "Memo",
    "NothingThere",
    "Paper",
    "Said",
    "Standing",
    "Standings",
    "Story",
    "packed",
    "story_of",
    "unpacked",
]
