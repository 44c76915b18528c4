"""Programs of LibTorch against the interpreter: bits, threads, rows that bind constants, optimizers."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, NumberSpec, TensorSpec
from burn_torch.graph import Graph, Trace, interpret
from burn_torch.ops import Value
from tests.backend.libtorch.program_harness import LEAF, agree, copies, drawn, spec
from tests.graph.random_graphs import Program, assert_same_bits, on_host, programs


# -- bits ------------------------------------------------------------------------------------------------
@settings(max_examples=80, deadline=None)
@given(programs())
def test_program_gives_the_bits_of_the_interpreter(program: Program) -> None:
    outputs = LEAF.program(program.graph).run(*program.inputs(LEAF))
    assert_same_bits(on_host(LEAF, outputs), program.run(LEAF))


@settings(max_examples=30, deadline=None)
@given(programs(backward=True, max_nodes=8))
def test_program_of_gradients_gives_the_bits_of_the_interpreter(program: Program) -> None:
    outputs = LEAF.program(program.graph).run(*program.inputs(LEAF))
    assert_same_bits(on_host(LEAF, outputs), program.run(LEAF))


@settings(max_examples=80, deadline=None)
@given(programs(max_nodes=10))
def test_donated_inputs_change_no_bit_of_the_outputs(program: Program) -> None:
    tensors = [i for i, (_, s) in enumerate(program.graph.inputs) if isinstance(s, TensorSpec)]
    run = LEAF.program(program.graph, tensors).run
    for _ in range(2):
        assert_same_bits(on_host(LEAF, run(*program.inputs(LEAF))), program.run(LEAF))


@settings(max_examples=30, deadline=None)
@given(programs(max_nodes=10))
def test_inputs_that_are_not_donated_are_not_written_to(program: Program) -> None:
    inputs, before = program.inputs(LEAF), program.inputs(LEAF)
    LEAF.program(program.graph).run(*inputs)
    assert_same_bits(on_host(LEAF, inputs), on_host(LEAF, before))


SPECIAL = (0.0, -0.0, 1.0, 0.1, -2.5, 1e-45, 1e-40, 3.4e38, 1e300, math.pi, math.inf, -math.inf, math.nan, 3, -7, 2**40)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("number", SPECIAL, ids=repr)
def test_a_number_given_as_a_tensor_has_the_same_bits(number: float, dtype: DType, seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(9, dtype=dtype))
    results = [x + number, number + x, x - number, number - x, x * number, number * x, x / number]
    results += [(x * 1.0) + number, (x * 1.0) - number, (x * 1.0) * number, (x * 1.0) / number]  # in place
    graph = trace.graph(results)
    data = [*seed.normal(size=5).tolist(), 0.0, -0.0, math.nan, math.inf]
    agree(graph, [torch.tensor(data, dtype=torch.float64 if dtype is DType.F64 else torch.float32)])


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16], ids=str)
def test_a_number_beside_half_types_is_not_rounded_to_them(dtype: DType, seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(64, dtype=dtype))
    graph = trace.graph([x * 0.1, x + 0.1, x / 0.3, x - 1e-3])
    half = torch.bfloat16 if dtype is DType.BF16 else torch.float16
    agree(graph, [torch.from_numpy(seed.normal(size=64)).to(half)])


def test_numbers_are_computed_on_the_host_in_double(seed: np.random.Generator) -> None:
    trace = Trace()
    x, beta, time = trace.input(spec(3)), trace.input(FLOAT_NUMBER), trace.input(INT_NUMBER)
    graph = trace.graph([x * (1 - beta**time), x + 0.0])
    x_data = torch.from_numpy(seed.normal(size=3)).float()
    outputs = LEAF.program(graph).run(x_data, 0.999, 7)
    assert torch.equal(outputs[0], x_data * (1 - 0.999**7))


# -- threads ---------------------------------------------------------------------------------------------
def test_threads_share_a_program(seed: np.random.Generator) -> None:
    trace = Trace()
    x, w = trace.input(spec(64, 64)), trace.input(spec(64, 64))
    y = x
    for _ in range(6):
        y = ops.relu(ops.matmul(y, w) * 0.1) + 0.5
    graph = trace.graph([y, ops.exp(y * -1.0)])
    program = LEAF.program(graph)
    inputs = [drawn(graph, seed) for _ in range(4)]
    expected = [on_host(LEAF, interpret(graph, LEAF, xs)) for xs in inputs]
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(30):
                assert_same_bits(on_host(LEAF, program.run(*inputs[number])), expected[number])
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


# -- rows that bind constants --------------------------------------------------------------------------------
def network(batch: int) -> Graph:
    """Convolution, dropout, pooling, linear layers, their loss and its gradients, as the tape makes them."""
    trace = Trace()
    tape = Autodiff.over(trace)
    shapes = [(batch, 1, 8, 8), (4, 1, 3, 3), (4,), (36, 5), (5,)]
    inputs = [trace.input(spec(*shape)) for shape in shapes]
    targets, key = trace.input(spec(batch, dtype=DType.I64)), trace.input(INT_NUMBER)
    x, *params = (Value(tape, tape.track(v.primitive, v.spec), v.spec) for v in inputs)
    number, labels = Value(tape, key.primitive, key.spec), Value(tape, targets.primitive, targets.spec)
    ones = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    y = ops.relu(ops.dropout(ops.conv(x, params[0], params[1], **ones), 0.5, number, 3))
    y = ops.reshape(ops.adaptive_avg_pool(y, output_size=(3, 3)), shape=(batch, 36))
    losses = ops.cross_entropy(ops.linear(y, params[2], params[3]), labels, None, None)
    loss = ops.mean(losses, dims=(0,))
    seed = trace.input(spec(1))
    slots = tape.backward([(loss.primitive, seed.primitive)])
    gradients = [Value(trace, slots[p.primitive.node.id], p.spec) for p in params]
    return trace.graph([Value(trace, tape.unwrapped(loss.primitive), loss.spec), *gradients])


def network_inputs(graph: Graph, seed: np.random.Generator, batch: int) -> list[Any]:
    inputs = [torch.from_numpy(seed.normal(size=s.shape)).float() for _, s in graph.inputs if isinstance(s, TensorSpec)]
    labels = torch.from_numpy(seed.integers(0, 5, batch))
    return [*inputs[:5], labels, 11, inputs[6]]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_network_and_its_gradients(batch: int, seed: np.random.Generator) -> None:
    graph = network(batch)
    agree(graph, network_inputs(graph, seed, batch), [1, 2, 3, 4])


def test_a_source_names_no_addresses_so_that_equal_programs_have_one_name() -> None:
    sources = set()
    for _ in range(2):
        source_of = LEAF.program(network(2)).source
        assert source_of is not None
        assert "0x" not in source_of
        sources.add(source_of)
    assert len(sources) == 1


def test_fresh_programs_do_not_remember_a_mask(seed: np.random.Generator) -> None:
    graph = network(2)
    run = LEAF.program(graph).run
    inputs = network_inputs(graph, seed, 2)
    other = [12 if isinstance(x, int) else x for x in inputs]
    for given_inputs in (inputs, other, inputs):
        assert_same_bits(on_host(LEAF, run(*given_inputs)), on_host(LEAF, interpret(graph, LEAF, given_inputs)))


# -- optimizers ----------------------------------------------------------------------------------------------
def training(batch: int = 6) -> Graph:
    """A step of a linear layer with Adam: parameters and states in and out."""
    trace = Trace()
    tape = Autodiff.over(trace)
    x, w, b = trace.input(spec(batch, 3)), trace.input(spec(3, 2)), trace.input(spec(2))
    states = [trace.input(p.spec) for _ in range(2) for p in (w, b)]
    lr, time = trace.input(FLOAT_NUMBER), trace.input(INT_NUMBER)
    tracked = [Value(tape, tape.track(p.primitive, p.spec), p.spec) for p in (w, b)]
    y = ops.linear(Value(tape, x.primitive, x.spec), *tracked)
    loss = ops.sum(y * y, dims=(0, 1))
    seed = trace.input(spec(1, 1))
    slots = tape.backward([(loss.primitive, seed.primitive)])
    grads = [Value(trace, slots[p.primitive.node.id], p.spec) for p in tracked]
    new = ops.adam_update(
        lr, 0.9, 0.999, 1e-5, 0.0, 0.01, time, w, b, *grads, *states, amsgrad=False, cautious=False
    )  # fmt: skip
    return trace.graph(list(new))


@pytest.mark.parametrize("donate", [(1, 2, 3, 4, 5, 6), (1, 4, 6), ()], ids=["all", "some", "none"])
def test_an_optimizer_writes_over_what_is_donated_and_nothing_else(
    donate: tuple[int, ...], seed: np.random.Generator
) -> None:
    graph = training()
    inputs = drawn(graph, seed)
    for i in (5, 6):  # second moments
        inputs[i] = inputs[i].abs()
    numbers = [i for i, (_, s) in enumerate(graph.inputs) if isinstance(s, NumberSpec)]
    for i, value in zip(numbers, (0.01, 3), strict=True):
        inputs[i] = value
    agree(graph, inputs, donate)
    given_inputs = copies(inputs)
    outputs = LEAF.program(graph, donate).run(*given_inputs)
    for output, position in zip(outputs, (1, 2, 3, 4, 5, 6), strict=True):
        assert (output.data_ptr() == given_inputs[position].data_ptr()) is (position in donate)


def test_fifty_steps_in_place_are_fifty_steps_of_copies(seed: np.random.Generator) -> None:
    graph = training()
    run, x = LEAF.program(graph, range(1, 7)).run, torch.from_numpy(seed.normal(size=(6, 3))).float()
    state = [
        torch.from_numpy(seed.normal(size=s.shape)).float() for _, s in graph.inputs[1:7] if isinstance(s, TensorSpec)
    ]
    state[2:] = [torch.zeros_like(t) for t in state[2:]]
    eager, compiled, one = copies(state), copies(state), torch.ones(1, 1)
    addresses = [t.data_ptr() for t in compiled]
    for time in range(1, 51):
        eager = interpret(graph, LEAF, [x, *eager, 0.01 / time, time, one])
        compiled = list(run(x, *compiled, 0.01 / time, time, one))
    assert_same_bits(on_host(LEAF, compiled), on_host(LEAF, eager))
    assert [t.data_ptr() for t in compiled] == addresses
