"""Charts: what is drawn is what was given, in every format, and the same bits each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from outcome_tools import over_seeds

from fedcap.experiments.comparison import Comparison
from fedcap.report import charts
from fedcap.report.charts import draw_bars, draw_curves, draw_map

BEGINNINGS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collect the figures in place of saving them."""
    figures: list[Figure] = []

    def keep(figure: Figure, path: Path) -> list[Path]:
        figures.append(figure)
        return [path]

    monkeypatch.setattr(charts, "save", keep)
    return figures


def ends(bars: ErrorbarContainer) -> list[tuple[float, float]]:
    """Return the lower and the upper end of each error bar that is there."""
    segments = [segment for segment in bars.lines[2][0].get_segments() if len(segment)]
    return [(low, high) for (_, low), (_, high) in segments if low == low]


def draw_all(folder: Path) -> list[Path]:
    folder.mkdir()
    return [
        *draw_bars(
            ["ipm", "lie"], {"fedcap": [(97.0, 1.5), None], "fed$avg": [(9.9, None)] * 2}, folder / "a"
        ),
        *draw_curves([1, 2, 3], {"fedcap": [90.0, None, 95.0]}, folder / "b.v2", "round"),
        *draw_map(["fedcap"], ["ipm", "lie"], [[(97.0, 1.5), None]], folder / "c", "digits", [["†", ""]]),
    ]


def test_every_chart_has_three_formats_of_the_same_bits_each_time(tmp_path: Path) -> None:
    one, other = draw_all(tmp_path / "one"), draw_all(tmp_path / "other")
    assert [path.name for path in one] == [
        f"{name}{kind}" for name in ("a", "b.v2", "c") for kind in (".png", ".pdf", ".svg")
    ]
    for path, again in zip(one, other, strict=True):
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix])
        assert path.read_bytes() == again.read_bytes()
        assert b"Date" not in path.read_bytes() or path.suffix == ".png"


def test_bars_are_as_high_as_the_means_with_their_intervals(drawn: list[Figure]) -> None:
    series: Any = {"fedcap": [(97.0, 1.5), None], "fedavg": [(9.9, None), (90.0, 2.0)]}
    draw_bars(["ipm", "lie"], series, Path("x"), marks={"fedavg": ["†", ""]})
    (axes,) = drawn[0].axes
    fedcap, fedavg = [bars for bars in axes.containers if isinstance(bars, BarContainer)]
    assert fedcap[0].get_height() == 97.0
    assert [bar.get_height() for bar in fedavg] == [9.9, 90.0]
    assert [ends(bars.errorbar) for bars in (fedcap, fedavg)] == [[(95.5, 98.5)], [(88.0, 92.0)]]
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["–", "†"]


def test_few_points_have_error_bars_and_many_have_bands(drawn: list[Figure]) -> None:
    draw_curves([1, 2, 3], {"a": [1.0, 2.0, 3.0]}, Path("x"), "alpha", band={"a": [0.5, 0.5, None]})
    draw_curves(range(50), {"a": [1.0] * 50}, Path("x"), "round", band={"a": [0.5] * 50})
    few, many = (figure.axes[0] for figure in drawn)
    assert ends(few.containers[0]) == [(0.5, 1.5), (1.5, 2.5)]
    assert not many.containers
    (band,) = many.collections
    assert (band.get_datalim(many.transData).y0, band.get_datalim(many.transData).y1) == (0.5, 1.5)


def test_a_map_says_mean_interval_and_mark_in_every_field(drawn: list[Figure]) -> None:
    draw_map(["a", "b"], ["ipm", "lie"], [[(97.0, 1.5), None], [(9.9, None), (50.0, 0.0)]], Path("x"))
    draw_map(["a"], ["ipm"], [[(9.9, 0.1)]], Path("x"), marks=[[" †2"]])
    first, second = (figure.axes[0] for figure in drawn)
    assert [text.get_text() for text in first.texts] == ["97.0\n± 1.5", "–", "9.9", "50.0\n± 0.0"]
    assert [text.get_text() for text in second.texts] == ["9.9 †2\n± 0.1"]


def test_a_comparison_draws_a_map_of_each_panel(tmp_path: Path, drawn: list[Figure]) -> None:
    hurt = over_seeds("fedavg", "lie", 9.9, 9.9, 9.9, diverged=True)
    found = [*over_seeds("fedcap", "ipm", 96.0, 96.5, 97.0), *hurt]
    assert Comparison.of(found).draw(tmp_path / "new") == [tmp_path / "new" / "map-digits"]
    texts = [text.get_text() for text in drawn[0].axes[0].texts]
    assert texts == ["96.5\n± 1.2", "–", "–", "9.9 †\n± 0.0"]
