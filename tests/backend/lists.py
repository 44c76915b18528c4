"""A small leaf for tests: Python lists of numbers, with a table of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from burn_torch.backend.table import TableLeaf
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, PerCall


class Cells(NamedTuple):
    """A primitive: its elements in row-major order."""

    values: list[Any]
    shape: Shape
    dtype: DType


def places(shape: Shape) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


def read(x: Any, place: Sequence[int]) -> Any:
    """The element of a tensor that is broadcast, or a number."""
    if not isinstance(x, Cells):
        return x
    at = 0
    for size, index in zip(x.shape, place[len(place) - len(x.shape) :], strict=True):
        at = at * size + (index if size > 1 else 0)
    return x.values[at]


def filled(call: Call, values: Sequence[Any]) -> Cells:
    spec = call.results[0]
    kind = float if spec.dtype.is_float else bool if spec.dtype is DType.BOOL else int
    return Cells([kind(value) for value in values], spec.shape, spec.dtype)


def each(function: Callable[..., Any]) -> PerCall:
    """A row that computes element by element."""
    return PerCall(
        lambda call: (
            lambda *xs: filled(call, [function(*(read(x, at) for x in xs)) for at in places(call.results[0].shape)])
        )
    )


def folded(function: Callable[[list[Any]], Any]) -> PerCall:
    """A row that reduces axes, which stay with the size 1."""

    def build(call: Call) -> Callable[..., Any]:
        dims = call.attrs["dims"]

        def run(x: Cells) -> Cells:
            lines: dict[tuple[int, ...], list[Any]] = {at: [] for at in places(call.results[0].shape)}
            for at in places(x.shape):
                lines[tuple(0 if dim in dims else i for dim, i in enumerate(at))].append(read(x, at))
            return filled(call, [function(line) for line in lines.values()])

        return run

    return PerCall(build)


def taken(place_in_x: Callable[[Call, tuple[int, ...]], Sequence[int]]) -> PerCall:
    """A row that moves elements."""
    return PerCall(
        lambda call: lambda x: filled(call, [read(x, place_in_x(call, at)) for at in places(call.results[0].shape)])
    )


def source_of_permute(call: Call, at: tuple[int, ...]) -> list[int]:
    return [at[call.attrs["axes"].index(dim)] for dim in range(len(at))]


def build_matmul(call: Call) -> Callable[..., Any]:
    inner = call.specs[0].shape[-1]

    def element(x: Cells, y: Cells, bias: Any, at: tuple[int, ...]) -> float:
        total = math.fsum(read(x, (*at[:-1], k)) * read(y, (*at[:-2], k, at[-1])) for k in range(inner))
        return total if bias is None else total + read(bias, at)

    def run(x: Cells, y: Cells, bias: Cells | None = None) -> Cells:
        return filled(call, [element(x, y, bias, at) for at in places(call.results[0].shape)])

    return run


def sign(x: float) -> float:
    return (x > 0) - (x < 0)


TABLE: dict[str, Any] = {
    "abs": each(abs),
    "add": each(lambda x, y: x + y),
    "amax": folded(max),
    "cast": each(lambda x: x),
    "ceil": each(math.ceil),
    "cos": each(math.cos),
    "div": each(lambda x, y: x / y),
    "equal": each(lambda x, y: x == y),
    "erf": each(math.erf),
    "exp": each(math.exp),
    "expand": each(lambda x: x),
    "floor": each(math.floor),
    "full": PerCall(lambda call: lambda value: filled(call, [value] * call.results[0].numel)),
    "greater": each(lambda x, y: x > y),
    "greater_equal": each(lambda x, y: x >= y),
    "linear": PerCall(build_matmul),
    "log": each(math.log),
    "lower": each(lambda x, y: x < y),
    "lower_equal": each(lambda x, y: x <= y),
    "mask_where": each(lambda x, mask, value: value if mask else x),
    "matmul": PerCall(build_matmul),
    "maximum": each(max),
    "mean": folded(lambda line: math.fsum(line) / len(line)),
    "minimum": each(min),
    "mul": each(lambda x, y: x * y),
    "neg": each(lambda x: -x),
    "permute": taken(source_of_permute),
    "recip": each(lambda x: 1 / x),
    "relu": each(lambda x: max(x, 0)),
    "reshape": PerCall(lambda call: lambda x: Cells(x.values, call.results[0].shape, x.dtype)),
    "rsqrt": each(lambda x: 1 / math.sqrt(x)),
    "sigmoid": each(lambda x: 1 / (1 + math.exp(-x))),
    "sign": each(sign),
    "sin": each(math.sin),
    "sqrt": each(math.sqrt),
    "square": each(lambda x: x * x),
    "sub": each(lambda x, y: x - y),
    "sum": folded(lambda line: math.fsum(line) if isinstance(line[0], float) else reduce(int.__add__, line)),
    "tanh": each(math.tanh),
    "tanh_backward": each(lambda g, y: g * (1 - y * y)),
}


class Lists(TableLeaf):
    """The leaf over Python lists.  `Lists()` is always the same object."""

    name = "Lists"
    table = TABLE
    _instance: ClassVar[Lists | None] = None

    def __new__(cls) -> Lists:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def from_data(self, data: TensorData, place: str) -> Cells:
        return Cells(data.values.reshape(-1).tolist(), tuple(data.shape), data.dtype)

    def into_data(self, primitive: Cells) -> TensorData:
        array = np.array(primitive.values, primitive.dtype.numpy).reshape(primitive.shape)
        return TensorData(array, primitive.dtype)

    def spec(self, primitive: Cells) -> TensorSpec:
        return TensorSpec.of(primitive.shape, primitive.dtype, "cpu")

    def sync(self, place: str) -> None:
        """Python computes before it returns."""

    def copy(self, primitive: Cells) -> Cells:
        return primitive._replace(values=list(primitive.values))
