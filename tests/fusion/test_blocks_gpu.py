"""The ten blocks on a GPU: the profiler sees the kernels that are explained, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

import burn_torch
from burn_torch import Device, compile
from burn_torch.fusion.rows.row import kernel
from burn_torch.graph.interpreter import stepwise
from tests.fusion.blocks import BLOCKS, REAL
from tests.fusion.profiling import profiling

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def launched(run: Callable[[], Any]) -> Counter[str]:
    """The names of the kernels that run on the device meanwhile; copies and fills by the driver are none."""
    from torch.profiler import ProfilerActivity

    run()  # compiles, tunes and chooses
    torch.cuda.synchronize()
    with profiling(ProfilerActivity.CUDA, ProfilerActivity.CPU) as profile:
        run()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    return Counter(name for name in names if not name.startswith(("Memcpy", "Memset")))


@pytest.mark.parametrize("name", BLOCKS)
def test_the_profiler_counts_what_is_explained(name: str) -> None:
    burn_torch.seed(3)
    arguments = BLOCKS[name].make(Device.cuda(0).autodiff(), REAL)
    step = compile(BLOCKS[name].step, fuse=True, replay=False)
    arguments = BLOCKS[name].then(arguments, step(*arguments))  # an optimizer fills its state before its first step
    counts = launched(lambda: step(*arguments))
    explained = step.explain(*arguments).fusion
    assert explained is not None
    generated = sum(count for kernel_name, count in counts.items() if kernel_name.startswith("fused_"))
    assert generated == explained.generated, counts
    assert sum(counts.values()) - generated == by_libraries(step, arguments), counts


def by_libraries(step: Any, arguments: tuple[Any, ...]) -> int:
    """How many kernels the operations launch that libraries compute, each alone: one, or what the library likes."""
    program = step.opened(*arguments)
    calls: list[tuple[Any, list[Any]]] = []
    values: dict[int, Any] = {i: x for (i, _), x in zip(program.graph.inputs, program.inputs, strict=True)}
    for node, results in stepwise(program.graph, program.leaf, program.inputs):
        operands = [values[i] if isinstance(i, int) else None if i is None else i.value for i in node.inputs]
        if not node.call.is_number and node.call.op is not kernel:
            calls.append((node.call, operands))
        values.update((i, x) for i, x in zip(node.outputs, results, strict=True) if i is not None)
    counts = launched(lambda: [program.leaf.execute(call, operands) for call, operands in calls])
    assert not any(kernel_name.startswith("fused_") for kernel_name in counts)
    return sum(counts.values())
