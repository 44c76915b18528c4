"""The processes that train together, as the loop sees them: what they decide and measure in common.

All of them run the same loop over the same batches, so they come to each of these calls together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray

import burn_torch.distributed as distributed
from burn_torch.core.errors import ConfigError
from burn_torch.train.interrupt import Interrupter
from burn_torch.train.metric.base import Metric, ResumableMetric

__all__ = ["ALONE", "Peers", "peers_of"]


@final
class Peers:
    """Process `rank` of `size`.  With size 1 nothing is exchanged."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank: Final = rank
        self.size: Final = size

    @property
    def is_main(self) -> bool:
        """Returns whether this process writes files and shows things."""
        return self.rank == 0

    def agree(self, interrupter: Interrupter) -> tuple[bool, bool]:
        """Returns whether any of them was asked to stop, and whether any was asked for a checkpoint: all do what one
        was asked.

        They stop for the reason of the first one.
        """
        if self.size == 1:
            return interrupter.should_stop(), interrupter.takes_checkpoint()
        own = [float(interrupter.should_stop()), float(interrupter.takes_checkpoint())]
        stops, saves = (bool(flag) for flag in self.sum(np.array(own)))
        if stops:
            answers = distributed.gather([interrupter.get_message(), interrupter.status])
            reason, status = next((text, status) for text, status in answers if status is not None)
            interrupter.stop(reason, status=status)
        return stops, saves

    def from_main(self, value: object) -> Any:
        """Returns what process 0 gives."""
        return value if self.size == 1 else distributed.gather(value if self.is_main else None)[0]

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums of numbers over all of them, on the host."""
        if self.size == 1:
            return values
        import torch.distributed as dist

        total = torch.from_numpy(np.ascontiguousarray(values, np.float64).copy())
        dist.all_reduce(total)
        return total.numpy()

    def meet(self) -> None:
        """Waits until all of them are here."""
        if self.size > 1:
            distributed.barrier()

    def report(self, err: BaseException) -> None:
        """Tells the others that this process fails: they end with it."""
        watchdog = distributed.world().watchdog
        if self.size > 1 and watchdog is not None:
            watchdog.report(err)

    def on_failure(self, clean_up: Callable[[str], None]) -> Callable[[], None]:
        """Has `clean_up(message)` called where another process's failure ends this one; gives what takes that back."""
        watchdog = distributed.world().watchdog
        return (lambda: None) if self.size == 1 or watchdog is None else watchdog.on_failure(clean_up)

    # -- metrics -----------------------------------------------------------------------------------
    def merged(self, metrics: Sequence[Metric]) -> Sequence[Metric]:
        """The metrics over the items of all of them.  These are copies; those given go on for their own items."""
        if self.size == 1:
            return metrics
        states = [dict(m.state()) if isinstance(m, ResumableMetric) else None for m in metrics]
        every = distributed.gather(states)
        return [_merge(metric, [row[i] for row in every]) for i, metric in enumerate(metrics)]

    def check(self, metrics: Sequence[Metric]) -> None:
        """Raises: ConfigError for metrics that cannot be put together from several processes."""
        lacking = [m.name for m in metrics if not isinstance(m, ResumableMetric)]
        if self.size > 1 and lacking:
            raise ConfigError(
                "these metrics cannot be measured by several processes",
                given=", ".join(lacking),
                expected="metrics that say what they have added up: state(), load_state(state), merge(state)",
                mend="derive them from NumericMetric, or leave them out",
            )


def _merge(metric: Any, states: Sequence[Mapping[str, Any]]) -> Metric:
    copied = copy.deepcopy(metric)
    copied.clear()
    copied.load_state(states[0])
    if hasattr(copied, "merge"):
        for state in states[1:]:
            copied.merge(state)
    else:  # the sums of a NumericMetric
        total = float(sum(float.fromhex(state["total"]) for state in states))
        copied.load_state({**states[0], "total": total.hex(), "count": sum(state["count"] for state in states)})
    return copied  # type: ignore[no-any-return]  # a copy of the metric


ALONE: Final = Peers()


def peers_of(strategy: object) -> Peers:
    """The processes of a strategy that has some; else this one alone."""
    peers = getattr(strategy, "peers", ALONE)
    return peers if isinstance(peers, Peers) else ALONE
