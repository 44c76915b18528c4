"""How a step is executed: on which devices, and how gradients and updates come together.

Epochs, metrics, checkpoints and signals are the same for every way of execution, and live elsewhere.
"""

from __future__ import annotations

from typing import Any, Protocol, final, runtime_checkable

from burn_torch.core.errors import DeviceError, explain
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Device
from burn_torch.train.learner import Learner

__all__ = ["ExecutionStrategy", "SingleDevice"]


@runtime_checkable
class ExecutionStrategy(Protocol):
    """A way to execute steps."""

    def prepare(self, learner: Learner[Any], /) -> tuple[Learner[Any], Device]:
        """The learner where it will be trained, and the device that the training batches are wanted on."""
        ...

    def train_step(self, learner: Learner[Any], batch: Any, key: int, /) -> tuple[Learner[Any], GradientsParams, Any]:
        """The gradients of one batch."""
        ...

    def optimizer_step(self, learner: Learner[Any], lr: float, grads: GradientsParams, /) -> Learner[Any]:
        """One update."""
        ...


@final
class SingleDevice:
    """Everything on one device: that of the model, or the one given here.

    Raises: DeviceError for a device without gradients, or a model that lies on several.
    """

    def __init__(self, device: Device | None = None) -> None:
        self.device = device

    def prepare(self, learner: Learner[Any], /) -> tuple[Learner[Any], Device]:
        """The learner on the device."""
        model = learner.model if self.device is None else learner.model.to_device(self.device)
        found = list(dict.fromkeys(param.device for _, param in model.named_params()))
        if len(found) != 1 or not found[0].is_autodiff():
            raise DeviceError(
                explain(
                    "the model cannot be trained where it is",
                    given=", ".join(map(repr, found)) or "a model without parameters",
                    expected="parameters on one device with gradients",
                    mend="make the model on device.autodiff(), for example Device.cpu().autodiff(),"
                    " or call model.train()",
                )
            )
        return learner.with_model(model), found[0]

    def train_step(self, learner: Learner[Any], batch: Any, key: int, /) -> tuple[Learner[Any], GradientsParams, Any]:
        """The gradients of one batch."""
        return learner.train_step(batch, key)

    def optimizer_step(self, learner: Learner[Any], lr: float, grads: GradientsParams, /) -> Learner[Any]:
        """One update."""
        return learner.optimizer_step(lr, grads)
