"""Everything on one device."""

from __future__ import annotations

from typing import Any, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, DeviceError
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Device
from burn_torch.train.learner import AnyLearner
from burn_torch.train.step import AnyBatch, AnyModel
from burn_torch.train.strategies.base import WHOLE_BATCH, StepFunctions

__all__ = ["SingleDevice", "one_device"]


@checked(error=ConfigError)
@final
class SingleDevice:
    """Everything on one device: that of the model, or the one given here.

    Raises: DeviceError for a device without gradients, or a model that lies on several.
    """

    functions: Final[StepFunctions] = WHOLE_BATCH

    def __init__(self, device: Device | None = None) -> None:
        self.device = device

    def prepare(self, learner: AnyLearner, /) -> tuple[AnyLearner, Device]:
        """The learner on the device."""
        model = learner.model if self.device is None else learner.model.to_device(self.device)
        return learner.with_model(model), one_device(model)

    def train_step(self, learner: AnyLearner, batch: AnyBatch, key: int, /) -> tuple[AnyLearner, GradientsParams, Any]:
        """The gradients of one batch."""
        return learner.train_step(batch, key)

    def optimizer_step(self, learner: AnyLearner, lr: float, grads: GradientsParams, /) -> AnyLearner:
        """One update."""
        return learner.optimizer_step(lr, grads)


def one_device(model: AnyModel) -> Device:
    """The device of a model.  Raises: DeviceError for one without gradients, or a model that lies on several."""
    devices: list[Device] = list(dict.fromkeys(param.device for _, param in model.named_params()))
    if len(devices) == 1 and devices[0].is_autodiff():
        return devices[0]
    raise DeviceError(
        "the model cannot be trained where it is",
        given=", ".join(map(repr, devices)) or "a model without parameters",
        expected="parameters on one device with gradients",
        mend="make the model on device.autodiff(), for example Device.cpu().autodiff(), or call model.train()",
    )
