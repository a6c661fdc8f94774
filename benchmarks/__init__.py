"""Measurements of speed and memory, and comparisons with other revisions: `python -m benchmarks` lists them.

Every benchmark sets the number of its threads itself and writes it into its table in `benchmarks/results`.
"""
