"""Makers of patterns that samples do not have: detached values, parts written back, windows, ties, edges."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from burn_torch import DType
from burn_torch.ops.op import REGISTRY
from tests.fuzz.arithmetic_patterns import ARITHMETIC
from tests.fuzz.attributes import draw_dims, draw_ranges, draw_sizes
from tests.fuzz.building import Builder
from tests.fuzz.kernel_patterns import ragged_rows, remainders, turned_results
from tests.fuzz.rows import LARGE, drawable, drawn_samples, placed

__all__ = ["MAKERS"]


def _detach(d: Builder) -> bool:
    """A constant made of a value, most often beside the value itself: each tape must see it as one."""
    x = d.pick(lambda v: v.dtype.is_float)
    constant = d.one("detach", d.elementwise_of(x) or x) if x else None
    return constant is not None and (d.chance(0.3) or d.emit("mul", x, constant) is not None)


def _straight_through(d: Builder) -> bool:
    x = d.pick(lambda v: v.dtype.is_float)
    rounded = d.one(d.random.choice(("round", "sign", "floor")), x) if x else None
    change = d.one("sub", rounded, x) if rounded else None
    change = d.one("detach", change) if change else None
    return change is not None and d.emit("add", x, change) is not None


def _product(d: Builder) -> bool:
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) >= 2)
    if x is None:
        return False
    axes = list(range(len(x.shape)))
    axes[-2:] = axes[:-3:-1]
    y = d.one("permute", x, axes=tuple(axes))
    if y is None:
        return False
    if d.chance(0.5):
        y = d.elementwise_of(y) or y
    return d.emit("matmul", *((x, y) if d.chance(0.5) else (y, x))) is not None


def _updated_part(d: Builder) -> bool:
    """A part is read, changed and written back: in place, where a program may."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and v.tensor.spec.numel > 0)
    if x is None:
        return False
    ranges = draw_ranges(d, x.tensor.spec, None)
    part = d.one("slice", x, ranges=ranges)
    part = d.elementwise_of(part) if part else None
    return part is not None and d.emit("slice_assign", x, part, ranges=ranges) is not None


def _over_expanded(d: Builder) -> bool:
    """Writes to a part of a value whose elements share memory."""
    x = d.pick(lambda v: v.dtype.is_float and 0 < v.tensor.spec.numel <= 40)
    wide = d.one("expand", x, shape=(3, *x.shape)) if x else None
    if wide is None:
        return False
    ranges = ((0, 1, 1), *((0, n, 1) for n in x.shape)) if x else ()
    part = d.elementwise_of(d.one("slice", wide, ranges=ranges))
    return part is not None and d.emit("slice_assign", wide, part, ranges=ranges) is not None


def _gather(d: Builder) -> bool:
    """Values through indices that another value gives."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and 0 not in v.shape)
    if x is None:
        return False
    dim = d.random.randrange(len(x.shape))
    order = d.emit("sort_with_indices", x, dim=dim, descending=d.chance(0.5))
    if not order or order[1] is None:
        return False
    return d.emit("gather", d.elementwise_of(x) or x, order[1], dim=dim) is not None


def _at_edges(d: Builder) -> bool:
    """An element-wise row at infinities, NaN, zeros of both signs and large numbers, and another row behind it."""
    name = d.random.choice([name for name in drawable() if REGISTRY[name].pointwise is not None])
    shape = d.some_shape()
    operands: list[Any] = []
    for x in d.random.choice(drawn_samples(name))[1]:
        if not isinstance(x, np.ndarray):
            operands.append(x)
            continue
        if x.dtype.kind != "f":
            operands.append(d.fresh(x.dtype.kind, shape))
            continue
        edges = d.numpy.choice(
            [np.nan, np.inf, -np.inf, 0.0, -0.0, LARGE[d.float], -LARGE[d.float] / 3, 45.0, 1e-30], shape
        )
        operands.append(
            d.add_input(np.where(d.numpy.random(shape) < 0.5, edges, d.numpy.uniform(-3, 3, shape)), d.float)
        )
    d.wild = True
    return d.elementwise_of(d.one(name, *operands)) is not None


def _turn(d: Builder) -> bool:
    """Returns what a library computes, read where it lies and turned: it may not be written over."""
    x = d.pick(lambda v: v.dtype is d.float and len(v.shape) == 2 and 0 < v.tensor.spec.numel <= 64)
    y = d.one("permute", x, axes=(1, 0)) if x else None
    square = d.one("matmul", x, y) if x and y else None
    turned = d.one("flip", square, axes=(d.random.randrange(2),)) if square else None
    return (
        turned is not None and d.emit(d.random.choice(("add", "mul", "sub")), d.elementwise_of(turned), 0.5) is not None
    )


def _normalise(d: Builder) -> bool:
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and v.tensor.spec.numel > 0)
    if x is None:
        return False
    dims = draw_dims(d, x.tensor.spec, None)
    mean = d.one(d.random.choice(("mean", "amax", "sum", "logsumexp")), x, dims=dims)
    return mean is not None and d.emit(d.random.choice(("sub", "mul", "maximum")), x, mean) is not None


def _several_results(d: Builder) -> bool:
    """Only a later result of a row is read on."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and 0 not in v.shape)
    if x is None:
        return False
    dim = d.random.randrange(len(x.shape))
    if d.chance(0.5):
        outputs = d.emit("var_mean", x, dims=(dim,), correction=0)
    else:
        outputs = d.emit("split", x, sizes=draw_sizes(d, x, dim), dim=dim)
    last = outputs[-1] if outputs else None
    return last is not None and d.elementwise_of(last) is not None


def _drawn_random(d: Builder) -> bool:
    """Two draws of one key and shape, and of another one: equal and unequal."""
    name = d.random.choice(("uniform", "normal", "bernoulli", "dropout_mask"))
    shape = d.some_shape()
    key, stream = d.random.randrange(2**40), d.random.randrange(4)
    numbers = {"uniform": (-1.0, 1.0), "normal": (0.0, 1.0), "bernoulli": (0.4,), "dropout_mask": (0.3,)}[name]
    dtype = DType.BOOL if name == "bernoulli" else d.float
    sample = drawn_samples(name)[0][0].attrs
    attrs = {**placed(sample), "shape": shape, "dtype": dtype, **({"start": 0} if "start" in sample else {})}
    d.emit(name, *numbers, key, d.number(stream), **attrs)
    return d.emit(name, *numbers, d.number(key), stream + d.random.randrange(2), **attrs) is not None


MAKERS: Final = (
    _detach, _straight_through, _product, _updated_part, _over_expanded, _gather, _normalise, _several_results,
    _drawn_random, _at_edges, _turn, turned_results, remainders, ragged_rows, *ARITHMETIC,
)  # fmt: skip
