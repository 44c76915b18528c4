"""Generated Triton at the edges of each type on a GPU, whose instructions are not those of an interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.graph.ir import Graph
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.extremes import check_gradients, check_rows
from tests.fusion.programs import row, tensor, traced

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

WIDTHS = [DType.I64, DType.I32, DType.I16, DType.I8, DType.U8]


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts_beyond_the_width_leave_the_sign_alone(name: str, dtype: DType) -> None:
    info = torch.iinfo(TO_TORCH[dtype])
    amounts = [y for y in (-1, -64, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 100) if info.min <= y <= info.max]
    values = [info.min, info.max, 1, info.max // 3]
    x = torch.tensor([[value] * len(amounts) for value in values], dtype=TO_TORCH[dtype]).cuda()
    y = torch.tensor([amounts] * len(values), dtype=x.dtype).cuda()
    spec = tensor(*x.shape, dtype=dtype, place="cuda:0")
    graph = traced(lambda x, y: row(name)(row("bitwise_or")(x, x), y), [spec, spec])
    (z,) = FusedKernel(graph, strict=False)(x, y)
    expected = getattr(torch, name)(x.cpu(), y.cpu())
    assert z.tolist() == expected.tolist()


def run(graph: Graph) -> Callable[..., list[torch.Tensor]]:
    kernel = FusedKernel(graph, strict=False)

    def call(*inputs: Any) -> list[torch.Tensor]:
        placed = [x.cuda() if isinstance(x, torch.Tensor) else x for x in inputs]
        return [y.cpu() for y in kernel(*placed)]

    return call


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16, *WIDTHS], ids=str)
def test_every_row_at_its_extremes(dtype: DType) -> None:
    assert check_rows(dtype, run, "cuda:0") >= (80 if dtype.is_float else 7)


HALVES = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in (DType.F16, DType.BF16)]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, *HALVES], ids=str)
def test_every_gradient_at_its_extremes(dtype: DType) -> None:
    assert check_gradients(dtype, run, "cuda:0") >= 45
