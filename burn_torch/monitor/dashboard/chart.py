"""Line charts in characters: braille dots (2 by 4 to a cell), half blocks (1 by 2) or ASCII (1 by 1).

A chart is plain data, rows of (text, role) runs; who shows it decides what a role looks like.  Roles are those of the
lines, and "axis", "label", "" for blanks.  A line drawn dashed is told from another without colour.

A column of dots may hold many points: it shows their lowest to their highest, so a spike is never lost, and it is
joined to the next column from its last point to the first one there.  A value that is not finite makes a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from burn_torch.monitor.dashboard.ticks import labels, linear_ticks, log_ticks

__all__ = ["ASCII", "BLOCKS", "BRAILLE", "Glyphs", "Line", "Row", "chart"]

Row = list[tuple[str, str]]
"""Runs of (text, role) from left to right."""

_MIN_PLOT: Final = 8
"""Columns that the plot keeps; below, the labels of the y axis go."""
_SMALLEST: Final = 1e-300
"""The smallest number of a logarithmic axis."""
_LARGEST: Final = 1e300
"""The largest number of any axis: the distance of two such numbers is one too."""
_DASH: Final = 6
"""Length of a dash and of the gap after it, in dots."""


@final
@dataclass(frozen=True)
class Glyphs:
    """How dots become characters: `columns` by `rows` dots to a cell."""

    columns: int
    rows: int
    draw: Callable[[int], str]
    """From the dots of a cell, bit `row * columns + column`, to a character."""
    vertical: str
    tick_left: str
    corner: str
    horizontal: str
    tick_below: str
    solid: str
    dashed: str
    bar: str
    """Fillings of a cell from nothing to full."""


_BRAILLE_BITS: Final = (0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80)


def _braille(dots: int) -> str:
    return chr(0x2800 + sum(bit for place, bit in enumerate(_BRAILLE_BITS) if dots >> place & 1))


BRAILLE: Final = Glyphs(2, 4, _braille, "│", "┤", "└", "─", "┬", "━━", "╺╸", " ▏▎▍▌▋▊▉█")
BLOCKS: Final = Glyphs(1, 2, " ▀▄█".__getitem__, "│", "┤", "└", "─", "┬", "━━", "--", " █")
ASCII: Final = Glyphs(1, 1, " *oo".__getitem__, "|", "+", "+", "-", "+", "**", "oo", " #")
"""A cell is one dot here: its second bit says that a dashed line drew it, which has a letter of its own."""


@final
@dataclass(frozen=True)
class Line:
    """A series to draw: points by rising x, and the role and name it has in the legend."""

    name: str
    role: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@final
@dataclass(frozen=True)
class _Scale:
    """From values to dots: `low` at 0, `high` at `size - 1`."""

    low: float
    high: float
    size: int
    log: bool = False

    def __call__(self, value: float) -> int:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        part = (value - low) / (high - low) if high - low > 0 else 0.0  # a logarithm may bring them together
        return round(min(max(part, 0.0), 1.0) * (self.size - 1)) if math.isfinite(part) else 0


@final
class _Canvas:
    """Dots, and for each cell which line drew there last: a later line lies on top."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.width, self.height, self.glyphs = width, height, glyphs
        self._dots = [[0] * width for _ in range(height)]
        self._roles = [[""] * width for _ in range(height)]

    def dot(self, column: int, row: int, role: str, *, dashed: bool = False) -> None:
        """Sets a dot; row 0 is at the bottom."""
        glyphs = self.glyphs
        row = self.height * glyphs.rows - 1 - row
        y, inner_y = divmod(row, glyphs.rows)
        x, inner_x = divmod(column, glyphs.columns)
        bit = 1 << (inner_y * glyphs.columns + inner_x)
        if glyphs is ASCII:  # the later line lies on top
            self._dots[y][x] = bit << dashed
        else:
            self._dots[y][x] |= bit
        self._roles[y][x] = role

    def row(self, y: int) -> Row:
        """The cells of a row, joined where their role is the same."""
        runs: Row = []
        for dots, role in zip(self._dots[y], self._roles[y], strict=True):
            text = self.glyphs.draw(dots) if dots else " "
            if runs and runs[-1][1] == role:
                runs[-1] = (runs[-1][0] + text, role)
            else:
                runs.append((text, role))
        return runs


def chart(
    lines: Sequence[Line],
    width: int,
    height: int,
    *,
    glyphs: Glyphs = BRAILLE,
    log: bool = False,
    title: str = "",
    empty: str = "",
) -> list[Row]:
    """A chart of exactly `height` rows of `width` columns; without any point the text `empty` in its middle.

    Legend, x axis and the labels of the y axis give way, in this order, where there is no room for them.
    On a logarithmic axis what is not above zero is a gap.
    """
    if width < 1 or height < 1:
        return []
    drawn = [Line(line.name, line.role, [*_drawable(line.points, log)], line.dashed) for line in lines]
    drawn = [line for line in drawn if any(y == y for _, y in line.points)]
    if not drawn:
        return _message(empty, width, height)
    has_legend, has_x_axis = height >= 7, height >= 4
    plot_height = height - has_legend - 2 * has_x_axis
    low, high = _y_range(drawn, log)
    y_ticks = _y_ticks(low, high, plot_height, log)
    y_texts = [labels([tick])[0] for tick in y_ticks] if log else labels(y_ticks)
    margin = max(map(len, y_texts)) + 1
    if width - margin < _MIN_PLOT:
        margin = 0
    canvas = _Canvas(width - margin, plot_height, glyphs)
    scale_y = _Scale(low, high, plot_height * glyphs.rows, log)
    left, right = _x_range(drawn)
    scale_x = _Scale(left, right, canvas.width * glyphs.columns)
    for line in drawn:
        _draw(canvas, line, scale_x, scale_y)
    rows: list[Row] = [_legend(title, drawn, width, glyphs)] if has_legend else []
    marks = {plot_height - 1 - scale_y(y) // glyphs.rows: text for y, text in zip(y_ticks, y_texts, strict=True)}
    for y in range(plot_height):
        before: Row = []
        if margin:
            text = marks.get(y, "")
            before = [(text.rjust(margin - 1), "label"), (glyphs.tick_left if y in marks else glyphs.vertical, "axis")]
        rows.append([*before, *canvas.row(y)])
    if has_x_axis:
        rows += _x_axis(left, right, canvas.width, margin, glyphs)
    return rows


def _drawable(points: Sequence[tuple[float, float]], log: bool) -> Iterator[tuple[float, float]]:
    """The points, with NaN for what cannot be drawn."""
    for x, y in points:
        drawn = math.isfinite(y) and not (log and y < _SMALLEST)
        yield x, max(-_LARGEST, min(y, _LARGEST)) if drawn else math.nan


def _message(text: str, width: int, height: int) -> list[Row]:
    rows: list[Row] = [[(" " * width, "")] for _ in range(height)]
    rows[height // 2] = [(text[:width].center(width), "label")]
    return rows


def _y_range(lines: Sequence[Line], log: bool) -> tuple[float, float]:
    values = [y for line in lines for _, y in line.points if not math.isnan(y)]
    low, high = min(values), max(values)
    if math.isclose(low, high, rel_tol=1e-12, abs_tol=_SMALLEST):
        if log:
            return low / 2, min(high, 1e307) * 2
        by = abs(low) * 0.1 or 1.0
        return low - by, high + by
    return low, high


def _x_range(lines: Sequence[Line]) -> tuple[float, float]:
    steps = [x for line in lines for x, _ in line.points]  # those of a damaged file may go back
    left, right = min(steps), max(steps)
    if 0 < left < right * 0.05:  # the first step has done a batch already; an axis from 0 reads better
        left = 0.0
    return (left, right) if left < right else (left - 0.5, left + 0.5)


def _y_ticks(low: float, high: float, height: int, log: bool) -> list[float]:
    at_most = max(height // 2, 1) if height < 12 else height // 3
    return log_ticks(low, high, at_most) if log else linear_ticks(low, high, at_most)


def _draw(canvas: _Canvas, line: Line, scale_x: _Scale, scale_y: _Scale) -> None:
    """Draws column by column, from the lowest to the highest of its points, then on to the next column."""
    before: tuple[int, int] | None = None  # the last dot of the stroke, unless a gap came after it
    drawn = 0
    for marks in _columns(line.points, scale_x, scale_y):
        if marks is None:
            before = None
            continue
        column, first, lowest, highest, last = marks
        stroke = [] if before is None else [*_between(before, (column, first))]
        stroke += [(column, y) for y in range(lowest, highest + 1)]
        for x, y in stroke:
            # what is a single dot is never left out, and what has a letter of its own needs no gaps
            if not line.dashed or before is None or drawn // _DASH % 2 == 0 or canvas.glyphs is ASCII:
                canvas.dot(x, y, line.role, dashed=line.dashed)
            drawn += 1
        before = (column, last)


_Column = tuple[int, int, int, int, int]
"""A column of dots, and of its points the first, the lowest, the highest and the last, as dots."""


def _columns(points: Sequence[tuple[float, float]], scale_x: _Scale, scale_y: _Scale) -> Iterator[_Column | None]:
    """The columns that have points; None for a gap."""
    current: list[int] | None = None
    for x, y in points:
        if math.isnan(y):
            if current is not None:
                yield current[0], current[1], current[2], current[3], current[4]
            current = None
            yield None
            continue
        column, dot = scale_x(x), scale_y(y)
        if current is not None and current[0] == column:
            current[2:] = min(current[2], dot), max(current[3], dot), dot
            continue
        if current is not None:
            yield current[0], current[1], current[2], current[3], current[4]
        current = [column, dot, dot, dot, dot]
    if current is not None:
        yield current[0], current[1], current[2], current[3], current[4]


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots of a straight stroke, without its two ends."""
    (x0, y0), (x1, y1) = start, end
    steps = max(abs(x1 - x0), abs(y1 - y0))
    for step in range(1, steps):
        yield x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps)


def _legend(title: str, lines: Sequence[Line], width: int, glyphs: Glyphs) -> Row:
    """The names of the lines with a sample of each, at the right, and at the left the title if there is room yet."""
    runs: Row = []
    room = width
    for line in lines:
        text = f"  {glyphs.dashed if line.dashed else glyphs.solid} {line.name}"
        if len(text) > room:
            break
        room -= len(text)
        runs.append((text, line.role))
    left = f" {title}" if len(title) < room else ""
    return [(left.ljust(room), "axis"), *runs]


def _x_axis(left: float, right: float, width: int, margin: int, glyphs: Glyphs) -> list[Row]:
    """The axis with its ticks, and their labels; a label that would touch the one before it is left out."""
    whole = right - left >= 1
    for at_most in range(max(width // 8, 1), 0, -1):
        ticks = linear_ticks(left, right, at_most, whole=whole)
        texts = labels(ticks)
        if max(map(len, texts)) + 2 <= width / max(len(ticks), 1):
            break
    scale = _Scale(left, right, width)
    axis = [glyphs.horizontal] * width
    below = [" "] * (margin + width)
    free = 0
    for tick, text in zip(ticks, texts, strict=True):
        x = min(max(scale(tick), 0), width - 1)
        start = min(max(margin + x - len(text) // 2, 0), margin + width - len(text))
        axis[x] = glyphs.tick_below
        if start >= free:
            below[start : start + len(text)] = text
            free = start + len(text) + 1
    before: Row = [(" " * (margin - 1), ""), (glyphs.corner, "axis")] if margin else []
    return [[*before, ("".join(axis), "axis")], [("".join(below), "label")]]
