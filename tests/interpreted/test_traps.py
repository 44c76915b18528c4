"""Silent faults of generated kernels: rounding points, masked lanes, long memory, types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.spec import INT_NUMBER
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import columns
from burn_torch.fusion.rewrites import splitting
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.interpreter import interpret
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

HALF = tensor(256, dtype=DType.F16)
"""Not bfloat16: the interpreter cuts float32 off to it instead of rounding."""


# -- rounding points ---------------------------------------------------------------------------------------------
def near_a_third(x: Any) -> tuple[Any, ...]:
    """A product, a mask of it, and a whole number of it: they have to speak of one and the same value."""
    y = x * 3.0
    return y, row("greater")(y, 1.0), row("cast")(y, dtype=DType.I32), row("mask_where")(x, row("equal")(y, 1.0), 0.0)


def thirds() -> torch.Tensor:
    """Halves around 1 / 3, whose products with 3 round to 1 or lie next to it."""
    bits = torch.arange(256, dtype=torch.int16) - 128
    return (torch.tensor(1 / 3).half().view(torch.int16) + bits).view(torch.float16)


@pytest.mark.parametrize("strict", [False, True])
def test_comparisons_are_of_what_would_be_stored(strict: bool) -> None:
    graph = traced(near_a_third, [HALF])
    x = thirds()
    eager = interpret(graph, LibTorch(), [x])
    outputs = FusedKernel(graph, strict=strict)(x)
    assert torch.equal(outputs[0], eager[0])
    assert all(torch.equal(y, z) for y, z in zip(outputs[1:], eager[1:], strict=True))
    unrounded = x.float() * 3.0
    assert not torch.equal(unrounded > 1.0, eager[1]), "or the test shows nothing"
    assert not torch.equal(unrounded.int(), eager[2])


def test_a_gradient_flows_where_the_stored_value_says() -> None:
    """relu of a product that underflows to 0 in float16: its gradient is 0 there, as it is unfused."""

    def pulled(g: Any, x: Any) -> Any:
        y = row("relu")(x * 2.0**-10)
        return y, row("relu_backward")(g, y)

    graph = traced(pulled, [HALF, HALF])
    x = torch.arange(256).half() * 2.0**-24  # the smallest halves; their products are less than that
    grads = FusedKernel(graph, strict=False)(torch.ones(256).half(), x)
    assert torch.equal(grads[0], torch.zeros(256).half())
    assert torch.equal(grads[1], torch.zeros(256).half())


def test_strict_plans_round_after_each_operation(seed: np.random.Generator) -> None:
    """Over several kernels, reductions and composite operations."""

    def chain(x: Any, y: Any) -> Any:
        h = (x * y + x) * y - x
        return h, row("amax")(h * y, dims=(1,)), row("matmul")(h, row("permute")(h * x, axes=(1, 0)))

    specs = [tensor(4, 33, dtype=DType.F16)] * 2
    graph = traced(chain, specs)
    inputs = made(specs, seed)
    eager = interpret(graph, LibTorch(), inputs)
    strict = LibTorch().program(plan_of(graph, strict=True).graph).run(*inputs)
    fast = LibTorch().program(plan_of(graph).graph).run(*inputs)
    assert all(torch.equal(y, z) for y, z in zip(strict, eager, strict=True))
    assert not torch.equal(fast[0], eager[0]), "one rounding instead of four shows, or this test shows nothing"


# -- nothing to reduce, nothing to see -----------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0,)])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all"])
def test_reductions_of_nothing(name: str, shape: tuple[int, ...]) -> None:
    dtype = DType.BOOL if name in ("any", "all") else DType.F32

    def reduced(x: Any) -> Any:
        h = row("bool_not")(x) if dtype.is_bool else x * 2.0 + 1.0
        z = row(name)(h, dims=(len(shape) - 1,))
        return row("bool_not")(z) if dtype.is_bool else z + 1.0

    specs = [tensor(*shape, dtype=dtype)]
    graph = traced(reduced, specs)
    x = torch.empty(shape, dtype=torch.bool if dtype.is_bool else torch.float32)
    outputs = LibTorch().program(plan_of(graph).graph).run(x)
    torch.testing.assert_close(outputs, interpret(graph, LibTorch(), [x]), equal_nan=True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_rows_that_are_all_masked(name: str) -> None:
    """Whole rows of minus infinity give what the table says, and spoil no neighbour."""
    attrs: dict[str, Any] = {"dims": (1,)} if name == "logsumexp" else {"dim": 1}
    graph = traced(lambda x: row(name)(x + 0.0, **attrs) * 1.0, [tensor(3, 5)])
    x = torch.tensor([[-float("inf")] * 5, [0.0, 1.0, -float("inf"), 2.0, 3.0], [float("inf"), 0, 0, 0, 0]])
    outputs = LibTorch().program(plan_of(graph).graph).run(x)
    torch.testing.assert_close(outputs, interpret(graph, LibTorch(), [x]), equal_nan=True)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("dims", [(1,), (0,)])
def test_what_masked_lanes_compute_is_not_gathered(name: str, dims: tuple[int, ...]) -> None:
    """1 / 0, log(0) and 0 / 0 in lanes beyond the end."""
    graph = traced(lambda x: row(name)(row("log")(x) + x / x, dims=dims), [tensor(5, 7)])
    x = torch.arange(1.0, 36.0).reshape(5, 7)
    agree(FusedKernel(graph, strict=False)(x), in_float64(graph, [x]), 4.0)


def test_nan_goes_through_every_reduction() -> None:
    x = torch.ones(4, 6)
    x[1, 2] = float("nan")
    for name in ("sum", "mean", "prod", "amax", "amin"):
        graph = traced(lambda x, name=name: row(name)(x * 1.0, dims=(1,)), [tensor(4, 6)])
        (output,) = FusedKernel(graph, strict=False)(x)
        assert output.isnan().flatten().tolist() == [False, True, False, False], name


# -- types ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.I8, DType.I16, DType.I32, DType.I64, DType.U8], ids=str)
def test_integers_wrap_and_sum_as_eager(dtype: DType) -> None:
    most = {DType.I8: 127, DType.I16: 2**15 - 1, DType.I32: 2**31 - 1, DType.I64: 2**63 - 1, DType.U8: 255}[dtype]
    specs = [tensor(6, dtype=dtype), tensor(6, dtype=dtype)]

    def wrapped(x: Any, y: Any) -> Any:
        z = x + y
        return z, z * 2, row("sum")(z * 2, dims=(0,)), row("amax")(z, dims=(0,)), row("greater")(z, x)

    graph = traced(wrapped, specs)
    from burn_torch.ops.torch_types import TO_TORCH

    x = torch.tensor([0, 1, most, most, 5, 7], dtype=TO_TORCH[dtype])
    y = torch.tensor([0, 1, 1, most, 2, 100], dtype=TO_TORCH[dtype])
    planned = plan_of(graph)
    outputs = LibTorch().program(planned.graph).run(x, y)
    for one, other in zip(outputs, interpret(graph, LibTorch(), [x, y]), strict=True):
        assert torch.equal(one, other)


def test_booleans_are_bytes_in_memory(seed: np.random.Generator) -> None:
    specs = [tensor(5, 7, dtype=DType.BOOL), tensor(5, 7, dtype=DType.BOOL)]

    def mixed(x: Any, y: Any) -> Any:
        both = row("bool_and")(x, row("bool_not")(y))
        return both, row("cast")(both, dtype=DType.F32) * 2.0, row("any")(both, dims=(1,)), row("all")(x, dims=(0,))

    graph = traced(mixed, specs)
    inputs = made(specs, seed)
    outputs = LibTorch().program(plan_of(graph).graph).run(*inputs)
    for one, other in zip(outputs, interpret(graph, LibTorch(), inputs), strict=True):
        assert torch.equal(one, other)


# -- long memory ------------------------------------------------------------------------------------------------
def test_all_kernels_have_wide_indexes_over_long_memory() -> None:
    """Element-wise, whole rows, columns beside rows, kernels side by side: programs are counted in 64 bits."""
    long = tensor((1 << 22) + 7, 513)
    both = traced(lambda x: (x - row("mean")(x, dims=(1,)), row("sum")(row("exp")(x), dims=(1,))), [long])
    apart = traced(lambda x, y: (x * 2.0, row("sum")(y, dims=(0,))), [long, tensor(7, 3)])
    element = traced(lambda x: x * 2.0, [long])
    per = (1 << 22) // 1024
    beside = traced(
        lambda x: (
            x - row("mean")(x, dims=(1,)),
            row("sum")(row("reshape")(row("exp")(x), shape=(1024, per, 513)), dims=(1,)),
        ),
        [tensor(1 << 22, 513)],
    )
    for graph in (both, apart, element, beside):
        kernel = lower(graph)
        assert kernel.wide
        assert ".to(tl.int64)" in kernel.source
    assert lower(beside).domain.parts == 1024
    assert "part = tl.program_id(0).to(tl.int64)" in lower(beside).source
    assert "program.to(tl.int64)" in lower(apart).source
    assert not lower(traced(lambda x: x * 2.0, [tensor(64, 64)])).wide


def test_strides_reach_further_than_elements(seed: np.random.Generator) -> None:
    graph = traced(lambda x: x * 2.0, [tensor(2, 3)])
    assert lower(graph, layouts=[(1 << 31, 1)]).wide
    assert not lower(graph, layouts=[(1 << 30, 1)]).wide


# -- random values ----------------------------------------------------------------------------------------------
def test_draws_are_those_of_the_element_wherever_it_is_computed(
    seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Element by element, along rows, turned, beside sums of columns: one mask."""
    monkeypatch.setattr(splitting, "ROWS_OF_A_PART", 2)
    monkeypatch.setattr(splitting, "FEWEST_PARTS", 2)
    monkeypatch.setattr(columns, "FEWEST_PARTS", 2)

    def drawn(x: Any, key: Any, stream: Any) -> Any:
        mask = row("dropout_mask")(0.4, key, stream, shape=(8, 12), dtype=DType.F32, place="cpu")
        h = x * mask
        turned = row("permute")(mask, axes=(1, 0)) * 1.0
        return h, turned, h - row("mean")(h, dims=(1,)), row("sum")(h, dims=(0,)), row("sum")(h, dims=(0, 1))

    specs = [tensor(8, 12), INT_NUMBER, INT_NUMBER]
    graph = traced(drawn, specs)
    inputs = [torch.ones(8, 12), 2**40 + 7, -3]
    agree(LibTorch().program(plan_of(graph).graph).run(*inputs), interpret(graph, LibTorch(), inputs))
