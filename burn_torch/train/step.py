"""Defines what a model must be able to do to be trained and validated.

In Burn both traits have one method `step`; a Python class cannot have two methods of one name, so they are
`train_step` (Burn's `TrainStep::step`) and `valid_step` (Burn's `InferenceStep::step`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, final, runtime_checkable

from burn_torch.core.errors import ArgumentError, ConfigError
from burn_torch.core.misfits import worded_late
from burn_torch.module import Module, ParamId
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Gradients

__all__ = [
    "AnyBatch",
    "AnyItem",
    "AnyModel",
    "InferenceStep",
    "TrainOutput",
    "TrainStep",
    "faults_error",
    "require_step",
    "step_fault",
]

Batch = TypeVar("Batch", contravariant=True)
Item = TypeVar("Item", covariant=True)

AnyBatch: TypeAlias = Any
"""A batch of any loader: the step of the model knows its class."""

AnyItem: TypeAlias = Any
"""The result of any step: metrics adapt it."""

AnyModel: TypeAlias = Any
"""A model with a step, ours or one around a module of torch."""


@final
@dataclass(frozen=True)
class TrainOutput(Generic[Item]):
    """Holds what one training step gives: the gradients of the parameters, and the item that metrics read."""

    grads: GradientsParams
    item: Item

    @staticmethod
    def several(grads: Mapping[str, tuple[Module, Gradients | GradientsParams]], item: object) -> TrainOutput[Any]:
        """From several losses: for each name the part of the model that its gradients are for.

            TrainOutput.several({"critic": (self.critic, critic_loss.backward()), ...}, item)

        A loss's gradients of other parts are left out.  Raises: ArgumentError where two parts share a parameter.
        """
        collected = GradientsParams()
        owner: dict[ParamId, str] = {}
        for name, (part, gradients) in grads.items():
            if isinstance(gradients, Gradients):
                gradients = GradientsParams.from_grads(gradients, part)
            for path, param in part.named_params():
                gradient = gradients.get(param.id)
                if gradient is None:
                    continue
                if param.id in collected:
                    raise ArgumentError(
                        "TrainOutput.several: a parameter has gradients of two losses",
                        given=f"{path} of {name}, and of {owner[param.id]}",
                        expected="parts of the model that share no parameter",
                        mend="add the losses, and take one backward",
                    )
                collected.register(param.id, gradient)
                owner[param.id] = name
        return TrainOutput(collected, item)

    @staticmethod
    def new(model: Module, grads: Gradients | GradientsParams, item: object) -> TrainOutput[Any]:
        """From the result of `loss.backward()`; the gradients of the model's parameters move out of it."""
        if isinstance(grads, Gradients):
            grads = GradientsParams.from_grads(grads, model)
        elif not isinstance(grads, GradientsParams):
            raise ArgumentError(
                "TrainOutput.new takes gradients",
                given=f"a {type(grads).__name__}",
                expected="what loss.backward() gave, or a GradientsParams",
                mend="TrainOutput.new(self, loss.backward(), item)",
            )
        return TrainOutput(grads, item)


TrainOutput.new = staticmethod(worded_late(TrainOutput.new, "TrainOutput.new"))  # type: ignore[method-assign]  # the same function, checked


@runtime_checkable
class TrainStep(Protocol[Batch, Item]):
    """A model that can be trained.

        def train_step(self, batch: MnistBatch) -> TrainOutput[ClassificationOutput]:
            item = self.forward_classification(batch.images, batch.targets)
            return TrainOutput.new(self, item.loss.backward(), item)

    One that yields its outputs is updated after each; it gets the updated model back (see examples/gan):

        def train_step(self, batch):
            item = self.critic_loss(batch)
            model = yield TrainOutput.several({"critic": (self.critic, item.loss.backward())}, item)
            other = model.generator_loss(batch)
            yield TrainOutput.several({"generator": (model.generator, other.loss.backward())}, other)

    A method `optimize(optim, lr, grads) -> (model, optim)` takes the place of the optimizer's step, and
    `optimize_multi(optim, lr, [grads, ...])` that of gradients of several devices (`Learner.optimizer_step_multi`).
    """

    def train_step(self, batch: Batch, /) -> TrainOutput[Item]:
        """Forward, loss and backward of one batch; changes nothing."""
        ...


@runtime_checkable
class InferenceStep(Protocol[Batch, Item]):
    """A model that can be validated.

    def valid_step(self, batch: MnistBatch) -> ClassificationOutput:
        return self.forward_classification(batch.images, batch.targets)
    """

    def valid_step(self, batch: Batch, /) -> Item:
        """Forward and loss of one batch, on the device without gradients."""
        ...


# -- what the loop calls ---------------------------------------------------------------------------------
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "train_step": ("training_step", "compute_loss", "train_batch"),
    "valid_step": ("validation_step", "val_step", "eval_step", "test_step", "prediction_step"),
}
"""Holds what Lightning, Transformers and others call the steps."""


def step_fault(model: object, name: str) -> tuple[str, str, str] | None:
    """Given, expected and mend of a `train_step` or `valid_step` that takes no batch; None of one that does."""
    step = getattr(model, name, None)
    module = None if isinstance(model, Module) else getattr(model, "module", None)  # of a TorchModel
    kind = type(model if module is None else module).__name__
    expected = f"a model with {name}(batch)"
    if not callable(step):
        other = next(
            (n for n in _ELSEWHERE[name] if callable(getattr(model if module is None else module, n, None))), ""
        )
        mend = f"write {kind}.{name}(self, batch)" + (f" in the place of {other}" if other else "")
        return (
            f"{kind} without {name}",
            expected,
            mend + ("" if module is None else ", or give TorchModel(module, step)"),
        )
    try:
        signature = inspect.signature(step)
        signature.bind(None)
    except ValueError:  # a function of C
        return None
    except TypeError:
        bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
        signature = signature.replace(parameters=bare, return_annotation=signature.empty)
    else:
        return None
    own = isinstance(step, functools.partial)  # the function of a TorchModel
    called = getattr(step.func, "__name__", "step").replace("<lambda>", "step") if own else f"{kind}.{name}"
    first = "module" if own else "self"
    return (
        f"{called}{signature}",
        f"{expected}: the loop gives it the batch and nothing else",
        f"def {called.rpartition('.')[2]}({first}, batch): all that it needs comes in the batch",
    )


def require_step(model: object, name: str) -> None:
    """Raises: ConfigError for a model without a `train_step` or `valid_step` that takes a batch alone."""
    fault = step_fault(model, name)
    if fault is not None:
        raise faults_error(f"this {name} takes no batch", [fault]) from None


def faults_error(what: str, faults: Sequence[tuple[str, str, str]]) -> ConfigError:
    """One error for faults that each say what was given, what was expected, and how to mend it."""
    parts = ("\n            ".join(part) for part in zip(*faults, strict=True))
    return ConfigError(what, **dict(zip(("given", "expected", "mend"), parts, strict=True)))
