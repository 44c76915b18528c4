"""A kernel that does not compile or run: one warning with its name and file, and the right result without it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import burn_kernels.launch  # after the check for triton
from burn_torch import Device, FusionWarning, Tensor, compile
from burn_torch.backend import LibTorch
from burn_torch.fusion import plan_of
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced

WORDS = r"kernel failed(?s:.)*given: *(fused_\w+) in (\S+) \(tanh, mul\): SyntaxError: ptxas(?s:.)*mend:"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launches of generated kernels fail; gives the names of those that were tried."""
    tried: list[str] = []
    launch = burn_kernels.launch.launch

    def failing(function: Any, *rest: Any, **options: Any) -> Any:
        name = function.fn.__name__
        if name.startswith("fused_"):
            tried.append(name)
            raise SyntaxError("ptxas does not like this kernel")
        return launch(function, *rest, **options)

    monkeypatch.setattr(burn_kernels.launch, "launch", failing)
    return tried


def shown(warned: Any) -> None:
    (warning,) = warned
    assert warning.category is FusionWarning
    import re

    match = re.search(WORDS, str(warning.message))
    assert match, warning.message
    assert match[1] in Path(match[2]).read_text(encoding="utf-8"), "the file holds the kernel"


def test_in_a_program(broken: list[str], seed: np.random.Generator) -> None:
    def around(x: Any, w: Any) -> Any:
        return row("matmul")(row("tanh")(x) * 0.5, w)

    specs = [tensor(3, 4), tensor(4, 5)]
    graph = traced(around, specs)
    inputs = made(specs, seed)
    program = LibTorch().program(plan_of(graph).graph)
    with pytest.warns(FusionWarning) as warned:
        outputs = program.run(*inputs)
    shown(warned)
    agree(outputs, in_float64(graph, inputs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(program.run(*inputs), in_float64(graph, inputs))
    assert len(broken) == 1, "it is not tried again"


def test_in_a_stream(broken: list[str], seed: np.random.Generator) -> None:
    device = Device.cpu().fused()
    x = Tensor.from_data(seed.standard_normal((3, 11)).astype(np.float32), device)
    with pytest.warns(FusionWarning) as warned:
        output = (x.tanh() * 0.5).into_torch()
    shown(warned)
    torch.testing.assert_close(output, torch.tanh(x.into_torch()) * 0.5)


def test_in_a_compiled_function_with_donation(broken: list[str], seed: np.random.Generator) -> None:
    """A kernel in place fails before it writes."""
    x = Tensor.from_data(seed.standard_normal((3, 13)).astype(np.float32), Device.cpu())
    wanted = torch.tanh(x.into_torch().clone()) * 0.5
    step = compile(lambda x: x.tanh() * 0.5, donate="x", fuse=True)
    with pytest.warns(FusionWarning) as warned:
        output = step(x)
    shown(warned)
    torch.testing.assert_close(output.into_torch(), wanted)


def test_the_operations_are_written_once_and_not_at_each_call(
    broken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from burn_torch.backend.libtorch.generated import triton_kernels

    written: list[object] = []
    write = triton_kernels.compile_plain
    monkeypatch.setattr(triton_kernels, "compile_plain", lambda graph: written.append(graph) or write(graph))
    kernel = triton_kernels.FusedKernel(traced(lambda x: row("tanh")(x) * 0.25, [tensor(3)]), strict=False)
    with pytest.warns(FusionWarning, match="kernel failed"):
        kernel(torch.ones(3))
    for _ in range(3):
        torch.testing.assert_close(kernel(torch.ones(3))[0], torch.tanh(torch.ones(3)) * 0.25)
    assert len(written) == 1


def test_what_fails_without_the_kernel_too_is_the_error(broken: list[str]) -> None:
    from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel

    graph = traced(lambda x, y: row("tanh")(x) * y, [tensor(3), tensor(3)])
    with pytest.raises(RuntimeError, match="size of tensor"):
        FusedKernel(graph, strict=False)(torch.ones(3), torch.ones(4))


def test_a_lack_of_memory_is_no_fault_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the caller's to see: the operations one by one would need more, and the kernel is run again later."""
    from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel

    launch = burn_kernels.launch.launch

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    kernel = FusedKernel(traced(lambda x: row("tanh")(x) * 0.5, [tensor(3)]), strict=False)
    monkeypatch.setattr(burn_kernels.launch, "launch", full)
    with pytest.raises(torch.OutOfMemoryError):
        kernel(torch.ones(3))
    monkeypatch.setattr(burn_kernels.launch, "launch", launch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(kernel(torch.ones(3))[0], torch.tanh(torch.ones(3)) * 0.5)
    assert kernel.without is None


# -- recorded programs -----------------------------------------------------------------------------------------
def recordable(x: Any, w: Any, n: Any) -> Any:
    """Kernels with a number of the call: one by itself, and one of two results."""
    y = row("tanh")(x) * n + 1.0
    return row("matmul")(y, w), row("exp")(y * n) - n


def test_in_a_recording_that_holds_numbers(broken: list[str], seed: np.random.Generator) -> None:
    """No kernel can read its numbers any more: the program is planned without it, before anything is recorded."""
    from burn_torch.core.spec import FLOAT_NUMBER
    from tests.backend.libtorch.host_arena import captured

    graph = traced(recordable, [tensor(3, 4), tensor(4, 5), FLOAT_NUMBER])
    x, w = (torch.from_numpy(seed.standard_normal(shape).astype(np.float32)) for shape in ((3, 4), (4, 5)))
    program, arena = captured(plan_of(graph).graph)
    with pytest.warns(FusionWarning, match=r"recorded program failed(?s:.*)SyntaxError: ptxas") as warned:
        program(x, w, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (0.25, 3.0):
            y = torch.tanh(x) * n + 1.0
            for output, wanted in zip(program(x, w, n), (y @ w, torch.exp(y * n) - n), strict=True):
                torch.testing.assert_close(output, wanted, rtol=1e-5, atol=1e-5)
        again, _ = captured(plan_of(graph).graph)  # another program of the same kernels
        torch.testing.assert_close(again(x, w, 2.0)[0], (torch.tanh(x) * 2.0 + 1.0) @ w, rtol=1e-5, atol=1e-5)
    assert len(warned) == len(set(broken)), "one word for each kernel"
    assert len(arena.recordings) >= 1


def test_in_a_recording_where_the_library_verifies(broken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_torch.core.spec import FLOAT_NUMBER
    from tests.backend.libtorch.host_arena import captured

    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    graph = traced(lambda x, n: row("cos")(x) * n + 1.0, [tensor(3, 4), FLOAT_NUMBER])
    with pytest.raises(SyntaxError, match="ptxas"):
        captured(plan_of(graph).graph)[0](torch.ones(3, 4), 0.5)
