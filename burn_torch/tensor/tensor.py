"""Tensor: a value with the user's API."""

from __future__ import annotations

from typing import Any, final

import torch

from burn_torch import ops
from burn_torch.backend import Autodiff, Backend, LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import AutodiffError, DeviceError, explain
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.value import Value
from burn_torch.tensor.apply import binary, unary
from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import Gradients

__all__ = ["Tensor"]

_add, _sub, _mul = ops.add, ops.sub, ops.mul


@final
class Tensor(Value):
    """An immutable array on a device.  Every operation gives a new tensor.

    Make one with `Tensor.from_data`, `zeros`, `random`, `from_torch`, ...
    """

    __slots__ = ()

    backend: Backend

    # -- making ---------------------------------------------------------------------------
    @staticmethod
    def from_data(data: Any, device: Device, dtype: DType | None = None) -> Tensor:
        """From nested sequences, numbers, numpy arrays or TensorData; copies.

        Python floats become f32 and ints i64 unless `dtype` says otherwise; arrays keep their type.
        """
        data = TensorData.of(data, dtype)
        spec = TensorSpec.of(data.shape, data.dtype, device.place)
        return Tensor(device.backend, device.backend.from_data(data, device.place), spec)

    @staticmethod
    def from_torch(tensor: torch.Tensor, device: Device | None = None) -> Tensor:
        """A torch tensor without a copy; its own tape is cut.

        `device` chooses the stack (default: the tensor's place, without gradients); its place must be the tensor's.
        Writing to the torch tensor afterwards makes a backward that needs the old value raise.
        """
        leaf = LibTorch()
        primitive = leaf.adopt(tensor)
        spec = leaf.spec(primitive)
        if device is None:
            return Tensor(leaf, primitive, spec)
        if device.backend.leaf() is not leaf or device.place != spec.place:
            raise DeviceError(
                explain(
                    "from_torch: the tensor does not lie on this device",
                    given=f"a torch tensor on {spec.place}, {device}",
                    expected=f"a device of LibTorch at {spec.place}",
                    mend="move it in torch first, or leave `device` out and call .to_device(device)",
                )
            )
        return Tensor(device.backend, primitive, spec)

    # -- reading --------------------------------------------------------------------------
    @property
    def device(self) -> Device:
        """Where it lives and how it is computed."""
        return Device(self.backend, self.spec.place)

    def into_data(self) -> TensorData:
        """Its data on the host; waits for the device."""
        return self.backend.into_data(self.primitive)

    # -- operators: the general ones are Value's; these are the hot ones -------------------------
    def __add__(self, other: Any) -> Tensor:
        return binary(_add, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return binary(_sub, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return binary(_mul, self, other)

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return unary(ops.relu, self)

    # -- gradients ---------------------------------------------------------------------------
    def backward(self, retain_graph: bool = False) -> Gradients:
        """Gradients of the sum of this tensor for every tensor under it that asked with `require_grad`.

        Changes no tensor.  Consumes the tape unless `retain_graph`.
        Raises: AutodiffError without a tape, through a used one, or over a value written to since.
        """
        backend = self.backend
        if not isinstance(backend, Autodiff) or not backend.is_tracked(self.primitive):
            raise _no_tape(self)
        inner = backend.inner
        spec = self.spec
        one = ops.full.run(
            inner, Tensor, (1.0,), {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place}
        ).primitive
        return Gradients(inner, backend.backward([(self.primitive, one)], retain_graph), Tensor)

    def grad(self, gradients: Gradients) -> Tensor | None:
        """This tensor's gradient, on the inner device; None if none reached it."""
        return gradients.get(self)

    def require_grad(self) -> Tensor:
        """This value as a leaf to which gradients are asked."""
        backend = self.backend
        if not isinstance(backend, Autodiff):
            raise _no_tape(self)
        if backend.is_leaf(self.primitive):
            return self
        return Tensor(backend, backend.track(backend.inner_primitive(self.primitive), self.spec), self.spec)

    def is_require_grad(self) -> bool:
        """Whether gradients are asked to this very tensor."""
        return isinstance(self.backend, Autodiff) and self.backend.is_leaf(self.primitive)

    def detach(self) -> Tensor:
        """The same value without its tape, on the same device."""
        backend = self.backend
        if not isinstance(backend, Autodiff):
            return self
        return Tensor(backend, backend.inner_primitive(self.primitive), self.spec)

    def inner(self) -> Tensor:
        """The same value on the inner device, without its tape.  Raises: DeviceError on a device without gradients."""
        backend = self.device.inner().backend
        return Tensor(backend, self.backend.inner_primitive(self.primitive), self.spec)  # type: ignore[attr-defined]

    def to_device(self, device: Device) -> Tensor:
        """The same value on another device, as a constant there."""
        if device is self.device:
            return self
        spec = TensorSpec.of(self.spec.shape, self.spec.dtype, device.place)
        bare, primitive = self.backend, self.primitive
        while isinstance(bare, Autodiff):
            primitive, bare = bare.inner_primitive(primitive), bare.inner
        if device.backend.leaf() is not bare:
            return Tensor(device.backend, device.backend.from_data(bare.into_data(primitive), device.place), spec)
        if device.place != self.place:
            primitive = bare.move(primitive, self.spec, device.place)
        return Tensor(device.backend, primitive, spec)


def _no_tape(x: Tensor) -> AutodiffError:
    tracked = isinstance(x.backend, Autodiff)
    return AutodiffError(
        explain(
            "there is no tape to walk back" if tracked else "this tensor lives on a device without gradients",
            given=f"{x.spec} on {x.backend.name}",
            expected="a tensor computed from one that asked with require_grad()"
            if tracked
            else "a tensor of a device.autodiff()",
            mend="call .require_grad() on the inputs before the forward"
            if tracked
            else "make the inputs on Device.cpu().autodiff()",
        )
    )
