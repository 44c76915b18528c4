"""RunView: the events of a run, folded into what a person wants to see of it."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, final

from burn_torch.core.annotations import Measured
from burn_torch.monitor import event as events
from burn_torch.monitor.control import is_alive
from burn_torch.monitor.event import Direction, MetricDefinition, Split, Stamped, StepDone
from burn_torch.monitor.log import EVENTS, read_events, read_outline
from burn_torch.monitor.progress import Progress
from burn_torch.monitor.result import end_of
from burn_torch.monitor.series import Series

__all__ = ["MetricView", "RunView", "SplitView", "SummaryRow"]

LOG_LINES: Final = 1000
_ALIVE_FOR_S: Final = 1.0
"""How long an answer to "does it run?" holds."""
_WORDS: Final = (events.Notice, events.LogLine, events.StopRequested, events.RunStarted)
"""Events that show no work: a run that is resumed tells why before it has begun again."""
_MODES: Final = {Split.TRAIN: "training", Split.VALID: "validating"}


@final
@dataclass(slots=True)
class SplitView:
    """Holds what one metric was on one split."""

    series: Series = field(default_factory=Series)
    """The values of batches over `RunView.x_unit`."""
    epochs: list[tuple[int, float]] = field(default_factory=list)
    """Epochs that are over, with the value over all their items."""
    best_value: float | None = None
    best_epoch: int | None = None
    _total: float = 0.0
    _count: float = 0.0

    @property
    def last(self) -> float | None:
        """The value of the newest batch."""
        return None if self.series.last is None else self.series.last[1]

    @property
    def epoch_value(self) -> float | None:
        """The value over all items of the newest epoch that is over."""
        return self.epochs[-1][1] if self.epochs else None

    @property
    def running(self) -> float | None:
        """The mean over the items of the epoch that runs, so far; None before its first batch."""
        return self._total / self._count if self._count else None

    @property
    def mean(self) -> float | None:
        """The mean of the values of the epochs that are over: what Burn's summary plot shows."""
        finite = [value for _, value in self.epochs if math.isfinite(value)]
        return sum(finite) / len(finite) if finite else None


@final
@dataclass(slots=True)
class MetricView:
    """One metric, on all splits that have it."""

    definition: MetricDefinition
    splits: dict[Split, SplitView] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Returns what it is called."""
        return self.definition.name

    @property
    def unit(self) -> str | None:
        """ "%", "items/s"; None for a plain number."""
        return self.definition.unit

    @property
    def higher_is_better(self) -> bool:
        """Returns which of two values is the better one."""
        return self.definition.higher_is_better

    @property
    def direction(self) -> Direction:
        """Returns where its best value is."""
        return Direction.HIGHEST if self.definition.higher_is_better else Direction.LOWEST


@final
@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A metric of a split over the epochs that are over."""

    split: Split
    name: str
    unit: str | None
    lowest: Measured
    lowest_epoch: int
    highest: Measured
    highest_epoch: int
    best: Measured
    best_epoch: int
    last: Measured


@final
class RunView:
    """Feed it every event of a run, in order, with `apply`; then read what you need.

    A number that is not greater than the one before it says that the run went back to a checkpoint: the view begins
    again.  With the artifact directory it also knows whether the process that wrote the events still lives.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = None if directory is None else Path(directory)
        self._alive: tuple[float, bool, events.RunEnded | None] | None = None
        self._clear()

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> RunView:
        """The run in an artifact directory, as far as it is now.  Raises: DataError if it has no events."""
        view = cls(directory)
        file = read_events(Path(directory) / EVENTS)
        for stamped in file:
            view.apply(stamped)
        view.damaged = file.damaged
        return view

    @classmethod
    def outline(cls, directory: str | os.PathLike[str]) -> RunView:
        """As `of`, but of all steps only the newest: quick also for a long run, and without curves of its batches.

        Raises: DataError if it has no events.
        """
        view = cls(directory)
        for stamped in read_outline(Path(directory) / EVENTS):
            view.apply(stamped)
        return view

    def _clear(self) -> None:
        self.run: events.RunStarted | None = None
        self._ended: events.RunEnded | None = None
        self.stop_requested: events.StopRequested | None = None
        self.split = Split.TRAIN
        self.epoch = 0
        self.iteration = 0
        """Batches of the split that runs, in the whole run."""
        self.items = 0
        """Items of the split that runs, in this epoch; `batches` counts its batches."""
        self.items_total: int | None = None
        self.batches = 0
        self.batches_total: int | None = None
        self.x_unit = "items"
        """Holds what plots have below them: items of training so far in the whole run, or where a loader does not
        know them iterations.  Validation is stretched, so that an epoch is as wide for both splits."""
        self.metrics: dict[str, MetricView] = {}
        self.checkpoints: list[events.CheckpointSaved] = []
        self.notices: list[str] = []
        self.log: deque[events.LogLine] = deque(maxlen=LOG_LINES)
        self.log_lines = 0
        """How many lines there were; the deque has the last ones."""
        self.resources: events.Resources | None = None
        self.resource_history: deque[tuple[float, events.Resources]] = deque(maxlen=300)
        self.started_s: float | None = None
        self.now_s = 0.0
        """When the newest event happened."""
        self._before_s = 0.0
        """How long the run worked before it was last resumed."""
        self._begun_s = self._worked_s = 0.0
        """When it began or was resumed, and when it was last seen at work."""
        self.events = 0
        self.damaged = 0
        """Lines of the log that held no event, where somebody counts them."""
        self._last_number = -1
        self._progress = Progress(self._clock)
        self._x: Callable[[StepDone], float] = _x_of_iterations
        self._train_total: float | None = None
        self._handlers: dict[type[object], Callable[[Any], None]] = {
            events.RunStarted: self._run_started,
            events.SplitStarted: self._split_started,
            StepDone: self._step,
            events.SplitDone: self._split_done,
            events.EpochDone: self._nothing,
            events.CheckpointSaved: self.checkpoints.append,
            events.Notice: lambda event: self.notices.append(event.text),
            events.LogLine: self._log_line,
            events.Resources: self._resources,
            events.StopRequested: self._stop_requested,
            events.RunEnded: self._run_ended,
        }

    def apply(self, stamped: Stamped) -> None:
        """Takes the next event."""
        if stamped.number <= self._last_number:
            self._clear()
        self._last_number = stamped.number
        self.now_s = stamped.time
        self.events += 1
        event = stamped.event
        if type(event) not in _WORDS:
            self._worked_s = self.now_s
        self._handlers[type(event)](event)

    # -- events --------------------------------------------------------------------------------------
    def _nothing(self, event: object) -> None:
        """Such an event says nothing that others have not said."""

    def _run_started(self, event: events.RunStarted) -> None:
        self.run = event
        self._ended = self.stop_requested = None
        if self.started_s is None:
            self.started_s = self.now_s
        else:
            self._before_s = self.elapsed_s
        self._begun_s = self._worked_s = self.now_s
        self._progress.handle(event)
        for split, definitions in ((Split.TRAIN, event.train_metrics), (Split.VALID, event.valid_metrics)):
            for definition in definitions:
                self._split_view(definition, split)

    def _split_view(self, definition: MetricDefinition, split: Split) -> SplitView:
        metric = self.metrics.get(definition.name)
        if metric is None:
            metric = self.metrics[definition.name] = MetricView(definition)
        return metric.splits.setdefault(split, SplitView())

    def _split_started(self, event: events.SplitStarted) -> None:
        self.split, self.epoch = event.split, event.epoch
        self.items, self.items_total = event.items_done, event.items_total
        self.batches, self.batches_total = event.batches_done, event.batches_total
        self._progress.handle(event)
        self._x = self._scale(event)
        if event.batches_done:  # the epoch goes on: what its batches were is known
            return
        for metric in self.metrics.values():
            view = metric.splits.get(event.split)
            if view is not None:
                view._total = view._count = 0.0

    def _scale(self, event: events.SplitStarted) -> Callable[[StepDone], float]:
        """How a step of this epoch becomes the x of its points."""
        known = event.items_total if event.items_total else None
        if event.split is Split.TRAIN:
            self._train_total = known or event.batches_total
            self.x_unit = "items" if known else "iterations"
        width = self._train_total
        if width is None:
            return _x_of_iterations
        before = (event.epoch - 1) * width
        total = known or event.batches_total
        if total is None:
            return _x_of_iterations
        scale = width / total
        if known:
            return lambda step: before + step.items_done * scale
        return lambda step: before + step.batches_done * scale

    def _step(self, event: StepDone) -> None:
        self.items, self.batches = event.items_done, event.batches_done
        if event.split is not Split.VALID:  # which counts batches of its own
            self.iteration = event.iteration
        self._progress.handle(event)
        x = self._x(event)
        split, metrics = event.split, self.metrics
        for one in event.values:
            metric = metrics.get(one.name)
            view = None if metric is None else metric.splits.get(split)
            if view is None:
                view = self._split_view(MetricDefinition(one.name, None, False), split)
            value, count = one.value, one.count
            view.series.add(x, value)
            if count and value == value:
                view._total += value * count
                view._count += count

    def _split_done(self, event: events.SplitDone) -> None:
        summary = event.summary
        self._progress.handle(event)
        for one in summary.values:
            view = self._split_view(MetricDefinition(one.name, None, False), summary.split)
            view.epochs.append((summary.epoch, one.value))
            if view.best_value is None or self.metrics[one.name].direction.better(one.value, view.best_value):
                view.best_value, view.best_epoch = one.value, summary.epoch

    def _log_line(self, event: events.LogLine) -> None:
        self.log.append(event)
        self.log_lines += 1

    def _resources(self, event: events.Resources) -> None:
        self.resources = event
        self.resource_history.append((self.now_s, event))

    def _stop_requested(self, event: events.StopRequested) -> None:
        self.stop_requested = event

    def _run_ended(self, event: events.RunEnded) -> None:
        self._ended = event

    # -- reading -----------------------------------------------------------------------------------------
    @property
    def status(self) -> Literal["running", "ended", "dead"]:
        """Returns whether the run goes on, has said that it is over, or fell silent without a word."""
        if self._ended is not None:
            return "ended"
        if self.directory is None:
            return "running"
        now = time.monotonic()
        if self._alive is None or now - self._alive[0] > _ALIVE_FOR_S:
            alive = is_alive(self.directory)
            self._alive = (now, alive, None if alive else end_of(self.directory))
        _, alive, end = self._alive
        return "running" if alive else "dead" if end is None else "ended"

    @property
    def ended(self) -> events.RunEnded | None:
        """How the run ended; from result.json where its last event was lost, as on a full disk."""
        if self._ended is None and self.run is not None and self.status == "ended" and self._alive is not None:
            return self._alive[2]
        return self._ended

    @property
    def mode(self) -> str:
        """Returns what the run is doing: "training", "validating"; "waiting" before its first epoch."""
        return _MODES.get(self.split, str(self.split)) if self.epoch else "waiting"

    @property
    def total_epochs(self) -> int:
        """How many epochs there will be; 0 while nobody has said."""
        return 0 if self.run is None else self.run.total_epochs

    @property
    def epoch_width(self) -> float | None:
        """How wide an epoch is in plots, in `x_unit`; None where nobody knows before it is over."""
        return self._train_total

    @property
    def elapsed_s(self) -> float:
        """How long the run has been at work: its parts before a resume too, the pauses between them not."""
        return self._before_s + max(self._worked_s - self._begun_s, 0.0)

    @property
    def rate(self) -> float | None:
        """Items (where they are unknown batches) a second of the split that runs."""
        return self._progress.rate

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end of the run; None until it is warm (10 s and 10 batches, or 30 s) or where nobody knows."""
        if self.ended is not None:
            return 0.0
        return self._progress.eta_s() if self._progress.warm else None

    @property
    def progress_split(self) -> float | None:
        """How much of this epoch of the split is done, 0 to 1; None where its length is not known."""
        return self._progress.fraction

    @property
    def progress_total(self) -> float | None:
        """How much of the run is done, 0 to 1, in items of training and validation."""
        run = self.run
        if run is None or not run.total_epochs:
            return None
        if self.ended is not None and self.ended.status == "completed":
            return 1.0
        if not self.epoch:
            return 0.0
        fraction = self._progress.fraction
        if fraction is None:
            fraction = 0.0
        train, valid = run.train_items or 0, run.valid_items or 0
        share = train / (train + valid) if train else 1.0  # of training in an epoch
        done = fraction * share if self.split is Split.TRAIN else share + fraction * (1.0 - share)
        return min((self.epoch - 1 + done) / run.total_epochs, 1.0)

    @property
    def summary(self) -> tuple[SummaryRow, ...]:
        """A row for each metric and split that has an epoch behind it."""
        rows = []
        for split in Split:
            for metric in self.metrics.values():
                view = metric.splits.get(split)
                row = None if view is None else _summary_row(metric, split, view)
                if row is not None:
                    rows.append(row)
        return tuple(rows)

    def _clock(self) -> float:
        return self.now_s


def _x_of_iterations(step: StepDone) -> float:
    return float(step.iteration)


def _summary_row(metric: MetricView, split: Split, view: SplitView) -> SummaryRow | None:
    finite = [(epoch, value) for epoch, value in view.epochs if not math.isnan(value)]
    if not finite or view.best_value is None or view.best_epoch is None:
        return None
    low = min(finite, key=lambda one: (one[1], one[0]))
    high = min(finite, key=lambda one: (-one[1], one[0]))
    return SummaryRow(
        split,
        metric.name,
        metric.unit,
        low[1],
        low[0],
        high[1],
        high[0],
        view.best_value,
        view.best_epoch,
        finite[-1][1],
    )
