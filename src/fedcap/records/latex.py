"""Tables in LaTeX: rules of the package booktabs, and every character that LaTeX reads otherwise escaped."""

from __future__ import annotations

from collections.abc import Sequence

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "−": "$-$",
    "≤": r"$\leq$",
    "–": "--",
    "…": r"\ldots{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "\n": " ",
}
"""How LaTeX writes what it would read as a command; a bracket is one after the end of a line."""


def escaped(text: str) -> str:
    """Return text as LaTeX prints it."""
    return "".join(_WRITTEN.get(character, character) for character in text)


def latex(
    columns: Sequence[str], lines: Sequence[Sequence[str]], title: str = "", notes: Sequence[str] = ()
) -> str:
    """Return a LaTeX table: first column left, others right; the document needs the package booktabs."""
    content = [" & ".join(map(escaped, cells)) + r" \\" for cells in [columns, *lines]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{escaped(title)}}}"] if title else []),
            rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
            r"\toprule",
            content[0],
            r"\midrule",
            *content[1:],
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\smallskip\footnotesize {escaped(note)}" for note in notes),
            r"\end{table}",
        ]
    )
