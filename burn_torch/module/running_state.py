"""RunningState: the one cell of a module."""

from __future__ import annotations

import threading
from typing import Final, final

from burn_torch.backend import Backend
from burn_torch.core.errors import ArgumentError
from burn_torch.module.param import ParamId
from burn_torch.module.scope import current_scope
from burn_torch.tensor import Device, Tensor

__all__ = ["RunningState"]

_lock: Final = threading.Lock()


@final
class RunningState:
    """A value that a layer hands on from step to step, such as the running mean of BatchNorm; never on a tape.

    In a StepScope the next value is the scope's: the cell stays as it was, and `module.with_states(scope.states)`
    makes a module with new cells.  So threads with scopes of their own may share a module.  Outside any scope the cell
    takes the value at once.
    """

    __slots__ = ("__weakref__", "_value", "id")

    def __init__(self, value: Tensor, id: ParamId | None = None) -> None:
        self.id: Final = ParamId.new() if id is None else id
        self._value = value

    def __repr__(self) -> str:
        return f"RunningState({self.id}, shape={self._value.shape})"

    def value(self) -> Tensor:
        """The current value: the one handed in during this step, else the cell's."""
        scope = current_scope()
        if scope is None:
            return self._value
        value: Tensor = scope.pending(self, self._value)
        return value

    def update(self, value: Tensor) -> None:
        """Hands in the next value.

        Raises: ArgumentError where a copy of this cell has handed in a value in the same step, and for a value that
        differs from sample to sample.
        """
        if _is_of_one_sample(value.backend):
            raise ArgumentError(
                "a running state was updated in a function of one sample",
                given=f"running state {self.id}, from {value.spec} of one sample",
                expected="layers that treat each sample by itself: statistics mix them",
                mend="use model.valid(), whose statistics are fixed",
            )
        scope = current_scope()
        if scope is not None:
            scope.hand_in(self, value)
        else:
            self._store(value)

    def _store(self, value: Tensor) -> None:
        with _lock:
            self._value = value

    def with_value(self, value: Tensor) -> RunningState:
        """A cell of the same identity with another value."""
        return RunningState(value, self.id)

    @property
    def device(self) -> Device:
        """Returns where the value lives."""
        return self._value.device

    def to_device(self, device: Device) -> RunningState:
        """A cell of the same identity on another device."""
        return self if self._value.device is device else self.fork(device)

    def fork(self, device: Device) -> RunningState:
        """Another cell of the same identity, on `device`: what is handed to one leaves the other as it is."""
        return self.with_value(self.value().to_device(device))


def _is_of_one_sample(backend: Backend | None) -> bool:
    while backend is not None and not getattr(backend, "is_batched", False):  # a trace alone is no whole backend
        backend = getattr(backend, "inner", None)
    return backend is not None
