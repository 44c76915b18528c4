"""Methods that move values: to other devices, to the host, to numpy, torch and pickles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from burn_torch import ops
from burn_torch.backend import Backend, LibTorch
from burn_torch.backend.autodiff.crossing import crossed, stack_for
from burn_torch.backend.base import capabilities
from burn_torch.backend.decorator import leaf_primitive
from burn_torch.backend.libtorch.tensors.modes import refuse_tracers
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.value import Value
from burn_torch.tensor._arguments import dtype_of
from burn_torch.tensor._float_methods import FloatMethods
from burn_torch.tensor.apply import unary
from burn_torch.tensor.device import Device, no_device
from burn_torch.tensor.printing import PrintOptions, block, options_for, shown_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DataMethods"]


class DataMethods(FloatMethods):
    """Devices, data on the host, numpy, torch, printing, pickles.

    Burn's names `into_` (takes the tensor) and `to_` (keeps it) do the same here, and so do those that begin with
    `try_`: what can fail raises.  Names that end in `_as` or `_dtype` convert the element type on the host.
    """

    __slots__ = ()

    # -- devices ----------------------------------------------------------------------------
    @property
    def device(self) -> Device:
        """Returns where it lives and how it is computed."""
        return Device(self._backend(), self.spec.place)

    def to_device(self, device: Device) -> Self:
        """The same value on another device.  Gradients flow back through the move, from stack to stack too.

        A device without gradients takes the value alone.  PyTorch: Tensor.to.
        """
        backend = self._backend()
        if not isinstance(device, Device):
            raise no_device(device)
        if device.backend is backend:
            return self if device.place == self.spec.place else unary(ops.to_place, self, device.place)
        target = stack_for(backend, device.backend)
        moved = crossed(backend, self.primitive, self.spec, target, device.place)
        return self.__class__(target, moved, TensorSpec.of(self.spec.shape, self.spec.dtype, device.place))

    # -- the host ---------------------------------------------------------------------------
    def into_data(self) -> TensorData:
        """Its data on the host; waits for the device."""
        return self._backend().into_data(self.primitive)

    def to_data_dtype(self, dtype: DType | str) -> TensorData:
        """Its data on the host, converted to another element type."""
        return self.into_data().convert(dtype_of(dtype))

    def to_vec_as(self, dtype: DType | str) -> list[Any]:
        """Its elements in row-major order, converted to another element type, as Python numbers."""
        return self.to_data_dtype(dtype).to_vec()

    async def into_data_async(self) -> TensorData:
        """`into_data` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.into_data)

    to_data = try_into_data = try_to_data = into_data
    to_data_async = into_data_async
    to_data_as = try_to_data_as = try_to_data_dtype = to_data_dtype
    into_data_as = try_into_data_as = into_data_dtype = try_into_data_dtype = to_data_dtype
    try_to_vec_as = try_into_vec_as = to_vec_as

    def into_scalar(self) -> Any:
        """The one element as a Python number.  Raises: ShapeError for more or fewer elements.  PyTorch: item()."""
        if self.spec.numel != 1:
            raise told(
                ShapeError,
                "only a tensor of one element is a number",
                given=str(self.spec),
                expected="one element",
                mend="reduce it first, for example x.mean().into_scalar(), or read x.into_data()",
            )
        return self.into_data().values.reshape(()).item()

    async def into_scalar_async(self) -> Any:
        """`into_scalar` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.into_scalar)

    item = try_into_scalar = into_scalar
    try_into_scalar_async = into_scalar_async

    def tolist(self) -> Any:
        """Nested Python lists; a number for a tensor without axes."""
        return self.into_data().to_list()

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    __trunc__ = __int__

    def __index__(self) -> int:
        if not self.spec.dtype.is_int:
            raise told(
                DTypeError,
                "only whole numbers are an index",
                given=str(self.spec),
                expected="one element of an integer type",
                mend="cast it first with .int()",
            )
        return int(self._number("an index"))

    # -- numpy ---------------------------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """A read-only view of its memory where it lies on the host, else a copy; bfloat16 comes as float32."""
        refuse_tracers("numpy")
        leaf, primitive = self._leaf()
        shared = None
        if self.spec.place == "cpu" and self.spec.dtype.is_of_numpy:
            shared = capabilities(leaf).as_array(primitive)
        if shared is None and copy is False:
            raise told(
                ArgumentError,
                "numpy cannot share this memory",
                given=str(self.spec),
                expected="a tensor on the host, of an element type that numpy has",
                mend="let numpy copy: np.asarray(x)",
            )
        array: NDArray[Any] = leaf.into_data(primitive).values if shared is None else shared
        if shared is not None:
            array.flags.writeable = False
        return np.array(array, dtype=dtype, copy=True) if copy else np.asarray(array, dtype=dtype)

    # -- torch and others ------------------------------------------------------------------------
    def into_torch(self) -> torch.Tensor:
        """A torch tensor without torch's tape; shares memory where that is torch's, which must not be written to.

        A backward that needs the old value raises if it was.
        """
        leaf, primitive = self._leaf()
        tensor = capabilities(leaf).as_torch(primitive)
        return LibTorch().share(leaf.into_data(primitive)) if tensor is None else tensor

    def __dlpack__(self, **options: Any) -> object:
        refuse_tracers("dlpack")
        return self.into_torch().__dlpack__(**options)

    def __dlpack_device__(self) -> object:
        return self.into_torch().__dlpack_device__()

    # -- copies and pickles --------------------------------------------------------------------------
    def __copy__(self) -> Self:
        return self  # nothing can change it

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        backend: Any = self._backend()
        asked = backend.is_autodiff and backend.is_leaf(self.primitive)
        return (_restore, (self.__class__, self.into_data(), self.device, asked))

    # -- text ----------------------------------------------------------------------------------------
    def __format__(self, format_spec: str) -> str:
        options = options_for(format_spec)
        return block(self.spec, self._ends(options), self.backend.name, options)

    def _ends(self, options: PrintOptions) -> TensorData:
        """The data of what is shown: of long axes only the ends come to the host."""
        leaf, primitive = self._leaf()
        x = self.__class__(leaf, primitive, self.spec)
        for dim, short in enumerate(shown_axes(self.spec, options)):
            if short:
                size, edge = self.spec.shape[dim], options.edge_items
                x = self.cat([x.narrow(dim, 0, edge), x.narrow(dim, size - edge, edge)], dim)
        return x.into_data()

    def __repr__(self) -> str:
        return format(self) if self._has_data() else super().__repr__()

    def _has_data(self) -> bool:
        """Asks whether there is data to show: a traced value has none, one sample of `vmap` none of its own."""
        if not isinstance(self.backend, Backend) or self.backend.session is not None:
            return False
        stack: Any = self.backend
        primitive = self.primitive
        while stack.inner is not None:
            if stack.is_batched and stack.is_many(primitive):
                return False
            stack, primitive = stack.inner, stack.unwrapped(primitive)
        return True

    def __str__(self) -> str:
        return repr(self)

    # -- inside -----------------------------------------------------------------------------------------
    def _backend(self) -> Backend:
        backend = self.backend
        if not isinstance(backend, Backend):
            self._not_known("data")
        return backend

    def _leaf(self) -> tuple[Any, Any]:
        """The leaf and its primitive, under all decorators."""
        backend: Any = self._backend()
        leaf = backend.leaf()
        primitive = leaf_primitive(backend, self.primitive)
        if leaf.session is not None:  # a traced value has no data: the leaf says so
            leaf.into_data(primitive)
        return leaf, primitive

    def _number(self, what: str) -> Any:
        if not isinstance(self.backend, Backend):
            self._not_known(what)
        return self.into_scalar()


def _restore(kind: type[Value], data: TensorData, device: Device, asked: bool) -> Value:
    spec = TensorSpec.of(data.shape, data.dtype, device.place)
    backend: Any = device.backend
    primitive = backend.from_data(data, device.place)
    return kind(backend, backend.track(primitive, spec) if asked else primitive, spec)
