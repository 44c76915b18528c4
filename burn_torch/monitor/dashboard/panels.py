"""The panels of the dashboard: what they show is in `content.py`, here is how they meet the run, keys and mouse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, final

from textual import events
from textual.message import Message

from burn_torch.core.wording import counted
from burn_torch.monitor.dashboard import content
from burn_torch.monitor.dashboard.chart import Glyphs, Row
from burn_torch.monitor.dashboard.content import KINDS, Kind
from burn_torch.monitor.dashboard.panel import Panel
from burn_torch.monitor.dashboard.source import Source

__all__ = ["Controls", "Log", "Machine", "Metrics", "Plots", "Progress", "Shown", "Status"]


@final
@dataclass
class Shown:
    """Holds what the user has chosen to see, shared by all panels."""

    source: Source
    glyphs: Glyphs
    metric: str | None = None
    kind: Kind = "full"
    log_scale: bool = False
    with_machine_line: bool = True
    """Says whether the machine has a line in the status, for want of a panel."""

    def names(self) -> list[str]:
        """The metrics, in their order."""
        return list(self.source.view.metrics)

    def settle(self) -> None:
        """Chooses the first metric as soon as there is one."""
        names = self.names()
        if self.metric not in names:
            self.metric = names[0] if names else None

    def move(self, by: int) -> None:
        """Chooses a neighbour of the metric, around the ends."""
        names = self.names()
        if names and self.metric in names:
            self.metric = names[(names.index(self.metric) + by) % len(names)]

    def turn(self, by: int) -> None:
        """Chooses a neighbour of the kind of plot, around the ends."""
        kinds: list[Kind] = list(KINDS)
        self.kind = kinds[(kinds.index(self.kind) + by) % len(kinds)]


class _OfRun(Panel):
    """A panel that shows something of the run."""

    TITLE: ClassVar[str]

    class Changed(Message):
        """The user has chosen something that other panels show too."""

    def __init__(self, shown: Shown, *, ascii_only: bool) -> None:
        super().__init__(self.TITLE, id=self.TITLE.lower(), ascii_only=ascii_only)
        self.shown: Final = shown


@final
class Controls(_OfRun):
    """The keys."""

    TITLE = "Controls"

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.controls`."""
        return content.controls(width, height)


@final
class Metrics(_OfRun):
    """The values of all metrics; a click on a name shows its plot."""

    TITLE = "Metrics"
    scrolled = 0

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.metrics`."""
        shown = self.shown
        choice = content.metrics(
            shown.source.view, width, height, selected=shown.metric, hovered=self.hovered, scrolled=self.scrolled
        )
        self.targets = choice.targets
        return choice.rows

    def chosen(self, target: str) -> None:
        """Shows the plot of a metric."""
        self.shown.metric = target
        self.post_message(self.Changed())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """To the next metric, as far as there is one."""
        self._step(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """To the metric before, as far as there is one."""
        self._step(-1)

    def _step(self, by: int) -> None:
        names = self.shown.names()
        if self.shown.metric in names and 0 <= names.index(self.shown.metric) + by < len(names):
            self.chosen(names[names.index(self.shown.metric) + by])


@final
class Status(_OfRun):
    """Says where the run is."""

    TITLE = "Status"

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.status`."""
        shown = self.shown
        return content.status(
            shown.source.view, width, height, runs=shown.source.runs, with_machine=shown.with_machine_line
        )


@final
class Machine(_OfRun):
    """Processor, memory, GPUs."""

    TITLE = "Machine"

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.machine`."""
        return content.machine(self.shown.source.view, width, height, glyphs=self.shown.glyphs)


@final
class Plots(_OfRun):
    """Tabs of metrics, kinds of plots, and the plot."""

    TITLE = "Plots"

    def rows(self, width: int, height: int) -> list[Row]:
        """The tabs, where there is room the kinds, and below the plot."""
        shown = self.shown
        strip = content.tabs(shown.names(), width, selected=shown.metric, hovered=self.hovered)
        self.targets = dict(strip.targets)
        rows = strip.rows
        if height >= 10:
            rows = [*rows, self._kinds()]
        view = shown.source.view
        return rows + content.plot(
            view, shown.metric, shown.kind, width, height - len(rows), glyphs=shown.glyphs, log=shown.log_scale
        )

    def _kinds(self) -> Row:
        row: Row = [("  ", "")]
        x = 2
        for kind, name in KINDS.items():
            place = f"kind {kind}"
            text = f" {name} "
            role = "selected" if kind == self.shown.kind else "hover" if place == self.hovered else "dim"
            row += [(text, role), (" ", "")]
            self.targets[1, x, x + len(text)] = place
            x += len(text) + 1
        return row

    def chosen(self, target: str) -> None:
        """A tab, a chevron or a kind."""
        shown = self.shown
        kinds = {f"kind {kind}": kind for kind in KINDS}
        if target in kinds:
            shown.kind = kinds[target]
        elif target in ("<", ">"):
            shown.move(-1 if target == "<" else 1)
        else:
            shown.metric = target
        self.post_message(self.Changed())

    def update(self) -> None:
        """Says at its lower border how much of a long run is not read yet."""
        reading = self.shown.source.reading
        self.subtitle("" if reading is None else f"reading the whole history: {100 * reading:.0f} %")
        super().update()


@final
class Log(_OfRun):
    """Holds what the run prints."""

    TITLE = "Log"
    back = 0
    """How many lines of the end are below the box."""

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.log_lines`."""
        view = self.shown.source.view
        self.back = max(min(self.back, len(view.log) - height), 0)
        self.subtitle(f"{counted(self.back, 'line')} below" if self.back else "")
        return content.log_lines(view, height, back=self.back)

    def scroll(self, by: int) -> None:
        """Goes back by so many lines, or forward."""
        self.back = max(self.back + by, 0)
        self.update()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Back by three lines."""
        self.scroll(3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Forward by three lines."""
        self.scroll(-3)


@final
class Progress(_OfRun):
    """How far, how long yet; the newest notice is at its lower border."""

    TITLE = "Progress"

    def rows(self, width: int, height: int) -> list[Row]:
        """See `content.progress`."""
        source = self.shown.source
        return content.progress(source.view, width, runs=source.runs, glyphs=self.shown.glyphs)[:height]
