"""Recorded programs on a GPU: what only real streams, captures and private memory show."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.recorded.capture import arena_of
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.core.philox import fold
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.graph import Graph, interpret
from burn_torch.ops.op import op
from burn_torch.ops.value import Value
from tests.backend.libtorch import host_arena as steps
from tests.backend.libtorch.capturing import capture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PLACE = "cuda:0"
new_stream: Any = torch.cuda.Stream  # torch has no types for it


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, PLACE)


@op(torch=lambda x: x * x.sum().item(), namespace="test_cuda_graph", nondifferentiable=True)
def reads_the_device(x: TensorSpec) -> TensorSpec:
    """x times its sum, which the host reads.

    Shapes: x (*s) -> (*s).  Dtypes: float.
    """
    return x


def test_a_recorded_step_trains_as_float64_does() -> None:
    graph = steps.training_step(PLACE)
    program = capture(graph, range(12))
    state, losses = steps.train(program, 20, steps.initial_state("cuda"), "cuda")
    # the interpreter on the CPU draws the same masks
    expected, expected_losses = steps.train(
        lambda *inputs: interpret(steps.training_step(), LibTorch(), inputs), 20, steps.initial_state()
    )
    torch.testing.assert_close([x.cpu() for x in state], expected, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close([x.cpu() for x in losses], expected_losses, rtol=2e-3, atol=2e-4)
    assert program.splits == ()
    assert program.sizes.recordings == 1
    assert program.sizes.launches is not None
    assert 5 < program.sizes.launches < 60


def test_the_update_writes_the_state_where_it_lies() -> None:
    program = capture(steps.training_step(PLACE), range(12))
    state = steps.initial_state("cuda")
    [batch] = steps.batches(1, device="cuda")
    before = [x.clone() for x in state]
    outputs = program(*state, *batch, 0.1, 0, 1)
    assert all(x is y for x, y in zip(outputs[:12], state, strict=True))
    assert all(not torch.equal(x, y) for x, y in zip(outputs[:4], before, strict=False))


@pytest.mark.parametrize("key", [0, fold(1, 2), -1, 2**64 - 1, 2**63])
def test_draws_are_the_cpu_s_bit_for_bit(key: int) -> None:
    def graph(place: str) -> Graph:
        def build(x: Any, half: Any, key: Any) -> list[Any]:
            def drawn(row: Any, *numbers: Any, dtype: DType = DType.F32) -> Any:
                attrs = {"shape": (129, 33), "dtype": dtype, "place": place}
                return row.run(x.backend, Value, (*numbers, key, 7), attrs)

            return [
                ops.dropout(x, 0.3, key, 2**63 - 1), ops.dropout(half, 0.3, key, 5),
                ops.random_bits.run(x.backend, Value, (key, 2**64 - 1), {"shape": (1031,), "place": place}),
                drawn(ops.dropout_mask, 0.5), drawn(ops.bernoulli, 0.2), drawn(ops.bernoulli, 0.9, dtype=DType.BOOL),
                drawn(ops.uniform, -1.0, 2.0), drawn(ops.normal, 0.5, 2.0), drawn(ops.randint, -3, 9, dtype=DType.I64),
                drawn(ops.dropout_mask, 0.3, dtype=DType.F64),
            ]  # fmt: skip

        tensors = [TensorSpec.of((57, 33), dtype, place) for dtype in (DType.F32, DType.BF16)]
        program_graph: Graph = steps.elementwise(build, *tensors, INT_NUMBER)
        return program_graph

    program = capture(graph(PLACE))
    x = torch.linspace(-2, 2, 57 * 33).reshape(57, 33)
    outputs = program(x.cuda(), x.bfloat16().cuda(), key)
    eager = interpret(graph(PLACE), LibTorch(), [x.cuda(), x.bfloat16().cuda(), key])
    expected = interpret(graph("cpu"), LibTorch(), [x, x.bfloat16(), key])
    assert program.splits == ()
    for number, (y, z, exact) in enumerate(zip(outputs, eager, expected, strict=True)):
        assert torch.equal(y.cpu(), exact), number
        assert torch.equal(z.cpu(), exact), number


def test_an_operation_that_waits_for_the_device_splits_by_name() -> None:
    def build(a: Any, x: Any) -> list[Any]:
        return [a + ops.cos(reads_the_device(ops.sin(x)))]

    graph = steps.elementwise(build, spec(64), spec(64))
    program = capture(graph, (0,))
    a, b = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    for number in range(4):
        x = torch.linspace(0, 1 + number, 64, device="cuda")
        (b,) = interpret(graph, LibTorch(), [b, x])
        (a,) = program(a, x)
        assert torch.equal(a, b)
    assert len(program.splits) == 1, program.splits
    [split] = program.splits
    assert split.call.startswith("test_cuda_graph::reads_the_device(")
    assert split.reason.startswith("it cannot be captured: ")
    assert program.sizes.recordings == 2
    # the device captures as before
    again = capture(steps.elementwise(lambda x: [ops.sin(x)], spec(64)))
    assert torch.equal(again(x)[0], x.sin())


def test_outputs_are_valid_on_the_stream_of_the_call() -> None:
    def build(a: Any, x: Any) -> list[Any]:
        for _ in range(20):
            x = ops.sin(x) + 0.5
        return [a + x, x]

    program = capture(steps.elementwise(build, spec(1 << 20), spec(1 << 20)), (0,))
    a = b = torch.zeros(1 << 20, device="cuda")
    streams: list[Any] = [new_stream() for _ in range(3)]
    kept, wanted = [], []
    for number in range(12):
        x = torch.full((1 << 20,), float(number), device="cuda")
        y = x
        for _ in range(20):
            y = y.sin() + 0.5
        b = b + y
        wanted.append(y)
        stream = streams[number % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            a, draw = program(a, x)
            kept.append(draw + 0)
        x.record_stream(stream)
    torch.cuda.synchronize()
    assert torch.equal(a, b)
    assert all(torch.equal(x, y) for x, y in zip(kept, wanted, strict=True))


def test_a_call_inside_a_capture_is_refused() -> None:
    program = capture(steps.elementwise(lambda x: [ops.exp(x)], spec(8)))
    x = torch.ones(8, device="cuda")
    program(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x + 1
        with pytest.raises(DeviceError, match=r"(?s)while a CUDA graph is being captured.*torch.cuda.graph.*outside"):
            program(x)
    torch.testing.assert_close(program(x)[0], x.exp())


def test_memory_stays_where_it_is_and_comes_back() -> None:
    graph = steps.elementwise(lambda a, x, n: [a + ops.exp(ops.sin(x) * n), ops.cos(x)], *[spec(1 << 20)] * 2,
                              FLOAT_NUMBER)  # fmt: skip
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    program = capture(graph, (0,))
    a, x = torch.zeros(2, 1 << 20, device="cuda")
    a = a.clone()
    a, y = program(a, x, 0.0)
    held = torch.cuda.memory_allocated()
    for number in range(50):
        a, y = program(a, x, float(number))
    assert torch.cuda.memory_allocated() == held
    assert program.sizes.pool_bytes >= 4 << 20
    program.close()
    del a, x, y, program
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (2 << 20)


def test_programs_that_share_private_memory_take_turns() -> None:
    arena = arena_of(PLACE)
    graphs = [steps.elementwise(lambda x: [ops.exp(ops.sin(x)), ops.cos(ops.exp(x))], spec(n)) for n in (1000, 70_000)]
    programs = [capture(graph, arena=arena) for graph in graphs]
    inputs = [torch.linspace(0, 1, n, device="cuda") for n in (1000, 70_000)]
    for _ in range(3):
        results = [program(x) for program, x in zip(programs, inputs, strict=True)]
        for x, (y, z) in zip(inputs, results, strict=True):
            torch.testing.assert_close(y, x.sin().exp())
            torch.testing.assert_close(z, x.exp().cos())
    assert programs[0].sizes.pool_bytes == programs[1].sizes.pool_bytes


def test_two_threads_call_one_program() -> None:
    program = capture(steps.elementwise(lambda x, n: [ops.exp(x) * n], spec(10_000), FLOAT_NUMBER))
    x = torch.linspace(0, 1, 10_000, device="cuda")
    wrong: list[int] = []

    def work(worker: int) -> None:
        with torch.cuda.stream(new_stream()):
            for n in range(50):
                (y,) = program(x, float(100 * worker + n))
                if not torch.allclose(y, x.exp() * (100 * worker + n)):
                    wrong.append(worker)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pinned_numbers_are_not_overwritten_while_they_are_copied() -> None:
    def build(x: Any, n: Any) -> list[Any]:
        y = x
        for _ in range(30):
            y = ops.sin(y)
        return [ops.sum(y, dims=(0,)) * 0.0 + n]

    program = capture(steps.elementwise(build, spec(1 << 22), FLOAT_NUMBER))
    x = torch.ones(1 << 22, device="cuda")
    readings = [program(x, float(n))[0] for n in range(300)]  # the host runs far ahead
    assert [float(y) for y in readings] == list(range(300))


def test_a_fault_of_the_device_names_what_to_do() -> None:
    code = """
import torch
from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Trace
trace = Trace()
x = trace.input(TensorSpec.of((4,), DType.F32, "cuda:0"))
i = trace.input(TensorSpec.of((2,), DType.I64, "cuda:0"))
graph = trace.graph([ops.select(x, i, dim=0)])
program = LibTorch().capabilities.recorded(graph, before_overwriting=lambda buffers: None)
x = torch.ones(4, device="cuda")
good, bad = torch.tensor([0, 1], device="cuda"), torch.tensor([0, 99], device="cuda")
program(x, good)
for _ in range(3):
    program(x, bad)
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "the GPU failed while a compiled program ran" in done.stderr
    assert "start the process again" in done.stderr
