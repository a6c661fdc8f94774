"""`fedcap federate rehearse`: a whole federation on this machine, with malicious sites that are removed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcap.cli.common import FAILED, AsJson, Quiet, echo, print_json, print_table
from fedcap.errors import InputError

SAMPLES = 1000
"""The number of samples of all sites together."""
SECONDS = 600.0


def rehearse(
    clients: Annotated[int, typer.Option(help="Number of sites.", min=3, max=20)] = 5,
    malicious: Annotated[int, typer.Option(help="Number of malicious sites: fewer than half.", min=0)] = 1,
    rounds: Annotated[int, typer.Option(help="Number of rounds.", min=1)] = 4,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for all files. [default: a new one, fedcap-rehearsal-…]"),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse a whole federation on this machine.

    Nothing needs to be prepared: it makes certificates and keys, starts a server and its sites as processes,
    and connects them over TLS. Malicious sites are found and removed. It takes one or two minutes.
    """
    from fedcap.cli.federate.operator import plan_like
    from fedcap.federation.rehearsal import rehearse as play

    if 2 * malicious >= clients:
        raise InputError(
            f"{malicious} of {clients} sites malicious: a majority must be honest",
            code="bad-value",
            field="malicious",
        )
    began = time.monotonic()

    def say(line: str) -> None:
        if not quiet:
            echo(f"{time.monotonic() - began:5.1f} s  {line}", err=as_json)

    folder = out or Path(f"fedcap-rehearsal-{time.strftime('%Y%m%d-%H%M%S')}")
    dataset = {"name": "digits", "clients": clients, "samples": SAMPLES // clients}
    settings: dict[str, Any] = {"dataset": dataset, "rounds": rounds, "deadline": 60.0}
    plan = plan_like("rehearsal", settings | {"assumed": malicious / clients})
    sites = [{"name": f"site-{k + 1}", "dataset": dataset, "client": str(k)} for k in range(clients)]
    found = play(folder, plan, sites, malicious, SECONDS, say)
    took = time.monotonic() - began
    if as_json:
        facts: dict[str, Any] = {"folder": str(folder), "seconds": round(took, 1), "ok": found.is_success}
        facts |= {"finished": found.finished, "malicious": list(found.malicious)}
        print_json({**facts, "clients": found.table.dicts()})
    else:
        print_table(found.table, numbers=False)
        echo(_summary(found.folder, took))
    if not found.is_success:
        raise typer.Exit(FAILED)


def _summary(folder: Path, seconds: float) -> str:
    """Return the files that the rehearsal left, and what to do next."""
    lines = [
        ("operator/plan.toml, federation.toml", "what was trained, and where the server is"),
        ("operator/ledger.json, audit.jsonl", "the clients, and everything that happened"),
        ("operator/run/", f"the run: fedcap show {folder}/operator/run"),
        ("operator/certificates/, nginx.conf", "the server's TLS"),
        ("sites/site-1/site.toml, policy.toml", "a site's data, and what it agrees to"),
        ("sites/site-1/state/", f"its model: fedcap predict {folder}/sites/site-1 INPUT.npz"),
        ("…/logs/", "the output of every program"),
    ]
    width = max(len(file) for file, _ in lines)
    listed = "\n".join(f"  {file:<{width}}  {what}" for file, what in lines)
    return f"{seconds:.0f} s. All files are in {folder}:\n{listed}\nNext: fedcap federate init --help"
