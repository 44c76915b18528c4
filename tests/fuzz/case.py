"""A program with everything that doors are given: arguments, upstream gradients, and what eager makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from burn_torch import Device, DType, Tensor, vjp
from burn_torch.core.data import TensorData
from tests.fuzz.compare import Judge, Noisy, Results
from tests.fuzz.program import Array, Program
from tests.fuzz.training import Training

__all__ = ["PLAIN", "Case", "Outcome", "first_by_tape", "second_by_transforms", "skip"]

PLAIN: Final = Device.cpu(fused=False)


@dataclass(frozen=True)
class Outcome:
    """Holds what a door found: disagreements in words, or why it did not run."""

    differences: tuple[str, ...] = ()
    skipped: str | None = None


def skip(why: str) -> Outcome:
    return Outcome(skipped=why)


@dataclass(frozen=True)
class Case:
    """A program, whether second gradients are compared too, and whether a random training is beside it."""

    program: Program
    second: bool = False
    seed: int = 0
    trains: bool = False

    # -- arguments ---------------------------------------------------------------------------------
    @cached_property
    def values(self) -> list[TensorData]:
        """Returns what eager gives."""
        return [y.into_data() for y in self.program(self.program.tensors(PLAIN), self.program.numbers)]

    @cached_property
    def upstream(self) -> list[TensorData | None]:
        """A random gradient for each float result."""
        generator = np.random.default_rng(self.seed)
        return [_normal(generator, y.shape, y.dtype) if y.dtype.is_float else None for y in self.values]

    @cached_property
    def weights(self) -> list[TensorData]:
        """A random weight for each first gradient: their sum is differentiated again."""
        generator = np.random.default_rng(self.seed + 1)
        wanted = [self.program.inputs[i] for i in self.program.wanted]
        return [_normal(generator, x.data.shape, x.dtype) for x in wanted]

    @property
    def differentiates(self) -> bool:
        return bool(self.program.wanted) and any(g is not None for g in self.upstream)

    def upstream_on(self, device: Device) -> list[Tensor | None]:
        return [None if g is None else Tensor.from_data(g, device) for g in self.upstream]

    def weights_on(self, device: Device) -> list[Tensor]:
        return [Tensor.from_data(w, device) for w in self.weights]

    def varied(self) -> Case:
        """The same program on other data: what is kept between two calls shows.

        Integers stay: a row may ask that an index lies in its own window, which no leaf checks.
        """
        inputs = [
            replace(x, data=np.roll(x.data.ravel(), 1).reshape(x.data.shape)) if x.data.dtype.kind == "f" else x
            for x in self.program.inputs
        ]
        numbers = tuple(
            n * 0.9 if isinstance(n, float) else n + 1 if abs(n) >= 1 << 20 else n for n in self.program.numbers
        )
        return Case(replace(self.program, inputs=tuple(inputs), numbers=numbers), self.second, self.seed + 2)

    def widened(self) -> Case:
        """The same in float64."""
        return replace(self, program=self.program.widened())

    def lengthened(self) -> Iterator[Case]:
        """The same steps on longer inputs: all axes of one size, for one size after the other, are longer by one."""
        sizes = sorted({n for x in self.program.inputs for n in x.data.shape if n})
        for size in sizes:
            if all(x.dtype.is_float or size not in x.data.shape for x in self.program.inputs):  # indices stay
                inputs = [replace(x, data=_lengthen_axes(x.data, size)) for x in self.program.inputs]
                yield Case(replace(self.program, inputs=tuple(inputs)), self.second, self.seed + 4)

    @cached_property
    def training(self) -> Training:
        """A random training; it has nothing of the program but the seed."""
        return Training(self.seed)

    # -- the reference -----------------------------------------------------------------------------
    @cached_property
    def judge(self) -> Judge:
        """The judge of values and first gradients."""
        return Judge(
            self.first_on(PLAIN),
            lambda seed: self.first_on(Device(Noisy().seeded(seed))),
            self.names,
            wide=None if self.program.is_random else lambda: self.widened().first_on(PLAIN),
        )

    @cached_property
    def second_judge(self) -> Judge:
        """The judge of second gradients."""
        names = [f"second gradient of x{i}" for i in self.program.wanted]
        names += [f"second gradient of upstream {i}" for i, g in enumerate(self.upstream) if g is not None]
        return Judge(
            self.second_on(PLAIN),
            lambda seed: self.second_on(Device(Noisy().seeded(seed))),
            names,
            wide=None if self.program.is_random else lambda: self.widened().second_on(PLAIN),
        )

    @cached_property
    def names(self) -> list[str]:
        return [f"result {i}" for i in range(len(self.program.outputs))] + [
            f"gradient of x{i}" for i in self.program.wanted
        ]

    def first_on(self, device: Device) -> Results:
        """Values and first gradients by a tape over a plain device."""
        if not self.differentiates:
            return data_of(self.program(self.program.tensors(device), self.program.numbers)) + [None] * len(
                self.program.wanted
            )
        tape = device.autodiff()
        results = first_by_tape(
            self.program, self.program.tensors(tape), self.program.numbers, self.upstream_on(device)
        )
        return data_of(results)

    def second_on(self, device: Device) -> Results:
        """Second gradients by two nested transforms on a plain device."""
        xs, weights = self.program.tensors(device), self.weights_on(device)
        return data_of(second_by_transforms(self.program, xs, self.program.numbers, self.upstream_on(device), weights))


def data_of(tensors: Sequence[Tensor | None]) -> list[TensorData | None]:
    return [None if x is None else x.into_data() for x in tensors]


def _normal(generator: np.random.Generator, shape: Sequence[int], dtype: DType) -> TensorData:
    return TensorData.of(np.asarray(generator.uniform(-1.5, 1.5, tuple(shape)))).convert(dtype)


def _lengthen_axes(data: Array, size: int) -> Array:
    for axis, n in enumerate(data.shape):
        if n == size:
            data = np.take(data, range(size + 1), axis, mode="wrap")
    return data


# -- ways to differentiate -----------------------------------------------------------------------------------
def first_by_tape(
    program: Program, xs: Sequence[Tensor], numbers: Sequence[Any], upstream: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Values, then the gradients of sum(upstream * value) for the wanted inputs; `xs` lie on a tape."""
    fed = list(xs)
    for i in program.wanted:
        fed[i] = xs[i].require_grad()
    ys = program(fed, numbers)
    loss: Tensor | None = None
    for y, g in zip(ys, upstream, strict=True):
        if g is None or not y.backend.is_tracked(y.primitive):  # type: ignore[attr-defined]  # a tape
            continue
        part = (y * Tensor.from_inner(g).to_device(y.device)).cast(DType.F64).sum()
        loss = part if loss is None else loss + part
    values = [y.inner() for y in ys]
    if loss is None:
        return [*values, *[None] * len(program.wanted)]
    gradients = loss.backward()
    return [*values, *[fed[i].grad(gradients) for i in program.wanted]]


def first_by_vjp(
    program: Program, xs: Sequence[Tensor], numbers: Sequence[Any], upstream: Sequence[Tensor | None], watch: Any = None
) -> list[Tensor | None]:
    """The same by the transform."""
    ys, pull = vjp(_function(program, xs, numbers, watch), *[xs[i] for i in program.wanted])
    return [*ys, *pull(list(upstream))]


def second_by_transforms(
    program: Program,
    xs: Sequence[Tensor],
    numbers: Sequence[Any],
    upstream: Sequence[Tensor | None],
    weights: Sequence[Tensor],
) -> list[Tensor | None]:
    """Gradients of sum(weight * first gradient) for the wanted inputs and for the upstream gradients."""
    wanted = [xs[i] for i in program.wanted]
    floats = [g for g in upstream if g is not None]
    count = len(wanted)

    def first(*args: Tensor) -> list[Tensor]:
        seeds = iter(args[count:])
        _, pull = vjp(_function(program, xs, numbers), *args[:count])
        grads: list[Tensor] = list(pull([None if g is None else next(seeds) for g in upstream]))
        return grads

    _, pull = vjp(first, *wanted, *floats)
    return list(pull(list(weights)))


def _function(
    program: Program, xs: Sequence[Tensor], numbers: Sequence[Any], watch: Any = None
) -> Callable[..., list[Tensor]]:
    def function(*wanted: Tensor) -> list[Tensor]:
        fed = list(xs)
        for i, x in zip(program.wanted, wanted, strict=True):
            fed[i] = x
        return program(fed, numbers, watch)

    return function
