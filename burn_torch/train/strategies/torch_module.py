"""The steps of a run whose model and optimizer are torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import torch

from burn_torch.core.errors import ConfigError
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Device, Tensor
from burn_torch.train.learner import AnyLearner
from burn_torch.train.loop import items_of, require_item
from burn_torch.train.output import LossInput
from burn_torch.train.step import AnyBatch
from burn_torch.train.strategies.base import ExecutionStrategy, Stepper
from burn_torch.train.strategies.parts import items_in, map_tensors
from burn_torch.train.strategies.single import SingleDevice
from burn_torch.train.torch_model import TorchModel, TorchOptimizer

__all__ = ["TorchTraining", "strategy_for", "torch_valid_step"]


@final
class TorchTraining:
    """Trains a plain torch module by torch's autograd, where it lies.

    torch's own random numbers start each step from the step's key, so a resumed run draws those of one that never
    stopped.  Compile the module yourself if you want that.
    """

    def prepare(self, learner: AnyLearner, /) -> tuple[AnyLearner, Device]:
        """The learner, and the device whose place batches are wanted on.

        Raises: ConfigError for an optimizer that is not torch's.
        """
        if not isinstance(learner.optim, TorchOptimizer):
            raise ConfigError(
                "a torch module is trained by an optimizer of torch",
                given=type(learner.optim).__name__,
                expected="a torch.optim.Optimizer",
                mend="Learner(net, torch.optim.AdamW(net.parameters()), 1e-3)",
            )
        return learner, Device.parse(str(learner.model.device()), fused=False).autodiff()

    def make_steps(
        self, learner: AnyLearner, accumulation: int, compiled: bool, say: Callable[[str], None], /
    ) -> Stepper:
        """Returns what executes the steps of one run."""
        return _Steps(accumulation)

    def train_step(self, learner: AnyLearner, batch: AnyBatch, key: int, /) -> tuple[AnyLearner, GradientsParams, Any]:
        """The gradients of one batch."""
        steps = _Steps(1)
        item, count = steps.backward(learner.model, batch, key)
        params = learner.model.module.named_parameters()
        by_path = {path: param.id for path, param in learner.model.named_params()}
        gradients = {
            by_path[path]: Tensor.from_torch(param.grad.clone() / count)
            for path, param in params
            if param.grad is not None
        }
        learner.optim.optimizer.zero_grad()
        return learner, GradientsParams(gradients), item

    def optimizer_step(self, learner: AnyLearner, lr: float, grads: GradientsParams, /) -> AnyLearner:
        """One update."""
        learner.optim.step(lr, learner.model, grads)
        return learner


@final
class _Steps:
    """The steps of a run by torch's autograd."""

    def __init__(self, accumulation: int) -> None:
        self.batches = 0
        self._accumulation: Final = accumulation
        self._count: object = 0.0

    def train(self, learner: AnyLearner, lr: float, batch: AnyBatch, key: int) -> tuple[AnyLearner, Any, bool]:
        """One batch: the learner, the item, and whether it was updated."""
        item, count = self.backward(learner.model, batch, key, weighs=self._accumulation > 1)
        self._count = self._count + count
        self.batches += 1
        if self.batches < self._accumulation:
            return learner, item, False
        return self.finish(learner, lr), item, True

    def finish(self, learner: AnyLearner, lr: float) -> AnyLearner:
        """The update of the batches so far."""
        optim: TorchOptimizer = learner.optim
        if self._accumulation > 1:
            grads = [p.grad for p in learner.model.module.parameters() if p.grad is not None]
            for gradient in grads:
                gradient.div_(self._count.clamp_min(1e-30) if isinstance(self._count, torch.Tensor) else self._count)
        optim.set_lr(lr)
        optim.optimizer.step()
        optim.optimizer.zero_grad()
        self._count, self.batches = 0.0, 0
        return learner

    def backward(self, model: TorchModel, batch: AnyBatch, key: int, *, weighs: bool = True) -> tuple[Any, Any]:
        """Adds the gradients of a batch, times its items if it `weighs`: the item for metrics, and the items."""
        moved = _on(batch, model.device())
        with model.mode(training=True), _seeded(key):
            item_or_loss = model.train_step(moved)
            loss = item_or_loss if isinstance(item_or_loss, torch.Tensor) else getattr(item_or_loss, "loss", None)
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                raise ConfigError(
                    "the train_step of a torch module returned no loss",
                    given=type(item_or_loss).__name__,
                    expected="the loss, a torch tensor with gradients, or an item that has it as `loss`",
                    mend="return ClassificationOutput(loss, scores, targets)",
                )
            item = _as_output(item_or_loss, moved)
            count: Any = items_of(item, "the torch module's train_step") if weighs else 1.0
            if isinstance(count, Tensor):
                count = count.into_torch().to(loss.dtype)
            (loss * count if weighs else loss).sum().backward()
        return item, count

    def valid(self, model: TorchModel, batch: AnyBatch, key: int) -> Any:
        """One batch of validation: its item."""
        return torch_valid_step(model, batch, key)


def torch_valid_step(model: TorchModel, batch: object, key: int) -> Any:
    """One batch of validation under a random key: its item, as metrics read it."""
    moved = _on(batch, model.device())
    with model.mode(training=False), _seeded(key), torch.no_grad():
        item = model.valid_step(moved)
        require_item(item, model.module)
        return _as_output(item, moved)


class _seeded:  # noqa: N801  # reads as what it does: with _seeded(key)
    """A block in which torch draws from a key; its own state is back afterwards, on the CPU."""

    def __init__(self, key: int) -> None:
        self._key = key

    def __enter__(self) -> None:
        self._before = torch.get_rng_state()
        torch.manual_seed(self._key)

    def __exit__(self, *exc_info: object) -> None:
        torch.set_rng_state(self._before)


def _on(batch: object, device: torch.device) -> object:
    return map_tensors(batch, lambda x: (x.into_torch() if isinstance(x, Tensor) else x).to(device))


def _as_output(item: object, batch: object) -> object:
    """An item as metrics read it: with tensors of ours, without torch's tape."""
    shown = map_tensors(item, lambda x: x if isinstance(x, Tensor) else Tensor.from_torch(x.detach()))
    return LossInput(shown, items_in(batch)) if isinstance(shown, Tensor) else shown


def strategy_for(strategy: ExecutionStrategy, learner: AnyLearner) -> ExecutionStrategy:
    """The strategy that trains a learner: torch's for a torch module.

    Raises: ConfigError for a torch module with a strategy that only ours can be trained by.
    """
    if not isinstance(learner.model, TorchModel) or isinstance(strategy, TorchTraining):
        return strategy
    if isinstance(strategy, SingleDevice):
        if strategy.device is not None:
            learner.model.module.to(strategy.device.place)
        return TorchTraining()
    raise ConfigError(
        "a plain torch module is trained by one process on one device",
        given=type(strategy).__name__,
        expected="SingleDevice, or no strategy at all",
        mend="train it alone, or write the model with burn_torch.nn",
    )
