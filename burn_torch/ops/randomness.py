"""Rows that draw: functions of (key, stream), so the same numbers give the same values on every leaf.

Keys and streams are run-time integers, taken modulo 2^64: a new key retraces nothing.  Element i of the row-major
order takes the words at start + i times "words an element" of the stream; see `sampling.py` for the maps.  `start` is
where a part of a larger tensor begins, so that a process with some of the items draws what one with all of them would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from burn_torch.core.distribution import check_normal, check_probability, check_uniform
from burn_torch.core.dtype import BOOL, FLOAT, INT, NUMERIC, DType, DTypeClass
from burn_torch.core.errors import ArgumentError
from burn_torch.core.philox import fold
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.extremes import amax
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.laws import Draws
from burn_torch.ops.mask_cache import MASKS
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.samples import Array, sample
from burn_torch.ops.samples import uniform as evenly
from burn_torch.ops.sampling import (
    Map,
    bernoulli_map,
    bits_map,
    integer_map,
    normal_map,
    on_host,
    on_torch,
    threshold,
    uniform_map,
)
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

_HALF = (DType.F16, DType.BF16)


# -- on the leaves -------------------------------------------------------------------------------------
def _host_type(dtype: DType) -> np.dtype[Any]:
    # half types are the float32 value, rounded once more
    return np.dtype(np.float32) if dtype in _HALF else dtype.numpy


def _numpy(mapping: Callable[..., Map]) -> PerCall:
    def build(call: Call) -> Candidate:
        spec, start = call.result, call.attrs["start"]
        count, shape, dtype = spec.numel, spec.shape, spec.dtype

        def run(*numbers: Primitive) -> Array:
            *parameters, key, stream = numbers
            drawn = on_host(mapping(*parameters, dtype), key, stream, start, count, _host_type(dtype))
            return drawn.reshape(shape).astype(dtype.numpy, copy=False)

        return run

    return PerCall(build)


class Drawing(PerCall):
    """A torch candidate in two: `on_device(call)` computes on CUDA, `from_host(call)` moves what numpy drew.

    Both take (*inputs, key, stream); on the device these two may be tensors of one int64.  Apple GPUs have no float64,
    which the normal map needs: drawn on the host, their values are the same.
    """

    def __init__(self, on_device: Callable[[Call], Candidate], from_host: Callable[[Call], Candidate]) -> None:
        super().__init__(lambda call: (on_device if call.result.place.startswith("cuda") else from_host)(call))
        self.on_device = on_device


def _torch(mapping: Callable[..., Map]) -> Drawing:
    def on_device(call: Call) -> Primitive:
        spec, start = call.result, call.attrs["start"]
        count, shape, dtype = spec.numel, spec.shape, spec.dtype
        theirs, device = TO_TORCH[dtype], torch.device(spec.place)

        def run(*numbers: Primitive) -> Primitive:
            *parameters, key, stream = numbers
            return on_torch(mapping(*parameters, dtype), key, stream, start, count, theirs, device).reshape(shape)

        return run

    def from_host(call: Call) -> Candidate:
        spec, start = call.result, call.attrs["start"]
        count, shape, dtype = spec.numel, spec.shape, spec.dtype
        theirs, device = TO_TORCH[dtype], torch.device(spec.place)

        def run(*numbers: Primitive) -> torch.Tensor:
            *parameters, key, stream = numbers
            drawn = on_host(mapping(*parameters, dtype), key, stream, start, count, _host_type(dtype))
            return torch.from_numpy(drawn.reshape(shape)).to(device, theirs)

        return run

    return Drawing(on_device, from_host)


def _spec(
    key: NumberSpec, stream: NumberSpec, shape: Shape, dtype: DType, place: str, among: DTypeClass, start: int
) -> TensorSpec:
    for name, number in (("key", key), ("stream", stream)):
        _whole(name, number, "a key is made by fold(key, number), a stream by stream_of(name)")
    if dtype not in among:
        raise dtype_fault(
            f"{dtype} values cannot be drawn",
            expected=f"{among}: {', '.join(sorted(d.name for d in among.members))}",
            mend="draw another type and cast it",
        )
    if start < 0:
        raise shape_fault(f"start is {start}", expected="0 or more", mend="count elements from the first of the stream")
    return TensorSpec.of(shape, dtype, place)


def _whole(name: str, number: NumberSpec, mend: str) -> None:
    if number.kind != "int":
        raise dtype_fault(f"{name} is a {number.kind} number", expected=f"{name}: a whole number", mend=mend)


# -- keys ----------------------------------------------------------------------------------------------
@op(scalar=fold, nondifferentiable=True)
def fold_key(key: Number, number: Number) -> TensorSpec:
    """The key of part `number` of what `key` stands for, on host numbers.  See `core.philox.fold`."""
    raise dtype_fault("keys are host numbers", expected="two whole numbers", mend="fold Python integers")


# -- how a kernel draws, see `laws.Draws` -----------------------------------------------------------------
def _yes_numbers(prob: float) -> tuple[int]:
    check_probability("bernoulli", prob)
    return (threshold(prob),)


def _kept_numbers(prob: float) -> tuple[int, float]:
    check_probability("dropout", prob)
    return threshold(1.0 - prob), 1.0 / (1.0 - prob) if prob < 1 else 0.0


# -- rows ----------------------------------------------------------------------------------------------
@op(
    torch=_torch(lambda dtype: bits_map()),
    numpy=_numpy(lambda dtype: bits_map()),
    cost="cheap",
    random=True,
    nondifferentiable=True,
    laws=[Draws(lambda: (), "word")],
    samples=[
        sample(7, 11, shape=(3, 5), place="cpu"),
        sample(7, 11, shape=(3, 5), place="cpu", start=7),
        sample(-1, 2**64 - 1, shape=(), place="cpu"),
    ],
    source="Salmon et al. 2011, section 3.3",
)
def random_bits(key: Number, stream: Number, *, shape: Shape, place: str, start: int = 0) -> TensorSpec:
    """32 random bits an element, as an integer in [0, 2^32).

    Shapes: () -> shape.  Dtypes: i64, since torch computes almost nothing on u32.
    """
    return _spec(key, stream, shape, DType.I64, place, INT, start)


def _uniform(low: float, high: float, dtype: DType) -> Primitive:
    check_uniform("uniform", low, high)
    largest = torch.finfo(TO_TORCH[dtype]).max
    widest = torch.finfo(torch.float64 if dtype is DType.F64 else torch.float32).max
    if max(abs(low), abs(high)) > largest or high - low > widest:
        raise ArgumentError(
            "uniform: the range does not fit the element type",
            given=f"low {low}, high {high}, {dtype}",
            expected=f"low and high of at most {largest:g} in size, and at most {widest:g} apart",
            mend="draw a wider type, or a smaller range and scale it",
        )
    return uniform_map(low, high, dtype)


@op(
    torch=_torch(_uniform),
    numpy=_numpy(_uniform),
    cost="cheap",
    random=True,
    nondifferentiable=True,
    samples=[
        sample(0.0, 1.0, 7, 11, shape=(3, 5), dtype=DType.F32, place="cpu"),
        sample(0.0, 1.0, 7, 11, shape=(3, 5), dtype=DType.F64, place="cpu", start=13),
        sample(-2, 3.5, 8, 12, shape=(7,), dtype=DType.F64, place="cpu"),
        sample(0, 1, 9, 13, shape=(2, 0), dtype=DType.F32, place="cpu"),
        sample(0.0, 1.0, 10, 14, shape=(), dtype=DType.F16, place="cpu"),
    ],
)
def uniform(
    low: Number, high: Number, key: Number, stream: Number, *, shape: Shape, dtype: DType, place: str, start: int = 0
) -> TensorSpec:
    """Evenly from [low, high), in steps of (high - low) * 2^-24 (f64: 2^-53).  `high` is never drawn.

    A value that rounds to `high` or beyond becomes the largest value of its type below `high`.

    Shapes: () -> shape.  Dtypes: float; f16 and bf16 are the f32 value rounded to nearest even, equal on all leaves.
    Raises: ArgumentError unless low < high, both within the type.
    PyTorch: Tensor.uniform_(low, high).
    """
    return _spec(key, stream, shape, dtype, place, FLOAT, start)


def _normal(mean: float, std: float, dtype: DType) -> Primitive:
    check_normal("normal", mean, std)
    return normal_map(mean, std, dtype)


@op(
    torch=_torch(_normal),
    numpy=_numpy(_normal),
    random=True,
    nondifferentiable=True,
    samples=[
        sample(0.0, 1.0, 7, 11, shape=(3, 5), dtype=DType.F32, place="cpu"),
        sample(0.0, 1.0, 7, 11, shape=(3, 5), dtype=DType.F64, place="cpu", start=13),
        sample(3, 0.5, 8, 12, shape=(7,), dtype=DType.F64, place="cpu"),
        sample(0.0, 1, 9, 13, shape=(0,), dtype=DType.F32, place="cpu"),
        sample(-1.0, 2.0, 10, 14, shape=(), dtype=DType.F16, place="cpu"),
    ],
    source="Box and Muller 1958",
)
def normal(
    mean: Number, std: Number, key: Number, stream: Number, *, shape: Shape, dtype: DType, place: str, start: int = 0
) -> TensorSpec:
    """Normal values of mean `mean` and standard deviation `std`, by the transform of Box and Muller in float64.

    Shapes: () -> shape.  Dtypes: float; f16 and bf16 are the f32 value rounded to nearest even.  LibTorch on the CPU
    and NdArray give equal bits.  CUDA has a logarithm and a sine of its own: measured on an H200 over 2 million
    elements, equal bits too, but for f64, which differs by up to 3 units in the last place of |mean| + |std * z|.
    Raises: ArgumentError unless mean and std are finite and std >= 0.
    PyTorch: torch.normal(mean, std, size).
    """
    return _spec(key, stream, shape, dtype, place, FLOAT, start)


def _bernoulli(prob: float, dtype: DType) -> Primitive:
    check_probability("bernoulli", prob)
    return bernoulli_map(prob)


@op(
    torch=_torch(_bernoulli),
    numpy=_numpy(_bernoulli),
    cost="cheap",
    random=True,
    nondifferentiable=True,
    laws=[Draws(_yes_numbers, "(word < a)")],
    samples=[
        sample(0.3, 7, 11, shape=(3, 5), dtype=DType.BOOL, place="cpu"),
        sample(0.3, 7, 11, shape=(3, 5), dtype=DType.BOOL, place="cpu", start=6),
        sample(0.5, 8, 12, shape=(7,), dtype=DType.F32, place="cpu"),
        sample(1, 9, 13, shape=(2, 0), dtype=DType.I64, place="cpu"),
        sample(0.5, 10, 14, shape=(), dtype=DType.BOOL, place="cpu"),
    ],
)
def bernoulli(
    prob: Number, key: Number, stream: Number, *, shape: Shape, dtype: DType, place: str, start: int = 0
) -> TensorSpec:
    """1 with probability `prob`, else 0: never for 0, always for 1, else to the nearest multiple of 2^-32.

    Shapes: () -> shape.  Dtypes: bool or any number type.  Equal on all leaves and devices.
    Raises: ArgumentError unless 0 <= prob <= 1.
    PyTorch: Tensor.bernoulli_(prob).
    """
    return _spec(key, stream, shape, dtype, place, NUMERIC | BOOL, start)


def _randint(low: int, high: int, dtype: DType) -> Primitive:
    info = np.iinfo(dtype.numpy)
    # the last bound keeps `high` itself inside 64 bits, where compiled programs pass it
    if not info.min <= low < high <= min(info.max + 1, 2**63 - 1):
        raise ArgumentError(
            "randint: the range is empty, or does not fit the element type",
            given=f"low {low}, high {high}, {dtype}",
            expected=f"{info.min} <= low < high <= {min(info.max + 1, 2**63 - 1)}; high itself is not drawn",
            mend="name the lower end first, or draw i64",
        )
    return integer_map(low, high)


@op(
    torch=_torch(_randint),
    numpy=_numpy(_randint),
    cost="cheap",
    random=True,
    nondifferentiable=True,
    samples=[
        sample(0, 10, 7, 11, shape=(3, 5), dtype=DType.I64, place="cpu"),
        sample(0, 10, 7, 11, shape=(3, 5), dtype=DType.I64, place="cpu", start=9),
        sample(-128, 128, 8, 12, shape=(7,), dtype=DType.I8, place="cpu"),
        sample(-(2**62), 2**62, 9, 13, shape=(5,), dtype=DType.I64, place="cpu"),
        sample(5, 6, 10, 14, shape=(), dtype=DType.U8, place="cpu"),
        sample(0, 2, 10, 15, shape=(0, 3), dtype=DType.I32, place="cpu"),
    ],
    source="Lemire 2019, section 3",
)
def randint(
    low: Number, high: Number, key: Number, stream: Number, *, shape: Shape, dtype: DType, place: str, start: int = 0
) -> TensorSpec:
    """Integers evenly from [low, high); the probability of each is off by less than 2^-32 of itself.

    Shapes: () -> shape.  Dtypes: integers that hold the whole range.  Equal on all leaves and devices.
    Raises: ArgumentError unless low < high fit the type.
    PyTorch: torch.randint(low, high, size).
    """
    _whole("low", low, "pass int(low)")
    _whole("high", high, "pass int(high)")
    return _spec(key, stream, shape, dtype, place, INT, start)


# -- weights ---------------------------------------------------------------------------------------------
def _over_largest(call: Call, of_host: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Primitive) -> Primitive:
        weights = of_host(x)
        wrong = [
            name
            for name, bad in (
                ("weights that are NaN or infinite", ~np.isfinite(weights)),
                ("weights below 0", weights < 0),
                ("weights that are all 0", ~weights.any(-1)),
            )
            if bad.any()
        ]
        if wrong:
            raise ArgumentError(
                "categorical: there is no distribution with these weights",
                given=f"{', '.join(wrong)} in {call.specs[0]}",
                expected="finite weights of 0 or more, one of them above 0 along the last axis",
                mend="exp() or softmax of scores makes weights of them",
            )
        return x / (x.max(-1, keepdims=True) if isinstance(x, np.ndarray) else x.amax(-1, keepdim=True))

    return run


def _torch_weights(call: Call) -> Candidate:
    spec = call.tensor(0)
    if spec.place != "cpu":
        return lambda x: x / x.amax(-1, keepdim=True)
    return _over_largest(call, lambda x: x.detach().to(torch.float64).numpy())


@op(
    torch=PerCall(_torch_weights),
    numpy=PerCall(lambda call: _over_largest(call, np.asarray)),
    decomposition=lambda x: x / amax(x, dims=(x.ndim - 1,)),
    samples=[evenly(0.1, 2, (3, 4)), evenly(0.1, 2, (5,)), evenly(0.1, 2, (0, 3))],
)
def categorical_weights(x: TensorSpec) -> TensorSpec:
    """Weights over the largest of their row: finite, not negative, and not zero everywhere along the last axis.

    Shapes: x (*batch, classes) -> the same.  Dtypes: float, the same out.
    Raises: ArgumentError for other weights, on the host; a GPU would have to be waited for.
    PyTorch: torch.multinomial asks for the same.
    """
    return x.require(FLOAT)


# -- dropout -------------------------------------------------------------------------------------------
def _kept_scale(prob: float, largest: float) -> float:
    # 1 / (1 - prob), which must not become infinite in a half type: 0 * infinity would make NaN of dropped elements
    return min(1.0 / (1.0 - prob), largest) if prob < 1 else 0.0


def _numpy_mask(call: Call) -> Candidate:
    spec, start = call.result, call.attrs["start"]
    kind, largest = spec.dtype.numpy, float(np.finfo(spec.dtype.numpy).max)

    def run(prob: float, key: int, stream: int) -> Array:
        check_probability("dropout", prob)
        keep = MASKS.keep(threshold(1.0 - prob), key, stream, spec.numel, start)
        return keep.reshape(spec.shape).astype(kind) * kind.type(_kept_scale(prob, largest))

    return run


def _mask_on_device(call: Call) -> Candidate:
    spec, start = call.result, call.attrs["start"]
    theirs, device = TO_TORCH[spec.dtype], torch.device(spec.place)
    shape, count, largest = spec.shape, spec.numel, torch.finfo(theirs).max

    def run(prob: Primitive, key: Primitive, stream: Primitive) -> Primitive:
        check_probability("dropout", prob)
        keep = on_torch(bernoulli_map(1.0 - prob), key, stream, start, count, theirs, device).reshape(shape)
        return keep.mul_(_kept_scale(prob, largest))

    return run


def _mask_from_host(call: Call) -> Candidate:
    spec, start = call.result, call.attrs["start"]
    theirs, device = TO_TORCH[spec.dtype], torch.device(spec.place)
    shape, count, largest = spec.shape, spec.numel, torch.finfo(theirs).max

    def run(prob: float, key: int, stream: int) -> torch.Tensor:
        check_probability("dropout", prob)
        bits = MASKS.keep(threshold(1.0 - prob), key, stream, count, start).reshape(shape)
        return torch.from_numpy(bits).to(device, theirs).mul_(_kept_scale(prob, largest))

    return run


def _product(mask: Candidate) -> Candidate:
    return lambda x, prob, key, stream: x * mask(prob, key, stream)


def _product_in_place(call: Call) -> Candidate | None:
    if call.result.place.startswith("cuda"):
        return None  # a kernel draws and multiplies in one pass
    mask = _mask_from_host(call)
    return lambda x, prob, key, stream: x.mul_(mask(prob, key, stream))


@op(
    torch=Drawing(_mask_on_device, _mask_from_host),
    numpy=PerCall(_numpy_mask),
    cost="cheap",
    random=True,
    nondifferentiable=True,
    laws=[Draws(_kept_numbers, "where(word < a, b, 0.0)")],
    samples=[
        sample(0.3, 7, 11, shape=(3, 5), dtype=DType.F32, place="cpu"),
        sample(0.3, 7, 11, shape=(3, 5), dtype=DType.F32, place="cpu", start=5),
        sample(0.5, 8, 12, shape=(0, 2), dtype=DType.F64, place="cpu"),
        sample(1, 9, 13, shape=(7,), dtype=DType.F16, place="cpu"),
        sample(0, 9, 13, shape=(), dtype=DType.F32, place="cpu"),
    ],
)
def dropout_mask(
    prob: Number, key: Number, stream: Number, *, shape: Shape, dtype: DType, place: str, start: int = 0
) -> TensorSpec:
    """0 with probability `prob`, else 1 / (1 - prob), rounded to the type: what dropout multiplies with.

    An element is kept where `bernoulli(1 - prob, key, stream)` is 1.  All are 0 for prob 1.

    Shapes: () -> shape.  Dtypes: float.  Equal on all leaves and devices.
    Raises: ArgumentError unless 0 <= prob <= 1.
    """
    return _spec(key, stream, shape, dtype, place, FLOAT, start)


@op(
    torch=Drawing(lambda call: _product(_mask_on_device(call)), lambda call: _product(_mask_from_host(call))),
    numpy=PerCall(lambda call: _product(_numpy_mask(call))),
    inplace=PerCall(_product_in_place),
    packed="follows",
    cost="cheap",
    random=True,
    samples=[
        sample(evenly(-3, 3, (3, 5)), 0.3, 7, 11),
        sample(evenly(-3, 3, (3, 5)), 0.3, 7, 11, start=5),
        sample(evenly(-3, 3, (2, 1, 7)), 0.5, 8, 12),
        sample(evenly(-3, 3, (0, 2)), 0.5, 9, 13),
        sample(evenly(-3, 3, ()), 0.25, 10, 17),
    ],
    source="Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html",
)
def dropout(x: TensorSpec, prob: Number, key: Number, stream: Number, *, start: int = 0) -> TensorSpec:
    """Sets elements to zero with probability `prob` and divides the others by 1 - prob.

        y = x * dropout_mask(prob, key, stream)

    The gradient draws the same mask again, so the tape saves three numbers.  A dropped NaN or infinity becomes NaN:
    faults stay visible.

    Shapes: x (*s) -> (*s).  Dtypes: float in, the same float out.
    Raises: ArgumentError unless 0 <= prob <= 1.
    PyTorch: torch.nn.functional.dropout(x, prob, training=True).
    """
    return _spec(key, stream, x.require(FLOAT).shape, x.dtype, x.place, FLOAT, start)


@dropout.decomposes
def _(x, prob, key, stream, *, start):
    return x * dropout_mask(prob, key, stream, shape=x.shape, dtype=x.dtype, place=x.place, start=start)


@dropout.gradient
def _(g, y, x, prob, key, stream, *, start):
    return dropout(g, prob, key, stream, start=start), None, None, None
