"""Learner: a model, its optimizer and its learning-rate schedule."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar, final

import torch

from burn_torch.config import Config
from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError
from burn_torch.module import ModuleRecord, Tree
from burn_torch.optim import GradientsParams, LrScheduler, OptimizerRecord, scheduler_of
from burn_torch.tensor import Device
from burn_torch.train.loop import optimized, train_step
from burn_torch.train.torch_model import TorchModel, TorchOptimizer

__all__ = ["AnyLearner", "Learner", "schedule_text"]

M = TypeVar("M")


@checked(error=ConfigError, but=("stepped", "with_model", "lr_step", "lr_current"))
@final
@dataclass(frozen=True)
class Learner(Generic[M]):
    """Holds what a training run changes.  A value: each step gives a new one, and the one you made stays as it is.

    The learning rate is a number, a schedule, or a schedule's configuration.  Model and optimizer may be torch's, a
    `torch.nn.Module` with a `torch.optim.Optimizer` of its parameters: see `TorchModel`.
    Raises: ConfigError for an optimizer or a schedule that is none.
    """

    model: M
    optim: Any
    lr_scheduler: Any

    def __post_init__(self) -> None:
        if isinstance(self.model, type):
            name = self.model.__name__
            raise ConfigError(
                "Learner: this is a class, not a model",
                given=f"{name}",
                expected=f"a model made of it, with its parameters on a device: {name}(...)",
                mend=f"Learner({name}(LinearConfig(3, 2).init(device)), optimizer, learning_rate)",
            )
        if isinstance(self.model, torch.nn.Module):
            object.__setattr__(self, "model", TorchModel(self.model))
        if isinstance(self.optim, torch.optim.Optimizer):
            object.__setattr__(self, "optim", TorchOptimizer.of(self.optim, self.model))
        if not (callable(getattr(self.optim, "step", None)) and callable(getattr(self.optim, "to_record", None))):
            raise ConfigError(
                "Learner: this is not an optimizer",
                given=repr(self.optim)[:80],
                expected="an optimizer, such as AdamConfig().init()",
                mend="call init() of the optimizer's configuration",
            )
        object.__setattr__(self, "lr_scheduler", scheduler_of(self.lr_scheduler))

    def fork(self, device: Device | None = None) -> Learner[M]:
        """The same learner apart from this one: its schedule counts for itself, and compiled steps may take it over.

        On another device, if one is given.
        """
        schedule = copy.deepcopy(self.lr_scheduler)
        if isinstance(self.model, TorchModel):
            model, optim = copy.deepcopy((self.model, self.optim))  # together: the optimizer holds the parameters
            return Learner(model, optim, schedule)
        optim = self.optim._with_fields({}) if isinstance(self.optim, Tree) else self.optim
        fresh: Any = self.model
        fresh = fresh._with_fields({}) if device is None else fresh.to_device(device)
        return Learner(fresh, optim, schedule)

    # -- the learning rate ---------------------------------------------------------------------------
    def lr_step(self) -> float:
        """The learning rate of the next update; the schedule counts it."""
        scheduler: LrScheduler = self.lr_scheduler
        return scheduler.step()

    def lr_current(self) -> float:
        """The learning rate of the next update; nothing counts it."""
        scheduler: LrScheduler = self.lr_scheduler
        return scheduler.lr_at(scheduler.taken)

    # -- steps -----------------------------------------------------------------------------------------
    def train_step(self, batch: object, key: int) -> tuple[Learner[M], GradientsParams, Any]:
        """Forward and backward of one batch: the learner with its new running states, the gradients, the item."""
        model: Any = self.model
        model, grads, item = train_step(model, batch, key)
        return self.with_model(model), grads, item

    def optimizer_step(self, lr: float, grads: GradientsParams) -> Learner[M]:
        """The learner after one update of the parameters."""
        model, optim = optimized(self.model, self.optim, lr, grads)
        return Learner(model, optim, self.lr_scheduler)

    def stepped(self, model: M, optim: object) -> Learner[M]:
        """The learner after a compiled step.  Nothing is checked again: it happens once a step."""
        learner = object.__new__(Learner)
        learner.__dict__.update(model=model, optim=optim, lr_scheduler=self.lr_scheduler)
        return learner

    def optimizer_step_multi(self, lr: float, grads: Sequence[GradientsParams]) -> Learner[M]:
        """The learner after one update by the sum of several gradients, of several devices for instance.

        A model with a method `optimize_multi(optim, lr, grads)` is updated by that.
        """
        own = getattr(self.model, "optimize_multi", None)
        if own is not None:
            model, optim = own(self.optim, lr, grads)
            return Learner(model, optim, self.lr_scheduler)
        model_here: Any = self.model
        places = {param.id: param.device for _, param in model_here.named_params()}
        total = GradientsParams()
        for one in grads:
            for ident, gradient in one.items():
                device = places[ident]
                here = gradient.to_device(device.no_grad())
                before = total.get(ident)
                total.register(ident, here if before is None else before + here)
        return self.optimizer_step(lr, total)

    def with_model(self, model: M) -> Learner[M]:
        """The same learner with another model."""
        return self if model is self.model else Learner(model, self.optim, self.lr_scheduler)

    # -- records ------------------------------------------------------------------------------------------
    def load_model(self, record: ModuleRecord) -> Learner[M]:
        """The learner with the values, and the parameter ids, of a record.  Raises: RecordError if it does not fit."""
        before: Any = self.model
        model = before.load_record(record)
        optim = self.optim
        if hasattr(optim, "with_ids"):
            ids = {path: param.id for path, param in model.named_params()}
            optim = optim.with_ids({param.id: ids[path] for path, param in before.named_params()})
        return Learner(model, optim, self.lr_scheduler)

    def load_optim(self, record: OptimizerRecord, device: Device | None = None) -> Learner[M]:
        """The learner with the optimizer's states of a record.  Raises: RecordError for another optimizer's."""
        return replace(self, optim=self.optim.load_record(record, device))

    def load_scheduler(self, record: Mapping[str, object]) -> Learner[M]:
        """The learner with its schedule gone on to where the record was made.

        Raises: RecordError for the record of another kind of schedule.
        """
        return replace(self, lr_scheduler=copy.deepcopy(self.lr_scheduler).load_record(dict(record)))


def schedule_text(scheduler: object) -> str:
    """A schedule in words, without how far it is: two that differ in nothing else have the same text."""
    fields = {name: value for name, value in vars(scheduler).items() if name != "taken"}
    shown = [f"{name.lstrip('_')}={_field_text(value)}" for name, value in sorted(fields.items())]
    return f"{type(scheduler).__name__}({', '.join(shown)})"


def _field_text(value: object) -> str:
    if isinstance(value, LrScheduler):
        return schedule_text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_field_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_field_text, value)) + "]"
    plain = value is None or isinstance(value, bool | int | float | str | Config)
    return repr(value) if plain else type(value).__name__


AnyLearner: TypeAlias = Learner[Any]
"""A learner, whatever its model is."""
