"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.optim.clipping import GradientClippingConfig
from burn_torch.optim.optimizer import Optimizer, Slots, Tensors, Updated, run_update

__all__ = ["MomentumConfig", "Sgd", "SgdConfig", "SgdWithMomentum", "WeightDecayConfig"]


class WeightDecayConfig(Config):
    """An L2 penalty: `penalty` times the parameter is added to its gradient."""

    penalty: float

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "penalty").stop()


class MomentumConfig(Config):
    """A velocity instead of the gradient alone; Burn's defaults.

    momentum 0.9 keeps nine tenths of the velocity.  dampening 0.1 (PyTorch: 0) takes the rest of the gradient's share.
    nesterov looks one velocity ahead.
    """

    momentum: float = 0.9
    dampening: float = 0.1
    nesterov: bool = False

    def __post_init__(self) -> None:
        Rules(self).fraction("momentum", "dampening").stop()


class SgdConfig(Config):
    """Stochastic gradient descent; plain unless told otherwise, as in Burn."""

    weight_decay: WeightDecayConfig | None = None
    momentum: MomentumConfig | None = None
    gradient_clipping: GradientClippingConfig | None = None

    def init(self) -> Optimizer:
        """A fresh optimizer."""
        penalty = 0.0 if self.weight_decay is None else self.weight_decay.penalty
        if self.momentum is None:
            return Sgd((), self.gradient_clipping, penalty)
        m = self.momentum
        return SgdWithMomentum((), self.gradient_clipping, penalty, m.momentum, m.dampening, m.nesterov)


class Sgd(Optimizer):
    """p - lr (g + penalty p).  PyTorch: torch.optim.SGD."""

    penalty: float

    def update(self, lr: object, time: object, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """See `Optimizer.update`."""
        return run_update(ops.sgd_update, (lr, self.penalty), params, grads)[0], ()


class SgdWithMomentum(Optimizer):
    """Gradient descent along a velocity; see the row `momentum_update`.

    The first step's velocity is the gradient itself, as in Burn and PyTorch.
    """

    penalty: float
    momentum: float
    dampening: float
    nesterov: bool

    @property
    def slot_names(self) -> tuple[str, ...]:
        """One velocity a parameter."""
        return ("velocity",)

    def update(self, lr: Any, time: Any, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """See `Optimizer.update`."""
        share = 1.0 - self.dampening * ops.minimum(time - 1, 1)  # no branch on the count: it may be traced
        numbers = (lr, self.penalty, self.momentum, share)
        new, *states = run_update(ops.momentum_update, numbers, params, grads, *slots, nesterov=self.nesterov)
        return new, states
