"""Proofs of each generated kernel in Triton, and faults that the proof finds."""

from __future__ import annotations

from typing import Any

import pytest

from burn_torch.fusion.body.kernel_proof import KernelFault, reached
from burn_torch.fusion.triton.convolution_proof import prove_convolution
from burn_torch.fusion.triton.convolutions import lower_convolution
from burn_torch.fusion.triton.lowering import lower
from burn_torch.fusion.triton.products import lower_product
from burn_torch.fusion.triton.proof import UNPROVED, prove_product, prove_triton
from burn_torch.graph.ir import Graph
from tests.fusion.edited import with_edit
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
    with pytest.raises(KernelFault, match=said):
        prove_triton(with_edit(kernel, old, new), reached(body, ()))


# -- kernels side by side, and around products ----------------------------------------------------------
def several(a: Any, b: Any, c: Any, d: Any) -> Any:
    return row("sum")(a * 2.0, dims=(0,)), row("tanh")(b), row("sum")(c * 2.0, dims=(0,)), row("exp")(d)


BESIDE = traced(several, [tensor(9, 40), tensor(6), tensor(9, 40), tensor(6, 3)])


def around(x: Any, w: Any, y: Any) -> Any:
    z = row("matmul")(row("tanh")(x), w)
    return row("exp")(z) + y, z * 2.0


PRODUCT = traced(around, [tensor(13, 20), tensor(20, 11), tensor(13, 11)])


def test_kernels_side_by_side_are_proved() -> None:
    kernel = lower(BESIDE, over=True)
    assert kernel.source.startswith('"""4 small kernels')
    assert kernel.over
    assert prove_triton(kernel, reached(BESIDE, ()), kernel.over)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("program < 3:", "program < 4:", "is never stored"),  # a part has too few programs
        ("== 1, q2,", "== 1, q0,", "is stored 2 times"),  # both sums in one place
        ("== 1, p2,", "== 0, q1,", "elements"),  # reads what is too short
        ("x < 18", "x < 19", "elements 0 to 18"),
        ("program - 3", "program - 2", "is never stored"),
        ("tl.store(q0 + (x), v2", "tl.store(q0 + (x + 1), v2", "elements"),
    ],
)
def test_a_fault_in_kernels_side_by_side_is_found(old: str, new: str, said: str) -> None:
    kernel = lower(BESIDE)
    with pytest.raises(KernelFault, match=said):
        prove_triton(with_edit(kernel, old, new, 1), reached(BESIDE, ()))


def test_products_are_proved() -> None:
    assert prove_product(lower_product(PRODUCT), reached(PRODUCT, ()))
    layouts = [(1, 13), None, None]
    assert prove_product(lower_product(PRODUCT, layouts=layouts), reached(PRODUCT, layouts))
    UNPROVED.clear()
    large = traced(around, [tensor(4096, 4096), tensor(4096, 4096), tensor(4096, 4096)])
    assert not prove_product(lower_product(large), reached(large, ()))
    assert UNPROVED == {"too many steps": 1}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("in_left = (x < 13)", "in_left = (x < 14)", "elements 0 to"),
        ("(k[:, None] < 20)", "(k[:, None] < 21)", "of right_p0"),
        ("    inside = (x < 13)", "    inside = (x < 12)", "is never stored"),
        ("down * XB", "down * RB * 2", "is never stored"),
        ("r = across", "r = down", "is stored"),
        ("tl.store(q1 + (", "tl.store(q0 + (", "is stored 2 times"),
        (", mask=inside)\n", ")\n", "elements 0 to"),
    ],
)
def test_a_fault_around_a_product_is_found(old: str, new: str, said: str) -> None:
    kernel = lower_product(PRODUCT)
    with pytest.raises(KernelFault, match=said):
        prove_product(with_edit(kernel, old, new, 1), reached(PRODUCT, ()))


# -- around convolutions --------------------------------------------------------------------------------
STEPS = {"stride": (2, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 2), "groups": 2}


def ended(x: Any, w: Any, b: Any, y: Any) -> Any:
    z = row("conv")(x, w, b, **STEPS)
    return row("relu")(z * 0.5) + y, row("tanh")(z)


CONVOLUTION = traced(ended, [tensor(2, 4, 7, 9), tensor(6, 2, 3, 3), tensor(6), tensor(2, 6, 4, 5)])


def test_kernels_around_convolutions_are_proved() -> None:
    assert prove_convolution(lower_convolution(CONVOLUTION), reached(CONVOLUTION, ()))
    layouts = [(252, 1, 36, 4), None, None, (1, 40, 10, 2)]
    assert prove_convolution(lower_convolution(CONVOLUTION, layouts=layouts), reached(CONVOLUTION, layouts))
    plain = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    bare = traced(lambda x, w: row("exp")(row("conv")(x, w, None, **plain)), [tensor(3, 1, 5, 5), tensor(5, 1, 2, 2)])
    assert prove_convolution(lower_convolution(bare), reached(bare, ()))
    UNPROVED.clear()
    large = traced(
        lambda x, w: row("exp")(row("conv")(x, w, None, **plain)), [tensor(64, 3, 258, 258), tensor(64, 3, 3, 3)]
    )
    assert not prove_convolution(lower_convolution(large), reached(large, ()))
    assert UNPROVED == {"too many steps": 1}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("valid = p < 40", "valid = p < 41", "of x_ptr"),
        ("valid = p < 40", "valid = p < 39", "is never stored"),
        ("(out + o < 3)", "(out + o < 4)", "of p0"),
        ("(out + o < 3)", "(out + o < 2)", "is never stored"),
        ("* 3 + out + o) * 20 + place", "* 3 + out + o) * 19 + place", "is stored 2 times"),
        ("tl.store(q1 + (", "tl.store(q0 + (", "is stored 2 times"),
        ("tl.load(p0 + x, mask=inside", "tl.load(p0 + (x + 1), mask=inside", "of p0"),
        ("(252, 63, 9, 1)", "(252, 63, 10, 1)", "of x_ptr"),
        ("(252, 63, 9, 1)", "(253, 63, 9, 1)", "of x_ptr"),
        ("Sizes(7, 9, 4, 5, 2, 3, 2)", "Sizes(8, 9, 4, 5, 2, 3, 2)", "of x_ptr"),
        ("Sizes(7, 9, 4, 5, 2, 3, 2)", "Sizes(7, 9, 4, 5, 3, 3, 2)", "of"),
        ("(54, 18, 9)", "(55, 18, 9)", "of w_ptr"),
        ("False, False, True, 3, 3", "False, False, False, 3, 3", "of x_ptr"),
        ("False, False, True, 3, 3", "False, False, True, 3, 4", "of"),
        ("tl.program_id(1) // blocks", "tl.program_id(0) // blocks", "is"),
    ],
)
def test_a_fault_around_a_convolution_is_found(old: str, new: str, said: str) -> None:
    kernel = lower_convolution(CONVOLUTION)
    with pytest.raises(KernelFault, match=said):
        prove_convolution(with_edit(kernel, old, new, 1), reached(CONVOLUTION, ()))
