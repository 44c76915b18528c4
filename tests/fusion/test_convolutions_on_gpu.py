"""Convolutions of few channels with the work behind them on a GPU: one launch, right against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_kernels.launch import observing  # after the check for triton
from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import Choices, plan_of
from burn_torch.fusion.triton.convolutions import ConvolutionTiles
from tests.fusion.checking import TOLERANCE, in_float64, made
from tests.fusion.programs import row, traced

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PLAIN = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
@pytest.mark.parametrize("channels", [1, 8])
def test_convolution_and_the_work_behind_it(dtype: DType, channels: int, seed: np.random.Generator) -> None:
    def block(x: Any, w: Any, b: Any, scale: Any, r: Any) -> Any:
        return row("relu")(row("conv")(x, w, b, **PLAIN) * scale) + r

    shapes = [(33, channels, 28, 28), (2 * channels, channels, 3, 3), (2 * channels,), (1, 2 * channels, 1, 1)]
    specs = [TensorSpec.of(shape, dtype, "cuda:0") for shape in (*shapes, (33, 2 * channels, 28, 28))]
    graph = traced(block, specs)
    plan = plan_of(graph, Choices(convolution=lambda size, around: ConvolutionTiles(8, 256, 4)))
    assert [node.call.op.name for node in plan.graph.nodes if not node.call.aliases] == ["fusion::convolution"]
    inputs = [x.cuda() for x in made(specs, seed)]
    program = LibTorch().program(plan.graph)
    (y,) = program.run(*inputs)
    (z,) = in_float64(graph, inputs)
    size = TOLERANCE[dtype] * float(z.abs().max())
    torch.testing.assert_close(y.double(), z, rtol=size, atol=size)
    with observing() as seen:
        program.run(*inputs)
    assert len(seen) == 1
