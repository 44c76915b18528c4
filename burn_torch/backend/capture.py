"""Capture: a leaf that computes nothing.  `Device.capture_scope` writes its operations into a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NoReturn, final

from burn_torch.backend.base import Backend
from burn_torch.core.data import TensorData
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["Capture"]


@final
class Capture(Backend):
    """The leaf of `Device.capture()`: its primitives are data.  `Capture()` is always one object."""

    _instance: ClassVar[Capture | None] = None
    name: Final = "Capture"

    def __new__(cls) -> Capture:
        """The one leaf: equal stacks are one object."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def execute(self, call: Call, inputs: Sequence[Primitive]) -> NoReturn:
        """Refuses: outside a scope there is no graph, and tensors from outside are no part of one."""
        raise DeviceError(
            "a device of captures computes nothing",
            given=f"{call.op.name} of tensors that were made outside the capture_scope",
            expected="operations on tensors that are made, or moved to the device, in a capture_scope",
            mend="device.capture_scope(function): make the tensors in the function, or compute on Device.cpu()",
        )

    def from_data(self, data: TensorData, place: str) -> TensorData:
        """The data themselves."""
        return data

    def into_data(self, primitive: TensorData) -> TensorData:
        """The data of a tensor that was made from data."""
        return primitive

    def spec(self, primitive: TensorData) -> TensorSpec:
        """The spec of the data."""
        return TensorSpec.of(primitive.shape, primitive.dtype, "cpu")

    def sync(self, place: str) -> None:
        """Nothing is submitted."""

    def copy(self, primitive: TensorData) -> TensorData:
        """The data themselves: nothing writes to them."""
        return primitive
