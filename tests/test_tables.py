"""Tables as LaTeX and as CSV: nothing that a cell says breaks the document or the file."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from fedcap.files import write_csv
from fedcap.report.tables import Table, escape


def test_a_table_is_a_booktabs_table() -> None:
    table = Table(
        ["method", "ipm"], [["fedcap", 97.25], ["fed_avg", None]], "50 % malicious", ["† diverged."]
    )
    assert table.latex() == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{50 \% malicious}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            r"method & ipm \\",
            r"\midrule",
            r"fedcap & 97.2 \\",
            r"fed\_avg & -- \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize \dag{} diverged.",
            r"\end{table}",
        ]
    )


@pytest.mark.parametrize("character", list("\\&%$#_{}~^<>[]"))
def test_no_character_of_a_name_is_read_as_a_command(character: str) -> None:
    written = escape(f"a{character}b")
    assert written.startswith("a")
    assert written.endswith("b")
    inner = written[1:-1]
    assert re.fullmatch(r"\\[&%$#_{}]|\\text[a-z]+\{\}|\{[\[\]]\}", inner), inner


def test_csv_keeps_commas_quotes_and_line_ends_and_leaves_none_empty(tmp_path: Path) -> None:
    rows = [{"a": 'say "no", twice', "b": None}, {"a": "two\nlines", "c": 0.1}]
    write_csv(rows, tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"a": 'say "no", twice', "b": "", "c": ""},
            {"a": "two\nlines", "b": "", "c": "0.1"},
        ]
