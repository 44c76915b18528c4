"""Every registered kernel: launchers on this machine's devices against float64, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_kernels import REGISTRY, KernelSpec, Problem, verify
from burn_kernels.spec import Draw

CPU_DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def problems(spec: KernelSpec) -> list[Problem]:
    return list(spec.problems(Draw(sum(map(ord, spec.name)))))


def cases() -> list[Any]:
    found = []
    for spec in REGISTRY.values():
        for index, problem in enumerate(problems(spec)):
            shapes = "-".join("x".join(map(str, x.shape)) for x in problem.inputs if isinstance(x, torch.Tensor))
            found.append(pytest.param(spec, index, id=f"{spec.name}-{index}-{shapes}"))
    return found


@pytest.mark.parametrize("dtype", CPU_DTYPES, ids=str)
@pytest.mark.parametrize(("spec", "index"), cases())
def test_launchers_on_the_cpu(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("spec", "index"), cases())
def test_kernels_on_a_gpu(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype, device="cuda") == []
