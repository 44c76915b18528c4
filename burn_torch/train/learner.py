"""Learner: a model, its optimizer and its learning-rate schedule."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from burn_torch.core.errors import ConfigError, explain
from burn_torch.module import Module, Tree
from burn_torch.optim import GradientsParams, LrScheduler, scheduler_of
from burn_torch.train.loop import train_step

__all__ = ["Learner"]

M = TypeVar("M", bound=Module)


@final
@dataclass(frozen=True)
class Learner(Generic[M]):
    """What a training run changes.  A value: each step gives a new one, and the one you made stays as it is.

    The learning rate is a number, a schedule, or a schedule's configuration.
    Raises: ConfigError for an optimizer or a schedule that is none.
    """

    model: M
    optim: Any
    lr_scheduler: Any

    def __post_init__(self) -> None:
        if not (callable(getattr(self.optim, "step", None)) and callable(getattr(self.optim, "to_record", None))):
            raise ConfigError(
                explain(
                    "Learner: this is no optimizer",
                    given=repr(self.optim)[:80],
                    expected="an optimizer, such as AdamConfig().init()",
                    mend="call init() of the optimizer's configuration",
                )
            )
        object.__setattr__(self, "lr_scheduler", scheduler_of(self.lr_scheduler))

    def fork(self) -> Learner[M]:
        """The same learner apart from this one: its schedule counts for itself, and compiled steps may take it over."""
        optim = self.optim._with_fields({}) if isinstance(self.optim, Tree) else self.optim
        return Learner(self.model._with_fields({}), optim, copy.deepcopy(self.lr_scheduler))

    def lr_step(self) -> float:
        """The learning rate of the next update; the schedule counts it."""
        scheduler: LrScheduler = self.lr_scheduler
        return scheduler.step()

    def train_step(self, batch: Any, key: int) -> tuple[Learner[M], GradientsParams, Any]:
        """Forward and backward of one batch: the learner with its new running states, the gradients, the item."""
        model, grads, item = train_step(self.model, batch, key)
        return self.with_model(model), grads, item

    def optimizer_step(self, lr: float, grads: GradientsParams) -> Learner[M]:
        """The learner after one update of the parameters."""
        model, optim = self.optim.step(lr, self.model, grads)
        return Learner(model, optim, self.lr_scheduler)

    def stepped(self, model: M, optim: Any) -> Learner[M]:
        """The learner after a compiled step.  Nothing is checked again: it happens once a step."""
        made = object.__new__(Learner)
        made.__dict__.update(model=model, optim=optim, lr_scheduler=self.lr_scheduler)
        return made

    def with_model(self, model: M) -> Learner[M]:
        """The same learner with another model."""
        return self if model is self.model else Learner(model, self.optim, self.lr_scheduler)
