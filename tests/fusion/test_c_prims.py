"""The functions that generated C shares: errors over the whole range, in units in the last place."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scipy import special

from burn_torch.backend.libtorch.c_kernels import CFunction, compiler
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")

BOUNDS = {
    "exp": (np.exp, 1.0),
    "expm1": (np.expm1, 2.0),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 4.0),
    "tanh": (np.tanh, 3.0),
    "erf": (special.erf, 2.0),
    "sigmoid": (special.expit, 4.0),
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
