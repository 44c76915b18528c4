"""Values that are made of tensors: complex numbers, sparse matrices, sequences of unlike lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Self

from burn_torch.tensor.apply import ComputesWithTensors
from burn_torch.tensor.device import Device
from burn_torch.tensor.tensor import Tensor

__all__ = ["Compound"]


class Compound(ComputesWithTensors):
    """Base of a frozen dataclass of tensors, and of settings that are no tensors.

    It is one value to `compile`, `grad` and the other transforms, and a field of a module.
    """

    __slots__ = ()
    __array_ufunc__ = None  # numpy's numbers and arrays leave operators to these classes

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors by the names of their fields."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]  # each is a dataclass
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def _with_fields(self, changed: Mapping[str, object]) -> Self:
        """The same with other tensors: how trees are rebuilt."""
        return dataclasses.replace(self, **changed)  # type: ignore[type-var]  # each is a dataclass

    def _each(self, function: Callable[[Tensor], Tensor]) -> Self:
        return self._with_fields({name: function(tensor) for name, tensor in self._tensors().items()})

    def to_device(self, device: Device) -> Self:
        """The same on another device."""
        return self._each(lambda tensor: tensor.to_device(device))

    def detach(self) -> Self:
        """The same, cut off from the tape."""
        return self._each(lambda tensor: tensor.detach())

    def inner(self) -> Self:
        """The same on the device under the tape."""
        return self._each(lambda tensor: tensor.inner())
