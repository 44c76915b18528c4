"""Small kernels side by side in one launch: each takes its own programs, numbers, layouts and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER
from burn_torch.fusion import plan_of
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.planning import groups
from burn_torch.fusion.triton.lowering import lower
from burn_torch.fusion.triton.side_by_side import components
from burn_torch.graph.interpreter import interpret
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked


def several(x: Any, y: Any, z: Any, rate: Any, key: Any, stream: Any) -> Any:
    """Element-wise, rows, columns, a draw: four kernels of other loops, one of which has two results."""
    drawn = row("dropout_mask")(0.4, key, stream, shape=(6, 10), dtype=DType.F32, place="cpu")
    h = x * rate
    return h + 1.0, row("sum")(y * rate, dims=(1,)), row("sum")(row("tanh")(z), dims=(0,)), drawn * 2.0, row("neg")(h)


SPECS = [tensor(7), tensor(5, 33), tensor(9, 4), FLOAT_NUMBER, INT_NUMBER, INT_NUMBER]


def test_results_are_those_of_each_alone(seed: np.random.Generator) -> None:
    graph = traced(several, SPECS)
    inputs = made(SPECS, seed)
    kernel = lower(graph)
    assert kernel.source.startswith('"""4 small kernels side by side."""')
    assert [spec.shape for spec in kernel.outputs] == [(7,), (5, 1), (1, 4), (6, 10), (7,)]
    agree(FusedKernel(graph, strict=False)(*inputs), interpret(graph, LibTorch(), inputs))


def test_inputs_with_gaps(seed: np.random.Generator) -> None:
    graph = traced(several, SPECS)
    inputs = made(SPECS, seed)
    inputs[1] = made([tensor(33, 5)], seed)[0].mT
    inputs[2] = made([tensor(9, 8)], seed)[0][:, ::2]
    agree(FusedKernel(graph, strict=False)(*inputs), interpret(graph, LibTorch(), inputs))


def test_only_what_one_part_reads_is_written_over(seed: np.random.Generator) -> None:
    def both(x: Any, y: Any) -> Any:
        return x * 2.0, row("sum")(x, dims=(0, 1)), y + 1.0

    graph = traced(both, [tensor(4, 5), tensor(3)])
    assert set(lower(graph).over) == {(2, 1)}, "nobody knows whether x is read before it would be written"
    x, y = made([tensor(4, 5), tensor(3)], seed)
    wanted = [x * 2.0, x.sum().reshape(1, 1), y + 1.0]
    outputs = FusedKernel(graph, strict=False).written_over({2: 1})(x, y)
    assert outputs[2] is y
    agree(outputs, wanted)


def test_parts_that_are_alike_are_written_once(seed: np.random.Generator) -> None:
    def sums(a: Any, b: Any, c: Any, d: Any, e: Any, one: Any, two: Any) -> Any:
        return (
            row("sum")(a * one, dims=(0,)), row("tanh")(b), row("sum")(c * two, dims=(0,)), row("tanh")(d),
            row("sum")(e * 3.0, dims=(0,)),
        )  # fmt: skip

    specs = [tensor(9, 40), tensor(6), tensor(9, 40), tensor(6), tensor(9, 40), FLOAT_NUMBER, FLOAT_NUMBER]
    graph = traced(sums, specs)
    inputs = made(specs, seed)
    kernel = lower(graph)
    assert kernel.source.startswith('"""5 small kernels side by side."""')
    assert kernel.source.count("def part_") == 3, "columns by a number of run time, by 3.0, and element by element"
    agree(FusedKernel(graph, strict=False)(*inputs), interpret(graph, LibTorch(), inputs))
    inputs[2] = inputs[2].double()
    specs[2] = tensor(9, 40, dtype=DType.F64)
    other = traced(sums, specs)
    assert lower(other).source.count("def part_") == 4, "another element type is another part"
    agree(FusedKernel(other, strict=False)(*inputs), interpret(other, LibTorch(), inputs))
    alone = traced(lambda x, y: (row("tanh")(x), row("tanh")(y)), [tensor(6), tensor(6)])
    assert "if program" not in lower(alone).source
    agree(FusedKernel(alone, strict=False)(inputs[1], inputs[3]), [inputs[1].tanh(), inputs[3].tanh()])


def test_components_share_an_operation() -> None:
    graph = traced(several, SPECS)
    assert sorted(components(graph)) == [[0, 4], [1], [2], [3]]


def test_what_is_one_part_stays_unfusible() -> None:
    def both_ways(x: Any) -> Any:
        h = x * 2.0
        return row("sum")(h, dims=(1,)), row("amax")(h, dims=(0,))

    with pytest.raises(Unfusible, match="a result of 5 elements beside 4 rows of 5") as caught:
        lower(traced(both_ways, [tensor(4, 5)]))
    assert caught.value.reason is Reason.SHAPE
    apart = traced(lambda x, y: (row("tanh")(x), row("sum")(y, dims=(0,))), [tensor(4, 5), tensor(7, 2)])
    assert lower(apart).source.count("part_") == 4
    with pytest.raises(Unfusible, match="shape"):
        lower(apart, beside=False)


def clipped(*gradients: Any) -> Any:
    """Each tensor scaled to the norm 1 at most."""
    made_ = []
    for g in gradients:
        norm = row("sqrt")(row("sum")(g * g, dims=tuple(range(g.ndim))))
        made_.append(g * (1.0 / row("maximum")(norm, 1.0)))
    return tuple(made_)


def test_many_small_tensors_are_few_launches(seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [tensor(7), tensor(3, 5), tensor(33), tensor(2, 2, 2)]
    graph = traced(clipped, specs)
    assert plan_of(graph).kernels == 4, "of such little memory, each is no small part"
    monkeypatch.setattr(groups, "_SMALL_SHARE", 1)
    planned = plan_of(graph)
    assert planned.kernels == 1
    inputs = made(specs, seed)
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs))


def test_what_waits_for_the_other_is_another_launch(seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_SMALL_SHARE", 1)

    def chain(x: Any, y: Any, w: Any, v: Any) -> Any:
        early = row("tanh")(x) * 2.0
        late = row("sum")(row("matmul")(early, w) * 0.5, dims=(1,))
        return row("matmul")(late, v), late, row("exp")(y) + 1.0

    specs = [tensor(3, 40), tensor(9), tensor(40, 4), tensor(1, 400)]
    graph = traced(chain, specs)
    planned = plan_of(graph)
    assert planned.kernels == 4
    inputs = made(specs, seed)
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs), 4.0)


def test_draws_do_not_depend_on_the_program(seed: np.random.Generator) -> None:
    """A part begins to count its programs at nought: the words of its draws are those of a launch of its own."""

    def drawn(x: Any, key: Any, stream: Any) -> Any:
        mask = row("dropout_mask")(0.4, key, stream, shape=(40, 60), dtype=DType.F32, place="cpu")
        return row("exp")(x), mask * 2.0

    graph = traced(drawn, [tensor(3000), INT_NUMBER, INT_NUMBER])
    x = torch.zeros(3000)
    outputs = FusedKernel(graph, strict=False)(x, 7, 11)
    assert torch.equal(outputs[1], interpret(graph, LibTorch(), [x, 7, 11])[1])
