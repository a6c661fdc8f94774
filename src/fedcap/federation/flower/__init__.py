"""The federation on Flower: its processes, what travels between them, and what keeps strangers out.

Nothing outside this folder imports flwr. Some of flwr's names that it uses come without a promise, so
`version` refuses any other release than the one that this was written for.
"""
