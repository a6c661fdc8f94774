"""Experiments of many runs: the demo."""
