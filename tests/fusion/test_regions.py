"""cat, pad and slice_assign inside of kernels: what joins them, what does not, and the same values in C."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from burn_torch.backend.libtorch.generated.c_kernels import CFunction, compiler
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import Reason, plan_of
from burn_torch.fusion.body.index import Index, Part, Var, constant, index_of, part_of
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.c import lowering as c_lowering
from burn_torch.fusion.planning.bodies import Role, role_of
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced
from tests.fusion.regions import COSTLY, REGIONS


def bodies(graph: Graph) -> list[Graph]:
    return [body_of(node.call.attrs["body"]) for node in plan_of(graph).graph.nodes if "body" in node.call.attrs]


@pytest.mark.parametrize("name", REGIONS)
def test_they_are_one_kernel_with_what_lies_around(name: str) -> None:
    function, specs, kernels = REGIONS[name]
    plan = plan_of(traced(function, specs))
    assert plan.kernels == kernels, plan.graph.text()


@pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels run in Triton's interpreter here")
@pytest.mark.parametrize("name", REGIONS)
def test_values_in_c(name: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_lowering, "FEW", 1)
    function, specs, _ = REGIONS[name]
    for dtype in (DType.F32, DType.BF16):
        typed = [s.with_dtype(dtype) if isinstance(s, TensorSpec) and s.dtype.is_float else s for s in specs]
        (body,) = bodies(traced(function, typed))
        inputs = made([spec for _, spec in body.inputs], seed)
        kernel = CFunction(body, strict=False)
        assert (kernel.kernel is None) == (name in COSTLY)
        agree(list(kernel(*inputs)), in_float64(body, inputs))


def test_what_costs_much_is_computed_in_its_region_alone() -> None:
    """In Triton by the programs that have an element there; in C it is no kernel, since all lanes would."""

    def function(x: Any, y: Any) -> Any:
        return row("cat")(row("tanh")(x), y * 2.0, dim=1) + 1.0

    body = traced(function, [tensor(64, 128), tensor(64, 128)])
    lines = lower(body).source.splitlines()
    (branch,) = [n for n, line in enumerate(lines) if line.startswith("    if tl.max(")]
    assert "tanh_odd(" in lines[branch + 2]
    assert lines[branch + 2].startswith("        ")
    assert sum("tanh_odd(" in line for line in lines) == 1
    with pytest.raises(Unfusible, match="every element would be computed in every part"):
        c_lowering.lower_to_c(body)


def test_a_join_alone_is_a_librarys() -> None:
    plan = plan_of(traced(lambda x, y: row("cat")(x, y, dim=0), [tensor(3, 4), tensor(2, 4)]))
    assert [node.call.op.name for node in plan.graph.nodes] == ["cat"]


def test_what_a_library_makes_is_copied_where_it_is_summed() -> None:
    """The gradient of q, k and v side by side, and that of their bias: one kernel reads the three."""

    def function(a: Any, b: Any, c: Any) -> Any:
        g = row("cat")(*[row("matmul")(x, x) for x in (a, b, c)], dim=1)
        return row("matmul")(g, row("permute")(g, axes=(1, 0))), row("sum")(g, dims=(0,))

    plan = plan_of(traced(function, [tensor(2048, 2048)] * 3))
    assert [group.rows for group in plan.groups] == [("cat", "sum")]
    assert all(b.reason is Reason.LIBRARY for b in plan.boundaries if "cat" in (b.producer, b.consumer))


def role(name: str, *specs: Any, **attrs: Any) -> tuple[str, Any]:
    return role_of(row(name).bind(specs, attrs))


def test_many_parts_and_repeated_borders_are_librarys() -> None:
    assert role("cat", *[tensor(2, 3)] * 12, dim=0)[0] == Role.COMPUTES
    apart, why = role("cat", *[tensor(2, 3)] * 13, dim=0)
    assert (apart, getattr(why, "reason", None)) == (Role.APART, Reason.LIMIT)
    apart, why = role("pad", tensor(4, 5), 0.0, padding=((1, 1), (0, 0)), mode="reflect")
    assert (apart, getattr(why, "reason", None)) == (Role.APART, Reason.UNSUPPORTED)


def test_what_is_cut_back_out_reads_one_part() -> None:
    """No test of a place is left where a slice lies within a part."""

    def function(x: Any, y: Any) -> Any:
        z = row("cat")(x, y, dim=0)
        return row("slice")(z, ranges=((3, 5, 1), (0, 4, 1))) * 2.0

    (body,) = (traced(function, [tensor(3, 4), tensor(4, 4)]),)
    kernel = lower(body)
    assert kernel.inputs == (1,)
    assert "where" not in kernel.source


def test_loads_of_a_part_are_masked_by_it() -> None:
    body = traced(lambda x, y: row("cat")(x, y, dim=0) + 1.0, [tensor(3, 4), tensor(2, 4)])
    source = lower(body).source
    assert "mask=(inside) & (((x) // 4) < 3)" in source


# -- places in parts ---------------------------------------------------------------------------------------
def test_parts_of_an_index() -> None:
    x = index_of(Var("x", 10))
    assert part_of(x, 10, 3) is None
    assert part_of(x + 4, 0, 4) is None
    assert part_of(x, 0, 10) == x
    assert part_of(x + 3, 3, 12) == x
    inside = part_of(x, 4, 3)
    assert isinstance(inside, Index)
    assert (inside.low, inside.high) == (0, 2)
    (part,) = inside.parts()
    assert part.tests() == ["(x >= 4)", "(x < 7)"]
    assert (inside % 3, inside // 3) == (inside, constant(0))
    assert [eval(inside.written(), {"x": n}) for n in (4, 5, 6)] == [0, 1, 2]


def test_how_an_index_grows() -> None:
    variable = Var("x", 12)
    x = index_of(variable)
    inside = part_of(x * 2, 4, 6)
    assert inside is not None
    assert (inside * 3 + x).step(variable) == 7
    assert (x // 4).step(variable) is None
    assert constant(5).step(variable) == 0


def test_a_part_of_other_variables() -> None:
    x, y = Var("x", 6), Var("y", 6)
    inside = part_of(index_of(x) + 1, 2, 3)
    assert inside is not None
    (part,) = inside.replaced({x: index_of(y)}).parts()
    assert isinstance(part, Part)
    assert part.variables() == {y}
