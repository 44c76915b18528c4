"""Constructors.  `options` is a device, (device, dtype) or TensorCreationOptions."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
import torch.utils.dlpack

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.base import capabilities
from burn_torch.backend.samples import drawing_stack
from burn_torch.core.ambient import first_element, next_key
from burn_torch.core.data import TensorData
from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import TensorSpec
from burn_torch.tensor._arguments import dtype_of, fitting, integer, sizes
from burn_torch.tensor._data_methods import DataMethods
from burn_torch.tensor.apply import NUMBERS, number, unary
from burn_torch.tensor.device import Device, no_device
from burn_torch.tensor.options import chosen_type, creation

__all__ = ["CreationMethods"]


class CreationMethods(DataMethods):
    """Constructors.  Each takes a device, `(device, dtype)` or TensorCreationOptions as its last argument."""

    __slots__ = ()

    # -- of data -----------------------------------------------------------------------------
    @classmethod
    def from_data(cls, data: object, options: object, dtype: DType | str | None = None) -> Self:
        """From nested sequences, numbers, numpy arrays or TensorData; copies.

        Python floats become f32 and ints i64 unless `dtype` or the settings of the device say otherwise; arrays keep
        their type.
        """
        device, chosen = chosen_type(options)
        wanted = chosen if dtype is None else dtype_of(dtype)
        values = TensorData.of(data, wanted)
        if wanted is None and not hasattr(data, "dtype"):
            natural = device.defaults.of(values.dtype)
            if natural is not values.dtype:
                values = TensorData.of(data, natural)  # of the data as they came: f32 would round them twice
        spec = TensorSpec.of(values.shape, values.dtype, device.place)
        return cls(device.backend, device.backend.from_data(values, device.place), spec)

    @classmethod
    def from_floats(cls, floats: object, options: object) -> Self:
        """From numbers, as f32."""
        return cls._of(floats, options, DType.F32)

    @classmethod
    def from_ints(cls, ints: object, options: object) -> Self:
        """From numbers, as i64."""
        return cls._of(ints, options, DType.I64)

    @classmethod
    def from_bool(cls, data: object, options: object) -> Self:
        """From truth values."""
        return cls._of(data, options, DType.BOOL)

    @classmethod
    def _of(cls, data: object, options: object, dtype: DType) -> Self:
        device, dtype = creation(options, dtype)
        return cls.from_data(data, device, dtype)

    @classmethod
    def from_torch(cls, tensor: torch.Tensor, device: Device | None = None) -> Self:
        """A torch tensor without a copy.  Raises: ArgumentError for one that requires grad: pass tensor.detach().

        `device` chooses the stack (default: the tensor's place, without gradients); its place must be the tensor's.
        Writing to the torch tensor afterwards makes a backward that needs the old value raise.
        """
        leaf = LibTorch()
        primitive = leaf.adopt(tensor)
        spec = leaf.spec(primitive)
        if device is None:
            return cls(leaf, primitive, spec)
        if not isinstance(device, Device):
            raise no_device(device)
        if not capabilities(device.backend).holds_torch or device.place != spec.place:
            raise told(
                DeviceError,
                "the tensor does not lie on this device",
                given=f"a torch tensor on {spec.place}, {device}",
                expected=f"a device of LibTorch at {spec.place}",
                mend="move it in torch first, or leave `device` out and call .to_device(device)",
            )
        return cls(device.backend, primitive, spec)

    @classmethod
    def from_dlpack(cls, x: object, device: Device | None = None) -> Self:
        """Any object that speaks DLPack (torch, numpy, jax, cupy, ...), without a copy where its leaf is LibTorch."""
        try:
            tensor = x if isinstance(x, torch.Tensor) else torch.utils.dlpack.from_dlpack(x)
        except (AttributeError, TypeError, BufferError, RuntimeError, ValueError) as err:
            reason = str(err).split("\n", 1)[0]
            raise told(
                DTypeError,
                "this does not speak DLPack",
                given=f"a {type(x).__module__}.{type(x).__qualname__}: {reason}",
                expected="a dense array with __dlpack__ and __dlpack_device__, of numbers that torch has",
                mend="Tensor.from_data(values, device) takes lists, numbers and arrays, by a copy",
            ) from err
        shared = cls.from_torch(tensor)
        return shared if device is None else shared.to_device(device)

    # -- of one value --------------------------------------------------------------------------
    @classmethod
    def full(cls, shape: object, fill_value: float, options: object) -> Self:
        """One number everywhere: f32 for a float, i64 for an int, bool for a bool, unless the options say otherwise."""
        value = number(fill_value)
        if not isinstance(value, NUMBERS):
            raise told(
                DTypeError,
                "the value is no number",
                given=f"{fill_value!r} ({type(fill_value).__name__})",
                expected="a number or a truth value",
                mend="expand a tensor instead: x.expand(shape)",
            )
        natural = DType.BOOL if value.__class__ is bool else DType.I64 if value.__class__ is int else DType.F32
        device, dtype = creation(options, natural)
        return cls._full(shape, value, device, dtype)

    @classmethod
    def zeros(cls, shape: object, options: object) -> Self:
        """Zeros, of f32 unless the options say otherwise."""
        return cls._full(shape, 0, *creation(options, DType.F32))

    @classmethod
    def ones(cls, shape: object, options: object) -> Self:
        """Ones, of f32 unless the options say otherwise."""
        return cls._full(shape, 1, *creation(options, DType.F32))

    @classmethod
    def empty(cls, shape: object, options: object) -> Self:
        """A tensor of this shape with any elements: zeros here, so that no run depends on old memory."""
        return cls.zeros(shape, options)

    @classmethod
    def _full(cls, shape: object, value: object, device: Device, dtype: DType) -> Self:
        wanted = sizes(shape)
        if wanted and min(wanted) < 0:
            raise told(
                ShapeError,
                "a size is negative",
                given=f"shape {wanted}",
                expected="sizes of 0 or more",
                mend="count the elements first; -1 is for reshape",
            )
        attrs = {"shape": wanted, "dtype": dtype, "place": device.place}
        full: Self = ops.full.run(device.backend, cls, (fitting(dtype, value),), attrs)
        return full

    def full_like(self, fill_value: float) -> Self:
        """One number everywhere, with the shape, element type and device of x."""
        return self.new_full(self.spec.shape, fitting(self.spec.dtype, fill_value))

    def zeros_like(self) -> Self:
        """Zeros with the shape, element type and device of x."""
        return self.full_like(0)

    def ones_like(self) -> Self:
        """Ones with the shape, element type and device of x."""
        return self.full_like(1)

    def empty_like(self) -> Self:
        """With the shape, element type and device of x; what is in it is not promised."""
        return self.full_like(0)

    # -- of numbers in a row ----------------------------------------------------------------------
    @classmethod
    def arange(cls, range: object, options: object) -> Self:
        """Whole numbers: `Tensor.arange(5, device)` or `Tensor.arange(range(2, 10, 3), device)`; i64 by itself."""
        numbers = _range(range)
        device, dtype = creation(options, DType.I64)
        attrs = {"length": len(numbers), "dtype": dtype, "place": device.place}
        counted: Self = ops.arange.run(device.backend, cls, (numbers.start, numbers.step), attrs)
        return counted

    @classmethod
    def arange_step(cls, range: object, step: int, options: object) -> Self:
        """Whole numbers from a range, `step` apart."""
        numbers, each = _range(range), integer(step, "step")
        if not each:
            raise told(
                ArgumentError,
                "the step is 0",
                given=f"{numbers}, step 0",
                expected="a step above or below 0",
                mend="Tensor.full makes a tensor of one number",
            )
        return cls.arange(numbers[::each], options)

    @classmethod
    def eye(cls, size: int, options: object) -> Self:
        """The identity matrix, of f32 unless the options say otherwise."""
        device, dtype = creation(options, DType.F32)
        attrs = {"size": integer(size, "size"), "dtype": dtype, "place": device.place}
        matrix: Self = ops.eye.run(device.backend, cls, (), attrs)
        return matrix

    @classmethod
    def cartesian_grid(cls, shape: object, options: object) -> Self:
        """The index of each element of a tensor of this shape.  Shapes: -> (*shape, rank).  Dtypes: i64."""
        wanted = sizes(shape)
        parts = []
        for i, size in enumerate(wanted):
            around = (*[1] * i, size, *[1] * (len(wanted) - i - 1))
            parts.append(cls.arange(size, options).reshape(around).expand(wanted))
        return cls.stack(parts, -1)

    # -- masks: true outside ---------------------------------------------------------------------------
    @classmethod
    def triu_mask(cls, shape: object, offset: int, options: object) -> Self:
        """True below the diagonal `offset`: what `mask_fill` must fill to keep the upper triangle."""
        return cls._diagonals(shape, options).lower(integer(offset, "offset")).expand(sizes(shape))

    @classmethod
    def tril_mask(cls, shape: object, offset: int, options: object) -> Self:
        """True above the diagonal `offset`: what `mask_fill` must fill to keep the lower triangle (a causal mask)."""
        return cls._diagonals(shape, options).greater(integer(offset, "offset")).expand(sizes(shape))

    @classmethod
    def diag_mask(cls, shape: object, offset: int, options: object) -> Self:
        """True everywhere but on the diagonal `offset`."""
        return cls._diagonals(shape, options).not_equal(integer(offset, "offset")).expand(sizes(shape))

    @classmethod
    def _diagonals(cls, shape: object, options: object) -> Self:
        """The number of the diagonal of each element of a matrix."""
        wanted = sizes(shape)
        if len(wanted) < 2 or min(wanted) < 0:
            raise told(
                ShapeError,
                "a mask of a triangle needs a matrix",
                given=f"shape {wanted}",
                expected="two axes or more, of sizes from 0 on: (..., rows, columns)",
                mend="write (size, size) for a square",
            )
        device, _ = creation(options, DType.BOOL)
        rows, columns = wanted[-2:]
        return cls.arange(columns, device).sub(cls.arange(rows, device).reshape(rows, 1))

    # -- random ------------------------------------------------------------------------------------------
    @classmethod
    def random(cls, shape: object, distribution: Distribution, options: object) -> Self:
        """Drawn from a distribution, of f32 unless the options say otherwise.

        The key comes from the step scope, or counts on from `burn_torch.seed`; equal on all leaves and devices.
        """
        device, dtype = creation(options, DType.F32)
        row, parameters = _row_of(distribution, dtype)
        drawn = sizes(shape)
        if drawn and min(drawn) < 0:
            raise told(
                ShapeError,
                "a size is negative",
                given=f"shape {drawn}",
                expected="sizes of 0 or more",
                mend="check how it was computed",
            )
        attrs = {"shape": drawn, "dtype": dtype, "place": device.place, "start": first_element(drawn)}
        tensor: Self = row.run(drawing_stack(device.backend), cls, (*parameters, *next_key()), attrs)
        return tensor

    def random_like(self, distribution: Distribution) -> Self:
        """Drawn from a distribution, with the shape, element type and device of x."""
        row, parameters = _row_of(distribution, self.spec.dtype)
        spec = self.spec
        attrs = {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place, "start": first_element(spec.shape)}
        tensor: Self = row.run(self.backend, self.__class__, (*parameters, *next_key()), attrs)
        return tensor

    def categorical(self, num_samples: int) -> Self:
        """Indices drawn, with replacement, with the weights along the last axis (which need not sum to 1).

        Shapes: x (*batch, classes) -> (*batch, num_samples).  Dtypes: float in, i64 out; half types are summed in f32.
        Raises: ArgumentError for weights that are negative, not finite, or all zero (on a GPU nothing is raised).
        PyTorch: torch.multinomial(x, num_samples, replacement=True).
        """
        count = integer(num_samples, "num_samples")
        if count < 1 or not self.spec.ndim or not self.spec.shape[-1]:
            raise told(
                ShapeError,
                "there is nothing to draw",
                given=f"num_samples {num_samples}, weights {self.spec}",
                expected="num_samples of 1 or more, and weights of one class or more along the last axis",
                mend="give a weight for each class",
            )
        batch, classes = self.spec.shape[:-1], self.spec.shape[-1]
        drawn = (*batch, count, 1)
        start = first_element(drawn)
        dtype = DType.F64 if self.spec.dtype is DType.F64 else DType.F32
        attrs = {"shape": drawn, "dtype": dtype, "place": self.spec.place, "start": start}
        even: Self = ops.uniform.run(self.backend, self.__class__, (0.0, 1.0, *next_key()), attrs)
        weights = unary(ops.categorical_weights, self).cast(dtype)
        edges = weights.cumsum(-1).reshape(*batch, 1, classes)
        total = edges.narrow(-1, classes - 1, 1)
        indices = edges.lower_equal(even.mul(total)).cast(DType.I64).sum_dim(-1)
        last = edges.lower(total).cast(DType.I64).sum_dim(-1)  # rounding must not reach a class without weight
        return indices.min_pair(last.expand(indices.spec.shape)).reshape(*batch, count)


def _range(numbers: object) -> range:
    if isinstance(numbers, range):
        return numbers
    return range(*sizes(integer(numbers, "range")))


def _row_of(distribution: Distribution, dtype: DType) -> tuple[Any, tuple[Any, ...]]:
    """The row that draws, and its parameters."""
    if distribution is Distribution.Default:
        if dtype.is_bool:
            return ops.bernoulli, (0.5,)
        return (ops.uniform, (0.0, 1.0)) if dtype.is_float else (ops.randint, _whole(dtype, 0, 255))
    if isinstance(distribution, Distribution.Uniform):
        if dtype.is_float:
            return ops.uniform, (float(distribution.low), float(distribution.high))
        low, high = math.ceil(distribution.low), math.ceil(distribution.high)
        return ops.randint, (low, high)
    if isinstance(distribution, Distribution.Normal):
        return ops.normal, (float(distribution.mean), float(distribution.std))
    if isinstance(distribution, Distribution.Bernoulli):
        return ops.bernoulli, (float(distribution.p),)
    raise told(
        ArgumentError,
        "this is no distribution",
        given=f"{distribution!r} ({type(distribution).__name__})",
        expected="Distribution.Default, .Uniform(low, high), .Normal(mean, std) or .Bernoulli(p)",
        mend="write Distribution.Uniform(0.0, 1.0)",
    )


def _whole(dtype: DType, low: int, high: int) -> tuple[int, int]:
    return low, 127 if dtype is DType.I8 else high
