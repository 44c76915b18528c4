"""Defines what a renderer shows of a run: how far, how fast, how long yet, and the metrics so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, final

from burn_torch.monitor import event as events
from burn_torch.monitor.event import Event, MetricDefinition, MetricValue, Split, StepDone

__all__ = ["Progress", "format_duration", "format_metric", "format_rate"]


WARM_BATCHES: Final = 10
WARM_S: Final = 10.0
"""A run is warm after so many batches and seconds, or after SURELY_WARM_S; before that nobody knows its pace."""
SURELY_WARM_S: Final = 30.0


@final
class _Pace:
    """Items and seconds of a split; the first batches, which warm everything up, are left out once there are more."""

    def __init__(self) -> None:
        self.items = 0
        self.seconds = 0.0
        self.batches = 0

    def add(self, items: int, seconds: float) -> None:
        self.batches += 1
        if self.batches == WARM_BATCHES:
            self.items, self.seconds = 0, 0.0
        self.items += items
        self.seconds += seconds

    @property
    def per_item(self) -> float | None:
        return self.seconds / self.items if self.items else None


@final
class Progress:
    """Follows the events of a run.  Feed it every event, then read.

    If a loader does not know its items, batches are counted instead.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.run: events.RunStarted | None = None
        self.split = Split.TRAIN
        self.epoch = 0
        self.done = 0
        self.total: int | None = None
        self.unit = "items"
        self.epoch_started = clock()
        self._started = self.epoch_started
        self._batches = 0
        self._paces = {split: _Pace() for split in Split}
        self._totals: dict[Split, int | None] = {}
        self._means: dict[str, list[float]] = {}
        self._before: tuple[float, int] | None = None

    def handle(self, event: Event) -> None:
        """Takes notice of an event."""
        if type(event) is StepDone:  # the one that comes often
            self._step(event)
            return
        match event:
            case events.RunStarted():
                self.run = event
                self._started = self._clock()
                self._batches = 0
            case events.SplitStarted():
                self._start(event)
            case events.SplitDone():
                self._before = None

    def _start(self, event: events.SplitStarted) -> None:
        self.split, self.epoch = event.split, event.epoch
        known = event.items_total is not None
        self.unit = "items" if known else "batches"
        self.done = event.items_done if known else event.batches_done
        self.total = event.items_total if known else event.batches_total
        self._totals[event.split] = self.total
        self._means = {}
        self._before = None
        if event.split is Split.TRAIN:
            self.epoch_started = self._clock()

    def _step(self, event: StepDone) -> None:
        now = self._clock()
        done = event.items_done if self.unit == "items" else event.batches_done
        if self._before is not None:
            self._paces[self.split].add(done - self._before[1], now - self._before[0])
        self._before = (now, done)
        self._batches += 1
        self.done = done
        for value in event.values:
            if value.count and not math.isnan(value.value):
                mean = self._means.setdefault(value.name, [0.0, 0.0])
                mean[0] += value.value * value.count
                mean[1] += value.count

    # -- reading --------------------------------------------------------------------------
    @property
    def fraction(self) -> float | None:
        """How much of the split is done; None if its length is not known."""
        return None if not self.total else min(self.done / self.total, 1.0)

    @property
    def rate(self) -> float | None:
        """Items (or batches) a second of this split, over the whole run."""
        per_item = self._paces[self.split].per_item
        return None if not per_item else 1.0 / per_item

    @property
    def warm(self) -> bool:
        """Returns whether the run has gone on for long enough to say how long it takes."""
        seconds = self._clock() - self._started
        return seconds >= SURELY_WARM_S or (seconds >= WARM_S and self._batches >= WARM_BATCHES)

    def eta_s(self) -> float | None:
        """Seconds to the end of the run, validation included; None before anything is known."""
        per_train = self._paces[Split.TRAIN].per_item
        if self.run is None or self.total is None or per_train is None or self._paces[self.split].per_item is None:
            return None
        per_valid = self._paces[Split.VALID].per_item or 0.0
        train, valid = self._totals.get(Split.TRAIN) or 0, self._totals.get(Split.VALID) or self.run.valid_items or 0
        left = (self.total - self.done) * (per_train if self.split is Split.TRAIN else per_valid)
        if self.split is Split.TRAIN:
            left += valid * per_valid
        return left + (self.run.total_epochs - self.epoch) * (train * per_train + valid * per_valid)

    def values(self) -> list[str]:
        """The metrics of the epoch so far, as text."""
        return [
            format_metric(definition, self._means[definition.name][0] / self._means[definition.name][1])
            for definition in self.definitions(self.split)
            if definition.name in self._means
        ]

    def definitions(self, split: Split) -> tuple[MetricDefinition, ...]:
        """The metrics of a split."""
        if self.run is None:
            return ()
        return self.run.train_metrics if split is Split.TRAIN else self.run.valid_metrics

    def summary(self, split: Split, values: tuple[MetricValue, ...]) -> list[str]:
        """The metrics of an epoch that is over, as text."""
        by_name = {value.name: value.value for value in values}
        return [
            format_metric(definition, by_name[definition.name])
            for definition in self.definitions(split)
            if definition.name in by_name
        ]


def format_metric(definition: MetricDefinition, value: float) -> str:
    """Name, value and unit.

    >>> format_metric(MetricDefinition("Accuracy", "%", True), 93.125)
    'Accuracy 93.12 %'
    >>> format_metric(MetricDefinition("Loss", None, False), 0.000123456)
    'Loss 0.0001235'
    """
    text = f"{value:.2f}" if definition.unit == "%" else f"{value:.4g}"
    return f"{definition.name} {text} {definition.unit}" if definition.unit else f"{definition.name} {text}"


def format_duration(seconds: float) -> str:
    """A time as people say it.

    >>> [format_duration(seconds) for seconds in (0.42, 7.4, 95, 7320, 200_000)]
    ['0.4 s', '7 s', '1 min 35 s', '2 h 02 min', '2 d 7 h']
    """
    whole = round(seconds)
    if 0.05 < seconds < 0.95:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def format_rate(rate: float, unit: str) -> str:
    """Items a second, or seconds an item where it takes long.

    >>> format_rate(1234.5, "items"), format_rate(0.25, "batches")
    ('1234 items/s', '4 s/batch')
    """
    if rate >= 1:
        return f"{rate:.4g} {unit}/s" if rate < 1000 else f"{rate:.0f} {unit}/s"
    return f"{1 / rate:.3g} s/{'item' if unit == 'items' else 'batch'}"
