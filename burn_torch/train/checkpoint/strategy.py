"""Decides which checkpoints stay: pure functions of the epochs saved and of the history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.train.history import Aggregate, Direction, History
from burn_torch.train.metric.base import Split

__all__ = [
    "CheckpointingStrategy",
    "ComposedCheckpointingStrategy",
    "KeepLastNCheckpoints",
    "MetricCheckpointingStrategy",
    "default_strategy",
    "metric_strategies",
]


@runtime_checkable
class CheckpointingStrategy(Protocol):
    """Decides after each epoch, when its checkpoint is safe on the disk."""

    def keep(self, saved: Sequence[int], history: History, /) -> Collection[int]:
        """The epochs whose checkpoints stay, of those saved (in order; the last one has just been written)."""
        ...


@checked(error=ConfigError, but=("keep",))
@final
@dataclass(frozen=True)
class KeepLastNCheckpoints:
    """Keeps the newest n.  With 1, a disk error in the only checkpoint ends the run; the default is 2.

    Raises: ConfigError for n below 1.
    """

    num_keep: int = 2

    def __post_init__(self) -> None:
        if self.num_keep < 1:
            raise ConfigError(
                "KeepLastNCheckpoints: it must keep at least one checkpoint",
                given=f"{self.num_keep}",
                expected="1 or more",
                mend="2 survives a checkpoint that turns out to be damaged",
            )

    def keep(self, saved: Sequence[int], history: History, /) -> Collection[int]:
        """The newest n."""
        return set(saved[-self.num_keep :])


@checked(error=ConfigError, but=("keep",))
@final
@dataclass(frozen=True)
class MetricCheckpointingStrategy:
    """Keeps the epoch in which a metric was best.

    Burn gives the aggregate second; it has one, the mean.
    Raises: ConfigError for a direction, a split or an aggregate that does not exist.
    """

    metric: str = "Loss"
    direction: Direction | str = Direction.LOWEST
    split: Split | str = Split.VALID
    aggregate: Aggregate | str = Aggregate.MEAN

    def __post_init__(self) -> None:
        chosen = (("direction", Direction), ("split", Split), ("aggregate", Aggregate))
        faults = [(name, kind) for name, kind in chosen if getattr(self, name) not in list(kind)]
        if faults:
            raise ConfigError(
                f"MetricCheckpointingStrategy: no such {' and no such '.join(name for name, _ in faults)}",
                given=", ".join(f"{name} {getattr(self, name)!r}" for name, _ in faults),
                expected="; ".join(" or ".join(repr(str(one)) for one in kind) for _, kind in faults),
                mend="take one of them, for example "
                + ", ".join(f"{kind.__name__}.{next(iter(kind)).name}" for _, kind in faults),
            )

    def keep(self, saved: Sequence[int], history: History, /) -> Collection[int]:
        """The best epoch, the earliest of equal ones; none where the metric has no values."""
        best = history.find_epoch(self.metric, self.direction, self.split)
        return set() if best is None else {best}


@checked(error=ConfigError, but=("keep",))
@final
class ComposedCheckpointingStrategy:
    """Keeps what any of several strategies keeps."""

    def __init__(self, *strategies: CheckpointingStrategy) -> None:
        self.strategies = strategies

    def keep(self, saved: Sequence[int], history: History, /) -> Collection[int]:
        """Returns what any of them keeps."""
        return {epoch for strategy in self.strategies for epoch in strategy.keep(saved, history)}


def default_strategy() -> CheckpointingStrategy:
    """Burn's: the last two, and the one with the lowest loss on the validation data."""
    return ComposedCheckpointingStrategy(KeepLastNCheckpoints(2), MetricCheckpointingStrategy())


def metric_strategies(strategy: CheckpointingStrategy) -> list[MetricCheckpointingStrategy]:
    """Those in a strategy that ask for a metric."""
    if isinstance(strategy, ComposedCheckpointingStrategy):
        return [nested for part in strategy.strategies for nested in metric_strategies(part)]
    return [strategy] if isinstance(strategy, MetricCheckpointingStrategy) else []
