"""Fusion on a GPU: structures, random programs, models in CUDA graphs, the lazy stream with gradients; and what only a
GPU shows: other streams, captures, addresses, devices, launches that profilers count."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import burn_torch  # after the check for triton
from burn_kernels import autotune
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import Store
from burn_kernels.launch import observing
from burn_torch import Device, StepScope, Tensor, compile, vjp
from burn_torch.backend import LibTorch
from burn_torch.backend.lazy import fusion_of
from burn_torch.backend.lazy.stream import Stream
from burn_torch.backend.libtorch.generated.together import Together
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.backend.libtorch.generated.tuning import last_tiles
from burn_torch.core.dtype import DType
from burn_torch.core.spec import INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.triton.configs import chosen_tiles
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.optim import AdamWConfig, GradientsParams
from tests.fusion.checking import agree, cooked, drawn, in_float64, made
from tests.fusion.profiling import profiling
from tests.fusion.programs import PROGRAMS, row, tensor, traced

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PLACE = "cuda:0"
new_stream: Any = torch.cuda.Stream  # torch has no types for it
RANDOM = 50
MOST = 1 << 20
"""Elements of a value of a random program."""


def placed(specs: Any, seed: np.random.Generator) -> list[Any]:
    """Random inputs on the GPU."""
    return [x.cuda() if isinstance(x, torch.Tensor) else x for x in made(specs, seed)]


# -- structures and random programs --------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_structures(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, specs, kernels = PROGRAMS[name]
    if name == "norm_backward" and dtype is not DType.F32:
        pytest.skip("its statistics are float32")
    sizes = {6: 257, 10: 1030, 5: 515}
    typed: list[Spec] = [
        TensorSpec.of(tuple(sizes.get(n, n) for n in spec.shape), dtype, PLACE)
        if isinstance(spec, TensorSpec)
        else spec
        for spec in specs
    ]
    graph = traced(function, typed)
    planned = plan_of(graph)
    if name != "norm_backward":  # more rows are reduced in two steps
        assert planned.kernels <= kernels + 1
    inputs = placed(typed, seed)
    with observing() as launches:
        outputs = LibTorch().program(planned.graph).run(*inputs)
    assert len(launches) >= 1
    agree(outputs, in_float64(graph, inputs), 30.0 if name == "norm_backward" else 8.0)


@pytest.mark.parametrize("number", range(RANDOM))
def test_random_programs(number: int) -> None:
    seed = np.random.default_rng(number)
    shapes, steps = drawn(seed)
    dtype = (DType.F32, DType.BF16)[number % 2]
    specs = [tensor(*shape, dtype=dtype, place=PLACE) for shape in shapes]
    graph = traced(lambda *xs: cooked(steps, xs, MOST) or xs[0] * 2.0, specs)
    inputs = placed(specs, seed)
    exact = in_float64(graph, inputs)
    scale = max([float(y.abs().max()) for y in exact if y.numel()], default=1.0)
    outputs = LibTorch().program(plan_of(graph).graph).run(*inputs)
    agree(outputs, exact, (20 if dtype is DType.F32 else 40) * max(scale, 1.0))


@pytest.mark.parametrize("number", range(0, RANDOM, 5))
def test_gradients_of_random_programs(number: int) -> None:
    shapes, steps = drawn(np.random.default_rng(number))
    inputs = placed([tensor(*shape) for shape in shapes], np.random.default_rng(number))

    def pulled(*xs: Tensor) -> Any:
        ys, pull = vjp(lambda *given: cooked(steps, given, MOST) or (given[0] * 2.0,), *xs)
        return pull(tuple(y * 0.5 + 1.0 for y in ys))

    wide = pulled(*[Tensor.from_torch(x.double().cpu()) for x in inputs])
    exact = [g.into_torch().cuda() for g in wide]
    scale = max([float(g.abs().max()) for g in exact if g.numel()], default=1.0)
    recorded = compile(pulled, fuse=True)(*[Tensor.from_torch(x) for x in inputs])
    agree([g.into_torch() for g in recorded], exact, 40 * max(scale, 1.0))
    lazy = pulled(*[Tensor.from_torch(x, Device.cuda(0).fused()) for x in inputs])
    agree([g.into_torch() for g in lazy], exact, 40 * max(scale, 1.0))


# -- what only a GPU shows -------------------------------------------------------------------------------
def chain(x: Any, y: Any) -> Any:
    return row("tanh")(x * 0.5) + y


def kernel_of(rows: int, cols: int) -> FusedKernel:
    spec = tensor(rows, cols, place=PLACE)
    return FusedKernel(traced(chain, [spec, spec]), strict=False)


def test_strides_and_addresses() -> None:
    kernel = kernel_of(64, 48)
    room = torch.randn(64 * 48 + 8, device="cuda")
    whole = torch.randn(64, 48, device="cuda")
    for x in (whole, whole, torch.randn(48, 64, device="cuda").mT, torch.randn(64, 96, device="cuda")[:, ::2],
              room[1 : 64 * 48 + 1].view(64, 48), room[4 : 64 * 48 + 4].view(64, 48)):  # fmt: skip
        (output,) = kernel(x, whole)
        torch.testing.assert_close(output, torch.tanh(x * 0.5) + whole)


def test_a_known_launch_is_quick_and_counted() -> None:
    kernel = kernel_of(130, 70)
    x, y = (torch.randn(130, 70, device="cuda") for _ in range(2))
    kernel(x, y)
    quick = kernel.quick
    assert quick.__name__ == "launch"
    with profiling() as profile:
        outputs = [kernel(x, y)[0] for _ in range(3)]
        torch.cuda.synchronize()
    assert kernel.quick is quick
    names = [event.name for event in profile.events() if event.name.startswith("fused_")]
    assert len(names) == 3
    for z in outputs:
        torch.testing.assert_close(z, torch.tanh(x * 0.5) + y)
    assert len({z.data_ptr() for z in outputs}) == 3


def test_it_runs_on_the_caller_s_stream() -> None:
    kernel = kernel_of(2048, 2048)
    x, y = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    kernel(x, y)
    beside = new_stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        z = x
        for _ in range(30):
            (z,) = kernel(z, y)
    torch.cuda.current_stream().wait_stream(beside)
    expected = x
    for _ in range(30):
        expected = torch.tanh(expected * 0.5) + y
    torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-4)


def test_it_is_captured_and_replayed_with_other_values() -> None:
    kernel = kernel_of(100, 300)
    x, y = (torch.randn(100, 300, device="cuda") for _ in range(2))
    beside = new_stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        kernel(x, y)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (z,) = kernel(x, y)
        (z,) = kernel(z, y)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(z, torch.tanh((torch.tanh(x * 0.5) + y) * 0.5) + y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_device_is_the_current_one() -> None:
    kernel = kernel_of(64, 64)
    x, y = (torch.randn(64, 64, device="cuda:0") for _ in range(2))
    for _ in range(2):
        with torch.cuda.device(1):
            (output,) = kernel(x, y)
        torch.testing.assert_close(output, torch.tanh(x * 0.5) + y)


def test_many_threads_launch_one_kernel() -> None:
    kernel = kernel_of(512, 512)
    x, y = (torch.randn(512, 512, device="cuda") for _ in range(2))
    expected = torch.tanh(x * 0.5) + y
    wrong: list[torch.Tensor] = []

    def run() -> None:
        outputs = [kernel(x, y)[0] for _ in range(50)]
        wrong.extend(z for z in outputs if not torch.allclose(z, expected, atol=1e-6))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_elements_than_32_bits_reach() -> None:
    count = (1 << 31) + 4096
    if torch.cuda.mem_get_info()[0] < 6 * count:
        pytest.skip("needs 12 GiB")
    spec = tensor(count, dtype=DType.I8, place=PLACE)
    kernel = FusedKernel(traced(lambda x: x + 3, [spec]), strict=False)
    x = torch.arange(count, device="cuda", dtype=torch.int64).remainder_(100).to(torch.int8)
    (output,) = kernel(x)
    assert torch.equal(output, x + 3)


def test_random_values_are_the_cpu_s(seed: np.random.Generator) -> None:
    def graph(place: str) -> Graph:
        def drop(x: Any, key: Any, stream: Any) -> Any:
            mask = row("dropout_mask")(0.4, key, stream, shape=(129, 1030), dtype=DType.F32, place=place)
            return x * mask

        return traced(drop, [tensor(129, 1030, place=place), INT_NUMBER, INT_NUMBER])

    x = torch.from_numpy(seed.standard_normal((129, 1030)).astype(np.float32))
    for key, stream in ((7, 11), (-1, 2**64 - 1), (2**63, 0)):
        (draws,) = FusedKernel(graph(PLACE), strict=False)(x.cuda(), key, stream)
        (expected,) = interpret(graph("cpu"), LibTorch(), [x, key, stream])
        torch.testing.assert_close(draws.cpu(), expected)


def test_tiles_are_measured_and_stay_right() -> None:
    kernel = kernel_of(999, 1001)
    x, y = (torch.randn(999, 1001, device="cuda") for _ in range(2))
    expected = torch.tanh(x * 0.5) + y
    with selecting(Selector(Store(None))) as selector, autotune.using("on"):
        for _ in range(4):
            torch.testing.assert_close(kernel(x, y)[0], expected)
        known = [d for d in selector.decisions.values() if d.tunable.name.startswith("fused_")]
        choice = chosen_tiles(kernel.lowered((None, None)), last_tiles)
    assert [decision.source for decision in known] == ["measured"]
    assert choice == (known[0].config, "measured")


# -- models ------------------------------------------------------------------------------------------------
def training_step(model: Any, optim: Any, batch: tuple[Tensor, ...], lr: float, key: int) -> tuple[Any, Any, Tensor]:
    with StepScope(key, model):
        loss = model.loss(*batch)
        gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


def guide(device: Device) -> tuple[Any, tuple[Tensor, ...]]:
    cases: Any = importlib.import_module("benchmarks._steps.cases")
    case = cases.mnist("cpu", True)[1]  # without dropout, so that all draw the same
    return case.model(device), tuple(Tensor.from_torch(torch.from_numpy(a).cuda(), device) for a in case.batches[0])


def transformer(device: Device) -> tuple[Any, tuple[Tensor, ...]]:
    cases: Any = importlib.import_module("benchmarks._steps.cases")
    case = cases.gpt2(True)
    return case.model(device), tuple(Tensor.from_torch(torch.from_numpy(a).cuda(), device) for a in case.batches[0])


MODELS = {"mnist": guide, "gpt2": transformer}


def losses(name: str, step: Any, device: Device) -> list[float]:
    burn_torch.seed(0)
    model, batch = MODELS[name](device)
    optim: Any = AdamWConfig(weight_decay=0.01).init()
    values_of_loss = []
    for number in range(8):
        model, optim, loss = step(model, optim, batch, 1e-3 / (1 + number), 7 + number)
        values_of_loss.append(float(loss.into_scalar()))
    return values_of_loss


@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_in_a_cuda_graph(name: str) -> None:
    plain = Device.cuda(0).autodiff()
    wanted = losses(name, training_step, plain)
    step = compile(training_step, donate=("model", "optim"), fuse=True)
    fused_losses = losses(name, step, plain)
    assert fused_losses == pytest.approx(wanted, rel=2e-3)
    assert fused_losses[-1] < fused_losses[0]
    (program,) = step._programs.values()
    recorded: Any = program.recorded
    assert recorded.splits == ()
    assert program.plan is not None
    assert program.plan.groups
    assert step.traces == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_a_fused_device(name: str) -> None:
    wanted = losses(name, training_step, Device.cuda(0).autodiff())
    device = Device.cuda(0).fused()
    fusion = fusion_of(device.backend)
    assert fusion is not None
    stream = fusion.stream(PLACE)
    stream.flush()
    stream.history.clear()
    fused_losses = losses(name, training_step, device.autodiff())
    assert fused_losses == pytest.approx(wanted, rel=2e-3)
    assert all(ready.fused for ready in stream.history)


@pytest.fixture
def stream() -> Iterator[Stream]:
    fusion = fusion_of(Device.cuda(0).fused().backend)
    assert fusion is not None
    opened = fusion.stream(PLACE)
    opened.flush()
    opened.history.clear()
    yield opened
    opened.flush()


def gelu(x: Tensor) -> Tensor:
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0


def test_a_chain_and_its_backward_keep_no_intermediate(stream: Stream) -> None:
    device = Device.cuda(0).fused()
    x, g = (Tensor.from_torch(torch.randn(2048, 2048, device="cuda"), device) for _ in range(2))

    def both() -> Any:
        y, pull = vjp(gelu, x)
        (dx,) = pull(g)
        del pull
        device.flush()
        return y, dx

    both()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y, dx = both()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= 1.01 * 2 * 4 * 2048 * 2048
    leaf = x.into_torch().double().requires_grad_()
    exact = leaf * (torch.erf(leaf / 2**0.5) + 1.0) / 2.0
    (slope,) = torch.autograd.grad(exact, [leaf], [g.into_torch().double()])
    torch.testing.assert_close(y.into_torch().double(), exact.detach(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(dx.into_torch().double(), slope, rtol=2e-5, atol=2e-5)


def test_a_stream_of_operations_is_one_kernel_for_the_profiler(stream: Stream) -> None:
    device = Device.cuda(0).fused()
    x = Tensor.from_torch(torch.randn(512, 512, device="cuda"), device)
    gelu(x).into_torch()
    with profiling() as profile:
        y = gelu(x)
        device.flush()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type.name == "CUDA"]
    assert [event.name[:6] for event in kernels] == ["fused_"]
    torch.testing.assert_close(y.into_torch(), torch.nn.functional.gelu(x.into_torch()), rtol=2e-5, atol=2e-5)


def test_launches_of_the_library_are_known_the_second_time() -> None:
    from burn_kernels import prepared, softmax

    x = torch.randn(300, 1000, device="cuda")
    first = softmax.forward(x)
    count = len(prepared._known)
    with profiling() as profile:
        again = [softmax.forward(x) for _ in range(3)]
        torch.cuda.synchronize()
    assert len(prepared._known) == count > 0
    assert len([event for event in profile.events() if event.device_type.name == "CUDA"]) == 3
    for y in (first, *again):
        torch.testing.assert_close(y, torch.softmax(x, 1))


# -- launches at once -----------------------------------------------------------------------------------
def test_kernels_that_are_launched_at_once_compute_the_same() -> None:
    """Other numbers in each step, results that die before the next one, a second thread with a stream of its own."""
    device = Device.cuda(0).fused()

    def compute(rows: list[torch.Tensor], steps: int) -> Any:
        tensors = [Tensor.from_torch(x, device) for x in rows]
        for step in range(steps):
            rate = 0.25 * (step % 5) - 0.5
            outputs = [(x * rate + 1.0).tanh() for x in tensors]
            device.flush()
            for x, y in zip(rows, outputs, strict=True):
                torch.testing.assert_close(y.into_torch(), torch.tanh(x * rate + 1.0), atol=2e-6, rtol=0)
        stack = fusion_of(device.backend)
        assert stack is not None
        return stack.stream(PLACE).history[-1]._run

    rows = [torch.randn(64 + i, 96, device=PLACE) for i in range(5)]
    run = compute(rows, 40)
    assert isinstance(run, Together)
    assert run.at_once is not None
    faults: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with torch.cuda.stream(new_stream()):
                compute([torch.randn_like(x) for x in rows], 40)
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    compute(rows, 40)
    thread.join()
    assert not faults
