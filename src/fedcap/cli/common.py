"""What all commands share: options with one meaning, settings, output, errors and exit codes.

Output goes to stdout, as text or as JSON; messages and progress go to stderr. A failed command prints one
line and returns 1 (failed), 2 (bad input) or 130 (interrupted). The library's errors name no options: the
hints here add them by the error's code.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from fedcap.errors import InputError, RunError, UserCodeError

if TYPE_CHECKING:
    from fedcap.report.tables import Table

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

# Options

HERE = "here"
"""The value of `--ray` without an address: a Ray cluster of this machine's cores."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as method.alpha=5. Repeatable."),
]
DataOverrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as dataset.label=NAME. Repeatable."),
]
Workers = Annotated[int | None, typer.Option(help="Worker processes. [default: one per core]")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]",
        help="Train on a Ray cluster: HOST:PORT, or auto. Without an address, start one on this machine.",
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed runs again.")]
Seeds = Annotated[str, typer.Option("--seed", metavar="SEEDS", help="Seeds, such as 0-4,7.")]


def settings_file(file: Path | None) -> Path | None:
    """Return the file of settings; refuse a directory, a file of data, and the value of an option."""
    from fedcap.runs import CONFIG

    if file is None or file.suffix == ".toml" or (file.exists() and not file.suffix and not file.is_dir()):
        return file
    how = "give data sets, methods and attacks as --dataset, --method and --attack"
    if (file / CONFIG).exists():
        how = f"it is the directory of a run (fedcap show {file}, or fedcap run --resume {file})"
    elif file.exists():
        how = f"give data as --dataset {file}"
    raise InputError(f"{file} is not a TOML file of settings: {how}", code="bad-file", field=str(file))


SettingsFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE.toml]", help="Settings of one run.", callback=settings_file),
]


def ray_address(ray: str | None) -> str | None:
    """Return the address of the Ray cluster; none for a new cluster of this machine's cores."""
    return None if ray == HERE else ray


# Settings


def parse_setting(text: str) -> dict[str, Any]:
    """Return `a.b=value` as nested settings; a value that is not TOML is taken as a string."""
    from fedcap.registry import parse_value

    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise InputError(f"--set {text}: expected KEY=VALUE, such as method.alpha=5", code="bad-value")
    parsed: Any = parse_value(value)
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return dict(parsed)


def with_settings(given: Mapping[str, Any], settings: Iterable[str] | None) -> dict[str, Any]:
    """Return settings with those of `--set` on top."""
    from fedcap.runs import overlay

    found = dict(given)
    for setting in settings or ():
        found = overlay(found, parse_setting(setting))
    return found


def given(**values: Any) -> dict[str, Any]:
    """Return the options that the user gave."""
    return {key: value for key, value in values.items() if value is not None}


def parse_lists(texts: Iterable[str], example: str) -> dict[str, list[Any]]:
    """Return each `key=v1,v2` of `--vary` as a key and its values; no key may occur twice."""
    from fedcap.registry import parse_value, split

    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")) or not values.strip():
            raise InputError(f"--vary {text}: expected KEY=V1,V2, such as {example}", code="bad-value")
        if key in found:
            raise InputError(
                f"--vary {key} is given twice: give all values at once, {key}=V1,V2", code="bad-value"
            )
        found[key] = [parse_value(value) for value in split(values)]
    return found


# Groups of commands


def _plain(text: str) -> str:
    """Return help without the escapes of Rich's markup, which typer writes even where it is switched off.

    click prints help in UTF-8 even if stdout takes only ASCII.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.replace("\\[", "[").encode(encoding, "fedcap").decode(encoding)


class Command(TyperCommand):
    """A command with plain help, and with `--ray` that may have a value."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return _plain(super().get_help(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; `--ray` takes the next one only if it is an address."""
        if any(param.name == "ray" for param in self.params):
            for place, (word, after) in enumerate(pairwise([*args, ""])):
                if word == "--ray" and after != "auto" and (":" not in after or after.startswith("-")):
                    args = [*args[:place], f"--ray={HERE}", *args[place + 1 :]]
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands with plain help."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return _plain(super().get_help(ctx))


class App(typer.Typer):
    """A group of commands; `command` adds a function to it."""

    def __init__(self, help: str, name: str | None = None, cls: type[Command] = Command) -> None:
        super().__init__(
            name=name,
            help=help,
            cls=Group,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._cls = cls

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a function as a command."""
        return super().command(name, cls=self._cls, **settings)


# Output


class OutputError(Exception):
    """stdout or stderr cannot be written; the argument is the operating system's error."""


ASCII = {
    "·": "-",
    "…": "...",
    "–": "-",
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "±": "+-",
    "†": "*",
    "✗": "x",
    "−": "-",
    "’": "'",
}
"""What stands for a character where stdout or stderr cannot encode it; `?` stands for any other."""


def _transliterate(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("fedcap", _transliterate)


def prepare_streams() -> None:
    """Make stdout and stderr print something for each character, whatever their encoding."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="fedcap")


def _takes_unicode(stream: IO[str]) -> bool:
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def echo(text: str = "", err: bool = False, nl: bool = True) -> None:
    """Print a line at once; unlike click's `echo`, in the encoding of the stream."""
    try:
        print(text, end="\n" if nl else "", file=sys.stderr if err else sys.stdout, flush=True)
    except OSError as error:
        raise OutputError(error) from None


def bold(text: str) -> str:
    """Return a heading, in bold type on a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def to_json(content: Any) -> str:
    """Return indented JSON."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def print_json(content: Any) -> None:
    """Print JSON, with escapes where stdout takes only ASCII."""
    text = to_json(content)
    echo(text if _takes_unicode(sys.stdout) else json.dumps(content, indent=2))


def print_line(facts: Mapping[str, Any]) -> None:
    """Print JSON on one line, for a command that runs for long."""
    echo(json.dumps(facts, ensure_ascii=not _takes_unicode(sys.stdout)))


def print_table(table: Table, numbers: bool = True) -> None:
    """Print a table and its notes; with `numbers`, all columns but the first are aligned right.

    Where the table is wider than the terminal, each row is printed as lines of column and value.
    """
    from rich import table as rich_table
    from rich.console import Console
    from rich.measure import Measurement

    drawn = rich_table.Table()
    for place, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if place and numbers else "left", overflow="fold")
    for row in table.cells():
        drawn.add_row(*row)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 500
        console.width = max(110, Measurement.get(console, console.options, drawn).maximum)
    if table.title:
        echo(table.title)
    if Measurement.get(console, console.options.update(max_width=500), drawn).minimum <= console.width:
        with console.capture() as captured:
            console.print(drawn)
        echo(captured.get(), nl=False)
    else:
        for row in table.cells():
            pairs = zip(table.columns, row, strict=True)
            echo("\n".join(f"{column}: {cell}" if column else cell for column, cell in pairs) + "\n")
    for note in table.notes:
        echo(note)


@contextmanager
def users_code() -> Iterator[None]:
    """Send to stderr what the user's code prints in the block: stdout is for the command's output alone."""
    with redirect_stdout(sys.stderr):
        yield


def save(path: Path, content: bytes | str) -> None:
    """Write a whole file, or raise an `InputError` that says why it cannot be written."""
    from fedcap.files import write_aside

    try:
        write_aside(path, content)
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> InputError:
    """Return the error for a file that cannot be written."""
    return InputError(f"cannot write {path}: {error.strerror}", code="cannot-write", field=str(path))


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Errors

HINTS = {
    "busy": "--out DIR",
    "changed-config": "fedcap run {field}",
    "changed-data": "--dataset PATH",
    "corrupt-dataset": "fedcap data get {field}",
    "damaged-result": "fedcap run --resume {field}",
    "damaged-run": "fedcap run {field}",
    "changed-code": "fedcap run {field}",
    "other-version": "fedcap run {field}",
    "extra-feature": "--id {field}, if it identifies the rows",
    "federation-run": "fedcap federate serve {field}",
    "longer-run": "--out DIR",
    "missing-client": "--client NAME",
    "missing-dataset": "fedcap data get {field}",
    "missing-label": "--set dataset.label=NAME",
    "missing-path:csv": "--dataset FILE.csv",
    "missing-path:npz": "--dataset FILE.npz",
    "missing-path:folder": "--dataset FOLDER",
    "moved-data": "--dataset PATH",
    "nameless-attack": "--attack NAME",
    "no-space": "fedcap tune --vary OPTION=V1,V2; fedcap list {field} shows the options",
    "not-a-run": "--out DIR",
    "not-exportable": "-o FILE.safetensors",
    "other-run": "--out DIR, or fedcap run --resume {field}",
    "shorter-run": "fedcap run --resume {field} --rounds N",
    "text-in-table": "--set 'dataset.ignore={field}'",
    "unsuitable-model": "--model mlp",
    "unfinished-run": "fedcap run --resume {field}",
    "worker-died": "--workers 1",
}
"""The command or option that helps, by an error's code, or its code and field."""


class Interrupted(click.ClickException):
    """The user stopped a command; the message says how to continue."""

    exit_code = INTERRUPTED


def hint(error: InputError | RunError) -> str:
    """Return the command or option that helps against an error, in brackets; empty if there is none."""
    found = HINTS.get(f"{error.code}:{error.field}") or HINTS.get(error.code)
    return (
        ""
        if found is None or ("{field}" in found and not error.field)
        else f" ({found.format(field=error.field)})"
    )


def exit_code(command: Callable[[], Any]) -> int:
    """Call a command, print what went wrong, if anything, and return the exit code."""
    if sys.stdout is None:
        return _fail("standard output is closed", FAILED)
    try:
        code = _handled(command)
        sys.stdout.flush()
        return code
    except (OSError, OutputError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python drops what is left
        why = error.args[0] if isinstance(error, OutputError) else error
        if isinstance(why, BrokenPipeError):  # the reader, such as `head`, has ended: nothing to report
            return FAILED
        return _fail(f"cannot write to standard output: {why.strerror}", FAILED)


def _handled(command: Callable[[], Any]) -> int:
    """Call a command and print its error; errors of stdout itself are raised."""
    try:
        code = command()
        return code if isinstance(code, int) else 0
    except UserCodeError as error:
        return _fail(f"{error}{_show_where(error)}", BAD_INPUT)
    except InputError as error:
        return _fail(f"{error}{hint(error)}", BAD_INPUT)
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 0
    except click.UsageError as error:
        return _fail(_usage_message(error), BAD_INPUT)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except RunError as error:
        return _fail(f"{error}{hint(error)}{_show_where(error)}", FAILED)
    except OutputError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            sys.stdout.flush()  # raises if click, which prints help, could not write
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            where = f" for {error.filename}" if error.filename else ""
            return _fail(
                f"no space is left on the disk{where}: free some, then repeat the command; a run continues"
                " with fedcap run --resume DIR",
                FAILED,
            )
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        where = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return _fail(f"{type(error).__name__}{where}: {what}{_show_where(error)}", FAILED)


def _usage_message(error: click.UsageError) -> str:
    """Return what is wrong with the arguments, and where help is."""
    if error.ctx is None:
        return error.format_message()
    if isinstance(error, click.NoSuchOption) and isinstance(error.ctx.command, click.Group):
        path, option = error.ctx.command_path, error.option_name
        commands = error.ctx.command.commands.items()
        names = [name for name, command in commands if any(option in param.opts for param in command.params)]
        if names:
            example = f"{path} {names[0]} {option}"
            return (
                f"{option} is an option of {' and '.join(names)}: write it after the command, as in {example}"
            )
    # typer writes the nearest command into the message, and click 8.4 adds it once more.
    message = error.message if "Did you mean" in (error.message or "") else error.format_message()
    return f"{message} (see {error.ctx.command_path} --help)"


def _fail(message: str, code: int) -> int:
    echo(f"fedcap: {' '.join(message.split())}", err=True)
    return code


def _show_where(error: Exception) -> str:
    """Print the traceback if the user wants it; otherwise return how to get it, to be added to the line."""
    if not os.environ.get("FEDCAP_DEBUG"):
        return " (FEDCAP_DEBUG=1 prints the traceback)"
    traceback.print_exception(error)
    return ""
