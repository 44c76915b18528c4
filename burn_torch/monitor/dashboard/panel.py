"""A box that shows rows of (text, role) runs: what the panels of the dashboard share."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from burn_torch.monitor.dashboard import content
from burn_torch.monitor.dashboard.chart import Row

__all__ = ["STYLES", "Panel"]

_PLAIN: Final = Style()
STYLES: Final = {
    "": _PLAIN,
    "train": Style(color="bright_red"),  # Burn's colours, out of the terminal's own palette
    "valid": Style(color="bright_blue"),
    "test": Style(color="bright_green"),
    "total": Style(color="yellow"),
    "key": Style(color="yellow", bold=True),
    "axis": Style(color="bright_black"),
    "dim": Style(color="bright_black"),
    "label": Style(bold=True),
    "title": Style(bold=True, underline=True),
    "selected": Style(bold=True, reverse=True),
    "hover": Style(underline=True, bold=True),
    "warning": Style(color="yellow"),
    "error": Style(color="red", bold=True),
    "good": Style(color="green", bold=True),
}
"""Holds what a role looks like.  Nothing is told by colour alone: NO_COLOR leaves bold, reverse and underline."""
_ASCII: Final = str.maketrans("‹›│←→↑↓░°", "<>|<>^v. ")


class Panel(Widget):
    """Draws of `rows(width, height)` what `update` finds changed.

    `targets` names places that the mouse can hover over and click: (row, first column, end column) to a name.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Panel { border: round ansi_bright_black; border-title-style: bold; border-title-color: ansi_default; }
    Panel.ascii { border: ascii ansi_bright_black; }
    """

    def __init__(self, title: str, *, id: str, ascii_only: bool = False) -> None:
        super().__init__(id=id, classes="ascii" if ascii_only else "")
        self.border_title = title
        self.ascii_only: Final = ascii_only
        self.targets: dict[tuple[int, int, int], str] = {}
        self.hovered: str | None = None
        self._rows: list[Row] | None = None
        self._drawn_for = Size(0, 0)
        self._subtitle = ""

    def rows(self, width: int, height: int) -> list[Row]:
        """Returns what the box shows: nothing, unless a panel says.  Sets `targets` where it has any."""
        return []

    def update(self) -> None:
        """The run has changed: draws the rows again where that shows."""
        if not self.is_mounted or not self.size:
            return
        before, rows = self._rows, self.rows(*self.size)
        if before is None or self._drawn_for != self.size or len(before) != len(rows):
            self._rows, self._drawn_for = rows, self.size
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, rows, strict=True)) if old != new]
        self._rows = rows
        if changed:  # only these rows: the line to the terminal may be slow
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One row, cut or filled to the width of the box."""
        if self._rows is None or self._drawn_for != self.size:
            self._rows, self._drawn_for = self.rows(*self.size), self.size
        row = self._rows[y] if y < len(self._rows) else []
        if self.ascii_only:
            row = [(text.translate(_ASCII), role) for text, role in row]
        strip = Strip([Segment(text, STYLES[role]) for text, role in row])
        return strip.adjust_cell_length(self.size.width, _PLAIN)

    def subtitle(self, text: str) -> None:
        """Shows a line at the lower border."""
        text = content.clean(text)
        if text != self._subtitle:  # each assignment draws the box again
            self._subtitle = text
            self.border_subtitle = Content(text)

    # -- the mouse -----------------------------------------------------------------------------------
    def target_at(self, x: int, y: int) -> str | None:
        """The name of the place at these columns and rows of the content."""
        for (row, start, end), name in self.targets.items():
            if row == y and start <= x < end:
                return name
        return None

    def chosen(self, target: str) -> None:
        """A click on a place."""

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Marks the place under the mouse."""
        offset = event.get_content_offset(self)
        self._hover(None if offset is None else self.target_at(offset.x, offset.y))

    def on_leave(self, event: events.Leave) -> None:
        """Marks nothing any more."""
        self._hover(None)

    def on_click(self, event: events.Click) -> None:
        """Chooses the place that was clicked."""
        offset = event.get_content_offset(self)
        target = None if offset is None else self.target_at(offset.x, offset.y)
        if target is not None and event.button == 1:
            event.stop()
            self.chosen(target)

    def _hover(self, target: str | None) -> None:
        if target != self.hovered:
            self.hovered = target
            self.update()
