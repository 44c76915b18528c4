"""Generated Triton at the edges of each type, in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

from burn_kernels import prims  # noqa: E402  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel  # noqa: E402
from burn_torch.core.dtype import DType  # noqa: E402
from burn_torch.graph.ir import Graph  # noqa: E402
from tests.fusion.extremes import check_gradients, check_rows  # noqa: E402
from tests.fusion.test_c_prims import pairs  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
    pytest.mark.filterwarnings("error::burn_torch.fusion.body.reasons.FusionWarning"),
]

TYPES = [DType.F32, DType.F16, DType.I32, DType.BOOL]
SLOW = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in (DType.F64, DType.I64, DType.I16, DType.I8)]
"""The interpreter takes the least numbers of bf16 for 0, and no `~` of u8."""


def run(graph: Graph) -> FusedKernel:
    return FusedKernel(graph, strict=False)


@pytest.mark.parametrize("dtype", [*TYPES, *SLOW], ids=str)
def test_every_row_at_its_extremes(dtype: DType) -> None:
    assert check_rows(dtype, run) >= (80 if dtype.is_float else 7)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16], ids=str)
def test_every_gradient_at_its_extremes(dtype: DType) -> None:
    assert check_gradients(dtype, run) >= 45


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _apply(x_ptr: Any, y_ptr: Any, z_ptr: Any, count: Any, FUNCTION: tl.constexpr, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    y = tl.load(y_ptr + at, mask=at < count, other=0.0)
    tl.store(z_ptr + at, FUNCTION(x, y), mask=at < count)


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_are_exact(name: str, kind: type[np.floating[Any]]) -> None:
    x, y = pairs(kind, 2_000)
    z = torch.empty(x.size, dtype=torch.from_numpy(x).dtype)
    _apply[(-(-x.size // 4096),)](
        torch.from_numpy(x), torch.from_numpy(y), z, x.size, FUNCTION=getattr(prims, name), BLOCK=4096
    )
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
        if name == "remainder":
            wanted = np.where((wanted != 0) & ((wanted < 0) != (y < 0)), wanted + y, wanted)
    np.testing.assert_array_equal(z.numpy(), wanted)
    np.testing.assert_array_equal(np.signbit(z.numpy())[wanted == 0], np.signbit(wanted)[wanted == 0])


def test_a_short_erf_is_one_where_the_library_says_so() -> None:
    """GELU of -1e6 in bfloat16 was -5: the polynomial left 1.1e-5 of 1."""
    from tests.fusion.programs import row, tensor, traced

    x = torch.tensor([-3.3e38, -1e6, -100.0, -8.0, 8.0, 1e6], dtype=torch.bfloat16)
    graph = traced(lambda x: row("gelu")(x), [tensor(6, dtype=DType.BF16)])
    (y,) = FusedKernel(graph, strict=False)(x)
    assert y.tolist() == [0.0] * 4 + x[4:].tolist()
