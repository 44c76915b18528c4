"""Launches of a program at once: the driver is told of the same kernels with the same arguments as one by one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import autotune  # after the check for triton
from burn_kernels._triton import INTERPRETED
from burn_kernels.autotune.key import Device as Key
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import Store
from burn_kernels.autotune.tunable import Tunable
from burn_kernels.launch import H200, observing
from burn_torch import Device, Tensor
from burn_torch.backend import Fusion
from burn_torch.backend.libtorch.generated import kernel_variants
from burn_torch.backend.libtorch.generated import quick_launch as fused_launch
from burn_torch.backend.libtorch.generated import together as fused_together
from burn_torch.backend.libtorch.generated import triton_kernels as fused
from burn_torch.backend.libtorch.generated.together import Together
from tests.kernels.stub_cuda import STREAM, StubCuda, standing_in

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")

ARGUMENTS = 4
"""The number of arguments of each kernel: two addresses and two numbers."""


@pytest.fixture(scope="module")
def driver() -> Iterator[StubCuda]:
    with standing_in() as stub:
        yield stub


@pytest.fixture
def stub(driver: StubCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubCuda]:
    """Tensors of the CPU are taken for those of a GPU, and kernels are generated for them."""
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(fused, "generates", lambda place: True)
    for module in (kernel_variants, fused_together):
        monkeypatch.setattr(module, "device_of", lambda kernel: torch.device("cuda", 0))
    monkeypatch.setattr(fused_together, "_PLACES", "cpu")
    monkeypatch.setattr(fused_together, "_capturing", lambda: bool)
    for module in (fused_launch, fused_together):
        monkeypatch.setattr(module, "current_device", lambda: None)
        monkeypatch.setattr(module, "current_stream", lambda: lambda index: STREAM)
    monkeypatch.setattr(
        Tunable, "run", lambda self, like, config, call, launch: self.run_on(0, call, launch) if not config else None
    )
    fusion().replan()
    driver.expect(ARGUMENTS)
    with selecting(Selector(Store(None), devices=lambda i: Key("stub", H200), capturing=lambda i: False)):
        yield driver
    driver.refuse(False)
    driver.expect(0)
    fusion().replan()


FUSED = Device.cpu().fused()


def fusion() -> Fusion:
    backend = FUSED.backend
    assert isinstance(backend, Fusion)
    return backend


def given(*rows: int) -> list[Tensor]:
    return [Tensor.from_torch(torch.randn(n, 64), FUSED) for n in rows]


def computed(xs: list[Tensor], rate: float = 0.5) -> list[Tensor]:
    """A kernel for each, of two numbers."""
    outputs = [(x * rate + 1.0).tanh() for x in xs]
    FUSED.flush()
    return outputs


def program_of(xs: list[Tensor]) -> Together:
    """The program after it has run often enough."""
    for _ in range(3 + 8 + 1):
        computed(xs)
    together: Any = fusion().stream("cpu").history[-1]._run
    assert isinstance(together, Together)
    assert together.at_once is not None
    return together


def masked(stub: StubCuda, outputs: Any) -> list[tuple[int, ...]]:
    """Returns the launches since `begin`, without the addresses of results."""
    fresh = {y.data_ptr() for y in outputs}
    row = [
        tuple(0 if word in fresh else word for word in words[:2])
        + tuple(word & 0xFFFF_FFFF for word in words[2:4])  # a float32 is half a word
        + words[64:]
        for words in stub.row()
    ]
    assert sum(word == 0 for words in row for word in words[:2]) == len(outputs)
    return row


def test_the_driver_gets_the_same(stub: StubCuda) -> None:
    xs = given(3, 5, 9)
    program = program_of(xs)
    for numbers in ((0.5, 1.0), (0.25, -3.0), (0.25, -3.0), (-0.0, 0.0), (0.0, 0.0)):
        inputs = [x.into_torch() for x in xs]
        names = [spec for _, spec in program.graph.inputs]
        rest = iter(numbers * 3)
        tensors = iter(inputs)
        call = [next(tensors) if hasattr(spec, "shape") else next(rest) for spec in names]
        stub.begin()
        one_by_one = masked(stub, program.plain(*call))
        before = stub.calls
        stub.begin()
        outputs = program(*call)
        assert stub.calls == before + 1
        assert masked(stub, outputs) == one_by_one
        assert len(one_by_one) == 3
        assert [tuple(y.shape) for y in outputs] == [(3, 64), (5, 64), (9, 64)]


def in_two(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of columns, and a kernel that reads them."""
    sums = x.sum_dim(0)
    results = sums * 2.0, (x - sums).sum_dim(1)
    del sums
    FUSED.flush()
    return results


def test_a_kernel_reads_what_an_earlier_one_wrote(stub: StubCuda) -> None:
    (x,) = given(70)
    for _ in range(12):
        both_halves = in_two(x)
    program: Any = fusion().stream("cpu").history[-1]._run
    assert isinstance(program, Together)
    assert program.at_once is not None
    del both_halves
    launches = []
    for run in (program.plain, program):
        stub.begin()
        kinds = [hasattr(spec, "shape") for _, spec in program.graph.inputs]
        outputs = run(*[x.into_torch() if kind else 2.0 for kind in kinds])
        names = {x.into_torch().data_ptr(): "x"} | {y.data_ptr(): f"y{i}" for i, y in enumerate(outputs)}
        kernels = [next(iter(part.variants.values())).kernel for part in program.kernels]
        launches.append(
            [
                [names.get(word, "between") for word in words[: len(kernel.inputs) + len(kernel.outputs)]]
                for words, kernel in zip(stub.row(), kernels, strict=True)
            ]
        )
    first, second = launches[1]
    assert launches[0] == launches[1]
    assert "between" in first
    assert "between" in second[:2]
    assert {"y0", "y1"} <= {*first, *second}


def test_a_program_of_one_kernel_is_launched_as_ever(stub: StubCuda) -> None:
    (x,) = given(7)
    for _ in range(16):
        computed([x])
    assert not isinstance(fusion().stream("cpu").history[-1]._run, Together)


def test_what_is_not_as_it_was_runs_one_by_one(stub: StubCuda) -> None:
    xs = given(3, 5)
    program = program_of(xs)
    inputs = [x.into_torch() for x in xs]
    shifted = torch.empty(3 * 64 + 1)[1:].view(3, 64)
    gap = torch.randn(64, 3).mT

    def calls(first: torch.Tensor) -> int:
        tensors, before = iter([first, *inputs[1:]]), stub.calls
        program(*[next(tensors) if hasattr(spec, "shape") else 0.5 for _, spec in program.graph.inputs])
        return stub.calls - before

    assert calls(inputs[0]) == 1
    assert calls(shifted) == calls(gap) == 2
    with observing() as launches:
        assert calls(inputs[0]) == 2
    assert len(launches) == 2
    with autotune.deterministic(True):
        assert calls(inputs[0]) == 2
    assert calls(inputs[0]) == 1


def test_while_a_stream_is_captured_nothing_is_put_together(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    capturing = [False]
    monkeypatch.setattr(fused_together, "_capturing", lambda: lambda: capturing[0])
    xs = given(3, 6)
    program_of(xs)
    before = stub.calls
    computed(xs)
    assert stub.calls == before + 1
    capturing[0] = True
    computed(xs)
    assert stub.calls == before + 1 + 2


def test_a_driver_that_refuses_is_not_asked_again(stub: StubCuda) -> None:
    xs = given(4, 6)
    program = program_of(xs)
    stub.refuse(True)
    before = stub.calls
    computed(xs)
    assert stub.calls == before + 2
    assert program.at_once is None
    stub.refuse(False)
    for _ in range(100):
        computed(xs)
    assert program.at_once is None


def test_much_memory_is_not_held_together(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_together, "_MOST_BYTES", 4 * 64 * (3 + 8) - 1)
    xs = given(3, 8)
    for _ in range(16):
        computed(xs)
    assert not isinstance(fusion().stream("cpu").history[-1]._run, Together)


def test_a_graph_goes_with_its_program(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[int] = []
    monkeypatch.setattr(fused_together, "_destroy_graph", lambda driver, handle, graph: gone.append(handle))
    xs = given(5, 8)
    program = program_of(xs)
    gc.collect()
    assert not gone  # it lives as long as what launches it
    del program
    fusion().stream("cpu").history.clear()
    fusion().replan()
    gc.collect()
    assert len(gone) == 1


def test_numbers_of_threads_are_not_mixed_up(stub: StubCuda) -> None:
    xs = given(3, 10)
    program = program_of(xs)
    tensors = [x.into_torch() for x in xs]
    wrong: list[Any] = []
    kinds = [hasattr(spec, "shape") for _, spec in program.graph.inputs]

    def run(rate: float) -> None:
        own = [x.clone() for x in tensors]
        for _ in range(200):
            rest = iter(own)
            outputs = program(*[next(rest) if kind else rate for kind in kinds])
            if [tuple(y.shape) for y in outputs] != [(3, 64), (10, 64)]:
                wrong.append(rate)

    threads = [threading.Thread(target=run, args=(0.5 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
