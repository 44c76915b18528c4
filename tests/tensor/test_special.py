"""burn_torch.tensor.special beside scipy and numpy in float64: values at their edges, slopes, types, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

from burn_torch import Device, DType, Tensor, compile, vmap
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.tensor import linalg, special
from burn_torch.tensor.signal import cosine_window
from tests.tensor.leaves import LEAVES

EDGES = np.array([0.0, -0.0, 0.25, 1.0, -1.0, 2.5, -2.5, 1e-300, math.inf, -math.inf, math.nan])
GRID = tuple(x.ravel() for x in np.meshgrid(EDGES, EDGES))

UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "entr": (special.entr, scipy.special.entr),
    "logit": (special.logit, scipy.special.logit),
    "ndtr": (special.ndtr, scipy.special.ndtr),
    "sinc": (special.sinc, np.sinc),
    "frac": (special.frac, lambda x: torch.frac(torch.from_numpy(x)).numpy()),
}
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "xlogy": (special.xlogy, scipy.special.xlogy),
    "xlog1py": (special.xlog1py, scipy.special.xlog1py),
    "copysign": (special.copysign, np.copysign),
    "heaviside": (special.heaviside, lambda x, y: torch.heaviside(*map(torch.from_numpy, (x, y))).numpy()),
    "floor_divide": (special.floor_divide, lambda x, y: torch.floor_divide(*map(torch.from_numpy, (x, y))).numpy()),
}


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_values_at_edges_are_those_of_scipy(name: str, leaf: str) -> None:
    ours, theirs = {**UNARY, **BINARY}[name]
    operands = GRID if name in BINARY else (EDGES,)
    with np.errstate(all="ignore"):
        expected = theirs(*operands)
    actual = np.asarray(ours(*[Tensor.from_data(x, LEAVES[leaf]()) for x in operands]))
    np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=2e-16)
    if name == "copysign":  # zeros have signs too
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.F16, DType.BF16])
def test_floor_divide_is_exact_where_a_quotient_rounds_up(dtype: DType, seed: np.random.Generator) -> None:
    device = Device.cpu()
    x = Tensor.from_data(seed.normal(size=4000) * 20, device).cast(dtype)
    y = Tensor.from_data(seed.choice([0.1, -0.1, 0.3, 0.7, -1.9], 4000), device).cast(dtype)
    expected = torch.floor_divide(x.into_torch().double(), y.into_torch().double())
    assert torch.equal(special.floor_divide(x, y).into_torch(), expected.to(x.into_torch().dtype))
    whole = [Tensor.from_data(numbers, device) for numbers in ([7, -7, 7, -7], [2, 2, -2, -2])]
    assert special.floor_divide(*whole).tolist() == [3, -4, -4, 3]


@pytest.mark.parametrize("leaf", LEAVES)
def test_logcumsumexp_neither_overflows_nor_loses_small_numbers(leaf: str, seed: np.random.Generator) -> None:
    device = LEAVES[leaf]().autodiff()
    x = seed.normal(size=(int(seed.integers(1, 9)), 11)) * 100
    expected = np.logaddexp.accumulate(x, axis=1)
    np.testing.assert_allclose(np.asarray(special.logcumsumexp(Tensor.from_data(x, device), -1)), expected, rtol=1e-14)
    none = Tensor.from_data([-math.inf, -math.inf, 1.0], device).require_grad()
    y = special.logcumsumexp(none, 0)
    assert y.tolist() == [-math.inf, -math.inf, 1.0]
    assert none.grad(y.narrow(0, 2, 1).sum().backward()).tolist() == [0.0, 0.0, 1.0]


def test_functions_compile_and_map(seed: np.random.Generator) -> None:
    x = Tensor.from_data(seed.uniform(0.1, 0.9, (3, 4)), Device.cpu())

    def all_of_them(x: Tensor) -> Tensor:
        y = special.lerp(special.xlogy(x, x), special.entr(x), 0.25) + special.sinc(x) * special.logit(x, 1e-3)
        return special.logcumsumexp(y + special.frac(x * 3.0), -1) + special.heaviside(x - 0.5, x)

    expected = np.asarray(all_of_them(x))
    np.testing.assert_allclose(np.asarray(compile(all_of_them, fuse=True)(x)), expected, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(vmap(all_of_them)(x)), expected, rtol=1e-13)


@pytest.mark.parametrize("leaf", LEAVES)
def test_chains_blocks_and_powers_of_matrices(leaf: str, seed: np.random.Generator) -> None:
    device = LEAVES[leaf]()
    sizes = seed.integers(1, 6, 5)
    chain = [seed.normal(size=(m, n)) for m, n in pairwise(sizes)]
    ours = [Tensor.from_data(x, device) for x in chain]
    np.testing.assert_allclose(np.asarray(linalg.multi_dot(ours)), np.linalg.multi_dot(chain), rtol=1e-11, atol=1e-13)
    many = [np.eye(2)] * 60
    assert np.array_equal(np.asarray(linalg.multi_dot([Tensor.from_data(x, device) for x in many])), np.eye(2))
    expected = torch.block_diag(*map(torch.from_numpy, chain)).numpy()
    np.testing.assert_array_equal(np.asarray(linalg.block_diag(ours)), expected)
    v = seed.normal(size=4)
    np.testing.assert_allclose(
        np.asarray(linalg.vander(Tensor.from_data(v, device), 6)), np.vander(v, 6, increasing=True), rtol=1e-14
    )


def test_mistakes_are_refused_in_three_parts() -> None:
    x = Tensor.from_data([0.5], Device.cpu())
    for wrong, error in (
        (lambda: special.logit(x, 0.7), ArgumentError),
        (lambda: special.xlogy(0.5, x), DTypeError),
        (lambda: special.lerp(x, x, "half"), DTypeError),
        (lambda: linalg.multi_dot([x]), ShapeError),
        (lambda: linalg.block_diag([]), ShapeError),
        (lambda: linalg.vander(x, 0), ShapeError),
        (lambda: cosine_window((), 4, True, Device.cpu()), ArgumentError),
        (lambda: cosine_window((0.5, 0.5), 4, True, (Device.cpu(), "i64")), ArgumentError),
        (lambda: Tensor.diag_mask((-1, 2), 0, Device.cpu()), ShapeError),
    ):
        with pytest.raises(error, match=r"(?s)given:.*expected:.*mend:"):
            wrong()
