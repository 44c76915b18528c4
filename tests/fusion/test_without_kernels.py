"""Fused graphs where no kernel is generated: the operations of each body run one by one."""

from __future__ import annotations

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.generated import c_kernels
from burn_torch.core.dtype import DType
from burn_torch.fusion import plan_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import REGISTRY
from tests.fusion.programs import MATRIX


def test_constants_and_draws_by_literals_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read no tensor, so nothing but the other inputs says on which backend they are computed."""
    trace = Trace()
    x = trace.input(MATRIX)
    attrs = {"shape": MATRIX.shape, "dtype": DType.F32, "place": "cpu"}
    mask = REGISTRY["dropout_mask"].run(trace, type(x), (0.4, 7, 11), attrs)
    half = REGISTRY["full"].run(trace, type(x), (0.5,), attrs)
    graph = trace.graph([x * mask + half]).dense()
    planned = plan_of(graph)
    assert planned.kernels == 1
    monkeypatch.setattr(c_kernels, "lowered_for_cpu", lambda body, strict: None)
    c_kernels.c_function.cache_clear()
    matrix = torch.randn(MATRIX.shape)
    assert torch.equal(LibTorch().program(planned.graph).run(matrix)[0], interpret(graph, LibTorch(), [matrix])[0])
    c_kernels.c_function.cache_clear()
