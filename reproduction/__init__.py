"""The tables and figures of the FedCAP paper (ACSAC 2024), run with fedcap: `python -m reproduction`."""
