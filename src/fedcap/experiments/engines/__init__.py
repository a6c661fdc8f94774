"""Engines: what plays the cells of a grid, on the cores of this machine or on a cluster."""
