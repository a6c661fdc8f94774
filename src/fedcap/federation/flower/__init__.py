"""The federation on Flower: its processes, what travels between them, and what keeps strangers out.

Nothing outside this folder imports flwr. Some of flwr's names that we use come without a promise: `version`
lists them, and refuses to start with any other release than the one that this was written for.
"""
