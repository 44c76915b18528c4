"""Adam and AdamW."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.optim.clipping import GradientClippingConfig
from burn_torch.optim.optimizer import Optimizer, Slots, Tensors, Updated, run_update
from burn_torch.optim.sgd import WeightDecayConfig

__all__ = ["Adam", "AdamConfig", "AdamW", "AdamWConfig"]


class AdamConfig(Config):
    """Adam with Burn's defaults: the paper's, but epsilon 1e-5 (PyTorch: 1e-8), which half precision can hold."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-5
    amsgrad: bool = False
    weight_decay: WeightDecayConfig | None = None
    grad_clipping: GradientClippingConfig | None = None

    def __post_init__(self) -> None:
        Rules(self).below_one("beta_1", "beta_2").at_least(0, "epsilon").stop()

    def init(self) -> Adam:
        """A fresh optimizer."""
        penalty = 0.0 if self.weight_decay is None else self.weight_decay.penalty
        return Adam((), self.grad_clipping, self.beta_1, self.beta_2, self.epsilon, self.amsgrad, penalty)


class AdamWConfig(Config):
    """AdamW with Burn's defaults: weight decay 1e-4 (PyTorch: 1e-2), epsilon 1e-5 (PyTorch: 1e-8).

    cautious_weight_decay decays only where parameter and update agree in sign.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-5
    weight_decay: float = 1e-4
    cautious_weight_decay: bool = False
    amsgrad: bool = False
    grad_clipping: GradientClippingConfig | None = None

    def __post_init__(self) -> None:
        Rules(self).below_one("beta_1", "beta_2").at_least(0, "epsilon", "weight_decay").stop()

    def init(self) -> AdamW:
        """A fresh optimizer."""
        return AdamW(
            (), self.grad_clipping, self.beta_1, self.beta_2, self.epsilon, self.amsgrad, self.weight_decay,
            self.cautious_weight_decay,
        )  # fmt: skip


class _AdamBase(Optimizer):
    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Means of gradients and of their squares; with amsgrad the largest square too."""
        return ("mean", "square", "largest") if self.amsgrad else ("mean", "square")

    def _step_by(
        self, lr: object, penalty: float, decay: float, time: object, *groups: Tensors, cautious: bool = False
    ) -> Updated:
        numbers = (lr, self.beta_1, self.beta_2, self.epsilon, penalty, decay, time)
        new, *states = run_update(ops.adam_update, numbers, *groups, amsgrad=self.amsgrad, cautious=cautious)
        return new, states


class Adam(_AdamBase):
    """Adam; weight decay is an L2 penalty on the gradient.

    See the row `adam_update`.  PyTorch: torch.optim.Adam.
    """

    penalty: float

    def update(self, lr: object, time: object, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """See `Optimizer.update`."""
        return self._step_by(lr, self.penalty, 0.0, time, params, grads, *slots)


class AdamW(_AdamBase):
    """Adam with the weight decay apart from the gradient.  See the row `adam_update`.  PyTorch: torch.optim.AdamW."""

    decay: float
    cautious: bool

    def update(self, lr: object, time: object, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """See `Optimizer.update`."""
        return self._step_by(lr, 0.0, self.decay, time, params, grads, *slots, cautious=self.cautious)
