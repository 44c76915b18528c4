"""Charts in characters: every point where it belongs, at every size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from burn_torch.monitor.dashboard.chart import ASCII, BLOCKS, BRAILLE, Glyphs, Line, Row, chart
from burn_torch.monitor.dashboard.ticks import labels, linear_ticks, log_ticks, short

RAMP = [(float(x), float(x)) for x in range(100)]


def texts(rows: Sequence[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def dots(rows: Sequence[Row], role: str) -> set[tuple[int, int]]:
    """The braille dots of cells of a role, as (column, row from the top)."""
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    points = set()
    for y, row in enumerate(rows):
        x = 0
        for text, of in row:
            for char in text:
                bits = ord(char) - 0x2800
                if of == role and 0 < bits < 256:
                    points |= {(2 * x + dx, 4 * y + dy) for bit, (dx, dy) in enumerate(places) if bits >> bit & 1}
                x += 1
    return points


def test_a_ramp_is_a_diagonal():
    plot = dots(
        chart([Line("train", "train", RAMP)], 10, 3), "train"
    )  # 3 rows: no axis, no legend; labels give way too
    assert {x for x, _ in plot} == set(range(plot_left := min(x for x, _ in plot), 20))
    assert min(plot) == (plot_left, 11)
    assert max(plot) == (19, 0)
    columns = {x: sorted(y for at, y in plot if at == x) for x, _ in plot}
    assert all(columns[x][0] >= columns[x + 1][0] for x in range(plot_left, 19))


@pytest.mark.parametrize("glyphs", [BRAILLE, BLOCKS, ASCII])
@given(
    width=st.integers(1, 60),
    height=st.integers(1, 20),
    log=st.booleans(),
    values=st.lists(
        st.one_of(st.floats(-1e6, 1e6), st.floats(1e-9, 1e-3), st.just(math.nan), st.just(math.inf)), max_size=40
    ),
)
def test_a_chart_has_exactly_its_size(glyphs: Glyphs, width: int, height: int, log: bool, values: list[float]):
    lines = [Line("train", "train", list(enumerate(values))), Line("valid", "valid", [], dashed=True)]
    rows = chart(lines, width, height, glyphs=glyphs, log=log, title="x", empty="nothing yet")
    assert len(rows) == height
    assert {len(text) for text in texts(rows)} == {width}


def test_ascii_curves_can_be_distinguished_as_the_legend_says():
    low = [(float(x), 0.0) for x in range(20)]
    high = [(float(x), 1.0) for x in range(20)]
    rows = texts(chart([Line("train", "train", low), Line("valid", "valid", high, dashed=True)], 40, 10, glyphs=ASCII))
    assert "** train" in rows[0]
    assert "oo valid" in rows[0]
    assert "ooooo" in "".join(rows[1:5])
    assert "*****" in "".join(rows[5:])
    assert "*" not in "".join(rows[1:4])


def test_no_size_is_no_chart():
    assert chart([Line("train", "train", RAMP)], 0, 5) == chart([Line("train", "train", RAMP)], 5, 0) == []


def test_nothing_to_draw_says_so():
    nothing = [Line("train", "train", [(0.0, math.nan)])]
    assert texts(chart(nothing, 21, 3, empty="no values yet")) == [" " * 21, "    no values yet    ", " " * 21]


def test_a_value_that_is_not_finite_makes_a_gap():
    points = [(float(x), math.nan if 40 <= x < 60 else 1.0 + x % 2) for x in range(100)]
    columns = {x for x, _ in dots(chart([Line("t", "t", points)], 50, 3), "t")}
    left = min(columns)
    width = 100 - left
    gap = {left + round(x / 99 * (width - 1)) for x in range(41, 59)}
    assert not columns & gap
    assert columns >= {left + round(x / 99 * (width - 1)) for x in [*range(40), *range(60, 100)]}


def test_steps_that_go_back_stay_on_the_chart():
    lines = [Line("a", "a", ((5.0, 1.0), (9.0, 2.0), (-3.0, 1.5)))]
    for glyphs in (ASCII, BLOCKS, BRAILLE):
        assert len(chart(lines, 40, 10, glyphs=glyphs)) == 10


def test_a_spike_of_one_step_is_seen():
    points = [(float(x), 100.0 if x == 4321 else 0.0) for x in range(10_000)]
    lit = dots(chart([Line("t", "t", points)], 40, 3), "t")
    assert min(y for _, y in lit) == 0


def test_one_point_is_a_dot_also_on_a_dashed_line():
    assert len(dots(chart([Line("t", "t", [(3.0, 7.0)], dashed=True)], 20, 3), "t")) == 1


def test_a_dashed_line_has_gaps_and_a_solid_one_none():
    flat = [(float(x), 1.0) for x in range(2)]
    solid = {x for x, _ in dots(chart([Line("t", "t", flat)], 60, 3), "t")}
    dashed = {x for x, _ in dots(chart([Line("t", "t", flat, dashed=True)], 60, 3), "t")}
    assert dashed < solid
    assert 0.4 < len(dashed) / len(solid) < 0.6


def test_a_later_line_lies_on_top():
    rows = chart([Line("a", "a", RAMP), Line("b", "b", RAMP)], 30, 3)
    assert dots(rows, "a") == set()
    assert dots(rows, "b")


def test_axes_and_legend():
    rows = texts(chart([Line("train", "t", RAMP), Line("valid", "v", RAMP, dashed=True)], 40, 12, title="% over items"))
    assert rows[0] == " % over items       ━━ train  ╺╸ valid".rjust(40) or rows[0].endswith("━━ train  ╺╸ valid")
    assert rows[0].startswith(" % over items")
    assert [row[:3] for row in rows if "┤" in row] == ["75┤", "50┤", "25┤", " 0┤"]
    assert rows[-2].count("┬") == len(rows[-1].split())
    assert rows[-1].split() == ["0", "25", "50", "75"]


def test_ticks_lie_where_their_values_are():
    rows = chart([Line("t", "t", RAMP)], 62, 30)
    places = {int(text[:2]): y for y, text in enumerate(texts(rows)) if "┤" in text}
    lowest = min(y for _, y in dots(rows, "t")), max(y for _, y in dots(rows, "t"))
    for value, row in places.items():
        exact = lowest[1] - value / 99 * (lowest[1] - lowest[0])
        assert abs(exact / 4 - row) <= 1


def test_a_logarithmic_axis_makes_an_exponential_straight():
    points = [(float(x), 10.0 ** (-x / 25)) for x in range(101)]
    lit = dots(chart([Line("t", "t", points)], 60, 3, log=True), "t")
    left, right = min(x for x, _ in lit), max(x for x, _ in lit)
    for x, y in lit:
        assert abs(y - 11 * (x - left) / (right - left)) <= 1
    rows = texts(chart([Line("t", "t", [*points, (101.0, 0.0)])], 60, 20, log=True))
    assert [row.split("┤")[0].strip() for row in rows if "┤" in row] == ["1", "0.1", "0.01", "0.001", "0.0001"]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("pair", [(1e-9, 1.0000000000000003e-9), (5e-324, 1e-323), (1e300, 1.7e308)])
def test_values_that_differ_by_nothing_or_by_all(pair, log):
    rows = texts(chart([Line("t", "t", list(enumerate(pair)))], 30, 12, log=log))
    assert {len(row) for row in rows} == {30}


def test_constant_values_have_an_axis():
    rows = texts(chart([Line("t", "t", [(0.0, 5.0), (1.0, 5.0)])], 30, 12))
    assert any(row.startswith(" 5.00┤") or row.strip().startswith("5") for row in rows)


# -- ticks ------------------------------------------------------------------------------------------------
@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-6, 1e9), at_most=st.integers(1, 12))
def test_linear_ticks_are_few_round_and_inside(low: float, span: float, at_most: int):
    assume(span > 1e-6 * abs(low))  # beyond that low + span is itself rounded
    high = low + span
    ticks = linear_ticks(low, high, at_most)
    assert 1 <= len(ticks) <= at_most
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)
    if len(ticks) > 2:
        steps = [b - a for a, b in pairwise(ticks)]
        assert max(steps) - min(steps) <= 1e-6 * max(map(abs, [*steps, *ticks]))
        mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
        assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5, 10)) < 1e-3


@given(low=st.floats(1e-9, 1e3), factor=st.floats(1.01, 1e9), at_most=st.integers(1, 12))
def test_log_ticks_are_few_and_inside(low: float, factor: float, at_most: int):
    ticks = log_ticks(low, low * factor, at_most)
    assert 1 <= len(ticks) <= at_most
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)
    assert ticks == sorted(ticks)


def test_labels_tell_ticks_apart_and_are_short():
    assert labels([0.9, 0.95, 1.0]) == ["0.90", "0.95", "1.00"]
    assert labels([0.0, 2_500_000.0, 5_000_000.0]) == ["0", "2.5M", "5.0M"]
    assert labels([0.0, 25e6, 50e6]) == ["0", "25M", "50M"]
    assert labels([1250.0, 1500.0]) == ["1250", "1500"]
    assert labels([-1.0, 0.0, 1.0]) == ["-1", "0", "1"]
    assert labels([]) == []


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(93.128, "%", "93.13 %"), (0.25, None, "0.25"), (12.5, "dB", "12.5 dB"), (math.nan, "%", "nan %")],
)
def test_short_values(value: float, unit: str | None, text: str):
    assert short(value, unit) == text


def test_values_whose_logarithms_are_one_number_are_drawn():
    values = [(0.0, 1e-300), (1.0, math.nextafter(1e-300, 1.0))]
    assert len(chart([Line("train", "train", values)], 30, 8, log=True)) == 8
