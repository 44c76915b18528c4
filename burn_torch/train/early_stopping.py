"""Stopping before the last epoch, when a metric no longer improves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, final, runtime_checkable

from burn_torch.core.checking import at_least, checked
from burn_torch.core.errors import ConfigError
from burn_torch.train.history import Direction, History
from burn_torch.train.metric.base import Split

__all__ = ["EarlyStoppingStrategy", "MetricEarlyStoppingStrategy", "NoImprovementSince"]


@runtime_checkable
class EarlyStoppingStrategy(Protocol):
    """Decides after each epoch; a function of the history, so a resumed run decides as one that never stopped."""

    def should_stop(self, epoch: int, history: History, /) -> bool:
        """Returns whether this epoch was the last one."""
        ...


@checked(error=ConfigError)
@final
@dataclass(frozen=True)
class NoImprovementSince:
    """The number of epochs in a row without a better value.

    Raises: ConfigError for fewer than 1: that would stop a run that improves.
    """

    n_epochs: int

    def __post_init__(self) -> None:
        if self.n_epochs < 1:
            raise ConfigError(
                "NoImprovementSince: the number of epochs must be at least 1",
                given=f"{self.n_epochs}",
                expected="1 or more",
                mend="1 stops at the first epoch that is not better",
            )


@checked(error=ConfigError, but=("should_stop",), warmup_epochs=at_least(0))
@final
@dataclass(frozen=True)
class MetricEarlyStoppingStrategy:
    """Stops when a metric has not improved for some epochs; the first `warmup_epochs` epochs never stop it.

    Raises: ConfigError for a direction or a split that does not exist.
    """

    metric: str
    direction: Direction | str
    split: Split | str
    condition: NoImprovementSince
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("direction", Direction), ("split", Split)):
            if getattr(self, name) not in list(kind):
                raise ConfigError(
                    f"MetricEarlyStoppingStrategy: no such {name}",
                    given=f"{getattr(self, name)!r}",
                    expected=" or ".join(repr(str(one)) for one in kind),
                    mend=f"take one of them, or {kind.__name__}.{next(iter(kind)).name}",
                )

    def with_warmup_epochs(self, warmup_epochs: int) -> MetricEarlyStoppingStrategy:
        """The same strategy with a longer start."""
        return replace(self, warmup_epochs=warmup_epochs)

    def should_stop(self, epoch: int, history: History, /) -> bool:
        """Returns whether the best value is `n_epochs` old."""
        best = history.find_epoch(self.metric, self.direction, self.split)
        return best is not None and epoch > self.warmup_epochs and epoch - best >= self.condition.n_epochs
