"""Kernels around convolutions in the interpreter: against float64, with all that may join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion import explain, plan_of
from burn_torch.fusion.triton.convolutions import ConvolutionTiles
from burn_torch.graph.verifier import verify
from tests.fusion.checking import TOLERANCE, in_float64, made
from tests.fusion.choosing import choosing
from tests.fusion.programs import row, tensor, traced

TILES = ConvolutionTiles(4, 32, 1)
PLAIN = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
OTHER = {"stride": (2, 1), "padding": ((1, 1), (2, 2)), "dilation": (1, 2), "groups": 2}


@pytest.fixture(autouse=True)
def always() -> Iterator[None]:
    """Whatever can join a convolution does."""
    with choosing(convolution=lambda size, around: TILES):
        yield


def activated(x: Any, w: Any, b: Any) -> Any:
    return row("relu")(row("conv")(x, w, b, **PLAIN))


def in_groups(x: Any, w: Any, scale: Any, shift: Any) -> Any:
    """Applies a batch norm that is not trained."""
    z = row("conv")(x, w, None, **OTHER)
    return row("relu")(z * scale + shift)


def residual(x: Any, w: Any, r: Any) -> Any:
    z = row("conv")(x, w, None, **PLAIN)
    return row("tanh")(z) + r, z


def dropped(x: Any, w: Any, b: Any, key: Any, stream: Any, scale: Any) -> Any:
    return row("dropout")(row("conv")(x, w, b, **PLAIN), 0.4, key, stream) * scale


def flattened(x: Any, w: Any, b: Any) -> Any:
    y = row("conv")(x, w, b, **PLAIN)
    return row("exp")(row("reshape")(y, shape=(y.shape[0], y.spec.numel // y.shape[0])))


X, W, B = tensor(2, 2, 7, 6), tensor(5, 2, 3, 2), tensor(5)
CASES: dict[str, tuple[Callable[..., Any], list[Spec]]] = {
    "bias, relu": (activated, [X, W, B]),
    "scale, shift, relu in groups": (
        in_groups,
        [tensor(2, 4, 7, 6), tensor(6, 2, 3, 2), tensor(1, 6, 1, 1), tensor(1, 6, 1, 1)],
    ),
    "residual, kept": (residual, [X, W, tensor(2, 5, 5, 5)]),
    "dropout": (dropped, [X, W, B, INT_NUMBER, INT_NUMBER, FLOAT_NUMBER]),
    "flattened": (flattened, [X, W, B]),
}


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_one_kernel(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, specs = CASES[name]
    typed = [spec.with_dtype(dtype) if isinstance(spec, TensorSpec) else spec for spec in specs]
    graph = traced(function, typed)
    plan = plan_of(graph, LibTorch().capabilities.choices)
    verify(plan.graph)
    assert [node.call.op.name for node in plan.graph.nodes if not node.call.aliases] == ["fusion::convolution"]
    inputs = made(typed, seed, 0.5)
    judged(LibTorch().program(plan.graph).run(*inputs), in_float64(graph, inputs), dtype)


def judged(actual: Any, exact: Any, dtype: DType) -> None:
    for y, z in zip(actual, exact, strict=True):
        size = TOLERANCE[dtype] * max(1.0, float(z.abs().max()))
        torch.testing.assert_close(y.double(), z, rtol=size, atol=size)


def test_images_in_any_strides_and_weights_too(seed: np.random.Generator) -> None:
    graph = traced(activated, [X, W, B])
    x, w, b = made([tensor(2, 7, 6, 2), tensor(2, 5, 3, 2), B], seed)
    inputs = [x.permute(0, 3, 1, 2), w.transpose(0, 1), b]
    judged(
        LibTorch().program(plan_of(graph, LibTorch().capabilities.choices).graph).run(*inputs),
        in_float64(graph, inputs),
        DType.F32,
    )


def test_more_channels_than_a_program_has(seed: np.random.Generator) -> None:
    graph = traced(activated, [tensor(1, 1, 5, 5), tensor(11, 1, 3, 3), tensor(11)])
    inputs = made([spec for _, spec in graph.inputs], seed)
    judged(
        LibTorch().program(plan_of(graph, LibTorch().capabilities.choices).graph).run(*inputs),
        in_float64(graph, inputs),
        DType.F32,
    )


def test_the_explanation_has_its_tiles_and_source() -> None:
    (kernel,) = explain(plan_of(traced(activated, [X, W, B]), LibTorch().capabilities.choices)).kernels
    assert kernel.rows == ("conv", "relu")
    assert kernel.source is not None
    assert "sums_at(" in kernel.source
