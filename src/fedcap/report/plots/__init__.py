"""Figures for papers, drawn from a story: `kinds_of` says which a story has, `Kind.draw` draws one."""

from fedcap.report.plots.kinds import Kind, kinds_of

__all__ = ["Kind", "kinds_of"]
