"""The kernels themselves, in Triton's interpreter: every problem of every spec, every config, against float64.

In float32 and float16.  The interpreter truncates float32 to bfloat16, so that type is judged on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import REGISTRY, KernelSpec, Problem, cross_entropy, dropout, glu, norm, optimizer, softmax, verify
from burn_kernels.launch import FLOATS, H200, Launch, machine_of, next_power
from burn_kernels.spec import Draw
from burn_kernels.verify import compare, poisoned

pytestmark = [
    # numpy says so where kernels compute with infinities on purpose, in lanes that are masked or replaced
    pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"),
]


def problems(spec: KernelSpec) -> list[Problem]:
    return list(spec.problems(Draw(sum(map(ord, spec.name)))))


CASES = [
    pytest.param(spec, index, id=f"{spec.name}-{index}")
    for spec in REGISTRY.values()
    for index in range(len(problems(spec)))
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("spec", "index"), CASES)
def test_kernel_agrees_with_float64(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype) == []
