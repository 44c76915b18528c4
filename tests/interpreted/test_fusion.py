"""Generated kernels in the interpreter: every row, every structure, random programs, gradients; against float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import needs
from burn_torch.fusion.planning.bodies import Role, role_of
from burn_torch.fusion.triton import lowering
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import REGISTRY
from tests.fusion.checking import TOLERANCE, agree, in_float64, made
from tests.fusion.programs import COLUMN, MATRIX, PROGRAMS, row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked


def check(graph: Graph, inputs: Sequence[Any], factor: float = 1.0) -> None:
    """The whole graph as one kernel."""
    agree(FusedKernel(graph, strict=False)(*inputs), in_float64(graph, inputs), factor)


# -- structures ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, specs, _ = PROGRAMS[name]
    typed = [spec.with_dtype(dtype) if isinstance(spec, TensorSpec) and spec is not COLUMN else spec for spec in specs]
    graph = traced(function, typed)
    inputs = made(typed, seed)
    planned = plan_of(graph)
    program = LibTorch().program(planned.graph)
    agree(program.run(*inputs), in_float64(graph, inputs), 2.0)


# -- rows ------------------------------------------------------------------------------------------------
POINTWISE = [name for name, op in REGISTRY.items() if op.pointwise is not None and name not in ("cast", "clone")]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I32, DType.BOOL], ids=str)
@pytest.mark.parametrize("name", POINTWISE)
def test_every_element_wise_row(name: str, dtype: DType, seed: np.random.Generator) -> None:
    """Rows that a kernel takes in this type give what the leaf gives; the others are refused, with a reason."""
    op = REGISTRY[name]
    number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER
    specs: list[Spec] = [number if kind == "number" else tensor(5, 7, dtype=dtype) for _, kind in op.signature.inputs]
    if name == "mask_where":
        specs[1] = tensor(5, 7, dtype=DType.BOOL)
    try:
        call = op.bind(specs, {})
    except DTypeError:  # this type is none of the row's
        return
    role, fault = role_of(call)
    if role == Role.APART:
        assert fault is not None
        assert fault.detail
        return
    inputs = made(specs, seed)
    if name in ("binary_cross_entropy",):
        inputs = [x.sigmoid() for x in inputs]
    graph = traced(lambda *xs: op(*xs), specs)
    outputs = FusedKernel(graph, strict=False)(*inputs)
    expected = interpret(graph, LibTorch(), inputs)
    if dtype.is_float:
        size = TOLERANCE[dtype] * 2
        torch.testing.assert_close(outputs[0], expected[0], rtol=size, atol=size, equal_nan=True)
    else:
        assert torch.equal(outputs[0], expected[0])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I64, DType.I8], ids=str)
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "any", "all"])
def test_every_reduction(name: str, dims: tuple[int, ...], dtype: DType, seed: np.random.Generator) -> None:
    if name == "mean" and not dtype.is_float:
        return
    specs = [tensor(3, 4, 5, dtype=dtype)]
    inputs = made(specs, seed, 0.5)
    graph = traced(lambda x: row(name)(x, dims=dims), specs)
    actual, expected = FusedKernel(graph, strict=False)(*inputs), interpret(graph, LibTorch(), inputs)
    size = TOLERANCE.get(dtype, 0.0)
    torch.testing.assert_close(actual[0], expected[0], rtol=size, atol=size)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_propagate_nan(name: str) -> None:
    x = torch.tensor([[1.0, float("nan"), 3.0], [1.0, 2.0, 3.0], [float("inf"), -float("inf"), 0.0]])
    graph = traced(lambda x: row(name)(x, dims=(1,)), [tensor(3, 3)])
    (extreme,) = FusedKernel(graph, strict=False)(x)
    torch.testing.assert_close(extreme, getattr(torch, name)(x, 1, keepdim=True), equal_nan=True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "var"])
def test_rows_that_do_not_fit_a_program(name: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "LONGEST_ROW", 8)
    attrs: dict[str, Any] = {"softmax": {"dim": 1}, "log_softmax": {"dim": 1}, "logsumexp": {"dims": (1,)}}.get(
        name, {"dims": (1,), "correction": 1}
    )
    specs = [tensor(3, 5003)]
    graph = plan_of(traced(lambda x: row(name)(x + 1.0, **attrs) * 2.0, specs)).graph
    assert len(graph.nodes) == 1
    inputs = made(specs, seed)
    program = LibTorch().program(graph)
    exact = interpret(traced(lambda x: row(name)(x + 1.0, **attrs) * 2.0, [tensor(3, 5003, dtype=DType.F64)]),
                      LibTorch(), [inputs[0].double()])  # fmt: skip
    agree(program.run(*inputs), exact)


def test_a_line_of_infinities_is_what_the_table_says(seed: np.random.Generator) -> None:
    x = torch.tensor([[-float("inf")] * 4, [0.0, 1.0, -float("inf"), 2.0]])
    graph = traced(lambda x: row("softmax")(x * 1.0, dim=1), [tensor(2, 4)])
    program = LibTorch().program(plan_of(graph).graph)
    torch.testing.assert_close(program.run(x)[0], torch.softmax(x, 1), equal_nan=True)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "prod", "any"])
@pytest.mark.parametrize("dims", [(0,), (0, 1), (1,)])
def test_reductions_in_two_steps(name: str, dims: tuple[int, ...], seed: np.random.Generator) -> None:
    specs = [tensor(2048, 6) if dims != (1,) else tensor(2, 4096)]
    graph = traced(lambda x: row(name)(row("tanh")(x), dims=dims), specs)
    planned = plan_of(graph)
    assert planned.kernels == 2
    inputs = made(specs, seed)
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs))


# -- layouts, numbers, random values -------------------------------------------------------------------
def test_inputs_with_strides(seed: np.random.Generator) -> None:
    graph = traced(lambda x, y: row("tanh")(x) + y, [MATRIX, MATRIX])
    x, y = made([tensor(10, 6), tensor(6, 20)], seed)
    kernel = FusedKernel(graph, strict=False)
    for given_ in ((x.mT, y[:, ::2]), (x.mT.contiguous(), y[:, :10]), (x.mT, y[:, 10:])):
        agree(kernel(*given_), [torch.tanh(given_[0].double()) + given_[1].double()])
    assert len(kernel.variants) > 1


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_numbers_keep_their_digits(dtype: DType, seed: np.random.Generator) -> None:
    specs = [tensor(4, dtype=dtype), FLOAT_NUMBER]
    graph = traced(lambda x, rate: x * rate + 0.1, specs)
    x = made(specs, seed)[0]
    (output,) = FusedKernel(graph, strict=False)(x, 1 / 3)
    torch.testing.assert_close(output, x * (1 / 3) + 0.1, rtol=1e-15 if dtype is DType.F64 else 2e-7, atol=0)


def test_random_rows_draw_what_the_leaf_draws(seed: np.random.Generator) -> None:
    def drop(x, key, stream):
        return x * row("dropout_mask")(0.4, key, stream, shape=(6, 10), dtype=DType.F32, place="cpu") + 1.0

    specs = [MATRIX, INT_NUMBER, INT_NUMBER]
    graph = traced(drop, specs)
    for key, stream in ((7, 11), (-1, 2**64 - 1), (2**63, 0)):
        x = made(specs, seed)[0]
        draws = FusedKernel(graph, strict=False)(x, key, stream)
        torch.testing.assert_close(draws, interpret(graph, LibTorch(), [x, key, stream]))


def test_random_rows_of_doubles_keep_their_digits() -> None:
    def drop(x, key, stream):
        return x * row("dropout_mask")(0.4, key, stream, shape=(6, 10), dtype=DType.F64, place="cpu")

    graph = traced(drop, [tensor(6, 10, dtype=DType.F64), INT_NUMBER, INT_NUMBER])
    (draws,) = FusedKernel(graph, strict=False)(torch.ones(6, 10, dtype=torch.float64), 7, 11)
    assert torch.equal(draws.unique(), torch.tensor([0.0, 1 / 0.6], dtype=torch.float64))


@pytest.mark.parametrize("cols", [8, 10, 9000, 9002])
def test_random_rows_beside_reductions(cols: int, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole rows and rows in steps, of lengths that four divides or not."""
    if cols > 1000:
        monkeypatch.setattr(needs, "LONGEST_ROW", 64)

    def drop(x, key, stream):
        h = x * row("dropout_mask")(0.4, key, stream, shape=(3, cols), dtype=DType.F32, place="cpu")
        return h - row("mean")(h, dims=(1,))

    graph = traced(drop, [tensor(3, cols), INT_NUMBER, INT_NUMBER])
    inputs = made([tensor(3, cols), INT_NUMBER, INT_NUMBER], seed, number=-5)
    agree(FusedKernel(graph, strict=False)(*inputs), interpret(graph, LibTorch(), inputs))


@pytest.mark.parametrize("longest", [16, 4096])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 3, 5)], ids=["in fours", "not"])
def test_random_images_summed_over_batch_and_axes(
    shape: tuple[int, ...], longest: int, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "LONGEST_ROW", longest)

    def drop(x, key, stream):
        h = x * row("dropout_mask")(0.4, key, stream, shape=shape, dtype=DType.F32, place="cpu")
        return h, row("sum")(h, dims=(0, 2, 3))

    specs = [tensor(*shape), INT_NUMBER, INT_NUMBER]
    graph = traced(drop, specs)
    inputs = made(specs, seed, number=-5)
    kernel = FusedKernel(graph, strict=False)
    agree(kernel(*inputs), interpret(graph, LibTorch(), inputs))
    assert ("fours_at" in lowering.lower(graph).source) is (shape[2] * shape[3] % 4 == 0)


@pytest.mark.parametrize(("counts", "kernels"), [((2, 3), 1), ((1, 1), 1), ((3, 4), 2)])
def test_a_pool_s_gradient_joins_where_bins_are_equal(
    counts: tuple[int, int], kernels: int, seed: np.random.Generator
) -> None:
    def back(g, y):
        return row("relu_backward")(row("adaptive_avg_pool_backward")(g, size=(4, 6)), y)

    specs = [tensor(2, 3, *counts), tensor(2, 3, 4, 6)]
    graph = traced(back, specs)
    assert plan_of(graph).kernels == kernels
    inputs = made(specs, seed)
    agree(interpret(plan_of(graph).graph, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))


def test_strict_rounding_gives_the_bits_of_eager(seed: np.random.Generator) -> None:
    # in float16: the interpreter cuts float32 off to bfloat16 instead of rounding it
    specs = [tensor(6, 10, dtype=DType.F16), tensor(6, 10, dtype=DType.F16)]
    graph = traced(lambda x, y: (x * y + x) * y - x, specs)
    inputs = made(specs, seed)
    (output,) = FusedKernel(graph, strict=True)(*inputs)
    (eager,) = interpret(graph, LibTorch(), inputs)
    assert torch.equal(output, eager)
    (fast,) = FusedKernel(graph, strict=False)(*inputs)
    assert not torch.equal(fast, eager), "one rounding instead of four shows, or this test shows nothing"
