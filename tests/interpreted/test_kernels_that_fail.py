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


def shown(told: Any) -> None:
    (warning,) = told
    assert warning.category is FusionWarning
    import re

    found = re.search(WORDS, str(warning.message))
    assert found, warning.message
    assert found[1] in Path(found[2]).read_text(encoding="utf-8"), "the file holds the kernel"


def test_in_a_program(broken: list[str], seed: np.random.Generator) -> None:
    def around(x: Any, w: Any) -> Any:
        return row("matmul")(row("tanh")(x) * 0.5, w)

    specs = [tensor(3, 4), tensor(4, 5)]
    graph = traced(around, specs)
    inputs = made(specs, seed)
    program = LibTorch().program(plan_of(graph).graph)
    with pytest.warns(FusionWarning) as told:
        found = program.run(*inputs)
    shown(told)
    agree(found, in_float64(graph, inputs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(program.run(*inputs), in_float64(graph, inputs))
    assert len(broken) == 1, "it is not tried again"


def test_in_a_stream(broken: list[str], seed: np.random.Generator) -> None:
    device = Device.cpu().fused()
    x = Tensor.from_data(seed.standard_normal((3, 11)).astype(np.float32), device)
    with pytest.warns(FusionWarning) as told:
        found = (x.tanh() * 0.5).into_torch()
    shown(told)
    torch.testing.assert_close(found, torch.tanh(x.into_torch()) * 0.5)


def test_in_a_compiled_function_with_donation(broken: list[str], seed: np.random.Generator) -> None:
    """A kernel in place fails before it writes."""
    x = Tensor.from_data(seed.standard_normal((3, 13)).astype(np.float32), Device.cpu())
    wanted = torch.tanh(x.into_torch().clone()) * 0.5
    step = compile(lambda x: x.tanh() * 0.5, donate="x", fuse=True)
    with pytest.warns(FusionWarning) as told:
        found = step(x)
    shown(told)
    torch.testing.assert_close(found.into_torch(), wanted)


def test_what_fails_without_the_kernel_too_is_the_error(broken: list[str]) -> None:
    from burn_torch.backend.libtorch.fused import FusedKernel

    graph = traced(lambda x, y: row("tanh")(x) * y, [tensor(3), tensor(3)])
    with pytest.raises(RuntimeError, match="size of tensor"):
        FusedKernel(graph, strict=False)(torch.ones(3), torch.ones(4))


def test_a_lack_of_memory_is_no_fault_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the caller's to see: the operations one by one would need more, and the kernel is run again later."""
    from burn_torch.backend.libtorch.fused import FusedKernel

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
