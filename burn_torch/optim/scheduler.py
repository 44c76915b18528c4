"""Learning-rate schedules: pure functions of the step, with Burn's counter on top."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeAlias

from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, RecordError
from burn_torch.optim.record import LrSchedulerRecord

__all__ = [
    "ConstantLr",
    "CosineAnnealingLrScheduler",
    "CosineAnnealingLrSchedulerConfig",
    "ExponentialLrScheduler",
    "ExponentialLrSchedulerConfig",
    "LearningRate",
    "LinearLrScheduler",
    "LinearLrSchedulerConfig",
    "LrScheduler",
    "NoamLrScheduler",
    "NoamLrSchedulerConfig",
    "StepLrScheduler",
    "StepLrSchedulerConfig",
    "scheduler_of",
]

LearningRate: TypeAlias = float
"""A learning rate per step; a plain one serves as a constant schedule."""


@checked(error=ConfigError, but=("step",))
class LrScheduler(ABC):
    """A schedule: `lr_at(step)` is pure, `step()` gives the next rate and counts."""

    def __init__(self) -> None:
        self.taken = 0

    @abstractmethod
    def lr_at(self, step: int) -> float:
        """The learning rate of the step with this number, counted from 0."""

    def step(self) -> float:
        """The learning rate of the next step."""
        lr = self.lr_at(self.taken)
        self.taken += 1
        return lr

    def to_record(self) -> LrSchedulerRecord:
        """How many steps were taken."""
        return LrSchedulerRecord(kind=type(self).__name__, taken=self.taken)

    def load_record(self, record: Mapping[str, object]) -> LrScheduler:
        """This schedule, gone on to where the record was made.

        Raises: RecordError for the record of another kind of schedule.
        """
        taken = record.get("taken")
        if record.get("kind") != type(self).__name__ or not isinstance(taken, int) or taken < 0:
            raise RecordError(
                "this record belongs to another schedule",
                given=f"{record}",
                expected=f"a record of {type(self).__name__}",
                mend="resume with the schedule that the run was started with",
            )
        self.taken = taken
        return self


def scheduler_of(lr: LrScheduler | Config | float) -> LrScheduler:
    """A schedule from a schedule, its configuration, or a constant rate.  Raises: ConfigError for anything else."""
    if isinstance(lr, LrScheduler):
        return lr
    rate: object = lr
    if not isinstance(rate, bool) and isinstance(rate, Real):  # numpy's numbers are such too
        return ConstantLr(_trainable_rate(rate))
    schedule = lr.init() if isinstance(lr, Config) and hasattr(lr, "init") else None
    if isinstance(schedule, LrScheduler):
        return schedule
    mend = "pass 1e-3, or CosineAnnealingLrSchedulerConfig(1e-3, num_iters=1000)"
    raise ConfigError(
        "this is not a learning-rate schedule",
        given=repr(lr)[:80],
        expected="a number, a scheduler or a scheduler's configuration",
        mend="rates of groups are a GroupedLrScheduler(...) of them" if isinstance(lr, Mapping) else mend,
    )


def _trainable_rate(lr: Any) -> float:
    if 0 <= lr < math.inf:
        return float(lr)
    raise ConfigError(
        "a model cannot train with this learning rate",
        given=f"{lr}",
        expected="a finite number, 0 or above: the optimizer already steps against the gradient",
        mend="most networks train with 1e-4 to 1e-1",
    )


def _rates(config: Config, *names: str) -> Rules:
    """The rules of a schedule, with these fields from above 0 to 1."""
    rules = Rules(config)
    for name in names:
        if not 0 < getattr(config, name) <= 1:
            rules.fault(name, "out of range", "above 0 and at most 1", "most networks train with 1e-4 to 1e-1")
    return rules


@checked(error=ConfigError)
class ConstantLr(LrScheduler):
    """The same rate for every step."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = _trainable_rate(lr)

    def lr_at(self, step: int) -> float:
        """The constant."""
        return self.lr


class LinearLrSchedulerConfig(Config):
    """From initial_lr to final_lr in num_iters steps, then constant."""

    initial_lr: float
    final_lr: float
    num_iters: int

    def __post_init__(self) -> None:
        rules = _rates(self, "initial_lr").at_least(1, "num_iters")
        if not 0 <= self.final_lr <= 1:
            rules.fault("final_lr", "out of range", "from 0 to 1", "0 lets the rate run out")
        rules.stop()

    def init(self) -> LinearLrScheduler:
        """The schedule."""
        return LinearLrScheduler(self)


@checked(error=ConfigError, but=("step",))
class LinearLrScheduler(LrScheduler):
    """initial + (final - initial) min(step, n) / n.  PyTorch: torch.optim.lr_scheduler.LinearLR."""

    def __init__(self, config: LinearLrSchedulerConfig) -> None:
        super().__init__()
        self.config = config

    def lr_at(self, step: int) -> float:
        """The rate of a step."""
        c = self.config
        done = min(step, c.num_iters) / c.num_iters
        return c.initial_lr + (c.final_lr - c.initial_lr) * done


class CosineAnnealingLrSchedulerConfig(Config):
    """Half a cosine from initial_lr to min_lr (0 unless given) in num_iters steps; then it starts again."""

    initial_lr: float
    num_iters: int
    min_lr: float = 0.0

    def __post_init__(self) -> None:
        rules = _rates(self, "initial_lr").at_least(1, "num_iters")
        if not 0 <= self.min_lr <= self.initial_lr:
            expected = f"from 0 to initial_lr {self.initial_lr}"
            rules.fault("min_lr", "out of range", expected, "exchange the two, or leave min_lr out")
        rules.stop()

    def init(self) -> CosineAnnealingLrScheduler:
        """The schedule."""
        return CosineAnnealingLrScheduler(self)


@checked(error=ConfigError, but=("step",))
class CosineAnnealingLrScheduler(LrScheduler):
    """min + (initial - min) (1 + cos(pi t / n)) / 2, where t counts from 0 to n and starts again.

    Source: Loshchilov, Hutter 2017, equation 5, with restarts every n + 1 steps as in Burn.
    """

    def __init__(self, config: CosineAnnealingLrSchedulerConfig) -> None:
        super().__init__()
        self.config = config

    def lr_at(self, step: int) -> float:
        """The rate of a step."""
        c = self.config
        t = step % (c.num_iters + 1)
        return c.min_lr + 0.5 * (c.initial_lr - c.min_lr) * (1 + math.cos(math.pi * t / c.num_iters))


class ExponentialLrSchedulerConfig(Config):
    """initial_lr times gamma at every step."""

    initial_lr: float
    gamma: float

    def __post_init__(self) -> None:
        rules = _rates(self, "initial_lr")
        if not 0 < self.gamma <= 1:
            rules.fault("gamma", "out of range", "above 0 and at most 1", "0.999 takes a thousandth at every step")
        rules.stop()

    def init(self) -> ExponentialLrScheduler:
        """The schedule."""
        return ExponentialLrScheduler(self)


@checked(error=ConfigError, but=("step",))
class ExponentialLrScheduler(LrScheduler):
    """initial gamma^step.  PyTorch: torch.optim.lr_scheduler.ExponentialLR."""

    def __init__(self, config: ExponentialLrSchedulerConfig) -> None:
        super().__init__()
        self.config = config

    def lr_at(self, step: int) -> float:
        """The rate of a step."""
        return self.config.initial_lr * self.config.gamma**step


class StepLrSchedulerConfig(Config):
    """initial_lr times gamma every step_size steps; gamma 0.1 takes one decimal place, as in PyTorch."""

    initial_lr: float
    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _rates(self, "initial_lr").positive("gamma").at_least(1, "step_size").stop()

    def init(self) -> StepLrScheduler:
        """The schedule."""
        return StepLrScheduler(self)


@checked(error=ConfigError, but=("step",))
class StepLrScheduler(LrScheduler):
    """initial gamma^(step // size).  PyTorch: torch.optim.lr_scheduler.StepLR."""

    def __init__(self, config: StepLrSchedulerConfig) -> None:
        super().__init__()
        self.config = config

    def lr_at(self, step: int) -> float:
        """The rate of a step."""
        return self.config.initial_lr * self.config.gamma ** (step // self.config.step_size)


class NoamLrSchedulerConfig(Config):
    """The Transformer's schedule: warm-up over 4000 steps and a model of 512 features are the paper's."""

    factor: float
    warmup_steps: int = 4000
    model_size: int = 512

    def __post_init__(self) -> None:
        Rules(self).positive("factor").at_least(1, "warmup_steps", "model_size").stop()

    def init(self) -> NoamLrScheduler:
        """The schedule."""
        return NoamLrScheduler(self)


@checked(error=ConfigError, but=("step",))
class NoamLrScheduler(LrScheduler):
    """factor size^-0.5 min(n^-0.5, n warmup^-1.5) with n = step + 1.

    Source: Vaswani et al. 2017, equation 3.
    """

    def __init__(self, config: NoamLrSchedulerConfig) -> None:
        super().__init__()
        self.config = config

    def lr_at(self, step: int) -> float:
        """The rate of a step."""
        c, n = self.config, step + 1
        return float(c.factor * c.model_size**-0.5 * min(n**-0.5, n * c.warmup_steps**-1.5))
