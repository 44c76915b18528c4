"""The small functions of a training loop.  The Learner's loop is made of them; so can yours be:

    for step, batch in enumerate(batches):
        model, grads, item = train_step(model, batch, fold(seed, step))
        model, optim = optim.step(lr, model, grads)

Each is a function of values: nothing is changed, and the key alone decides every random number of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

from burn_torch import ops
from burn_torch.core.philox import fold
from burn_torch.module import Module
from burn_torch.module.scope import StepScope
from burn_torch.optim import GradientsParams
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
@dataclass(frozen=True)
class GradientWindow:
    """Gradients of several batches as those of one large batch.  A value: `add` gives a new one.

    Each batch's gradient is of a mean over its items, so it counts as many times as it has items: with ragged batches,
    or token counts that differ, the result is that of all the items at once.
    """

    sum: GradientsParams | None = None
    """The gradients so far, each times the number of its items."""
    items: Tensor | float | None = None
    """How many items they are of."""

    def add(self, grads: GradientsParams, item: Any) -> GradientWindow:
        """With the gradients of one more batch.

        Raises: ConfigError if the item does not say over how many items its loss is the mean.
        """
        items = adapt(item, LossInput, "grads_accumulation").count
        if isinstance(items, Tensor):
            items = (items.inner() if items.device.is_autodiff() else items).reshape(1)
        weighted = _map(grads, lambda gradient: gradient * _factor(items, gradient))
        if self.sum is None or self.items is None:
            return GradientWindow(weighted, items)
        return GradientWindow(_sum(self.sum, weighted), self.items + items)

    def copy(self) -> GradientWindow:
        """The same values in tensors of their own, for a compiled step that takes over what it is given."""
        items = self.items
        return GradientWindow(
            None if self.sum is None else _map(self.sum, _again), _again(items) if isinstance(items, Tensor) else items
        )

    def take(self) -> GradientsParams:
        """The gradients of all the items."""
        items = self.items
        if self.sum is None or items is None:
            return GradientsParams()
        least = 1e-30  # a window of nothing but padding has gradients of zero, not of 0 / 0
        if isinstance(items, Tensor):
            return _map(self.sum, lambda gradient: gradient / _factor(items, gradient).clamp_min(least))
        count = ops.maximum(items, least)  # a number, or one that only the compiled step knows
        return _map(self.sum, lambda gradient: gradient / count)


def _factor(items: Tensor | float, gradient: Tensor) -> Any:
    if not isinstance(items, Tensor):
        return items
    return items.cast(gradient.dtype).reshape((1,) * gradient.ndim)


def _again(tensor: Tensor) -> Tensor:
    return Tensor(tensor.backend, tensor.primitive, tensor.spec)


def _map(grads: GradientsParams, change: Callable[[Tensor], Tensor]) -> GradientsParams:
    return GradientsParams({id: change(gradient) for id, gradient in grads.items()})


def _sum(one: GradientsParams, other: GradientsParams) -> GradientsParams:
    summed = dict(one.items())
    for ident, gradient in other.items():
        before = summed.get(ident)
        summed[ident] = gradient if before is None else before + gradient
    return GradientsParams(summed)
