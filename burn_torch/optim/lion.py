"""Lion: steps of one size, by the sign of a mean of gradients."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.optim.clipping import GradientClippingConfig
from burn_torch.optim.optimizer import Optimizer, Slots, Tensors, Updated, run_update

__all__ = ["Lion", "LionConfig"]


class LionConfig(Config):
    """Lion with the paper's defaults.

    Each element moves by the learning rate itself, so choose a third to a tenth of AdamW's, and a weight_decay that is
    as many times larger; it is apart from the gradient.  Lion keeps one state where Adam keeps two.
    """

    beta_1: float = 0.9
    beta_2: float = 0.99
    weight_decay: float = 0.0
    grad_clipping: GradientClippingConfig | None = None

    def __post_init__(self) -> None:
        Rules(self).below_one("beta_1", "beta_2").at_least(0, "weight_decay").stop()

    def init(self) -> Lion:
        """A fresh optimizer."""
        return Lion((), self.grad_clipping, self.beta_1, self.beta_2, self.weight_decay)


class Lion(Optimizer):
    """p - lr (sign(beta_1 mean + (1 - beta_1) g) + decay p).  See the row `lion_update`.  PyTorch has none."""

    beta_1: float
    beta_2: float
    decay: float

    @property
    def slot_names(self) -> tuple[str, ...]:
        """One mean of gradients a parameter."""
        return ("mean",)

    def update(self, lr: object, time: object, params: Tensors, grads: Tensors, slots: Slots) -> Updated:
        """See `Optimizer.update`."""
        numbers = (lr, self.beta_1, self.beta_2, self.decay)
        new, *states = run_update(ops.lion_update, numbers, params, grads, *slots)
        return new, states
