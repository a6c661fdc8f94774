"""`fedcap federate rehearse`: a whole federation on this machine, with a hostile site that is found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcap.cli.errors import FAILED
from fedcap.cli.output import AsJson, Quiet, print_json, print_table
from fedcap.errors import InputError

SAMPLES = 1000
"""How many samples there are for all sites together."""
SECONDS = 600.0


def rehearse(
    clients: Annotated[int, typer.Option(help="Sites.", min=3, max=20)] = 5,
    hostile: Annotated[int, typer.Option(help="How many of them are hostile: fewer than half.", min=0)] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Where to put it all. [default: a new folder, fedcap-rehearsal-…]")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Rehearse a federation on this machine: nothing to prepare, everything real but the distance.

    Certificates, keys, a server and its sites as processes of their own, over TLS; hostile sites are found
    and put out. It takes a minute or two, and leaves every file to look at.
    """
    from fedcap.cli.federate.starting import plan_like
    from fedcap.federation.rehearsal import rehearse as play

    if 2 * hostile >= clients:
        raise InputError(f"{hostile} of {clients} hostile: a majority must be honest")
    began = time.monotonic()

    def say(line: str) -> None:
        if not quiet:
            typer.echo(f"{time.monotonic() - began:5.1f} s  {line}", err=as_json)

    folder = out or Path(f"fedcap-rehearsal-{time.strftime('%Y%m%d-%H%M%S')}")
    dataset = {"name": "digits", "clients": clients, "samples": SAMPLES // clients}
    settings: dict[str, Any] = {"dataset": dataset, "rounds": rounds, "deadline": 60.0}
    plan = plan_like("rehearsal", settings | {"assumed": hostile / clients})
    sites = [{"name": f"site-{k + 1}", "dataset": dataset, "client": str(k)} for k in range(clients)]
    found = play(folder, plan, sites, hostile, SECONDS, say)
    took = time.monotonic() - began
    if as_json:
        facts: dict[str, Any] = {"folder": str(folder), "seconds": round(took, 1), "well": found.is_success}
        facts |= {"finished": found.finished, "hostile": list(found.malicious)}
        print_json({**facts, "clients": found.table.dicts()})
    else:
        print_table(found.table, numbers=False)
        typer.echo(_summary(found.folder, took))
    if not found.is_success:
        raise typer.Exit(FAILED)


def _summary(folder: Path, seconds: float) -> str:
    """Return where everything is, and what to do with it."""
    lines = [
        ("operator/plan.toml, federation.toml", "what was learnt, and where"),
        ("operator/ledger.json, audit.jsonl", "who took part, and all that happened"),
        ("operator/run/", f"the run: fedcap show {folder}/operator/run"),
        ("operator/certificates/, nginx.conf", "the server's TLS"),
        ("sites/site-1/site.toml, policy.toml", "a site's data, and what it agrees to"),
        ("sites/site-1/state/", f"its own model: fedcap predict {folder}/sites/site-1 INPUT.npz"),
        ("…/logs/", "what every program said"),
    ]
    width = max(len(file) for file, _ in lines)
    listed = "\n".join(f"  {file:<{width}}  {what}" for file, what in lines)
    return (
        f"{seconds:.0f} s. All of it is in {folder}:\n{listed}\nNext, for real: fedcap federate init --help"
    )
