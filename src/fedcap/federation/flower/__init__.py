"""The federation on Flower: its processes, what travels between them, and what keeps strangers out.

Nothing outside this folder imports flwr, and flwr's private names are used in `guard` and `pulling` alone; `version`
refuses to start with any other release than the one they were written for.
"""
