"""The head of a language model in chunks: found with its gradients, the same values, and where it is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.chunking import LEAST_BYTES, chunk_losses
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import dead_code
from burn_torch.graph.verifier import verify
from tests.fusion.programs import row, tensor, traced

NAME = "linear_cross_entropy_with_gradients"
BATCH, SEQ, COLS, CLASSES = 2, 3, 4, 7
ROWS = BATCH * SEQ


def head(x: Any, w: Any, targets: Any, *, tied: bool = True, across: bool = True, more: Any = None) -> Any:
    """Mean loss and gradients as a training step has them: x (batch, seq, cols); w (classes, cols), or as a Linear."""
    weight = row("permute")(w, axes=(1, 0)) if tied else w
    flat = row("reshape")(x, shape=(ROWS, COLS))
    logits = row("reshape")(row("linear")(x, weight, None), shape=(ROWS, CLASSES))
    targets = row("reshape")(targets, shape=(ROWS,))
    losses = row("cross_entropy")(logits, targets, None, None, pad_tokens=(2,))
    g = row("expand")(losses.new_full((1,), 1 / ROWS), shape=(ROWS,))
    if more == "g of the losses":
        g = losses * (1 / ROWS)
    d = row("cross_entropy_backward")(g, logits, targets, None, None, pad_tokens=(2,))
    back = w if tied else row("permute")(w, axes=(1, 0))
    dx = row("reshape")(row("matmul")(d, back), shape=x.shape)
    turned = row("permute")(flat if across else d, axes=(1, 0))
    dw = row("matmul")(turned, d) if across else row("matmul")(turned, flat)
    if w.dtype is DType.BF16:
        dw = row("cast")(dw, dtype=DType.F32)
    if across == tied:  # (cols, classes), turned for a tied weight
        dw = row("permute")(dw, axes=(1, 0))
    results = row("mean")(losses, dims=(0,)), dx, dw
    return (*results, {"logits": logits, "d": d}[more]) if more in ("logits", "d") else results


def graph_of(dtype: DType = DType.F32, **options: Any) -> Graph:
    tied = options.get("tied", True)
    w = tensor(CLASSES, COLS, dtype=dtype) if tied else tensor(COLS, CLASSES, dtype=dtype)
    specs = [tensor(BATCH, SEQ, COLS, dtype=dtype), w, TensorSpec.of((BATCH, SEQ), DType.I64, "cpu")]
    return dead_code(traced(lambda *xs: head(*xs, **options), specs))


def named(graph: Graph) -> list[str]:
    return [node.call.op.name for node in graph.nodes]


def values(graph: Graph, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    drawn = [
        torch.randn(spec.shape, generator=generator) for _, spec in graph.inputs[:2] if isinstance(spec, TensorSpec)
    ]
    targets = torch.randint(0, CLASSES, (BATCH, SEQ), generator=generator)
    return [*(x.to(dtype) for x in drawn), targets]


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
@pytest.mark.parametrize("options", [{}, {"across": False}, {"tied": False}])
def test_a_head_becomes_one_row_with_the_same_values(options: dict[str, Any], dtype: DType) -> None:
    graph = graph_of(dtype, **options)
    chunked = chunk_losses(graph, least_bytes=0)
    verify(chunked)
    assert named(chunked).count(NAME) == 1
    assert not {"linear", "matmul", "cross_entropy", "cross_entropy_backward"} & {*named(chunked)}
    kind = torch.float32 if dtype is DType.F32 else torch.bfloat16
    inputs = values(graph, kind)
    tolerance: dict[str, float] = {} if dtype is DType.F32 else {"rtol": 2e-2, "atol": 2e-3}
    actual, expected = (interpret(g, LibTorch(), inputs) for g in (chunked, graph))
    torch.testing.assert_close(actual, expected, **tolerance)


def test_gradients_of_half_weights_are_handed_on_as_they_were_summed() -> None:
    """The sum over chunks is float32; a cast to bf16 and back would only lose digits."""
    chunked = dead_code(chunk_losses(graph_of(DType.BF16), least_bytes=0))
    assert "cast" not in named(chunked)


@pytest.mark.parametrize("more", ["logits", "d", "g of the losses"])
def test_a_head_that_others_read_is_left_alone(more: str) -> None:
    graph = graph_of(more=more)
    assert chunk_losses(graph, least_bytes=0) is graph


def test_a_small_head_is_left_alone() -> None:
    graph = graph_of()
    assert ROWS * CLASSES * 4 < LEAST_BYTES
    assert chunk_losses(graph) is graph
    assert chunk_losses(graph, least_bytes=ROWS * CLASSES * 4) is not graph


def test_two_heads_in_one_graph() -> None:
    """A second loss on the same trunk: each is a row of its own."""

    def both(x: Any, w: Any, v: Any, targets: Any) -> Any:
        return (*head(x, w, targets), *head(x, v, targets))

    w = tensor(CLASSES, COLS)
    specs = [tensor(BATCH, SEQ, COLS), w, w, TensorSpec.of((BATCH, SEQ), DType.I64, "cpu")]
    graph = traced(both, specs)
    chunked = chunk_losses(graph, least_bytes=0)
    verify(chunked)
    assert named(chunked).count(NAME) == 2
    x, one, targets = values(graph_of(), torch.float32)
    inputs = [x, one, one.flip(0), targets]
    torch.testing.assert_close(interpret(chunked, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))
