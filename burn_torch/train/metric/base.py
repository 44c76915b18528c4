"""Metrics: what a run measures of the items of its steps.

A metric of your own is one class:

    class MeanAbsoluteError(NumericMetric):
        name = "Mean Absolute Error"
        higher_is_better = False

        def measure(self, item: RegressionOutput, metadata: MetricMetadata) -> Reading:
            errors = (item.output - item.targets).abs()
            return Reading.of_mean(errors.mean(), errors.shape[0])

Nothing here waits for the device: a Reading holds what is still being computed, and its numbers are read on the host
when somebody needs them, which the training loop does for many steps at a time on an accelerator.

The sums of a metric so far are its `state`: plain values and arrays.  A checkpoint keeps it, and another metric of the
same kind can `load_state` it or `merge` it.  So workers that each saw a part of the items find the value over all:

    merge_states(metric, states)      # the states of all workers, in the order of their ranks
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final, runtime_checkable

from burn_torch.core.checking import Measured, checked
from burn_torch.core.errors import ConfigError, ShapeError
from burn_torch.monitor.event import Split
from burn_torch.tensor import Tensor
from burn_torch.train.metric._tensors import on_leaf

__all__ = [
    "MergeableMetric",
    "Metric",
    "MetricMetadata",
    "NumericMetric",
    "Reading",
    "ResumableMetric",
    "Split",
    "merge_states",
]


@final
@dataclass(frozen=True, slots=True)
class MetricMetadata:
    """Says where in the run an item comes from."""

    split: Split
    epoch: int
    """The first one is 1."""
    iteration: int
    """Batches of this split so far in the whole run, this one included."""
    items: int
    """Items of this batch; 0 where the loader does not say."""
    lr: Measured
    """The learning rate of the newest update."""
    time_s: float
    """A clock that never goes back."""

    @staticmethod
    def fake() -> MetricMetadata:
        """The first batch of a run, of one item: to try a metric with."""
        return MetricMetadata(Split.TRAIN, epoch=1, iteration=1, items=1, lr=1e-3, time_s=0.0)


@final
class Reading:
    """Holds what one batch measured: a mean, and over how many items; perhaps still on the device.

    `of_mean` for a mean that is known as such (a loss), `of_total` for a sum over items (right answers): over an epoch
    the sums are added, in float64, so the result is that of all items at once whatever the sizes of the batches.
    `of_function` for what is no mean: a function that reads the device when it is asked, once.
    """

    __slots__ = ("_count", "_later", "_number", "_read", "_scale", "_total")

    def __init__(self, number: Tensor | Measured, count: Tensor | float, *, scale: float | None) -> None:
        # off the tape, which would otherwise live until the number is read
        self._number = on_leaf(number) if isinstance(number, Tensor) else number
        self._count = on_leaf(count) if isinstance(count, Tensor) else count
        self._scale = scale
        self._later: Callable[[], tuple[float, float]] | None = None
        self._read = False
        self._total = math.nan

    @staticmethod
    def of_mean(mean: Tensor | Measured, count: Tensor | float = 1) -> Reading:
        """The mean over `count` items."""
        return Reading(mean, count, scale=None)

    @staticmethod
    def of_total(total: Tensor | Measured, count: Tensor | float, *, scale: float = 1.0) -> Reading:
        """`scale` times the sum over `count` items; a scale of 100 makes percent of right answers."""
        return Reading(total, count, scale=scale)

    @staticmethod
    def of_function(read: Callable[[], tuple[float, float]]) -> Reading:
        """Returns what `read` gives when the number is needed: the value of the batch, and over how many items it
        is.
        """
        reading = Reading(math.nan, 0, scale=None)
        reading._later = read
        return reading

    def _fetch(self) -> tuple[float, float]:
        if self._later is not None:
            self._number, self._count = self._later()
            self._later = None  # and with it what it held
        if not self._read:
            number = self._number = _number(self._number)
            count = self._count = _number(self._count)
            if self._scale is None:
                self._total = number * count if count else 0.0
            else:
                self._total = self._scale * number
                self._number = self._total / count if count else math.nan
            self._read = True
        return self._number, self._count  # type: ignore[return-value]  # numbers since the fetch

    @property
    def value(self) -> float:
        """The mean over the items of this batch; waits for the device."""
        return self._fetch()[0]

    @property
    def count(self) -> float:
        """Over how many items; waits for the device."""
        return self._fetch()[1]

    @property
    def total(self) -> float:
        """The sum over the items of this batch; waits for the device."""
        self._fetch()
        return self._total

    def __repr__(self) -> str:
        return f"Reading({self.value!r}, count={self.count!r})"


def _number(value: Tensor | float) -> float:
    if not isinstance(value, Tensor):
        return float(value)
    if value.spec.numel != 1:
        raise ShapeError(
            "a metric was given a tensor where it wants one number",
            given=f"a tensor of shape {value.shape}",
            expected="a tensor of one element",
            mend="reduce it first, for example loss.mean()",
        )
    return float(value.into_data().values.reshape(()))


@runtime_checkable
class Metric(Protocol):
    """Holds what the training loop needs of a metric; `NumericMetric` is most of one.

    `update` adds the item of one batch and gives the reading of that batch alone (a plain number counts as one of
    weight 1); `value` is over all batches since the last `clear`.
    """

    @property
    def name(self) -> str:
        """Returns what it is called on screen and in the names of files; no two metrics of a split have one name."""
        ...

    @property
    def unit(self) -> str | None:
        """ "%", "items/s"; None for a plain number."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Returns which of two values is the better one."""
        ...

    def update(self, item: Any, metadata: MetricMetadata, /) -> Reading | float:
        """Adds the item of a batch."""
        ...

    def value(self) -> float:
        """Over all items since the last clear; NaN if there were none."""
        ...

    def clear(self) -> None:
        """Starts a new epoch."""
        ...


@runtime_checkable
class ResumableMetric(Protocol):
    """A metric that can go on in the middle of an epoch after a resume."""

    def state(self) -> Mapping[str, Any]:
        """Returns what it has added up so far: values that JSON can hold, and numpy arrays that nobody writes to any
        more.
        """
        ...

    def load_state(self, state: Mapping[str, Any], /) -> None:
        """Goes on from what `state` gave."""
        ...


@runtime_checkable
class MergeableMetric(ResumableMetric, Protocol):
    """A metric whose value over the items of several workers follows from their states."""

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Adds what another metric of this kind has measured: then `value` is over the items of both."""
        ...


def flatten(metrics: Iterable[Any]) -> tuple[Metric, ...]:
    """Metrics, and those in lists and tuples among them, in their order."""
    return tuple(one for metric in metrics for one in (metric if isinstance(metric, tuple | list) else [metric]))


def state_error(name: str, kind: str, state: Mapping[str, object], expected: str) -> ConfigError:
    """The error of a metric that gets the state of another one."""
    return ConfigError(
        f"{name}: this is not the state of {kind}",
        given=f"{dict(state)!r:.120}",
        expected=expected,
        mend="give what state() of the same metric returned",
    )


@checked
def merge_states(metric: MergeableMetric, states: Iterable[Mapping[str, object]]) -> None:
    """Makes the state of a metric that of all workers: `states` in the order of their ranks, its own among them.

    Each worker that does this with the same states has the same bits after it.
    """
    first, *others = states
    metric.load_state(first)
    for state in others:
        metric.merge(state)


@checked(error=ConfigError, but=("update", "measure"))
class NumericMetric(ABC):
    """A metric that is a mean over items: write `measure`, name it, and say which direction is better."""

    name: str
    unit: ClassVar[str | None] = None
    higher_is_better: bool

    def __init__(self) -> None:
        self.clear()

    @abstractmethod
    def measure(self, item: Any, metadata: MetricMetadata, /) -> Reading:
        """Returns what the item of one batch measures."""

    def update(self, item: Any, metadata: MetricMetadata, /) -> Reading:
        """Adds the item of a batch; waits for nothing."""
        reading = self.measure(item, metadata)
        self._pending.append(reading)
        return reading

    def value(self) -> float:
        """The mean over all items since the last clear."""
        self._add_pending()
        return self._total / self._count if self._count else math.nan

    def clear(self) -> None:
        """Starts a new epoch."""
        self._pending: list[Reading] = []
        self._total = 0.0
        self._count = 0.0

    def state(self) -> Mapping[str, Any]:
        """The sum and the number of items so far."""
        self._add_pending()
        return {"total": self._total.hex(), "count": self._count}

    def load_state(self, state: Mapping[str, object], /) -> None:
        """Goes on from what `state` gave."""
        self.clear()
        self._total, self._count = self._sums_in(state)

    def merge(self, state: Mapping[str, object], /) -> None:
        """Adds the sum and the number of items of another worker."""
        self._add_pending()
        total, count = self._sums_in(state)
        self._total += total
        self._count += count

    def _sums_in(self, state: Mapping[str, Any]) -> tuple[float, float]:
        try:
            return float.fromhex(state["total"]), float(state["count"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise state_error(self.name, "a mean", state, "the total, in hexadecimal, and the count") from None

    def _add_pending(self) -> None:
        for reading in self._pending:
            self._total += reading.total
            self._count += reading.count
        self._pending.clear()
