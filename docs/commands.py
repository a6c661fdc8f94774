"""A page for every command and group of commands, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import typer

from docs.markdown import code, inline, page, table
from fedcap.cli import app

_OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")
CODES = table(
    ["exit code", "meaning"],
    [
        ["0", "done"],
        ["1", "failed: the line on stderr has the reason"],
        ["2", "bad input: the line on stderr says what is wrong and what to do"],
        ["130", "interrupted"],
    ],
)


def pages() -> dict[str, str]:
    """Return the pages by their paths, and the list of them."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    names = list(root.commands)
    rows = [[f"[fedcap {name}]({name}.md)", _help(root.commands[name])[0]] for name in names]
    found = {
        "index.md": page(
            "# Commands",
            "Every command has `--help`; `--json` prints JSON where there is data to return.",
            table(["command", "what it does"], rows),
            CODES,
        ),
        "SUMMARY.md": "".join(
            ["- [All commands](index.md)\n", *(f"- [fedcap {name}]({name}.md)\n" for name in names)]
        ),
    }
    for name in names:
        parts = (section(command, words) for words, command in walk(root.commands[name], (name,)))
        found[f"{name}.md"] = page(*parts)
    return found


def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all commands within it, each after the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from walk(inner, (*words, name))


def section(command: click.Command, words: tuple[str, ...]) -> str:
    """Return the section of a page about one command."""
    called = f"fedcap {' '.join(words)}"
    context = click.Context(command, info_name=called)
    usage = " ".join(command.collect_usage_pieces(context)).replace("\\[", "[")
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    return page(
        f"{'#' * min(len(words), 3)} {called}",
        *_help(command),
        f"```text\n{called} {usage}\n```",
        table(["argument", "what it is"], _rows(arguments, context)),
        table(["option", "what it does"], _rows(options, context)),
    )


def _help(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help."""
    return [_words(part) for part in (command.help or "").split("\n\n")]


def _words(text: str) -> str:
    """Return a help text on one line, with options as code."""
    return inline(_OPTION.sub(r"`\1`", " ".join(text.replace("\\[", "[").split())))


def _rows(params: list[click.Parameter], context: click.Context) -> Iterator[list[str]]:
    for param in params:
        record = param.get_help_record(context)  # type: ignore[attr-defined]
        if record is not None:
            yield [code(record[0].replace("\\[", "[")), _words(record[1])]
