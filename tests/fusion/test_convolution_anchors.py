"""Convolutions that take up the work behind them: when, how it is explained, who says so, and that they compile."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from burn_kernels import convolution
from burn_kernels.ahead import compile_launch, resources
from burn_kernels.autotune import selection
from burn_kernels.launch import H200, MI300X, Machine, recording
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.generated.anchors import _Run, chosen_convolution
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import Choices, Reason, plan_of
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.triton.convolutions import (
    Convolution,
    ConvolutionTiles,
    convolution_in,
    is_convolution,
    lower_convolution,
)
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.checking import made
from tests.fusion.programs import row, tensor, traced

TILES = ConvolutionTiles(8, 128, 4)
PLAIN = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
X, W, B = tensor(4, 3, 8, 8), tensor(6, 3, 3, 3), tensor(6)


def always(size: Convolution, around: str) -> ConvolutionTiles:
    return TILES


def activated(x: Any, w: Any, b: Any) -> Any:
    return row("relu")(row("conv")(x, w, b, **PLAIN) * 0.5)


def names(graph: Any) -> list[str]:
    return [node.call.op.name for node in graph.nodes]


# -- what joins ------------------------------------------------------------------------------------------
def test_without_a_chooser_the_library_computes_them() -> None:
    for chooser in (None, chosen_convolution, lambda size, around: None):
        plan = plan_of(traced(activated, [X, W, B]), Choices(convolution=chooser))
        assert names(plan.graph) == ["conv", "fusion::kernel"]
        (boundary,) = plan.boundaries
        assert boundary.reason is Reason.LIBRARY
        assert boundary.detail == "nothing says that a kernel of its own beats the library's"


def test_the_work_behind_one_joins_it(seed: np.random.Generator) -> None:
    asked: list[tuple[Convolution, str]] = []

    def ask(size: Convolution, around: str) -> ConvolutionTiles:
        asked.append((size, around))
        return TILES

    graph = traced(activated, [X, W, B])
    plan = plan_of(graph, Choices(convolution=ask))
    verify(plan.graph)
    assert names(plan.graph) == ["fusion::convolution"]
    assert asked == [(Convolution((4, 3, 8, 8, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1), True, DType.F32, "cpu"), "after")]
    assert not plan.boundaries
    (group,) = plan.groups
    assert group.rows == ("conv", "mul", "relu")
    assert group.bytes_saved >= 2 * 4 * 6 * 64 * 4, "what the convolution made is neither written nor read"
    inputs = made([X, W, B], seed)
    for y, z in zip(LibTorch().program(plan.graph).run(*inputs), interpret(graph, LibTorch(), inputs), strict=True):
        torch.testing.assert_close(y, z)


def test_what_others_read_is_written_too() -> None:

    def kept(x: Any, w: Any) -> Any:
        z = row("conv")(x, w, None, **PLAIN)
        return row("tanh")(z), z

    plan = plan_of(traced(kept, [X, W]), Choices(convolution=always))
    assert names(plan.graph) == ["fusion::convolution"]
    assert len(plan.graph.nodes[0].outputs) == 2


def test_what_does_not_join() -> None:

    def summed(x: Any, w: Any) -> Any:
        return row("sum")(row("conv")(x, w, None, **PLAIN), dims=(0, 2, 3))

    assert "fusion::convolution" not in names(plan_of(traced(summed, [X, W]), Choices(convolution=always)).graph)
    uneven = {**PLAIN, "padding": ((0, 1), (1, 1))}
    assert not is_convolution(traced(lambda x, w: row("conv")(x, w, None, **uneven), [X, W]).nodes[0].call)
    line = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    graph = traced(lambda x, w: row("conv")(x, w, None, **line), [tensor(2, 3, 8), tensor(4, 3, 3)])
    assert not is_convolution(graph.nodes[0].call)


def test_bodies_that_are_no_kernel() -> None:
    with pytest.raises(Unfusible, match="0 convolutions in one kernel"):
        convolution_in(traced(lambda x: x * 2.0, [X]))
    with pytest.raises(Unfusible, match="work on what a convolution reads"):
        lower_convolution(traced(lambda x, w: row("relu")(row("conv")(x * 2.0, w, None, **PLAIN)), [X, W]))
    turned = traced(lambda x, w: row("flip")(row("conv")(x, w, None, **PLAIN), axes=(3,)) * 2.0, [X, W])
    with pytest.raises(Unfusible, match="no kernel is generated for conv"):
        lower_convolution(turned)


# -- who says that it pays -------------------------------------------------------------------------------
def test_it_joins_the_kernel_that_would_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = SimpleNamespace(config=convolution.Config(8, 512, 4))
    asked: list[tuple[str, int]] = []

    def decide(tunable: Any, index: int, facts: Any, fixed: bool) -> Any:
        asked.append((tunable.key(facts), index))
        return decision

    monkeypatch.setattr(selection, "current", lambda: SimpleNamespace(decide=decide))
    size = Convolution((64, 1, 28, 28, 8, 3, 3, 1, 1, 0, 0, 1, 1, 1), True, DType.F32, "cuda:1")
    assert chosen_convolution(size, "after") == ConvolutionTiles(8, 512, 4)
    assert [index for _, index in asked] == [1]
    assert "b" in asked[0][0].split(), "the convolution with its bias, and nothing after it"
    assert chosen_convolution(dataclasses.replace(size, place="cpu"), "after") is None
    decision.config = convolution.LIBRARY
    assert chosen_convolution(size, "after") is None
    decision.config = convolution.Config(8, 64, 2, 4)
    assert chosen_convolution(size, "after") is None, "cores for tensors compute it"
    asked.clear()
    wide = Convolution((64, 256, 28, 28, 256, 3, 3, 1, 1, 0, 0, 1, 1, 1), True, DType.F32, "cuda:1")
    assert chosen_convolution(wide, "after") is None
    assert not asked, "of many channels: a library's, whatever was timed"


# -- compiled --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("machine", "dtype"),
    [(H200, DType.F32), pytest.param(H200, DType.BF16, marks=pytest.mark.slow),
     pytest.param(MI300X, DType.F32, marks=pytest.mark.slow)],
    ids=str,
)  # fmt: skip
def test_they_compile_without_spills(machine: Machine, dtype: DType) -> None:
    def block(x: Any, w: Any, b: Any, scale: Any, r: Any) -> Any:
        return row("relu")(row("conv")(x, w, b, **PLAIN) * scale) + r

    specs = [tensor(64, 8, 28, 28), tensor(16, 8, 3, 3), tensor(16), tensor(1, 16, 1, 1), tensor(64, 16, 28, 28)]
    typed = [spec.with_dtype(dtype) for spec in specs]
    body = traced(block, typed)
    _, size = convolution_in(body)
    geometry = convolution.Geometry(*size.sizes)
    best = convolution.default(geometry, TO_TORCH[dtype], machine)
    direct = next(
        c for c in [best, *convolution.candidates(geometry, TO_TORCH[dtype], machine)] if c.outs and not c.channels
    )
    run = _Run(body, ConvolutionTiles(direct.outs, direct.pixels, direct.warps), strict=False, held=False)
    with recording(machine) as launches:
        run(
            *[
                torch.empty(spec.shape, dtype=TO_TORCH[dtype], device="meta")
                for spec in typed
                if isinstance(spec, TensorSpec)
            ]
        )
    (launch,) = launches
    assert resources(compile_launch(launch, machine)).spills == 0
