"""History: every value that a run has measured, by split, metric and epoch."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, final

from burn_torch.monitor.event import Direction, EpochSummary, MetricDefinition, MetricValue, Split

__all__ = ["Aggregate", "Direction", "EpochSummary", "History", "MetricDefinition", "MetricValue"]


class Aggregate(StrEnum):
    """How the batches of an epoch become one value."""

    MEAN = "mean"
    """The value over all items of the epoch, which for a mean is the mean weighted by items."""


@dataclass
class _Epoch:
    """One epoch of a split: a column of values and of weights for each metric, and the values of the whole."""

    columns: dict[str, tuple[array[float], array[float]]] = field(default_factory=dict)
    final: dict[str, float] | None = None


@final
class History:
    """Holds what strategies decide by, what summaries show and what a checkpoint keeps.

    An epoch has the value of each batch as it came, and once it is over the value over all its items.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[Split, int], _Epoch] = {}

    def add(self, split: Split, epoch: int, values: Iterable[MetricValue]) -> None:
        """Adds the values of one batch."""
        entry = self._epochs.setdefault((split, epoch), _Epoch())
        for value in values:
            column = entry.columns.get(value.name)
            if column is None:
                column = entry.columns[value.name] = (array("d"), array("d"))
            column[0].append(value.value)
            column[1].append(value.count)

    def finish(self, summary: EpochSummary) -> None:
        """Sets the values over all items of an epoch."""
        entry = self._epochs.setdefault((summary.split, summary.epoch), _Epoch())
        entry.final = {value.name: value.value for value in summary.values}

    def discard(self, split: Split, epoch: int) -> None:
        """Forgets an epoch of a split that was broken off and will be run again."""
        self._epochs.pop((split, epoch), None)

    def reopen(self, split: Split, epoch: int) -> None:
        """Takes back that an epoch of a split is over; its batches stay."""
        entry = self._epochs.get((split, epoch))
        if entry is not None:
            entry.final = None

    # -- reading ---------------------------------------------------------------------------
    def epochs(self, split: Split | str) -> list[int]:
        """The epochs of a split that have any value, in order."""
        return sorted(epoch for other, epoch in self._epochs if other == split)

    def names(self, split: Split | str) -> list[str]:
        """The metrics of a split, in the order in which they first came."""
        names = {}
        for epoch in self.epochs(split):
            entry = self._epochs[Split(split), epoch]
            names.update(dict.fromkeys([*entry.columns, *(entry.final or ())]))
        return list(names)

    def values(self, name: str, split: Split | str, epoch: int) -> list[float]:
        """The values of the batches of an epoch, in order; none if it has not run."""
        entry = self._epochs.get((Split(split), epoch))
        column = entry.columns.get(name) if entry is not None else None
        return [] if column is None else column[0].tolist()

    def find_metric(self, name: str, epoch: int, split: Split | str = Split.VALID) -> float | None:
        """The value of a metric over all items of an epoch; None before the epoch is over."""
        entry = self._epochs.get((Split(split), epoch))
        return None if entry is None or entry.final is None else entry.final.get(name)

    def series(self, name: str, split: Split | str = Split.VALID) -> list[tuple[int, float]]:
        """Epochs and values of a metric, for the epochs that are over."""
        pairs = ((epoch, self.find_metric(name, epoch, split)) for epoch in self.epochs(split))
        return [(epoch, value) for epoch, value in pairs if value is not None]

    def find_epoch(self, name: str, direction: Direction | str, split: Split | str = Split.VALID) -> int | None:
        """The epoch with the best value, the earliest of equal ones; None if no epoch has one."""
        best: tuple[int, float] | None = None
        for epoch, value in self.series(name, split):
            if best is None or Direction(direction).better(value, best[1]):
                best = (epoch, value)
        return None if best is None else best[0]

    # -- checkpoints ----------------------------------------------------------------------------
    def to_state(self) -> tuple[dict[str, tuple[array[float], array[float]]], dict[str, Any]]:
        """Columns by key, and the rest as JSON can hold it."""
        columns: dict[str, tuple[array[float], array[float]]] = {}
        described = []
        for (split, epoch), entry in self._epochs.items():
            final = None if entry.final is None else {name: value.hex() for name, value in entry.final.items()}
            described.append({"split": str(split), "epoch": epoch, "metrics": list(entry.columns), "final": final})
            for number, column in enumerate(entry.columns.values()):
                columns[_key(split, epoch, number)] = column
        return columns, {"epochs": described}

    @staticmethod
    def from_state(columns: Mapping[str, tuple[array[float], array[float]]], described: Mapping[str, Any]) -> History:
        """The history that `to_state` gave."""
        history = History()
        for one in described["epochs"]:
            split, epoch = Split(one["split"]), int(one["epoch"])
            entry = history._epochs[split, epoch] = _Epoch()
            for number, name in enumerate(one["metrics"]):
                entry.columns[str(name)] = columns[_key(split, epoch, number)]
            if one["final"] is not None:
                entry.final = {str(name): float.fromhex(value) for name, value in one["final"].items()}
        return history

    def __iter__(self) -> Iterator[tuple[Split, int]]:
        return iter(self._epochs)


def _key(split: Split, epoch: int, number: int) -> str:
    return f"{split}.{epoch}.{number}"
