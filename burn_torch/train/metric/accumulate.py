"""Metrics that are no mean over items: functions of sums over the epoch, and functions of all its items.

    class Bias(AdditiveMetric):
        name = "Bias"
        higher_is_better = False

        def measure(self, item: RegressionOutput, metadata: MetricMetadata) -> Mapping[str, Tensor | float]:
            error = item.output - item.targets
            return {"error": error.sum(), "target": item.targets.sum(), "items": item.targets.shape[0]}

        def compute(self, sums: Mapping[str, Array]) -> float:
            return ratio(sums["error"], sums["target"])

`measure` leaves its tensors on the device; they are read, many batches at a time, when somebody needs a number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from burn_torch.core.checking import checked
from burn_torch.core.errors import BurnTorchError, ConfigError, ShapeError
from burn_torch.tensor import Tensor
from burn_torch.tensor.transaction import Transaction
from burn_torch.train.metric._tensors import on_leaf
from burn_torch.train.metric.base import MetricMetadata, Reading, state_error

__all__ = ["AdditiveMetric", "Array", "CollectingMetric", "ratio"]

Array: TypeAlias = npt.NDArray[Any]

_MOST_WAITING: Final = 256
"""Batches that may wait on the device where nobody asks for their numbers; the training loop asks far more often."""


@final
class _Batch:
    """Holds what one batch measured: on the device until it is read."""

    __slots__ = ("_measured", "_metric", "_on_host")

    def __init__(self, metric: _Accumulating, measured: Mapping[str, Tensor | float]) -> None:
        self._metric = metric
        self._measured = measured
        self._on_host: Mapping[str, Array] | None = None

    @property
    def is_read(self) -> bool:
        return self._on_host is not None

    def read(self) -> Mapping[str, Array]:
        if self._on_host is None:
            self._on_host = _arrays(self._metric.summarise(_fetch(self._measured)))
            self._measured = {}
        return self._on_host

    def reading(self) -> tuple[float, float]:
        sums = self.read()
        return self._metric.compute(sums), self._metric.count(sums)


class _Accumulating(ABC):
    """Holds what both kinds share: batches that wait to be read, and a value of all that was read."""

    name: str
    unit: ClassVar[str | None] = None
    higher_is_better: bool

    def __init__(self) -> None:
        self.clear()

    # -- what a metric says -------------------------------------------------------------------
    @abstractmethod
    def measure(self, item: Any, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """Returns what a batch adds, by name, perhaps still on the device."""

    def summarise(self, measured: Mapping[str, Array], /) -> Mapping[str, Array | float]:
        """Returns what is kept of a batch once it is on the host; all of it unless overridden."""
        return measured

    @abstractmethod
    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The value of what was added up; NaN if that is undefined."""

    @abstractmethod
    def count(self, sums: Mapping[str, Array], /) -> float:
        """How many items that is."""

    # -- what the loop needs --------------------------------------------------------------------
    def update(self, item: Any, metadata: MetricMetadata, /) -> Reading:
        """Adds the item of a batch; waits for nothing."""
        measured = self.measure(item, metadata)
        # off the tape, which would otherwise live until the number is read
        batch = _Batch(self, {name: on_leaf(x) if isinstance(x, Tensor) else x for name, x in measured.items()})
        self._pending.append(batch)
        while self._pending[0].is_read or len(self._pending) > _MOST_WAITING:
            self._add(self._pending.popleft().read())
        return Reading.of_function(batch.reading)

    def value(self) -> float:
        """Over all items since the last clear; NaN without any."""
        sums = self._whole()
        return self.compute(sums) if sums else math.nan

    def clear(self) -> None:
        """Starts a new epoch."""
        self._pending: deque[_Batch] = deque()
        self._forget()

    def state(self) -> Mapping[str, Any]:
        """Returns what was added up so far, as arrays."""
        return dict(self._whole())

    def load_state(self, state: Mapping[str, object], /) -> None:
        """Goes on from what `state` gave."""
        self.clear()
        self.merge(state)

    def merge(self, state: Mapping[str, Any], /) -> None:
        """Adds what another worker has added up."""
        self._add_pending()
        arrays = _arrays(state)
        if not arrays:
            return
        try:
            self.count(arrays)
            self._add(arrays)
        except BurnTorchError:
            raise
        except (KeyError, TypeError, ValueError):
            raise state_error(self.name, "this metric", state, "arrays by the names that it measures") from None

    def _add_pending(self) -> None:
        while self._pending:
            self._add(self._pending.popleft().read())

    def _whole(self) -> Mapping[str, Array]:
        self._add_pending()
        return self._join()

    def _refuse(self, name: str, before: tuple[int, ...], now: tuple[int, ...]) -> ShapeError:
        return ShapeError(
            f"{self.name}: what the batches measure does not have one shape",
            given=f"{name!r} of shape {now} after {before}",
            expected="the same number of classes in each batch of an epoch",
            mend="return items of one shape from the step, whatever the size of the batch",
        )

    @abstractmethod
    def _forget(self) -> None: ...

    @abstractmethod
    def _add(self, batch: Mapping[str, Array]) -> None: ...

    @abstractmethod
    def _join(self) -> Mapping[str, Array]: ...


@checked(error=ConfigError, but=("update", "measure"))
class AdditiveMetric(_Accumulating):
    """A metric that is a function of sums over the items: write `measure` and `compute`, name it, say what is better.

    The sum named "items" says over how many items a batch is.  Counts stay whole numbers and the rest is added in
    float64, batch after batch.
    """

    def count(self, sums: Mapping[str, Array], /) -> float:
        """The sum named "items"."""
        return float(sums["items"].sum())

    def _forget(self) -> None:
        self._sums: dict[str, Array] = {}

    def _add(self, batch: Mapping[str, Array]) -> None:
        for name, array in batch.items():
            wide = np.atleast_1d(array).astype(np.int64 if array.dtype.kind in "biu" else np.float64)
            before = self._sums.get(name)
            if before is not None and before.shape != wide.shape:
                raise self._refuse(name, before.shape, wide.shape)
            self._sums[name] = wide if before is None else before + wide

    def _join(self) -> Mapping[str, Array]:
        return self._sums


@checked(error=ConfigError, but=("update", "measure"))
class CollectingMetric(_Accumulating):
    """A metric that needs all items of the epoch at once, as an order of scores does: rows are kept on the host.

    Everything that `measure` gives has the items on its first axis.
    """

    def count(self, rows: Mapping[str, Array], /) -> float:
        """The rows."""
        return float(len(next(iter(rows.values()))))

    def _forget(self) -> None:
        self._parts: list[Mapping[str, Array]] = []

    def _add(self, batch: Mapping[str, Array]) -> None:
        for name, array in batch.items():
            if self._parts and self._parts[0][name].shape[1:] != array.shape[1:]:
                raise self._refuse(name, self._parts[0][name].shape, array.shape)
        self._parts.append({name: np.array(array) for name, array in batch.items()})  # the data of a tensor is lent

    def _join(self) -> Mapping[str, Array]:
        if len(self._parts) > 1:
            names = self._parts[0]
            self._parts = [{name: np.concatenate([part[name] for part in self._parts]) for name in names}]
        return self._parts[0] if self._parts else {}


def ratio(top: Array, bottom: Array, *, scale: float = 1.0) -> float:
    """`scale * top / bottom` of two sums of one element; NaN for a bottom of 0."""
    above, below = float(top.sum()), float(bottom.sum())
    return scale * above / below if below else math.nan


def _fetch(measured: Mapping[str, Tensor | float]) -> dict[str, Array]:
    """All of it on the host, with one wait."""
    tensors = {name: value for name, value in measured.items() if isinstance(value, Tensor)}
    transaction = Transaction()
    for tensor in tensors.values():
        transaction.register(tensor)
    read = dict(zip(tensors, transaction.execute(), strict=True))
    return {name: read[name].values if name in read else np.asarray(value) for name, value in measured.items()}


def _arrays(measured: Mapping[str, Array | float]) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in measured.items()}
