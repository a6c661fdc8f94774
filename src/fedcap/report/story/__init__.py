"""From a directory to what a page tells of it: `story_of`, and `packed` for the page."""

from fedcap.report.story.packing import packed, unpacked
from fedcap.report.story.story import Story

__all__ = ["Story", "packed", "unpacked"]
