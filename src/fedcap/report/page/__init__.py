"""One self-contained HTML page that tells a story, saved or live."""

from fedcap.report.page.page import page

__all__ = ["page"]
