"""The measuring of a split: metrics take items as they come, and their numbers are read when they are ready."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from burn_torch.core.errors import ConfigError
from burn_torch.train.event import StepDone
from burn_torch.train.history import EpochSummary, MetricDefinition, MetricValue
from burn_torch.train.metric.base import Metric, MetricMetadata, Reading, ResumableMetric, Split
from burn_torch.train.metric.builtin import LossMetric
from burn_torch.train.output import LossInput, input_of
from burn_torch.train.step import AnyItem
from burn_torch.train.strategies.multi import Several
from burn_torch.train.strategies.peers import ALONE, Peers

__all__ = ["MAX_WAITING", "Meter", "patience_of", "shows_loss"]

MAX_WAITING: Final = 64
"""Steps whose numbers may wait: each holds a few small tensors."""

_SOON: Final = 8
"""The same on the host of several processes, which put their numbers together when they read them."""

_NOTHING: Final = Reading.of_total(0.0, 0.0)

Found = tuple[MetricMetadata, int, int, list[tuple[str, "Reading | _Joined"]], "Reading | _Joined | None"]


def patience_of(place: str) -> float:
    """How many seconds the numbers of a step may stay on the device before the host asks for them.

    On the host they are there at once.  To ask an accelerator is to wait until it has done all it was given, and then
    it has nothing to do until the next step is submitted; so it is asked for many steps at a time.
    """
    return 0.0 if place == "cpu" else 0.25


@final
class Meter:
    """Feeds the metrics of one split and tells of each step once its numbers are read.

    On an accelerator that is up to `patience_s` seconds, or MAX_WAITING steps, later; never after the epoch.
    `watch` makes it look at the loss of every step, through the loss metric's own reading if there is one, so that a
    loss is read once; `on_step(event, loss)` gets the loss, or None if it is not watched.
    """

    def __init__(
        self,
        split: Split,
        metrics: Sequence[Metric],
        *,
        patience_s: float,
        watch: bool,
        on_step: Callable[[StepDone, float | None], None],
        peers: Peers = ALONE,
    ) -> None:
        peers.check(metrics)
        self._peers: Final = peers
        self._most: Final = MAX_WAITING if peers.size == 1 or patience_s else _SOON
        self.split: Final = split
        self.metrics: Final = tuple(metrics)
        self.definitions: Final = tuple(MetricDefinition(m.name, m.unit, m.higher_is_better) for m in metrics)
        self._patience_s = patience_s
        self._asked = time.monotonic()
        self._on_step = on_step
        self._waiting: deque[Found] = deque()
        shown = next((number for number, metric in enumerate(metrics) if isinstance(metric, LossMetric)), None)
        self._shown_loss = shown if watch else None
        self._hidden_loss = LossMetric() if watch and shown is None else None
        self._losses: dict[type, bool] = {}

    def clear(self) -> None:
        """A new epoch begins."""
        self._waiting.clear()
        for metric in self.metrics:
            metric.clear()

    def add(self, item: AnyItem, metadata: MetricMetadata, batches_done: int, items_done: int) -> None:
        """Measures the item of one batch; None where this process had none of its items."""
        readings: list[tuple[str, Reading | _Joined]]
        if type(item) is Several:
            readings = [
                (metric.name, _Joined([_reading(metric.update(one, metadata)) for one in item.items]))
                for metric in self.metrics
            ]
        elif item is None:
            if self.metrics and self._peers.size == 1:
                raise ConfigError(
                    "this step returned no item for its metrics",
                    given=f"None as the item, beside {', '.join(metric.name for metric in self.metrics)}",
                    expected="what metrics read: a ClassificationOutput, a LossInput, an item of your own",
                    mend="TrainOutput.new(self, loss.backward(), LossInput(loss, count)), or leave the metrics out",
                )
            readings = [(metric.name, _NOTHING) for metric in self.metrics]
        else:
            readings = [(metric.name, _reading(metric.update(item, metadata))) for metric in self.metrics]
        loss: Reading | _Joined | None = None
        if item is None:
            loss = _NOTHING
        elif self._shown_loss is not None:
            loss = readings[self._shown_loss][1]
        elif self._hidden_loss is not None:
            measure, items = self._hidden_loss.measure, item.items if type(item) is Several else (item,)
            if self._has_loss(items[0]):
                loss = measure(item, metadata) if len(items) == 1 else _Joined([measure(x, metadata) for x in items])
        self._waiting.append((metadata, batches_done, items_done, readings, loss))
        # several processes drain after as many steps each: their clocks differ
        late = self._peers.size == 1 and metadata.time_s - self._asked >= self._patience_s
        if late or len(self._waiting) >= self._most:
            self._asked = metadata.time_s
            self.drain()

    def drain(self) -> None:
        """Waits for all that is measured."""
        if self._peers.size > 1 and self._waiting:
            self._put_together()
        while self._waiting:
            self._tell()

    def summary(self, epoch: int) -> EpochSummary:
        """The values over all items of the epoch; waits for them."""
        self.drain()
        metrics = self._peers.merged(self.metrics)
        return EpochSummary(self.split, epoch, tuple(MetricValue(m.name, float(m.value())) for m in metrics))

    def state(self) -> dict[str, Any]:
        """Returns what the metrics have added up so far, by name, of those that can say it."""
        self.drain()
        metrics = self._peers.merged(self.metrics)
        return {m.name: dict(m.state()) for m in metrics if isinstance(m, ResumableMetric)}

    def load_state(self, states: Mapping[str, Any]) -> list[str]:
        """Goes on from there; gives the names of the metrics that could not.

        With several processes the first one does, and the others add to it from nothing.
        """
        if not self._peers.is_main:
            return []
        left = []
        for metric in self.metrics:
            if isinstance(metric, ResumableMetric) and metric.name in states:
                metric.load_state(states[metric.name])
            else:
                left.append(metric.name)
        return left

    def _put_together(self) -> None:
        """The readings of the waiting steps over all processes: sums by counts."""
        rows = [[*(reading for _, reading in readings), loss or _NOTHING] for _, _, _, readings, loss in self._waiting]
        sums = np.array([[(r.total if r.count else 0.0, r.count) for r in row] for row in rows])
        watched = np.array([[float(step[4] is not None)] for step in self._waiting])
        flat = self._peers.sum(np.concatenate([sums.reshape(len(rows), -1), watched], axis=1))
        totals = flat[:, :-1].reshape(sums.shape)
        for waiting, row, several in zip(list(self._waiting), totals, flat[:, -1], strict=True):
            self._waiting.popleft()
            at, batches_done, items_done, readings, _ = waiting
            every = [Reading.of_total(float(total), float(count)) for total, count in row]
            named: list[tuple[str, Reading | _Joined]] = [
                (name, reading) for (name, _), reading in zip(readings, every, strict=False)
            ]
            self._waiting.append((at, batches_done, items_done, named, every[-1] if several else None))

    def _tell(self) -> None:
        at, batches_done, items_done, readings, loss = self._waiting.popleft()
        values = tuple([MetricValue(name, reading.value, reading.count) for name, reading in readings])
        event = StepDone(self.split, at.epoch, at.iteration, batches_done, items_done, values)
        # the mean over no items, such as a batch of nothing but padding, is NaN and says nothing
        self._on_step(event, None if loss is None or not loss.count else loss.value)

    def _has_loss(self, item: object) -> bool:
        known = self._losses.get(type(item))
        if known is None:
            known = self._losses[type(item)] = shows_loss(item)
        return known


def shows_loss(item: object) -> bool:
    """Returns whether the loss metric could read this item."""
    return input_of(item, LossInput) is not None


@final
class _Joined:
    """The readings of several devices of one batch: sums by counts, when they are read."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Reading]) -> None:
        self._parts: Final = parts

    @property
    def count(self) -> float:
        return sum(part.count for part in self._parts)

    @property
    def total(self) -> float:
        return sum(part.total for part in self._parts if part.count)

    @property
    def value(self) -> float:
        count = self.count
        return self.total / count if count else math.nan


def _reading(value: Reading | float) -> Reading:
    return value if isinstance(value, Reading) else Reading.of_mean(float(value))
