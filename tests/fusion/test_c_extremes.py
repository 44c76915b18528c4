"""Generated C at the edges of each type: infinities, NaN, zeros of both signs, the least and the largest numbers."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import Device, Tensor, compile
from burn_torch.backend.libtorch.generated.c_kernels import CFunction
from burn_torch.core.dtype import DType
from burn_torch.graph.ir import Graph
from tests.fusion.extremes import check_gradients, check_rows
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]

TYPES = [DType.F32, DType.F64, DType.BF16, DType.I8, DType.U8, DType.BOOL]
SLOW = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in (DType.F16, DType.I64, DType.I32, DType.I16)]


def run(graph: Graph) -> CFunction:
    kernel = CFunction(graph, strict=False)
    assert kernel.kernel is not None
    return kernel


@pytest.mark.parametrize("dtype", [*TYPES, *SLOW], ids=str)
def test_every_row_at_its_extremes(dtype: DType) -> None:
    assert check_rows(dtype, run) >= (80 if dtype.is_float else 7)


@pytest.mark.parametrize(
    "dtype",
    [DType.F32, *(pytest.param(d, marks=pytest.mark.slow) for d in (DType.F64, DType.F16, DType.BF16))],
    ids=str,
)
def test_every_gradient_at_its_extremes(dtype: DType) -> None:
    assert check_gradients(dtype, run) >= 45


def test_remainders_in_a_fused_function() -> None:
    """x % inf is x, huge quotients keep their digits, and what lies next to a multiple stays below y."""
    x = np.float32([5.0, 1e9, 1e20, 45.52657699584961, -5.0, 0.0] * 8)
    y = np.float32([np.inf, 7.0, 3.0, 0.6695085167884827, 3.0, 2.0] * 8)
    inputs = [Tensor.from_data(value, Device.cpu()) for value in (x, y)]
    chain = compile(lambda x, y: ((x % y) * 2.0).mask_where(x == -17.0, y) * 0.5 + 0.0, fuse=True)
    remainders = chain(*inputs).into_data().values
    np.testing.assert_array_equal(remainders, np.remainder(x, y))
    assert (remainders < y).all()
