"""Makers of patterns that show faults of kernels where single rows do not: turned results, remainders, ragged rows."""

from __future__ import annotations

import numpy as np

from tests.fuzz.building import Builder

__all__ = ["ragged_rows", "remainders", "turned_results"]


def turned_results(d: Builder) -> bool:
    """Returns what a library computes dies in a kernel that reads it turned and writes a result of its shape."""
    rows = d.random.choice((3, 5, 8, 17))
    square = d.one("matmul", d.fresh("f", (rows, rows)), d.fresh("f", (rows, rows)))
    if square is None:
        return False
    turn = d.random.choice((("flip", {"axes": (0,)}), ("flip", {"axes": (1,)}), ("permute", {"axes": (1, 0)})))
    z = d.one(d.random.choice(("add", "sub", "mul")), d.one(turn[0], square, **turn[1]), d.fresh("f", (rows, rows)))
    if z is not None and d.chance(0.5):
        z = d.one("add", z, square)
    return d.elementwise_of(z) is not None


def remainders(d: Builder) -> bool:
    """Remainders of negative, huge and infinite operands, and what is made of them."""
    shape = (d.random.choice((3, 7, 16)),)
    numerators = d.numpy.choice([1.0, -1.0, 5.0, -7.25, 0.0, 1e9], shape)
    divisors = d.numpy.choice([np.inf, -np.inf, 2.0, -0.5, 3.0], shape)
    d.wild = True
    row = d.random.choice(("remainder", "remainder", "fmod"))
    z = d.one(row, d.add_input(numerators, d.float), d.add_input(divisors, d.float))
    return d.elementwise_of(z) is not None


def ragged_rows(d: Builder) -> bool:
    """Reductions of rows that are no multiple of a block, over values that are not 0 where a load is masked."""
    x = d.fresh("f", (d.random.choice((1, 3, 5)), d.random.choice((3, 7, 13, 33, 65))))
    y = d.one(d.random.choice(("exp", "sigmoid", "cos")), x)
    total = d.one(d.random.choice(("sum", "mean", "amax", "prod")), y, dims=(1,)) if y is not None else None
    return total is not None and d.emit("mul", total, 0.5) is not None
