"""The functions that generated C shares: errors over the whole range, in units in the last place."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from burn_torch.backend.libtorch.generated.c_kernels import CFunction
from burn_torch.core.dtype import DType
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture
from tests.fusion.programs import row, tensor, traced

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]

BOUNDS = {
    "exp": (np.exp, 1.0),
    "expm1": (np.expm1, 2.0),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 4.0),
    "tanh": (np.tanh, 3.0),
    "erf": (special.erf, 2.0),
    "sigmoid": (special.expit, 4.0),
    "erfinv": (special.erfinv, 4.0),
}
STEP = 64 if os.environ.get("BURN_TORCH_SLOW") == "1" else 20_011
"""Every so many of all float32."""

SMALLEST = np.finfo(np.float32).tiny


@pytest.mark.parametrize("name", BOUNDS)
def test_largest_error(name: str) -> None:
    exact, bound = BOUNDS[name]
    bits = np.arange(0, 1 << 32, STEP, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, SMALLEST])])
    graph = traced(lambda x: row(name)(x), [tensor(x.size)])
    y = CFunction(graph, strict=False)(torch.from_numpy(x))[0].numpy()
    with np.errstate(all="ignore"):
        wide = exact(x.astype(np.float64))
        single = wide.astype(np.float32)
    odd = ~np.isfinite(single)
    np.testing.assert_array_equal(y[odd], single[odd])
    normal = np.isfinite(single) & (np.abs(single) >= SMALLEST)
    ulps = np.abs(y[normal] - wide[normal]) / np.spacing(np.abs(single[normal]))
    assert ulps.max() <= bound, (x[normal][ulps.argmax()], ulps.max())
    least = np.isfinite(single) & ~normal
    assert np.all(np.abs(y[least] - wide[least]) <= SMALLEST), "below the normal numbers a result may be 0"


def pairs(kind: type[np.floating[Any]], count: int) -> tuple[Any, Any]:
    """Numbers and divisors of any bits, of usual sizes, next to multiples, and at the edges of the type."""
    seed = np.random.default_rng(count)
    info = np.finfo(kind)
    bits = seed.integers(0, 256, (2, count * info.dtype.itemsize), dtype=np.uint8).view(kind)
    usual, divisors = seed.standard_normal((2, count)).astype(kind)
    near = (divisors * seed.integers(1, 1 << 20, count)).astype(kind)
    edges = np.array([0, 1, 3, 7, info.tiny, info.max, np.inf, np.nan, 1e9, 5.0], kind)
    edges = np.concatenate([edges, -edges])
    x = [bits[0], usual * 100, near, np.nextafter(near, kind(0)), np.nextafter(near, kind(np.inf)), edges.repeat(20)]
    y = [bits[1], divisors, divisors, divisors, divisors, np.tile(edges, 20)]
    return np.concatenate(x).astype(kind), np.concatenate(y).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=lambda kind: kind.__name__)
def test_remainders_are_exact(kind: type[np.floating[Any]]) -> None:
    """At infinite divisors, huge quotients, next to multiples, and with the sign of each zero."""
    x, y = pairs(kind, 20_000 if STEP == 64 else 2_000)
    spec = tensor(x.size, dtype=DType.F32 if kind is np.float32 else DType.F64)
    graph = traced(lambda x, y: (row("fmod")(x, y), row("remainder")(x, y)), [spec, spec])
    with np.errstate(all="ignore"):
        toward_zero = np.fmod(x, y)
        expected = np.where((toward_zero != 0) & ((toward_zero < 0) != (y < 0)), toward_zero + y, toward_zero)
    results = CFunction(graph, strict=False)(torch.from_numpy(x), torch.from_numpy(y))
    for result, wanted in zip(results, (toward_zero, expected), strict=True):
        np.testing.assert_array_equal(result.numpy(), wanted)
        np.testing.assert_array_equal(np.signbit(result.numpy())[wanted == 0], np.signbit(wanted)[wanted == 0])
        assert (wanted == 0).any()


@pytest.mark.parametrize("name", ["tanh", "expm1", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str) -> None:
    graph = traced(lambda x: row(name)(x), [tensor(4)])
    (y,) = CFunction(graph, strict=False)(torch.tensor([0.0, -0.0, 0.0, -0.0]))
    assert y.tolist() == [0.0] * 4
    assert y.signbit().tolist() == [False, True, False, True]
