"""RunningState: the one cell of a module."""

from __future__ import annotations

from typing import final

from burn_torch.module.param import ParamId
from burn_torch.tensor import Device, Tensor

__all__ = ["RunningState"]


@final
class RunningState:
    """A value that a layer hands on from step to step, such as the running mean of BatchNorm; never on a tape."""

    __slots__ = ("__weakref__", "_value", "id")

    def __init__(self, value: Tensor, id: ParamId | None = None) -> None:
        self.id = ParamId.new() if id is None else id
        self._value = value

    def value(self) -> Tensor:
        """The current value."""
        return self._value

    def update(self, value: Tensor) -> None:
        """Hands in the next value."""
        self._value = value

    def with_value(self, value: Tensor) -> RunningState:
        """A cell of the same identity with another value."""
        return RunningState(value, self.id)

    @property
    def device(self) -> Device:
        """Where the value lives."""
        return self._value.device

    def to_device(self, device: Device) -> RunningState:
        """A cell of the same identity on another device."""
        return self if self._value.device is device else self.with_value(self._value.to_device(device))
