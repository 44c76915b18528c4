"""Optimizers as pure functions, gradient clipping, learning-rate schedules."""

from typing import TYPE_CHECKING, NoReturn

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.spellings import missing_from_package as _missing
from burn_torch.core.spellings.packages import OPTIM
from burn_torch.module import GradientsParams
from burn_torch.optim.adam import Adam, AdamConfig, AdamW, AdamWConfig
from burn_torch.optim.clipping import GradientClipping, GradientClippingConfig
from burn_torch.optim.grads import GradientsAccumulator
from burn_torch.optim.groups import GroupedLrScheduler, GroupedOptimizer, LearningRates, ParamGroup
from burn_torch.optim.optimizer import Optimizer, StateGroup
from burn_torch.optim.record import LrSchedulerRecord, OptimizerRecord
from burn_torch.optim.scheduler import (
    ConstantLr,
    CosineAnnealingLrScheduler,
    CosineAnnealingLrSchedulerConfig,
    ExponentialLrScheduler,
    ExponentialLrSchedulerConfig,
    LearningRate,
    LinearLrScheduler,
    LinearLrSchedulerConfig,
    LrScheduler,
    NoamLrScheduler,
    NoamLrSchedulerConfig,
    StepLrScheduler,
    StepLrSchedulerConfig,
    scheduler_of,
)
from burn_torch.optim.sgd import MomentumConfig, Sgd, SgdConfig, SgdWithMomentum, WeightDecayConfig

__all__ = [
    "Adam",
    "AdamConfig",
    "AdamW",
    "AdamWConfig",
    "ConstantLr",
    "CosineAnnealingLrScheduler",
    "CosineAnnealingLrSchedulerConfig",
    "ExponentialLrScheduler",
    "ExponentialLrSchedulerConfig",
    "GradientClipping",
    "GradientClippingConfig",
    "GradientsAccumulator",
    "GradientsParams",
    "GroupedLrScheduler",
    "GroupedOptimizer",
    "LearningRate",
    "LearningRates",
    "LinearLrScheduler",
    "LinearLrSchedulerConfig",
    "LrScheduler",
    "LrSchedulerRecord",
    "MomentumConfig",
    "NoamLrScheduler",
    "NoamLrSchedulerConfig",
    "Optimizer",
    "OptimizerRecord",
    "ParamGroup",
    "Sgd",
    "SgdConfig",
    "SgdWithMomentum",
    "StateGroup",
    "StepLrScheduler",
    "StepLrSchedulerConfig",
    "WeightDecayConfig",
    "scheduler_of",
]

_check_exports(globals(), but=("scheduler_of",))


if not TYPE_CHECKING:  # to a type checker it would say that the module has every name

    def __getattr__(name: str) -> NoReturn:
        raise _missing("burn_torch.optim", name, OPTIM, "optim")
