"""Defines what a strategy is: how a step is executed, on which devices, by which processes.

Epochs, metrics, checkpoints and signals are the same for every way of execution, and live elsewhere.  A strategy of
your own has the three methods of `ExecutionStrategy`; whatever else it can do it says by these:

    functions   a `StepFunctions`: its steps are pure functions, so the loop compiles them
    make_steps  a method that gives a `Stepper`: it executes steps in a way of its own
    peers       the processes that train together
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from burn_torch.core.dtype import DType
from burn_torch.core.share import Share
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Device, Tensor
from burn_torch.train.learner import AnyLearner
from burn_torch.train.loop import GradientWindow, optimized, train_step, updated_steps
from burn_torch.train.step import AnyBatch, AnyItem, AnyModel

__all__ = ["LOOKED_AT", "WHOLE_BATCH", "ExecutionStrategy", "StepFunctions", "Stepper", "SteppingStrategy"]


@runtime_checkable
class ExecutionStrategy(Protocol):
    """A way to execute steps."""

    def prepare(self, learner: AnyLearner, /) -> tuple[AnyLearner, Device]:
        """The learner where it will be trained, and the device that the training batches are wanted on."""
        ...

    def train_step(self, learner: AnyLearner, batch: AnyBatch, key: int, /) -> tuple[AnyLearner, GradientsParams, Any]:
        """The gradients of one batch."""
        ...

    def optimizer_step(self, learner: AnyLearner, lr: float, grads: GradientsParams, /) -> AnyLearner:
        """One update."""
        ...


class Stepper(Protocol):
    """Executes the steps of one run."""

    batches: int
    """How many batches the next update has already."""

    def train(self, learner: AnyLearner, lr: float, batch: AnyBatch, key: int) -> tuple[AnyLearner, Any, bool]:
        """One batch: the learner, the item (None if this process had none of it), and whether it was updated."""
        ...

    def finish(self, learner: AnyLearner, lr: float) -> AnyLearner:
        """The update of the batches so far."""
        ...

    def valid(self, model: AnyModel, batch: AnyBatch, key: int) -> Any:
        """One batch of validation: its item; None if this process had none of it."""
        ...


@runtime_checkable
class SteppingStrategy(Protocol):
    """A strategy that executes steps itself."""

    def make_steps(
        self, learner: AnyLearner, accumulation: int, compiled: bool, say: Callable[[str], None], /
    ) -> Stepper:
        """Returns what executes the steps of one run; `say` gets lines for the user."""
        ...


class StepFunctions(NamedTuple):
    """The steps as pure functions of values.  `share`, a constant of their programs, says which items they have."""

    step: Callable[[Any, Any, Any, Any, Any, Share | None], tuple[Any, Any, Any]]
    """(model, optim, batch, lr, key, share) -> (model, optim, item)"""
    gradients: Callable[[Any, GradientWindow, Any, Any, Share | None], tuple[Any, GradientWindow, Any]]
    """(model, window, batch, key, share) -> (model, window, item)"""
    update: Callable[[Any, Any, GradientWindow, Any], tuple[Any, ...]]
    """(model, optim, window, lr) -> (model, optim)"""


def _step(
    model: object, optim: object, batch: object, lr: object, key: object, share: Share | None
) -> tuple[object, object, object]:
    return updated_steps(model, optim, batch, lr, key, share)


def _gradients(
    model: AnyModel, window: GradientWindow, batch: AnyBatch, key: Any, share: Share | None
) -> tuple[object, GradientWindow, object]:
    model, grads, item = train_step(model, batch, key, share)
    return model, window.add(grads, item), item


def _update(model: object, optim: object, window: GradientWindow, lr: object) -> tuple[object, object]:
    return optimized(model, optim, lr, window.take())


WHOLE_BATCH = StepFunctions(_step, _gradients, _update)
"""One process, one device, all items."""


# -- with the gradients looked at ------------------------------------------------------------------------
def _step_looked(
    model: object, optim: object, batch: object, lr: object, key: object, share: Share | None
) -> tuple[object, object, object]:
    tensors: list[Tensor] = []

    def look(
        model: AnyModel, grads: GradientsParams, item: AnyItem, share: Share | None
    ) -> tuple[Any, GradientsParams]:
        tensors.extend(_extremes(grads))
        return model, grads

    model, optim, item = updated_steps(model, optim, batch, lr, key, share, look)
    return model, optim, (item, tuple(tensors))


def _update_looked(
    model: object, optim: object, window: GradientWindow, lr: object
) -> tuple[object, object, tuple[Tensor, ...]]:
    grads = window.take()
    return *optimized(model, optim, lr, grads), tuple(_extremes(grads))


def _extremes(grads: GradientsParams) -> Iterator[Tensor]:
    """The greatest and the least elements of all gradients: finite if, and only if, all are.

    Small ones are joined first, since an operation costs more than their elements do.
    """
    kinds: dict[tuple[str, DType], tuple[list[Tensor], list[Tensor]]] = {}
    for gradient in dict(grads.items()).values():
        if gradient.dtype.is_float and gradient.spec.numel:
            large, small = kinds.setdefault((gradient.place, gradient.dtype), ([], []))
            (small if gradient.spec.numel <= _SMALL else large).append(gradient)
    for large, small in kinds.values():
        looked = [*large, Tensor.cat([gradient.reshape([-1]) for gradient in small], 0)] if small else large
        yield Tensor.cat([end.reshape([1]) for gradient in looked for end in (gradient.max(), gradient.min())], 0)


_SMALL: Final = 1 << 15
"""Elements of a gradient that is joined with others."""
LOOKED_AT = StepFunctions(_step_looked, _gradients, _update_looked)
"""WHOLE_BATCH whose steps give (item, extremes of the gradients before the optimizer has them) in the place of the
item, and whose updates give the extremes besides."""
