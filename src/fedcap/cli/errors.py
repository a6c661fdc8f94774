"""How commands fail: one clear line, and an exit code that says whose mistake it was."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click
import typer

from fedcap.errors import InputError, RunError, UserCodeError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class Interrupted(click.ClickException):
    """The user stopped a command; the message says how to go on."""

    exit_code = INTERRUPTED


def exit_code(command: Callable[[], Any]) -> int:
    """Call a command, print what went wrong, if anything, and return the exit code."""
    try:
        code = command()
        return code if isinstance(code, int) else 0
    except UserCodeError as error:
        return _fail(f"{error}{_show_where(error)}", BAD_INPUT)
    except InputError as error:
        return _fail(str(error), BAD_INPUT)
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return 0
    except click.UsageError as error:
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        # typer writes the nearest command into the message, and click 8.4 adds it once more.
        said = error.message if "Did you mean" in (error.message or "") else error.format_message()
        return _fail(said + hint, BAD_INPUT)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except RunError as error:
        return _fail(f"{error}{_show_where(error)}", FAILED)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_gone():
            return FAILED
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        where = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return _fail(f"{type(error).__name__}{where}: {what}{_show_where(error)}", FAILED)


def _fail(message: str, code: int) -> int:
    typer.echo(f"fedcap: {' '.join(message.split())}", err=True)
    return code


def _show_where(error: Exception) -> str:
    """Print the traceback if the user wants it; otherwise return how to get it, to be added to the line."""
    if not os.environ.get("FEDCAP_DEBUG"):
        return " (FEDCAP_DEBUG=1 shows where)"
    traceback.print_exception(error)
    return ""


def _reader_gone() -> bool:
    """Whether whoever read our output, such as `head`, has gone; if so, nothing is kept to be written."""
    try:
        sys.stdout.flush()
        return False
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
