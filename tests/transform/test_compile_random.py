"""compile(f) is f in every bit, for random programs of Tensor operations: values, gradients, donated arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burn_torch import Device, DType, Tensor, compile
from burn_torch.core.data import TensorData
from burn_torch.core.errors import MovedError
from burn_torch.tensor import activation

CPU = Device.cpu()
TAPE = CPU.autodiff()

Operation = Callable[[Tensor, Tensor, Tensor, Any], Tensor | None]
"""A step of a program: of three values of the pool and a number.  None where they do not fit."""


# -- operations -------------------------------------------------------------------------------------------
def _is_float(*xs: Tensor) -> bool:
    return all(x.dtype.is_float for x in xs)


def _broadcasts(*xs: Tensor) -> bool:
    try:
        shape = np.broadcast_shapes(*[x.shape for x in xs])
    except ValueError:
        return False
    return math.prod(shape) <= 64 and len({x.dtype for x in xs}) == 1


def _of_floats(function: Callable[[Tensor], Tensor]) -> Operation:
    return lambda x, y, z, n: function(x) if _is_float(x) else None


def _of_two(function: Callable[[Tensor, Tensor], Tensor], *, floats: bool = False) -> Operation:
    def operation(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
        fits = _broadcasts(x, y) and not x.dtype.is_bool and (_is_float(x) or not floats)
        return function(x, y) if fits else None

    return operation


def _of_number(function: Callable[[Tensor, Any], Tensor], *, floats: bool = True) -> Operation:
    def operation(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
        return function(x, n) if _is_float(x) or (not floats and x.dtype.is_int) else None

    return operation


def _of_axes(least: int, function: Callable[[Tensor], Tensor], *, floats: bool = False) -> Operation:
    def operation(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
        fits = x.ndim >= least and 0 not in x.shape and (_is_float(x) or not floats) and not x.dtype.is_bool
        return function(x) if fits else None

    return operation


def _product(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
    fits = x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0] and _is_float(x) and x.dtype is y.dtype
    return x.matmul(y) if fits else None


def _select_by_mask(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
    fits = x.dtype.is_bool and x.shape == y.shape == z.shape and y.dtype is z.dtype and not y.dtype.is_bool
    return y.mask_where(x, z) if fits else None


def _fill_by_mask(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
    return y.mask_fill(x, n) if x.dtype.is_bool and x.shape == y.shape and _is_float(y) else None


def _cast(to: DType, *kinds: str) -> Operation:
    return lambda x, y, z, n: x.cast(to) if x.dtype.kind in kinds and x.dtype is not to else None


def _join_pair(x: Tensor, y: Tensor, z: Tensor, n: Any) -> Tensor | None:
    fits = x.shape == y.shape and x.dtype is y.dtype and x.ndim > 0 and x.spec.numel <= 16
    return Tensor.cat([x, y], 0) if fits else None


OPERATIONS: dict[str, Operation] = {
    **{name: _of_floats(operator.methodcaller(name)) for name in
       ("exp", "log", "tanh", "sqrt", "sin", "erf", "recip", "floor", "abs")},
    "relu": _of_floats(lambda x: x.relu()),
    "sigmoid": _of_floats(activation.sigmoid),
    "softmax": _of_axes(1, lambda x: activation.softmax(x, 0), floats=True),
    "neg": _of_floats(lambda x: -x),
    "square": _of_floats(lambda x: x**2),
    "add": _of_two(lambda x, y: x + y),
    "sub": _of_two(lambda x, y: x - y),
    "mul": _of_two(lambda x, y: x * y),
    "mul itself": _of_two(lambda x, y: x * x + y),
    "div": _of_two(lambda x, y: x / y, floats=True),
    "max_pair": _of_two(lambda x, y: x.max_pair(y), floats=True),
    "lower": _of_two(lambda x, y: x < y),
    "equal": _of_two(lambda x, y: x == y),
    "times number": _of_number(lambda x, n: x * n),
    "plus number": _of_number(lambda x, n: x + n),
    "number minus": _of_number(lambda x, n: n - x),
    "over number": _of_number(lambda x, n: x / n),
    "number over": _of_number(lambda x, n: n / x),
    "with arithmetic of numbers": _of_number(lambda x, n: x * (n * 2 - 1) + (n - n)),
    "greater than number": _of_number(lambda x, n: x > n),
    "clamp": _of_floats(lambda x: x.clamp(-1.0, 0.5)),
    "constants": _of_floats(lambda x: (x + 0.0) * 1.0 - 0.0),
    "zeros beside": _of_floats(lambda x: x + Tensor.zeros(x.shape, CPU).cast(x.dtype)),
    "transpose": _of_axes(2, lambda x: x.transpose()),
    "flatten": _of_axes(1, lambda x: x.reshape((-1,))),
    "reshape and back": _of_axes(1, lambda x: x.reshape((-1, 1)).reshape(x.shape)),
    "unsqueeze": _of_axes(0, lambda x: x.unsqueeze_dim(0) if x.ndim < 3 else x),
    "first": _of_axes(1, lambda x: x[:1]),
    "rest": _of_axes(1, lambda x: x[1:] if x.shape[0] > 1 else x),
    "last column": _of_axes(2, lambda x: x[:, -1]),
    "every other": _of_axes(1, lambda x: x[::2]),
    "flip": _of_axes(1, lambda x: x.flip([0])),
    "expand": _of_axes(1, lambda x: x if x.spec.numel > 16 or x.ndim > 2 else x.unsqueeze_dim(0).expand((2, *x.shape))),
    "sum": _of_axes(0, lambda x: x.sum()),
    "mean": _of_axes(1, lambda x: x.mean(), floats=True),
    "sum_dim": _of_axes(1, lambda x: x.sum_dim(0)),
    "mean_dim": _of_axes(2, lambda x: x.mean_dim(1), floats=True),
    "max_dim": _of_axes(1, lambda x: x.max_dim(0), floats=True),
    "argmax": _of_axes(1, lambda x: x.argmax(0), floats=True),
    "cumsum": _of_axes(1, lambda x: x.cumsum(0), floats=True),
    "matmul": _product,
    "mask_where": _select_by_mask,
    "mask_fill": _fill_by_mask,
    "cat": _join_pair,
    "to f64": _cast(DType.F64, "float", "int", "bool"),
    "to f32": _cast(DType.F32, "float", "int", "bool"),
    "to i64": _cast(DType.I64, "bool"),
}  # fmt: skip
NAMES = sorted(OPERATIONS)

# -- programs -------------------------------------------------------------------------------------------------
SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (1, 3), (2, 1), (3, 2), (0, 3), (1,)]
SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-45, 3e38]
floats = st.one_of(st.sampled_from(SPECIAL), st.floats(-3, 3, width=32))


@dataclass
class Program:
    """Inputs as (values, dtype), the operations with their operands, and what of it is returned."""

    inputs: list[tuple[Any, DType]]
    number: float
    steps: list[tuple[str, int, int, int]]
    returned: list[int]
    differentiated: bool

    def __call__(self, xs: Sequence[Tensor], n: Any) -> list[Tensor]:
        """The results, then the gradients of all inputs that ask for them."""
        pool = list(xs)
        for name, i, j, k in self.steps:
            a, b, c = [pool[-1 - at % len(pool)] for at in (i, j, k)]
            output = OPERATIONS[name](a, b, c, n)
            if output is not None:
                pool.append(output)
        outputs = [pool[-1 - at % len(pool)] for at in self.returned]
        asking = [x for x in xs if x.device.is_autodiff() and x.is_require_grad()]
        if asking:
            loss = sum(
                ((x * 0.5).sum().cast(asking[0].dtype) for x in asking),
                start=Tensor.zeros((1,), TAPE).cast(asking[0].dtype),
            )
            for y in [pool[-1], *outputs]:
                loss = loss + y.cast(loss.dtype).sum() if y.dtype.is_float else loss
            gradients = loss.backward()
            outputs += [x.grad(gradients) for x in asking]  # type: ignore[misc]  # each of them is in the loss
        return [y.detach() if y.device.is_autodiff() else y for y in outputs]

    def arguments(self) -> list[Tensor]:
        """The inputs as fresh tensors."""
        device = TAPE if self.differentiated else CPU
        xs = []
        for values, dtype in self.inputs:
            x = Tensor.from_data(TensorData.of(values).convert(dtype), device)
            xs.append(x.require_grad() if self.differentiated and dtype.is_float else x)
        return xs


@st.composite
def programs(draw: st.DrawFn, *, differentiated: bool) -> Program:
    inputs: list[tuple[Any, DType]] = []
    for _ in range(draw(st.integers(1, 4))):
        shape = draw(st.sampled_from(SHAPES))
        dtype = draw(st.sampled_from([DType.F32, DType.F32, DType.F32, DType.F64, DType.I64, DType.BOOL]))
        count = math.prod(shape)
        numbers = floats if dtype.is_float else st.integers(0, 1) if dtype.is_bool else st.integers(-5, 5)
        values = np.array(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=np.float64)
        inputs.append((values.reshape(shape).astype(dtype.numpy), dtype))
    operand = st.integers(0, 7)
    steps = draw(st.lists(st.tuples(st.sampled_from(NAMES), operand, operand, operand), min_size=1, max_size=12))
    returned = draw(st.lists(st.integers(0, 15), max_size=4))
    return Program(inputs, draw(floats), steps, returned, differentiated)


def bits(x: Tensor) -> tuple[Any, ...]:
    data = (x.inner() if x.device.is_autodiff() else x).into_data()
    return data.dtype, data.shape, data.to_bytes()


_settings = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of numpy, where a drawn value leaves float32
@pytest.mark.parametrize("differentiated", [False, True])
@settings(_settings, max_examples=120)
@given(data=st.data())
def test_a_random_program_has_the_bits_of_eager(differentiated: bool, data: st.DataObject) -> None:
    program = data.draw(programs(differentiated=differentiated))
    xs = program.arguments()
    wanted = [bits(y) for y in program(xs, program.number)]
    compiled = compile(lambda xs, n: program(xs, n))
    assert [bits(y) for y in compiled(xs, program.number)] == wanted
    assert [bits(y) for y in compiled(program.arguments(), program.number)] == wanted
    assert [bits(x) for x in xs] == [bits(x) for x in program.arguments()]
    other = [bits(y) for y in program(xs, 0.5)]
    assert [bits(y) for y in compiled(xs, 0.5)] == other
    assert compiled.traces == 1


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@settings(_settings, max_examples=120)
@given(program=programs(differentiated=False), chosen=st.sets(st.integers(0, 3)))
def test_donated_arguments_change_no_bit_and_others_are_left_alone(program: Program, chosen: set[int]) -> None:
    count = len(program.inputs)
    donated = [i for i in chosen if i < count]
    wanted = [bits(y) for y in program(program.arguments(), program.number)]
    compiled = compile(lambda n, *xs: program(xs, n), donate=[i + 1 for i in donated])
    for _ in range(2):
        xs = program.arguments()
        before = [bits(x) for x in xs]
        views = [x.reshape((-1,)) for x in xs[:2]]  # of a part of them somebody holds more
        seen = [bits(view) for view in views]
        outputs = compiled(program.number, *xs)
        assert [bits(y) for y in outputs] == wanted
        for y in outputs:  # results share nothing with each other or with what goes in
            y.into_torch().zero_()
        assert [bits(view) for view in views] == seen
        for i, x in enumerate(xs):
            if i in donated:
                with pytest.raises(MovedError, match="a tensor was used after"):
                    x.tolist()
            else:
                assert bits(x) == before[i]
