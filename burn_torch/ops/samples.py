"""Inputs that can expose a mistake: what a row's `samples` are made of.

A drawer takes a numpy Generator and returns float64, int64 or bool data; tests cast it.  A row's samples are one
drawer (a row of one input), or a list of `sample(...)`, each with drawers, numbers or None as inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.spec import Shape
from burn_torch.ops.value import Primitive

if TYPE_CHECKING:
    from numpy.random import Generator  # 10 ms, which only a test needs

__all__ = [
    "Drawer",
    "Sample",
    "booleans",
    "distinct",
    "fixed",
    "integers",
    "normalise",
    "on_plain_shapes",
    "sample",
    "uniform",
]

Array = NDArray[Any]
Drawer: TypeAlias = "Callable[[Generator], Array]"


@dataclass(frozen=True)
class Sample:
    """One set of inputs and attributes of a row."""

    inputs: tuple[Primitive, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def draw(self, generator: Generator) -> list[Primitive]:
        """The inputs: arrays for drawers, numbers and None as they are."""
        return [np.asarray(x(generator)) if callable(x) else x for x in self.inputs]


def sample(*inputs: object, **attrs: object) -> Sample:
    """Inputs (drawers, numbers, None) and attributes of one call."""
    return Sample(inputs, attrs)


def normalise(samples: Any) -> list[Sample]:
    """A row's `samples` field as a list."""
    if callable(samples):
        return [Sample((samples,))]
    return [s if isinstance(s, Sample) else Sample((s,)) for s in samples]


def uniform(low: float, high: float, shape: Shape = (3, 4)) -> Drawer:
    """Floats drawn evenly from [low, high)."""
    return lambda generator: generator.uniform(low, high, shape)


def on_plain_shapes(low: float, high: float) -> list[Drawer]:
    """Floats drawn evenly from [low, high): over two axes, over none, and no elements at all."""
    return [uniform(low, high, (3, 5)), uniform(low, high, ()), uniform(low, high, (2, 0))]


def integers(low: int, high: int, shape: Shape = (3, 4)) -> Drawer:
    """int64 drawn evenly from [low, high)."""
    return lambda generator: generator.integers(low, high, shape, dtype=np.int64)


def booleans(shape: Shape = (3, 4)) -> Drawer:
    """Truth values, each with probability 1/2."""
    return lambda generator: np.asarray(generator.random(shape) < 0.5)


def distinct(shape: Shape = (3, 4), step: float = 0.25) -> Drawer:
    """Floats that differ pairwise by at least `step` and from 0 by half of it, so no order changes nearby."""

    def draw(generator: Generator) -> Array:
        count = math.prod(shape)
        return (generator.permutation(count).reshape(shape) - count // 2 + 0.5) * step

    return draw


def fixed(values: Iterable[Primitive], dtype: Any = np.float64) -> Drawer:
    """The given values, for ties, NaN and ends of ranges."""
    data = np.array(list(values) if not isinstance(values, np.ndarray) else values, dtype=dtype)
    return lambda generator: data.copy()
