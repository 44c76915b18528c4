"""Operands that a program writes over, and operands that it keeps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.backend.libtorch.attached.programs import in_place_form
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.graph import Trace, interpret
from tests.backend.libtorch.program_harness import LEAF, agree, drawn, spec, written_over
from tests.graph.random_graphs import assert_same_bits, on_host


# -- memory ----------------------------------------------------------------------------------------------
def test_an_intermediate_value_is_written_over_at_its_last_use(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    graph = trace.graph([ops.relu(ops.exp(x) + 1.0)])
    assert written_over(graph) == [(2, 1), (3, 2)]
    agree(graph, drawn(graph, seed))


def test_an_input_is_written_over_only_if_it_is_donated(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    graph = trace.graph([ops.exp(x)])
    assert written_over(graph) == []
    assert written_over(graph, [0]) == [(1, 0)]
    (given_input,) = agree(graph, drawn(graph, seed), [0])
    output = LEAF.program(graph, [0]).run(given_input)[0]
    assert output.data_ptr() == given_input.data_ptr()


def test_an_operand_that_is_read_later_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    y = x * 2.0
    graph = trace.graph([ops.exp(y), y + x])
    assert (2, 1) not in written_over(graph)
    agree(graph, drawn(graph, seed), [0])


def test_an_operand_that_is_an_output_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    y = x * 2.0
    graph = trace.graph([y, ops.exp(y)])
    assert written_over(graph) == []
    agree(graph, drawn(graph, seed))


def test_an_operand_whose_view_is_read_later_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    y = x * 2.0
    view = ops.reshape(y, shape=(3, 4))
    graph = trace.graph([ops.exp(y), view + 1.0])
    assert written_over(graph) == [(4, 2)]  # over the view, when nothing reads y any more
    agree(graph, drawn(graph, seed))


def test_an_operand_whose_view_is_an_output_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    y = x * 2.0
    views = ops.split(y, sizes=(1, 2), dim=1)
    graph = trace.graph([views[1], ops.exp(y)])
    assert written_over(graph) == []
    agree(graph, drawn(graph, seed))


def test_a_view_that_repeats_elements_is_never_written_over(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(3, 1))
    wide = ops.expand(x, shape=(3, 4))
    graph = trace.graph([ops.exp(wide), ops.relu(ops.permute(x, axes=(1, 0)))])
    assert written_over(graph, [0]) == []
    agree(graph, drawn(graph, seed), [0])


def test_an_operand_that_occurs_twice_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 4))
    y = x * 2.0
    z = x * 3.0
    graph = trace.graph([y + y, z - ops.permute(z, axes=(1, 0))])
    assert written_over(graph) == []
    agree(graph, drawn(graph, seed))


def test_a_result_of_another_spec_takes_no_memory(seed: np.random.Generator) -> None:
    trace = Trace()
    x, y = trace.input(spec(3)), trace.input(spec(2, 3))
    graph = trace.graph([x + y, ops.greater(x, 0.0)])
    assert written_over(graph, [0]) == []
    agree(graph, drawn(graph, seed), [0])


def test_integers_are_not_written_over_since_their_numbers_are_checked() -> None:
    trace = Trace()
    x = trace.input(spec(3, dtype=DType.I8))
    graph = trace.graph([x + 300])
    assert written_over(graph, [0]) == []
    with pytest.raises(ArgumentError, match="a number does not fit the element type"):
        LEAF.program(graph, [0]).run(torch.ones(3, dtype=torch.int8))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (1, 1)])
def test_donated_inputs_of_few_elements(shape: tuple[int, ...], seed: np.random.Generator) -> None:
    trace = Trace()
    x, y = trace.input(spec(*shape)), trace.input(spec(*shape))
    graph = trace.graph([ops.relu(x) * y, y - 1.0])
    agree(graph, drawn(graph, seed), [0, 1])


def test_donated_inputs_with_gaps_and_swapped_axes(seed: np.random.Generator) -> None:
    trace = Trace()
    x, y = trace.input(spec(4, 3)), trace.input(spec(4, 3))
    graph = trace.graph([ops.exp(x) + 1.0, ops.matmul(ops.relu(y), ops.permute(y, axes=(1, 0)))])
    base = torch.from_numpy(seed.normal(size=(4, 6))).float()
    inputs = [base[:, ::2], torch.from_numpy(seed.normal(size=(3, 4))).float().mT]
    expected = on_host(LEAF, interpret(graph, LEAF, inputs))
    outputs = LEAF.program(graph, [0, 1]).run(base.clone()[:, ::2], inputs[1].mT.clone().mT)
    assert_same_bits(on_host(LEAF, outputs), expected)


def test_intermediate_values_are_freed_at_their_last_use() -> None:
    trace = Trace()
    x = trace.input(spec(64, 64))
    y = x
    for _ in range(20):
        y = ops.matmul(y, x)
    program = LEAF.program(trace.graph([y]))
    assert program.source is not None
    assert program.source.count("; del v") == 19


def test_rows_without_an_in_place_form_have_none() -> None:
    trace = Trace()
    x = trace.input(spec(4, 4))
    graph = trace.graph([ops.matmul(x * 1.0, x * 1.0)])
    assert in_place_form(graph.nodes[-1].call) is None
    assert written_over(graph, [0]) == [(2, 0)]  # the last reader of x scales it where it lies
