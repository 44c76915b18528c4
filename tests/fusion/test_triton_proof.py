"""What is shown of each generated kernel in Triton, and that it would not be shown of one with a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from burn_torch.fusion.kernel_proof import KernelFault, reached
from burn_torch.fusion.lowering import lower
from burn_torch.fusion.triton_proof import prove_triton
from burn_torch.graph.ir import Graph
from tests.fusion.programs import row, tensor, traced
from tests.fusion.test_c_over import CASES


def body_of_case(name: str) -> Graph:
    function, shapes = CASES[name]
    return traced(function, [tensor(*shape) for shape in shapes])


BODIES = {
    **{name: body_of_case(name) for name in CASES},
    "long rows": traced(lambda x: (x - row("mean")(x, dims=(1,)), row("exp")(x)), [tensor(3, 20000)]),
    "long columns": traced(lambda x: (x - row("mean")(x, dims=(0,)), row("exp")(x)), [tensor(700, 50)]),
    "turned": traced(lambda x, y: row("permute")(x, axes=(1, 0)) + y, [tensor(70, 50), tensor(50, 70)]),
    "joined": traced(lambda x, y: row("cat")(x * 2.0, row("tanh")(y), dim=0), [tensor(6, 10), tensor(7, 10)]),
}


@pytest.mark.parametrize("name", BODIES)
def test_kernels_are_proved(name: str) -> None:
    body = BODIES[name]
    kernel = lower(body, over=True)
    assert prove_triton(kernel, reached(body, ()), kernel.over)
    assert prove_triton(lower(body), reached(body, ()))


@pytest.mark.parametrize("name", ["two_chains", "crossed", "row_after_its_pass"])
def test_a_load_behind_a_store_over_it_is_found(name: str) -> None:
    """The stores of a kernel that was not written to have results over inputs stand where their values are known."""
    body = BODIES[name]
    kernel = lower(body)
    with pytest.raises(KernelFault, match="is read after or beside"):
        prove_triton(kernel, reached(body, ()), kernel.over)


EDITS = [
    ("joined", "x < 130", "x < 129", "is never stored"),
    ("joined", "x < 130", "x < 131", "elements 0 to"),
    ("joined", "mask=(inside) & (((x) // 10) < 6)", "mask=inside", "of p0"),
    ("joined", "((x) // 10) - 6) * 10", "((x) // 10) - 5) * 10", "of p1"),
    ("two_passes", ", mask=inside)", ")", "elements 0 to"),
    ("two_passes", "r < 40", "r < 39", "is never stored"),
    ("two_passes", "q0 + (x * 40", "q0 + (x * 39", "is stored 2 times"),
    ("long rows", "tl.range(0, 20000,", "tl.range(0, 16384,", "is never stored"),
]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_a_fault_in_the_text_is_found(number: int) -> None:
    name, old, new, said = EDITS[number]
    body = BODIES[name]
    kernel = lower(body)
    assert old in kernel.source, kernel.source
    with pytest.raises(KernelFault, match=said):
        prove_triton(replace(kernel, source=kernel.source.replace(old, new)), reached(body, ()))
