"""Programs of LibTorch against the interpreter: bits, memory, threads, files, errors."""

from __future__ import annotations

import importlib.util
import linecache
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.libtorch import source_file
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.libtorch.memory import in_place_form, plan_memory
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BoundsError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, NumberSpec, TensorSpec
from burn_torch.graph import Graph, Node, Origin, Trace, interpret
from burn_torch.ops import Value
from tests.graph.random_graphs import Program, assert_same_bits, on_host, programs

LEAF = LibTorch()


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BURN_TORCH_CACHE", str(folder))
    return folder


def copies(inputs: Sequence[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]


def drawn(graph: Graph, seed: np.random.Generator) -> list[Any]:
    """Normal values for each input."""
    return [
        float(seed.normal())
        if isinstance(s, NumberSpec)
        else torch.from_numpy(seed.normal(size=s.shape)).to(torch.float64 if s.dtype is DType.F64 else torch.float32)
        for _, s in graph.inputs
    ]


def agree(graph: Graph, inputs: Sequence[Any], donate: Sequence[int] = ()) -> list[torch.Tensor]:
    """Runs the program twice and checks bits against the interpreter, and that nothing else was written to."""
    expected = on_host(LEAF, interpret(graph, LEAF, copies(inputs)))
    program = LEAF.program(graph, donate)
    for _ in range(2):
        given_inputs = copies(inputs)
        outputs = program.run(*given_inputs)
        assert_same_bits(on_host(LEAF, outputs), expected)
        kept = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and i not in donate]
        for i in kept:
            assert torch.equal(given_inputs[i].nan_to_num(), inputs[i].nan_to_num()), f"input {i} was written to"
    return [given_inputs[i] for i in range(len(inputs))]


def shares(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


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


def test_numbers_are_computed_on_the_host_in_double(seed: np.random.Generator) -> None:
    trace = Trace()
    x, beta, time = trace.input(spec(3)), trace.input(FLOAT_NUMBER), trace.input(INT_NUMBER)
    graph = trace.graph([x * (1 - beta**time), x + 0.0])
    x_data = torch.from_numpy(seed.normal(size=3)).float()
    outputs = LEAF.program(graph).run(x_data, 0.999, 7)
    assert torch.equal(outputs[0], x_data * (1 - 0.999**7))


# -- memory ----------------------------------------------------------------------------------------------
def written_over(graph: Graph, donate: Sequence[int] = ()) -> list[tuple[int, int]]:
    return list(LEAF.program(graph, donate).reused)


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
    assert written_over(graph) == []
    agree(graph, drawn(graph, seed))


def test_an_operand_whose_view_is_an_output_is_kept(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(4, 3))
    y = x * 2.0
    views = ops.split(y, sizes=(1, 2), dim=1)
    graph = trace.graph([views[1], ops.exp(y)])
    assert written_over(graph) == []
    agree(graph, drawn(graph, seed))


def test_a_view_is_never_written_over(seed: np.random.Generator) -> None:
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
    with pytest.raises(ArgumentError, match="a number leaves the element type"):
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
    assert plan_memory(graph, [0]).in_place.keys() == {1}  # the last reader of x scales it where it lies


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


# -- source ----------------------------------------------------------------------------------------------
def small() -> Graph:
    trace = Trace()
    x, w = trace.input(spec(2, 3)), trace.input(spec(3, 4))
    graph = trace.graph([ops.relu(ops.linear(x, w, None))])
    origins = [Origin("model.py", 12, "forward", "layers.0"), Origin("model.py", 13, "forward")]
    nodes = [Node(n.call, n.inputs, n.outputs, o) for n, o in zip(graph.nodes, origins, strict=True)]
    return Graph(graph.inputs, nodes, graph.outputs)


def test_source_is_a_file_that_says_where_each_line_is_from(cache: Path) -> None:
    program = LEAF.program(small(), title="a small network")
    assert program.path is not None
    assert program.path.parent == cache / "programs"
    text = program.path.read_text()
    assert text == program.source
    compile(text, str(program.path), "exec")
    lines = text.splitlines()
    assert lines[0] == '"""a small network: 2 inputs, 2 operations, 1 of them in place.'
    assert "mm = torch.mm" in lines
    (product,) = [line for line in lines if "= mm(" in line]
    assert product.split("#")[0].strip() == "v2 = mm(v0, v1)"
    assert product.endswith("# (2, 4) f32  layers.0 at model.py:12 in forward")
    (activation,) = [line for line in lines if "relu_(" in line]
    assert activation.split("#")[0].strip() == "v3 = relu_(v2); del v2"
    assert activation.endswith("# (2, 4) f32  model.py:13 in forward  in place")


def test_source_can_be_imported(cache: Path) -> None:
    path = LEAF.program(small()).path
    assert path is not None
    described = importlib.util.spec_from_file_location("written", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    outputs = module.run(torch.ones(2, 3), torch.ones(3, 4))
    assert torch.equal(outputs[0], torch.full((2, 4), 3.0))


def test_equal_programs_share_a_file(cache: Path) -> None:
    assert LEAF.program(small()).path == LEAF.program(small()).path
    assert len(list((cache / "programs").iterdir())) == 1


def test_a_folder_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: np.random.Generator
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "file"))
    program = LEAF.program(small())
    assert program.path is None
    agree(small(), drawn(small(), seed))
    filename = program.run.__code__.co_filename
    assert "def run(" in "".join(linecache.getlines(filename))


def test_the_folder_keeps_the_newest_programs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "_KEPT", 3)
    for size in range(1, 11):
        trace = Trace()
        last = LEAF.program(trace.graph([ops.exp(trace.input(spec(size)))])).path
    files = list((cache / "programs").iterdir())
    assert len(files) <= 6
    assert last in files


# -- errors ----------------------------------------------------------------------------------------------
def told(graph: Graph, inputs: Sequence[Any], error: type[Exception], match: str) -> list[str]:
    origin = Origin("model.py", 12, "forward", "layers.0")
    nodes = [Node(n.call, n.inputs, n.outputs, origin if i else None) for i, n in enumerate(graph.nodes)]
    with pytest.raises(error, match=match) as caught:
        LEAF.program(Graph(graph.inputs, nodes, graph.outputs)).run(*inputs)
    return list(getattr(caught.value, "__notes__", []))


def test_an_error_inside_a_program_names_the_users_line() -> None:
    trace = Trace()
    x, targets = trace.input(spec(2, 3)), trace.input(spec(2, dtype=DType.I64))
    graph = trace.graph([ops.cross_entropy(x * 2.0, targets, None, None)])
    notes = told(graph, [torch.zeros(2, 3), torch.tensor([0, 7])], BoundsError, "7")
    assert "at layers.0 at model.py:12 in forward" in notes
    assert any(note.startswith("in cross_entropy((2, 3) f32 cpu, ") for note in notes)


def test_a_number_beyond_64_bits_is_told_in_the_words_of_eager_execution() -> None:
    trace = Trace()
    x, n = trace.input(spec(3)), trace.input(INT_NUMBER)
    graph = trace.graph([(x + x) * n])
    notes = told(graph, [torch.zeros(3), 2**70], ArgumentError, "a number leaves the element type")
    assert "at layers.0 at model.py:12 in forward" in notes


def test_a_traceback_shows_the_generated_line() -> None:
    trace = Trace()
    x, targets = trace.input(spec(2, 3)), trace.input(spec(2, dtype=DType.I64))
    program = LEAF.program(trace.graph([ops.cross_entropy(x, targets, None, None)]))
    with pytest.raises(BoundsError, match="given:") as caught:
        program.run(torch.zeros(2, 3), torch.tensor([0, -1]))
    lines = [str(entry.statement).strip() for entry in caught.traceback]
    assert any(line.startswith("v2 = cross_entropy(v0, v1, None, None)") for line in lines)


def test_values_alone_make_a_program(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(2))
    graph = trace.graph([x, None, Value(trace, x.primitive, x.spec)])
    data = drawn(graph, seed)[0]
    outputs = LEAF.program(graph).run(data)
    assert outputs[0] is data
    assert outputs[1] is None


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
    found = tape.backward([(loss.primitive, seed.primitive)])
    gradients = [Value(trace, found[p.primitive.node.id], p.spec) for p in params]
    return trace.graph([Value(trace, tape.inner_primitive(loss.primitive), loss.spec), *gradients])


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
    found = tape.backward([(loss.primitive, seed.primitive)])
    grads = [Value(trace, found[p.primitive.node.id], p.spec) for p in tracked]
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
