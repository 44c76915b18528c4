"""The small functions of a training loop.  The Learner's loop is made of them; so can yours be:

    for step, batch in enumerate(batches):
        model, grads, item = train_step(model, batch, fold(seed, step))
        model, optim = optim.step(lr, model, grads)

Each is a function of values: nothing is changed, and the key alone decides every random number of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, final

from burn_torch import ops
from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.core.philox import fold
from burn_torch.core.share import Share
from burn_torch.module import Module
from burn_torch.module.scope import StepScope
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Tensor
from burn_torch.train.output import LossInput, adapt
from burn_torch.train.step import AnyBatch, AnyItem, AnyModel, TrainOutput, require_step

__all__ = ["GradientWindow", "fold", "items_of", "optimized", "train_step", "updated_steps", "valid_step"]

M = TypeVar("M", bound=Module)


@checked
def train_step(model: M, batch: AnyBatch, key: int, share: Share | None = None) -> tuple[M, GradientsParams, Any]:
    """One `model.train_step` under a random key: the model with its new running states, the gradients, the item.

    With a share, the batch is these items of a larger one, and draws what they would draw in it.
    Raises: ConfigError for a train_step of several updates, which only `updated_steps` can do.
    """
    with StepScope(key, model, share) as scope:
        try:
            output = model.train_step(batch)  # type: ignore[attr-defined]  # a TrainStep: launch has checked it
        except (AttributeError, TypeError):
            require_step(model, "train_step")
            raise
    if isinstance(output, Generator):
        raise ConfigError(
            "this train_step updates several times, which cannot be done here",
            given=f"{type(model).__name__}.train_step, which yields its outputs",
            expected="a train_step that returns one TrainOutput where gradients are accumulated or summed over devices",
            mend="leave grads_accumulation and MultiDevice out, or return TrainOutput.several(...) once",
        )
    _require_output(output, model)
    return model.with_states(scope.states), output.grads, output.item


Reduce: TypeAlias = Callable[[Any, GradientsParams, Any, Share | None], tuple[Any, GradientsParams]]
"""(model, gradients, item, share) -> (model, gradients) as they are updated with."""


def updated_steps(
    model: AnyModel,
    optim: Any,
    batch: AnyBatch,
    lr: Any,
    key: Any,
    share: Share | None = None,
    reduce: Reduce | None = None,
) -> tuple[Any, Any, Any]:
    """One `model.train_step` and its update, or several where it yields: the model, the optimizer, the item.

        def train_step(self, batch):
            model = yield TrainOutput.several({"critic": ...}, item)       # the model with its critic updated
            yield TrainOutput.several({"generator": ...}, other)           # the last item is the one that is measured

    `reduce` makes of the gradients of one process those of all.
    """
    updates: Generator[Any, Any, Any] | None = None
    with StepScope(key, model, share) as scope:
        try:
            output = model.train_step(batch)
        except (AttributeError, TypeError):
            require_step(model, "train_step")
            raise
        if isinstance(output, Generator):
            updates, output = output, next(output)
    number = 0
    while True:
        _require_output(output, model)
        model, grads = model.with_states(scope.states), output.grads
        if reduce is not None:
            model, grads = reduce(model, grads, output.item, share)
        model, optim = optimized(model, optim, lr, grads)
        if updates is None:
            return model, optim, output.item
        number += 1
        with StepScope(fold(key, number), model, share) as scope:  # another model: its layers draw anew
            try:
                output = updates.send(model)
            except StopIteration as end:
                return model, optim, output.item if end.value is None else end.value


def _require_output(output: object, model: AnyModel) -> None:
    """Raises: ConfigError for what a train_step gave, if it is no TrainOutput."""
    if isinstance(output, TrainOutput):
        return
    kind = type(output)
    loss = "item.loss" if hasattr(output, "loss") else "loss"
    raise ConfigError(
        "this train_step returned no TrainOutput",
        given=f"{'None' if output is None else f'a {kind.__name__}'} from {type(model).__name__}.train_step",
        expected="a TrainOutput: the gradients of the model's parameters, and the item that metrics read",
        mend=f"return TrainOutput.new(self, {loss}.backward(), item), with an item such as LossInput(loss, count)",
    )


def optimized(model: AnyModel, optim: Any, lr: Any, grads: GradientsParams) -> tuple[Any, Any]:
    """One update: by `model.optimize(optim, lr, grads)` where the model has such a method, else `optim.step`."""
    own = getattr(model, "optimize", None)
    if own is not None:
        updated = own(optim, lr, grads)
        if not isinstance(updated, tuple) or len(updated) != 2:
            raise ConfigError(
                "this optimize returned no model and optimizer",
                given=f"{'None' if updated is None else f'a {type(updated).__name__}'} from"
                f" {type(model).__name__}.optimize",
                expected="the updated model and the updated optimizer",
                mend="return optim.step(lr, self, grads)",
            )
        return updated
    return optim.step(lr, model, grads)  # type: ignore[no-any-return]  # any optimizer: model and optimizer


@checked
def valid_step(model: Module, batch: AnyBatch, key: int, share: Share | None = None) -> Any:
    """One `model.valid_step` under a random key: the item.  Its changes of running states are dropped."""
    with StepScope(key, model, share):
        try:
            item = model.valid_step(batch)  # type: ignore[attr-defined]  # an InferenceStep: launch has checked it
        except (AttributeError, TypeError):
            require_step(model, "valid_step")
            raise
    require_item(item, model)
    return item


def require_item(item: object, model: AnyModel) -> None:
    """Raises: ConfigError for what a valid_step gave, if metrics can read nothing of it: they would have no values."""
    if item is None or isinstance(item, TrainOutput):
        kind = type(model).__name__
        raise ConfigError(
            "this valid_step returned no item",
            given=f"{'None' if item is None else f'a {type(item).__name__}'} from {kind}.valid_step",
            expected="what metrics read: a ClassificationOutput, a LossInput, an item of your own",
            mend="return item",
        )


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

    def add(self, grads: GradientsParams, item: AnyItem, share: Share | None = None) -> GradientWindow:
        """With the gradients of one more batch; of an empty share of one they count 0 times.

        Raises: ConfigError if the item does not say over how many items its loss is the mean.
        """
        items = 0.0 if share is not None and not share.count else items_of(item, "grads_accumulation")
        weighted = _map(grads, lambda gradient: gradient * _factor(items, gradient))
        if self.sum is None or self.items is None:
            return GradientWindow(weighted, items)
        return GradientWindow(_sum(self.sum, weighted), self.items + items)

    def joined(self, other: GradientWindow) -> GradientWindow:
        """With the gradients of another window, on the same device."""
        if self.sum is None or self.items is None or other.sum is None or other.items is None:
            return self if other.sum is None else other
        return GradientWindow(_sum(self.sum, other.sum), self.items + other.items)

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


def items_of(item: object, reader: str) -> Tensor | float:
    """Over how many items the loss of a step is the mean: a number, or a tensor (1,) on the inner device.

    Raises: ConfigError, naming the `reader`, for an item that does not say it.
    """
    items = adapt(item, LossInput, reader).count
    if isinstance(items, Tensor):
        return items.no_grad().reshape(1)
    return items


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
