"""The small functions of a training loop.  The Learner's loop is made of them; so can yours be:

    for step, batch in enumerate(batches):
        model, grads, item = train_step(model, batch, fold(seed, step))
        model, optim = optim.step(lr, model, grads)

Each is a function of values: nothing is changed, and the key alone decides every random number of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, final

from burn_torch.core.philox import fold
from burn_torch.module import Module
from burn_torch.module.scope import StepScope
from burn_torch.optim import GradientsAccumulator, GradientsParams
from burn_torch.tensor import Tensor
from burn_torch.train.output import LossInput, adapt

__all__ = ["GradientWindow", "fold", "train_step", "valid_step"]

M = TypeVar("M", bound=Module)


def train_step(model: M, batch: Any, key: int) -> tuple[M, GradientsParams, Any]:
    """One `model.train_step` under a random key: the model with its new running states, the gradients, the item."""
    with StepScope(key, model) as scope:
        output = model.train_step(batch)  # type: ignore[attr-defined]  # a TrainStep: launch has checked it
    return model.with_states(scope.states), output.grads, output.item


def valid_step(model: Module, batch: Any, key: int) -> Any:
    """One `model.valid_step` under a random key: the item.  What it does to running states is dropped."""
    with StepScope(key, model):
        return model.valid_step(batch)  # type: ignore[attr-defined]  # an InferenceStep: launch has checked it


@final
class GradientWindow:
    """Gradients of several batches as those of one large batch.

    Each batch's gradient is of a mean over its items, so it counts as many times as it has items: with ragged batches,
    or token counts that differ, the result is that of all the items at once.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.batches = 0
        self._sum = GradientsAccumulator()
        self._weights: list[Tensor | float] = []
        self._only: GradientsParams | None = None

    @property
    def full(self) -> bool:
        """Whether it is time for an update."""
        return self.batches >= self.size

    def add(self, model: Module, grads: GradientsParams, item: Any) -> None:
        """Adds the gradients of one batch.

        Raises: ConfigError if the item does not say over how many items its loss is the mean, where it matters.
        """
        self.batches += 1
        if self.size == 1:
            self._only = grads
            return
        weight = adapt(item, LossInput, "grads_accumulation").count
        if isinstance(weight, Tensor):
            weight = (weight.inner() if weight.device.is_autodiff() else weight).reshape(1)
        self._weights.append(weight)
        self._sum.accumulate(model, _map(grads, lambda gradient: gradient * _factor(weight, gradient)))

    def take(self) -> GradientsParams:
        """The gradients of all the items; the window is empty again."""
        self.batches = 0
        if self._only is not None:
            grads, self._only = self._only, None
            return grads
        weights, self._weights = self._weights, []

        def mean(gradient: Tensor) -> Tensor:
            total = sum((_factor(weight, gradient) for weight in weights[1:]), _factor(weights[0], gradient))
            least = 1e-30  # a window of nothing but padding has gradients of zero, not of 0 / 0
            return gradient / (total.clamp_min(least) if isinstance(total, Tensor) else max(total, least))

        return _map(self._sum.grads(), mean)


def _factor(weight: Tensor | float, gradient: Tensor) -> Any:
    if not isinstance(weight, Tensor):
        return float(weight)
    return weight.cast(gradient.dtype).reshape((1,) * gradient.ndim)


def _map(grads: GradientsParams, change: Callable[[Tensor], Tensor]) -> GradientsParams:
    return GradientsParams({id: change(gradient) for id, gradient in grads.items()})
