"""`fedcap federate init`, `approve`, `serve`, `remove` and `readmit`: the operator of a federation.

The operator makes a plan and an invitation, approves sites by their fingerprints, runs the server, and
removes clients or takes them back.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import (
    AsJson,
    Overrides,
    echo,
    given,
    print_json,
    until_stopped,
    users_code,
    with_settings,
)
from fedcap.cli.federate.common import OperatorDirectory, confirmed, printer
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.federation.config import Operator
    from fedcap.federation.ledger import Ledger, LedgerEntry
    from fedcap.federation.plan import Plan

OF_RUNS = ("dataset", "method", "model", "training", "rounds", "seed", "participation")
"""The settings of a plan that have the same defaults as those of a run."""
MOST_FEATURES = 1000
"""With more features than this, the plan does not state their means and deviations."""

ClientName = Annotated[
    str, typer.Argument(metavar="CLIENT", help="Its name, its fingerprint, or the start of its fingerprint.")
]
Reason = Annotated[str, typer.Option(help="The reason, for the ledger and the record of events.")]


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The operator's directory, a new one.")],
    host: Annotated[
        str | None, typer.Option(help="The name or address by which sites reach the server.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port that sites connect to. [default: 9443]")] = None,
    name: Annotated[
        str | None, typer.Option(help="The federation's name. [default: the directory's name]")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Samples like those of the sites: data set, FILE.csv, FILE.npz, or folder."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Without samples: the names of the classes, separated by commas.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Without samples: the shape of one input, such as 1,28,28.")
    ] = None,
    pixels: Annotated[
        bool, typer.Option("--pixels", help="Without samples: inputs are images of bytes.")
    ] = False,
    method: Annotated[str | None, typer.Option(help="Method. [default: fedcap]")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds. [default: as for a run; 30 without samples]")
    ] = None,
    assumed: Annotated[
        float | None, typer.Option(help="Share of the sites that may be malicious. [default: 0]")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="The operator's clean samples, for methods that need them: a data set.")
    ] = None,
    settings: Overrides = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Renew the server's certificate; sites need nothing new.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set up a federation: plan, certificates and invitation.

    All settings are in federation.toml and plan.toml, and can be changed there. A second call keeps both
    files and writes the invitation again.
    """
    from fedcap.federation.config import FEDERATION, Federation, Operator
    from fedcap.federation.plan import PLAN
    from fedcap.federation.setup import refresh, set_up_operator

    place = given(host=host, port=port, root=root)
    plan = given(dataset=dataset, method=method, rounds=rounds, assumed=assumed)
    plan = with_settings(plan, settings)
    if (directory / FEDERATION).exists():
        if place or plan or name or classes or shape:
            raise InputError(
                f"{directory} is a federation already: edit its {FEDERATION} and {PLAN}, then call fedcap"
                f" federate init {directory}",
                code="exists",
                field=str(directory),
            )
        fingerprint = refresh(Operator.open(directory), renew)
    else:
        if host is None:
            raise InputError(
                "give the name or address by which sites reach the server: --host NAME",
                code="missing-option",
                field="host",
            )
        federation = Federation.of(place, "federate init")
        title = name or directory.absolute().name
        with users_code():
            if "dataset" in plan:
                made = plan_like(title, plan)
            else:
                made = _plan_described(title, plan, classes, shape, pixels)
        fingerprint = set_up_operator(directory, federation, made)
    _print_federation(Operator.open(directory), fingerprint, as_json)


def plan_like(name: str, asked: dict[str, Any]) -> Plan:
    """Return a plan for samples like those of a data set, with the options that suit it."""
    from fedcap.data.encoding import width
    from fedcap.federation.build import propose
    from fedcap.federation.flower.compat import bundle_digest
    from fedcap.federation.site_data import feature_statistics
    from fedcap.simulation import Experiment

    more = {key: value for key, value in asked.items() if key not in OF_RUNS}
    experiment = Experiment(**{key: value for key, value in asked.items() if key in OF_RUNS})
    settings = experiment.settings()
    samples = experiment.source.load()
    more |= {key: settings[key] for key in ("rounds", "seed", "participation")}
    shape = tuple(samples.samples.x.shape[1:])
    if samples.levels:
        pairs = zip(samples.features, samples.levels, strict=True)
        more["levels"], shape = {name: known for name, known in pairs if known}, (width(samples.levels),)
    elif not samples.integers:
        mean, deviation = feature_statistics(samples)
        if len(mean) <= MOST_FEATURES:
            more |= {"means": mean.tolist(), "deviations": deviation.tolist()}
    if samples.integers:
        more["integers"] = True
    if samples.features:
        more["features"] = samples.features
    return propose(
        name,
        settings["method"],
        settings["model"],
        samples.class_names,
        shape,
        settings["training"],
        pixels=samples.pixels,
        bundle=bundle_digest(),
        **more,
    )


def _plan_described(
    name: str, asked: dict[str, Any], classes: str | None, shape: str | None, pixels: bool
) -> Plan:
    """Return a plan for samples that are described by their classes and their shape."""
    from fedcap.federation.build import propose
    from fedcap.federation.flower.compat import bundle_digest

    if classes is None or shape is None:
        raise InputError(
            "describe the sites' samples: --dataset with similar ones, or --classes and --shape",
            code="missing-option",
            field="dataset",
        )
    try:
        sizes = [int(size) for size in shape.split(",")]
    except ValueError:
        raise InputError(
            f"--shape {shape}: expected numbers, such as 1,28,28", code="bad-value", field="shape"
        ) from None
    more = {key: value for key, value in asked.items() if key not in ("method", "model", "training")}
    return propose(
        name,
        asked.get("method", "fedcap"),
        asked.get("model", "mlp"),
        [word.strip() for word in classes.split(",")],
        sizes,
        asked.get("training", {}),
        pixels=pixels,
        bundle=bundle_digest(),
        **more,
    )


def _print_federation(operator: Operator, fingerprint: str, as_json: bool) -> None:
    """Print what was set up, and what to do next."""
    from fedcap.federation.config import INVITATION

    federation, plan, folder = operator.federation, operator.plan, operator.directory
    invitation = folder / INVITATION
    if as_json:
        print_json(
            {
                "directory": str(folder),
                "server": federation.address,
                "fingerprint": fingerprint,
                "plan": plan.digest,
                "invitation": str(invitation),
            }
        )
        return
    echo(f"{plan.name} at {federation.address}: {plan.method.name}, {plural(plan.rounds, 'round')}")
    echo(f"  server's fingerprint  {fingerprint}")
    echo(f"  plan's digest         {plan.digest}")
    echo(f"  settings              {folder}/plan.toml, {folder}/federation.toml")
    echo("")
    echo(f"Next: send {invitation} to every site, and read the fingerprint to it by telephone.")
    echo(f"  fedcap federate approve {folder} REQUEST.toml    for each site that answers")
    echo(f"  fedcap federate check {folder}                   find problems before the start")
    echo(f"  fedcap federate serve {folder}                   run the server")


def approve(
    directory: OperatorDirectory,
    request: Annotated[
        str,
        typer.Argument(metavar="REQUEST", help="A site's request file, or the name of a site that asked."),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="You compared the fingerprint with the site's: do not ask.")
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Approve a site, after comparing fingerprints by telephone.

    The site reads its fingerprint to you. A running server admits the site within a few seconds.
    """
    from fedcap.federation.audit import bounded
    from fedcap.federation.config import Operator
    from fedcap.federation.keys import JoinRequest
    from fedcap.federation.ledger import State

    ledger = Operator.open(directory).ledger
    if Path(request).is_file():
        asked = JoinRequest.read(Path(request))
        entry = ledger.ask(asked.fingerprint, asked.name, asked.key)
    else:
        entry = ledger.find(request)
    if entry.state == State.REMOVED:
        raise InputError(
            f"{entry.name} was removed: {entry.changes[-1].reason}; to take it back: fedcap federate readmit"
            f" {directory} {entry.name} --reason TEXT",
            code="removed",
            field=entry.name,
        )
    new = entry.state == State.ASKED
    if new:
        if not yes:
            echo(f"{entry.name} has the fingerprint  {entry.client}", err=as_json)
        if not confirmed("Does the site read the same fingerprint by telephone?", yes, as_json):
            raise InputError(
                f"{entry.name} is not approved: compare its fingerprint by telephone, then add --yes",
                code="not-confirmed",
                field=entry.name,
            )
        ledger.approve(entry.client, reason=bounded(reason))
    entry = ledger.find(entry.client)
    if as_json:
        print_json({"client": entry.client, "name": entry.name, "state": entry.state, "new": new})
    elif new:
        echo(f"{entry.name} ({entry.client}) may take part")
    else:
        echo(f"{entry.name} ({entry.client}) was approved before: it is {entry.state}")


def serve(
    directory: OperatorDirectory,
    until_finished: Annotated[
        bool,
        typer.Option("--until-finished", help="Stop after the last round. [default: wait for new sites]"),
    ] = False,
    own_nginx: Annotated[
        bool, typer.Option("--own-nginx", help="Start no nginx: you run your own with nginx.conf.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the server of a federation.

    It prints a line for each event, as JSON with --json. Ctrl-C or SIGTERM stops it. The same command
    continues, also after a crash: finished rounds are kept.
    """
    from fedcap.federation.config import Operator
    from fedcap.federation.flower.server import run_server

    operator, say = Operator.open(directory), printer(as_json)
    with until_stopped() as stop:
        run_server(operator, say, stop, own_nginx, until_finished)
        say("stopped" if stop.is_set() else "finished")


def remove(directory: OperatorDirectory, client: ClientName, reason: Reason, as_json: AsJson = False) -> None:
    """Remove a client, from the next round on.

    The server sends it nothing until it is readmitted.
    """
    from fedcap.federation.ledger import OPERATOR

    ledger, found, rounds = _find(directory, client)
    ledger.remove(found, reason, rounds, by=OPERATOR)
    _print_entry(ledger.find(found), "is removed from the next round on", as_json)


def readmit(
    directory: OperatorDirectory, client: ClientName, reason: Reason, as_json: AsJson = False
) -> None:
    """Take a removed client back, from the next round on.

    It starts as a new client.
    """
    ledger, found, rounds = _find(directory, client)
    ledger.readmit(found, reason, rounds)
    _print_entry(ledger.find(found), "may take part again from the next round on, as a new client", as_json)


def _find(directory: Path, client: str) -> tuple[Ledger, str, int]:
    """Return the operator's ledger, the client's fingerprint, and the number of rounds so far."""
    from fedcap.federation.config import Operator
    from fedcap.federation.status import records

    operator = Operator.open(directory)
    return operator.ledger, operator.ledger.find(client).client, len(records(operator))


def _print_entry(entry: LedgerEntry, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"client": entry.client, "name": entry.name, **asdict(entry.changes[-1])})
    else:
        echo(f"{entry.name} ({entry.client}) {what}")
