"""LibTorch gives an element the same result in a full vector as where vectors do not reach: torch itself does not."""

from __future__ import annotations

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.graph.interpreter import interpret
from tests.fusion.extremes import element_wise_calls
from tests.fusion.programs import traced


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16], ids=str)
def test_numbers_at_the_edges_are_the_same_in_every_lane(dtype: DType) -> None:
    count = 0
    for name, function, specs, calls in element_wise_calls(dtype):
        if name in ("gelu", "gelu_backward"):  # which oneDNN computes of contiguous tensors; their docstrings say so
            continue
        graph = traced(function, specs)
        for inputs in calls[:2]:
            apart = [torch.stack([x, x], -1)[..., 0] if isinstance(x, torch.Tensor) else x for x in inputs]
            for y, z in zip(interpret(graph, LibTorch(), inputs), interpret(graph, LibTorch(), apart), strict=True):
                if y.is_floating_point():
                    same = (y.isnan() & z.isnan()) | (y == z) | (y.isfinite() & z.isfinite())
                else:
                    same = y == z
                odd = (~same).nonzero().flatten().tolist()[:1]
                at = [tuple(x[n].item() if isinstance(x, torch.Tensor) else x for x in inputs) for n in odd]
                assert not odd, f"{name} of {dtype} at {at}: {[(y[n].item(), z[n].item()) for n in odd]}"
        count += 1
    assert count >= 80
