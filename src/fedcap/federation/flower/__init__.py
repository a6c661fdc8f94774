"""The federation on Flower: its processes, its messages, and what keeps strangers out.

Only this folder imports flwr, and only `compat` uses names of flwr that are not documented.
"""
