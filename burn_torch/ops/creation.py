"""Rows without tensor inputs: their place and element type are attributes."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT8, NUMERIC, DType
from burn_torch.core.spec import FLOAT_NUMBER, Shape, TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.held_numbers import held, require_numbers
from burn_torch.ops.laws import Fill, Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.samples import Array, sample
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_types import SIGNED, TO_TORCH
from burn_torch.ops.unsigned import wrap
from burn_torch.ops.value import Primitive


def _constant(shape: Shape, dtype: DType, place: str) -> TensorSpec:
    if any(size < 0 for size in shape):
        raise shape_fault(
            f"a negative size in {shape}", expected="sizes of 0 or more", mend="check how the shape is worked out"
        )
    if dtype in FLOAT8:
        raise dtype_fault(
            f"a constant of {dtype}",
            expected="a type that computes",
            mend=f"make it in f32 and cast it: .cast(DType.{dtype.name.upper()})",
        )
    return TensorSpec.of(shape, dtype, place)


def _torch_full(call: Call) -> Candidate:
    shape, dtype, place = call.attrs["shape"], TO_TORCH[call.attrs["dtype"]], torch.device(call.attrs["place"])
    return lambda value: torch.full(shape, value, dtype=dtype, device=place)


@op(
    torch=held(PerCall(_torch_full), stored=True),
    numpy=held(lambda value, *, shape, dtype, place: np.full(shape, value, dtype=dtype.numpy), stored=True),
    cost="cheap",
    nondifferentiable=True,
    laws=[Fill(), Unsigned("bits")],
    samples=[
        sample(1.5, shape=(2, 3), dtype=DType.F32, place="cpu"),
        sample(-2, shape=(), dtype=DType.I64, place="cpu"),
        sample(True, shape=(0,), dtype=DType.BOOL, place="cpu"),
    ],
)
def full(value: Number, *, shape: Shape, dtype: DType, place: str) -> TensorSpec:
    """A tensor whose elements all have one value.

    Shapes: () -> shape.  Dtypes: any; a whole number becomes one of the type, and a bool is whether it is not 0.
    Raises: ArgumentError for a finite value outside the range of the type; a fault for a float in integers.
    """
    if value is FLOAT_NUMBER and dtype.is_int:
        raise dtype_fault(
            f"a float number in {dtype} values",
            expected=f"a number that {dtype} can hold",
            mend="take a float type, or round the number first: int(number)",
        )
    return _constant(shape, dtype, place)


def _torch_arange(call: Call) -> Candidate:
    length, dtype, place = call.attrs["length"], call.attrs["dtype"], torch.device(call.attrs["place"])
    theirs = TO_TORCH[dtype]
    # one rounding, from double.  MPS has no double.
    wide, home = (
        (torch.float64 if dtype.is_float else torch.int64),
        torch.device("cpu" if place.type == "mps" else place),
    )

    def run(start: float, step: float) -> torch.Tensor:
        require_numbers(call, dtype, range_ends(start, step, length))
        if start == 0 and step == 1:
            return torch.arange(length, dtype=theirs, device=place)
        return torch.arange(length, dtype=wide, device=home).mul_(step).add_(start).to(theirs).to(place)

    return run


def _unsigned_arange(call: Call) -> Candidate:
    length, dtype, place = call.attrs["length"], call.attrs["dtype"], torch.device(call.attrs["place"])
    bits = TO_TORCH[SIGNED[dtype]]

    def run(start: int, step: int) -> torch.Tensor:
        require_numbers(call, dtype, range_ends(start, step, length))
        counts = torch.arange(length, dtype=torch.int64, device=place)
        return counts.mul_(wrap(step, 1 << 63)).add_(wrap(start, 1 << 63)).to(bits)

    return run


def _numpy_arange(call: Call) -> Candidate:
    length, dtype = call.attrs["length"], call.attrs["dtype"]
    wide = np.float64 if dtype.is_float else np.int64

    def run(start: float, step: float) -> Array:
        require_numbers(call, dtype, range_ends(start, step, length))
        if dtype is DType.U64:  # modulo 2^64
            return np.arange(length, dtype=np.uint64) * np.uint64(step % (1 << 64)) + np.uint64(start)
        return (np.arange(length, dtype=wide) * wide(step) + wide(start)).astype(dtype.numpy)

    return run


def range_ends(start: float, step: float, length: int) -> tuple[Primitive, ...]:
    """The first and the last element of a range, between which all others lie."""
    return (start, start + step * (length - 1)) if length else ()


@op(
    torch=PerCall(_torch_arange),
    numpy=PerCall(_numpy_arange),
    cost="cheap",
    nondifferentiable=True,
    laws=[Unsigned(PerCall(_unsigned_arange))],
    samples=[
        sample(0, 1, length=5, dtype=DType.I64, place="cpu"),
        sample(7, -3, length=4, dtype=DType.I32, place="cpu"),
        sample(0.5, 0.1, length=11, dtype=DType.F32, place="cpu"),
        sample(0, 1, length=0, dtype=DType.F64, place="cpu"),
    ],
)
def arange(start: Number, step: Number, *, length: int, dtype: DType, place: str) -> TensorSpec:
    """start, start + step, start + 2 step, ...

    Shapes: () -> (length,).  Dtypes: numbers; each element of a float type is rounded once.
    Raises: ArgumentError for a range that leaves the type.
    PyTorch: torch.arange, which takes the end instead of the length.
    """
    y = _constant((length,), dtype, place)
    if dtype not in NUMERIC:
        raise dtype_fault(f"a range of {dtype}", expected="a float or integer type", mend="cast the range instead")
    wrong = [
        f"{name} is a {number.kind} number"
        for name, number in (("start", start), ("step", step))
        if number.kind == "bool" or (number.kind == "float" and not dtype.is_float)
    ]
    if wrong:
        raise dtype_fault(
            f"{' and '.join(wrong)} for a range of {dtype}",
            expected="whole numbers" if dtype.is_int else "numbers",
            mend="ask for a float range" if dtype.is_int else "convert with float(...)",
        )
    return y


def _torch_eye(call: Call) -> Candidate:
    size, dtype, place = call.attrs["size"], TO_TORCH[call.attrs["dtype"]], torch.device(call.attrs["place"])
    return partial(torch.eye, size, dtype=dtype, device=place)


@op(
    torch=PerCall(_torch_eye),
    numpy=lambda *, size, dtype, place: np.eye(size, dtype=dtype.numpy),
    cost="cheap",
    nondifferentiable=True,
    laws=[Unsigned("bits")],
    samples=[
        sample(size=3, dtype=DType.F32, place="cpu"),
        sample(size=1, dtype=DType.BOOL, place="cpu"),
        sample(size=0, dtype=DType.I32, place="cpu"),
    ],
)
def eye(*, size: int, dtype: DType, place: str) -> TensorSpec:
    """The identity matrix.

    Shapes: () -> (size, size).  Dtypes: any.
    """
    return _constant((size, size), dtype, place)
