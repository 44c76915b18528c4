"""Nested tapes agree for every row to third order.

For a row and a sample, f is a weighted sum of the row's outputs as a function of its float inputs.  Its derivatives
along random directions, first, second and third, by tape over tape over tape, are compared with central differences of
the order below, and with each other by every other way to them: `grad` of `grad`, `hvp`, `jvp` of `vjp`, samples at
once, tapes of the user's, compiled, on numpy.  The quick tests take the third order alone: `test_table` has the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest

from burn_torch import Device, Tensor, compile, grad, hvp, jvp, per_sample_grad, vjp
from burn_torch.core.data import TensorData
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY, Op
from tests.ops import table_harness as table
from tests.ops.table_errors import float64
from tests.ops.table_harness import Array, Typed

CPU, NUMPY = Device.cpu(fused=False), Device.ndarray()
BALANCED = CPU.autodiff("balanced")

ROWS: Final = [
    name
    for name, row in REGISTRY.items()
    if "::" not in name and not table.is_of_numbers(row) and not row.nondifferentiable and any(float64(row, own=True))
]

STEP: Final = 1e-4
"""The step of central differences, extrapolated once: errors are 1e-16 / STEP and the fifth derivative times STEP^4."""

ORDERS: Final = (1, 2, 3)


@dataclass
class Sample:
    """The function of one sample, its point, and three random directions."""

    row: Op
    variant: Typed
    generator: np.random.Generator = field(init=False)
    points: list[Array] = field(init=False)
    directions: list[list[Array]] = field(init=False)
    weights: dict[int, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.generator = self.variant.case.generator("third order")
        data = [self.variant.data[i] for i in self.variant.floats()]
        self.points = [x.values for x in data if isinstance(x, TensorData)]
        self.directions = [[self._direction(x.shape) for x in self.points] for _ in ORDERS]
        self.weights = {}

    def _direction(self, shape: tuple[int, ...]) -> Array:
        drawn = self.generator.normal(size=shape)
        # the gradients of these rows are those along symmetric changes alone, as the rows say
        return (drawn + drawn.swapaxes(-1, -2)) / 2 if self.row.name in table.SYMMETRIC else drawn

    def function(self, device: Device) -> Callable[..., Tensor]:
        """f on a device: takes the float inputs, gives one number."""
        floats = self.variant.floats()
        held = [Tensor.from_data(x, device) if isinstance(x, TensorData) else x for x in self.variant.data]
        attrs = table.at(self.variant.attrs, "cpu")

        def f(*xs: Tensor) -> Tensor:
            inputs = list(held)
            for i, x in zip(floats, xs, strict=True):
                inputs[i] = x
            outputs = self.row(*inputs, **attrs)
            total = None
            for j, y in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
                if y is not None and y.dtype.is_float:
                    part = (y * self._weight(j, y.shape, device)).sum()
                    total = part if total is None else total + part
            assert total is not None
            return total

        return f

    def _weight(self, j: int, shape: tuple[int, ...], device: Device) -> Tensor:
        if j not in self.weights:
            self.weights[j] = self.generator.normal(size=shape)
        return Tensor.from_data(self.weights[j], device)

    def at(self, device: Device, step: float = 0.0, order: int = 1) -> list[Tensor]:
        """The point, `step` along the direction of an order."""
        moved = [x + step * v for x, v in zip(self.points, self.directions[order - 1], strict=True)]
        return [Tensor.from_data(np.asarray(x), device) for x in moved]

    def along(self, device: Device, order: int) -> list[Tensor]:
        """The direction of an order, where gradients live."""
        device = device.inner() if device.is_autodiff() else device
        return [Tensor.from_data(v, device) for v in self.directions[order - 1]]


def dot(xs: Sequence[Tensor], vs: Sequence[Tensor]) -> Tensor:
    total = None
    for x, v in zip(xs, vs, strict=True):
        part = (x * v).sum()
        total = part if total is None else total + part
    assert total is not None
    return total


def derivative(f: Callable[..., Tensor], sample: Sample, device: Device, order: int) -> Callable[..., Tensor]:
    """The derivative of some order along the first directions, by tape over tape."""
    for k in range(1, order + 1):
        f = _slope(f, sample.along(device, k))
    return f


def _slope(f: Callable[..., Tensor], along: Sequence[Tensor]) -> Callable[..., Tensor]:
    positions = tuple(range(len(along)))
    return lambda *xs: dot(grad(f, argnums=positions)(*xs), along)


def number(x: Tensor) -> float:
    return float(np.asarray(x.into_data().values).reshape(()))


def difference(f: Callable[..., Tensor], sample: Sample, order: int) -> tuple[float, float]:
    """The derivative of f along the direction of an order by central differences, and how far two of them are apart."""

    def central(step: float) -> float:
        above, below = (number(f(*sample.at(CPU, sign * step, order))) for sign in (1, -1))
        return (above - below) / (2 * step)

    wide, narrow = central(2 * STEP), central(STEP)
    return (4 * narrow - wide) / 3, abs(narrow - wide)


def samples(row: Op, most: int | None = None) -> list[Sample]:
    drawn = [Sample(row, variant) for variant in float64(row, own=True)]
    return [s for s in drawn if any(x.size for x in s.points) and any(map(_is_float, s.variant.call("cpu").results))][
        :most
    ]


def _is_float(spec: Any) -> bool:
    return isinstance(spec, TensorSpec) and spec.dtype.is_float


def judge(what: str, actual: float, expected: float, allowed: float) -> None:
    assert abs(actual - expected) <= allowed, f"{what}: {actual!r}, expected {expected!r} up to {allowed:.1e}"


def check_orders(sample: Sample, orders: Sequence[int]) -> None:
    for order in orders:
        below = derivative(sample.function(CPU), sample, CPU, order - 1)
        above = derivative(sample.function(CPU), sample, CPU, order)
        slope = number(above(*sample.at(CPU)))
        expected, apart = difference(below, sample, order)
        scale = max(1.0, abs(expected), abs(number(below(*sample.at(CPU)))))
        if apart < 1e-3 * scale:  # else a kink, or a pole, is nearer than the step
            what = f"{sample.variant!r}: derivative {order}"
            judge(what, slope, expected, 1e-7 * scale + 0.1 * apart)


def ways(sample: Sample, device: Device) -> dict[str, Callable[[], tuple[int, Tensor]]]:
    """Ways to second and third derivatives, each with its order."""
    f, xs = sample.function(device), sample.at(device)
    v, u, w = (sample.along(device, k) for k in ORDERS)
    positions = tuple(range(len(xs)))
    one = Tensor.ones((1,), (device, "f64"))
    gradient = grad(f, argnums=positions)

    def tapes(order: int) -> Tensor:
        """By tapes of the user's own, one over the other, and `backward`."""
        leaves: list[list[Tensor]] = []
        now = xs
        for _ in range(order):
            now = [Tensor.from_inner(x).require_grad() for x in now]
            leaves.append(now)
        y = f(*now)
        for k, (asked, along) in enumerate(zip(reversed(leaves), (v, u, w), strict=False)):
            slots = y.backward()
            grads = [x.grad(slots) for x in asked]
            parts = [(g, d) for g, d in zip(grads, along, strict=True) if g is not None]
            if not parts:
                return one * 0.0
            y = dot([g for g, _ in parts], [d for _, d in parts])
            if k + 1 < order and not y.backend.is_tracked(y.primitive):  # type: ignore[attr-defined]
                return one * 0.0
        return y

    def together(*xs: Tensor) -> Tensor:
        mixed = per_sample_grad(lambda *a: dot(gradient(*a[:-1]), v) * a[-1].sum(), argnums=positions)(
            *xs, Tensor.ones((2, 1), (device, "f64"))
        )
        return dot(mixed, u) * 0.5

    return {
        "hvp": lambda: (2, dot(hvp(f, xs, v), u)),
        "jvp of grad": lambda: (2, dot(jvp(lambda *xs: gradient(*xs), xs, u)[1], v)),
        "jvp of vjp": lambda: (2, dot(jvp(lambda *xs: vjp(f, *xs)[1](one), xs, u)[1], v)),
        "grad of jvp": lambda: (2, dot(grad(lambda *xs: jvp(f, xs, v)[1], argnums=positions)(*xs), u)),
        "samples of grad": lambda: (2, together(*xs)),
        "grad of hvp": lambda: (3, dot(grad(lambda *xs: dot(hvp(f, xs, v), u), argnums=positions)(*xs), w)),
        "hvp of grad": lambda: (3, dot(hvp(lambda *xs: dot(gradient(*xs), v), xs, u), w)),
        "grad of samples of grad": lambda: (3, dot(grad(together, argnums=positions)(*xs), w)),
        "two tapes": lambda: (2, tapes(2)),
        "three tapes": lambda: (3, tapes(3)),
    }


def check_ways(sample: Sample, device: Device) -> None:
    expected = {k: number(derivative(sample.function(CPU), sample, CPU, k)(*sample.at(CPU))) for k in ORDERS}
    scale = max(1.0, *map(abs, expected.values()))
    for name, way in ways(sample, device).items():
        order, derived = way()
        judge(f"{device} {sample.variant!r}: {name}", number(derived), expected[order], 1e-9 * scale)


def check_compiled(sample: Sample, device: Device, *, fuse: bool = False) -> None:
    for order in (2, 3):

        def f(*xs: Tensor, order: int = order) -> Tensor:  # its constants are made inside, as the program's own
            return derivative(sample.function(device), sample, device, order)(*xs)

        expected = number(f(*sample.at(device)))
        slope = number(compile(f, fuse=fuse)(*sample.at(device)))
        judge(f"compiled, fuse={fuse}, {sample.variant!r}: {order}", slope, expected, 1e-9 * max(1.0, abs(expected)))


@pytest.mark.parametrize("name", ROWS)
def test_third_derivative_of_every_row(name: str) -> None:
    for sample in samples(REGISTRY[name], 1):
        check_orders(sample, (3,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
class TestEverySample:
    """All samples of a row, all orders, every way to them."""

    def test_derivatives_are_differences_of_the_order_below(self, name: str) -> None:
        for sample in samples(REGISTRY[name]):
            check_orders(sample, ORDERS)

    @pytest.mark.parametrize("device", [CPU, NUMPY, BALANCED], ids=str)
    def test_every_way_gives_the_same(self, name: str, device: Device) -> None:
        for sample in samples(REGISTRY[name]):
            check_ways(sample, device)

    @pytest.mark.parametrize("fuse", [False, True])
    def test_compiled(self, name: str, fuse: bool) -> None:
        for sample in samples(REGISTRY[name], 2 if fuse else None):
            check_compiled(sample, CPU, fuse=fuse)
