"""Learning rates: of all updates, or of one group of parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.optim import LearningRates
from burn_torch.train.metric.base import MetricMetadata, NumericMetric, Reading, state_error

__all__ = ["GroupLearningRateMetric", "LearningRateMetric"]


class _Latest(NumericMetric):
    """A rate of which, over an epoch, the one of the last update counts: write `rate`."""

    higher_is_better = False

    @abstractmethod
    def rate(self, lr: float) -> float:
        """Returns what to show of the learning rate of a step."""

    def measure(self, item: object, metadata: MetricMetadata, /) -> Reading:
        """The rate of this step."""
        self._last = self.rate(metadata.lr)
        return Reading.of_mean(self._last)

    def value(self) -> float:
        """The rate of the last step."""
        return self._last

    def clear(self) -> None:
        """Starts a new epoch."""
        super().clear()
        self._last = math.nan

    def state(self) -> dict[str, Any]:
        """The last rate."""
        return {**super().state(), "last": self._last.hex()}

    def load_state(self, state: Mapping[str, object], /) -> None:
        """Goes on from a last rate."""
        last = self._last_in(state)
        super().load_state(state)
        self._last = last

    def merge(self, state: Mapping[str, object], /) -> None:
        """All workers update with the same rates: takes the other's where this one has seen no step."""
        last = self._last_in(state)
        super().merge(state)
        if math.isnan(self._last):
            self._last = last

    def _last_in(self, state: Mapping[str, Any]) -> float:
        try:
            return float.fromhex(state["last"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise state_error(self.name, "a rate", state, "the total, the count and the last rate") from None


@final
class LearningRateMetric(_Latest):
    """The learning rate of the updates; over an epoch, that of the last one."""

    name = "Learning Rate"

    def rate(self, lr: float) -> float:
        """The learning rate of this step."""
        return lr


@checked(error=ConfigError, but=("update", "measure"))
@final
class GroupLearningRateMetric(_Latest):
    """The learning rate of a group of a `GroupedLrScheduler`; over an epoch, that of the last update.

    Raises: ConfigError, at the first step, where the schedule has no such group.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.name = f"Learning Rate {group}"
        super().__init__()

    def rate(self, lr: float) -> float:
        """The learning rate of the group in this step."""
        groups = lr.groups if isinstance(lr, LearningRates) else {}
        if self.group not in groups:
            raise ConfigError(
                "GroupLearningRateMetric: the schedule has no such group",
                given=f"{self.group!r}, and groups {', '.join(groups) or 'none'}",
                expected="a group of the learner's GroupedLrScheduler, as a metric of the training split",
                mend="metric_train(GroupLearningRateMetric(name)) with one of its names",
            )
        return groups[self.group]
