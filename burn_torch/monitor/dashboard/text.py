"""A run in plain text: its present state as a page, and its story as lines.  No control characters, no braille."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO, final

from burn_torch.core.wording import counted
from burn_torch.monitor.dashboard import content
from burn_torch.monitor.dashboard.chart import Row
from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.source import Source
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.event import LogLine, RunEnded, RunStarted, Stamped
from burn_torch.monitor.log import EVENTS
from burn_torch.monitor.plain import PlainRenderer
from burn_torch.monitor.progress import format_duration, format_rate
from burn_torch.monitor.view import MetricView, RunView, SplitView

__all__ = ["SILENT_END", "follow_lines", "page"]

SILENT_END: Final = "the run has ended without a word: its process is gone"
_LAST_LINES: Final = 10
_POLL_S: Final = 0.25


# -- the present state ------------------------------------------------------------------------------------
def page(source: Source) -> str:
    """Returns what the dashboard shows, line by line and without pictures: for a pipe, a script, a screen reader."""
    view = source.view
    lines = [("run", str(source.directory)), ("status", _status(view, runs=source.runs)), ("progress", _progress(view))]
    if view.checkpoints:
        lines.append(("checkpoint", view.checkpoints[-1].path))
    if view.resources is not None:
        rows = content.machine(view, 60, 100)
        lines += [("machine", " ".join(_words(row).split())) for row in rows]
    if view.damaged:
        lines.append(("damaged", f"{counted(view.damaged, 'line')} of {EVENTS} without an event"))
    lines += [("notice", text) for text in view.notices[-_LAST_LINES:]]
    text = [f"{name:<11} {clean(value)}" for name, value in lines]
    for metric in view.metrics.values():
        text += ["", clean(metric.name)]
        text += [f"  {split!s:<9} {_values(metric, of_split)}" for split, of_split in metric.splits.items()]
    if view.log:
        text += ["", "log"]
        text += [f"  {clean(line.text)}" for line in list(view.log)[-_LAST_LINES:]]
    return "\n".join(text) + "\n"


def _words(row: Row) -> str:
    return "".join("" if role == "total" else text for text, role in row)  # without bars


def _status(view: RunView, *, runs: bool) -> str:
    word, _ = content.mode(view, runs=runs)
    parts = [word.lower()]
    if view.epoch:
        parts.append(f"epoch {view.epoch} of {view.total_epochs}")
        parts.append(f"iteration {view.iteration}")
    if view.ended is not None and view.ended.message:
        parts.append(view.ended.message)
    return ", ".join(parts)


def _progress(view: RunView) -> str:
    unit = "items" if view.items_total is not None else "batches"
    done, total = (view.items, view.items_total) if unit == "items" else (view.batches, view.batches_total)
    parts = [f"{view.split} {done} of {total} {unit}" if total is not None else f"{view.split} {done} {unit}"]
    if view.progress_total is not None:
        parts.append(f"{100 * view.progress_total:.0f} % of the run")
    if view.rate is not None:
        parts.append(format_rate(view.rate, unit))
    parts.append(f"{format_duration(view.elapsed_s)} so far")
    if view.ended is None and view.eta_s is not None:
        parts.append(f"{format_duration(view.eta_s)} to go")
    return ", ".join(parts)


def _values(metric: MetricView, of_split: SplitView) -> str:
    parts = []
    of_epoch = of_split.running if of_split.running is not None else of_split.epoch_value
    if of_epoch is not None:
        parts.append(f"epoch {short(of_epoch, metric.unit)}")
    if of_split.last is not None:
        parts.append(f"last batch {short(of_split.last, metric.unit)}")
    if of_split.best_value is not None:
        parts.append(f"best {short(of_split.best_value, metric.unit)} in epoch {of_split.best_epoch}")
    return ", ".join(parts) or "no values yet"


# -- the story --------------------------------------------------------------------------------------------
@final
class _Lines:
    """A stream that lets no control character through."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write("\n".join(map(clean, text.split("\n"))))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@final
class _Story:
    """The lines of a run: those that it writes itself where there is no terminal, at the times of its events."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = _Lines(stream)
        self._begin()

    def _begin(self) -> None:
        self._now = 0.0
        self._number = -1
        self._ended = False
        self._renderer = PlainRenderer(self._stream, clock=lambda: self._now)  # type: ignore[arg-type]  # two methods

    def tell(self, stamped: Stamped) -> None:
        if stamped.number <= self._number:
            self._stream.write("the run went back to a checkpoint; its story again from the start:\n")
            self._begin()
        self._now, self._number = stamped.time, stamped.number
        event = stamped.event
        self._ended = isinstance(event, RunEnded) or (self._ended and not isinstance(event, RunStarted))
        if isinstance(event, LogLine):
            if event.stream != "log":
                self._stream.write(event.text + "\n")
        else:
            self._renderer.handle(event)

    def close(self, last_words: str) -> None:
        """`last_words` are for a run that did not tell of its end itself."""
        if not self._ended:
            self._stream.write(last_words + "\n")
        self._stream.flush()


def follow_lines(source: Source, stream: TextIO, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Writes the story of the run from its beginning, and then as it goes, until it ends."""
    story = _Story(stream)
    while True:
        runs = source.runs  # asked before the read: what was there when it ended is still told
        source.poll(None, story.tell)
        if not runs and not source.runs:
            end = source.view.ended
            story.close(SILENT_END if end is None else f"{end.status}; the last events of the run were lost")
            return
        sleep(_POLL_S)
