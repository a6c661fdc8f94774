"""Configuration files that explain themselves: each entry stands under what it means."""

from __future__ import annotations

import textwrap

from pydantic import BaseModel

from fedcap.runs import to_toml

WIDTH = 100


def commented(settings: BaseModel, heading: str) -> str:
    """Return settings as TOML, each under the docstring of its field; what has no value is a comment."""
    plain, tables = [_note(heading)], []
    content = settings.model_dump(mode="json", exclude_none=True)
    for name, field in type(settings).model_fields.items():
        note = _note(field.description or "")
        if name not in content:
            plain.append(f"{note}# {name} is not set\n")
        elif isinstance(content[name], dict):
            tables.append(note + to_toml({name: content[name]}))
        else:
            plain.append(note + to_toml({name: content[name]}))
    return "\n".join([*plain, *tables])


def _note(text: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), WIDTH - 2, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)
