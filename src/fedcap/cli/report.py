"""`fedcap report`: a page about a run, a grid or a federation, saved or live. `fedcap plot`: its figures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcap.cli.common import AsJson, cannot_write, echo, print_json, print_line, save, until_stopped
from fedcap.errors import InputError, nearest

if TYPE_CHECKING:
    from fedcap.report.grid import Memo
    from fedcap.report.model import Report
    from fedcap.report.run import Standing

REPORT = "report.html"
ENDINGS = (".png", ".pdf", ".svg")

ReportDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a run, a grid or a federation, finished or not.")
]
LocalRun = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A run of --method local on the same data, to compare with."),
]


def report(
    directory: ReportDirectory,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the page. [default: DIR/report.html]")
    ] = None,
    local: LocalRun = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page on this machine, and update it, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the live page. [default: a free one]")
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the live page in the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page about a run, a grid or a federation.

    The page is one HTML file that needs no network and no other files. A live page can only be opened on this
    machine, with its full address; the directory may be created later.
    """
    if live:
        if out is not None:
            raise InputError("--out is for a saved page, not for --live", code="bad-option", field="out")
        _serve(directory, local, port or 0, browse, as_json)
        return
    if port is not None or browse:
        raise InputError("--port and --open are for --live", code="bad-option", field="live")
    from fedcap.report.pack import pack
    from fedcap.report.page import page

    made = report_on(directory, local)
    path = out or directory / REPORT
    content = page(pack(made)).encode()
    save(path, content)
    if as_json:
        problems, omitted = list(made.problems), list(made.omitted)
        print_json({"file": str(path), "bytes": len(content), "omitted": omitted, "problems": problems})
        return
    echo(f"{path}: {len(content) / 1000:,.0f} kB")
    echo(f"  {made.summary}")
    for line in (*(f"problem: {problem}" for problem in made.problems), *made.omitted):
        echo(f"  {line}")


def _serve(directory: Path, local: Path | None, port: int, browse: bool, as_json: bool) -> None:
    """Serve the live page until Ctrl-C or SIGTERM."""
    from fedcap.report.live import LivePage
    from fedcap.report.page import NothingThere

    if directory.exists() and not directory.is_dir():
        raise InputError(
            f"{directory} is a file: give the directory of a run, a grid or a federation",
            code="not-a-directory",
            field=str(directory),
        )
    memo: Memo = {}  # keeps the runs of a grid that have not changed
    if local is not None:
        with suppress(NothingThere):  # reports now if the two runs do not fit together
            report_on(directory, local, memo)
    with (
        until_stopped() as stop,
        LivePage(directory, port, lambda path: report_on(path, local, memo)) as served,
    ):
        if as_json:
            print_line({"address": served.address, "directory": str(directory)})
        else:
            later = "" if directory.exists() else ", which does not exist yet"
            echo(f"{directory}{later}: {served.address} (Ctrl-C stops)")
        if browse:
            typer.launch(served.address)
        while not stop.wait(1.0):  # a wait without end would block signals
            pass
    if not as_json:
        echo("the page is closed; the run continues")


def report_on(directory: Path, local: Path | None = None, memo: Memo | None = None) -> Report:
    """Return what the page shows, with what the ledger of a federation says about its clients."""
    from fedcap.report.page import build_report

    return build_report(directory, local, _standings(directory), memo)


def _standings(directory: Path) -> Mapping[str, Standing]:
    """Return the states of a federation's clients by its ledger; nothing if there is none."""
    from fedcap.federation.audit import AUDIT, Audit
    from fedcap.federation.ledger import LEDGER, OPERATOR, Ledger
    from fedcap.report.run import Standing

    for folder in (directory, directory.parent):  # of the operator, or of its run
        path = folder / LEDGER
        if path.exists():
            with suppress(InputError):  # a damaged ledger does not prevent a page
                entries = Ledger(path, Audit(folder / AUDIT)).entries().values()
                return {
                    entry.client: Standing(
                        entry.name, str(entry.state), last.reason, last.by == OPERATOR, last.round
                    )
                    for entry in entries
                    for last in entry.changes[-1:]
                }
    return {}


def plot(
    directory: ReportDirectory,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Which figure. [default: list them]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="FILE.png, FILE.pdf or FILE.svg; without an ending, all three. [default: DIR-KIND.png]",
        ),
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(help="Rounds to show in a map of mixing weights, such as 1,10,30.")
    ] = None,
    local: LocalRun = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure for a paper.

    Colour-blind people can distinguish its colours.
    """
    from fedcap.report.plots import plots_of

    kinds = plots_of(report_on(directory, local))
    if kind is None:
        if as_json:
            print_json({name: one.description for name, one in kinds.items()})
            return
        if not kinds:
            echo(f"{directory} has nothing to draw yet")
        for name, one in kinds.items():
            echo(f"  {name:<10}{one.description}")
        return
    if kind not in kinds:
        raise InputError(
            f"{directory} has no figure {kind!r}: {nearest(kind, kinds)}", code="unknown-name", field="kind"
        )
    path = out or Path(f"{directory.absolute().name}-{kind}.png")
    if path.suffix and path.suffix not in ENDINGS:
        raise InputError(
            f"cannot draw {path}: the file must end in {', '.join(ENDINGS)}", code="bad-value", field="out"
        )
    try:
        written = kinds[kind].draw(path, _numbers(rounds))
    except OSError as error:
        raise cannot_write(path, error) from None
    if as_json:
        print_json([str(file) for file in written])
    else:
        echo(f"Saved: {', '.join(map(str, written))}")


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--rounds {text}: expected numbers of rounds, such as 1,10,30", code="bad-value", field="rounds"
        ) from None
