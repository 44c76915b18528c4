"""Proofs of each generated kernel in C, and faults that the proof finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from burn_torch.core.errors import GraphError
from burn_torch.fusion.body.kernel_proof import KernelFault, reached
from burn_torch.fusion.body.steps import Place, Store
from burn_torch.fusion.c.dialect import C
from burn_torch.fusion.c.lanes import LaneNeeds
from burn_torch.fusion.c.lowering import CKernel, lower_to_c
from burn_torch.fusion.c.proof import prove_c
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import driver
from tests.fusion.edited import with_edit
from tests.fusion.programs import row, tensor, traced
from tests.fusion.test_c_over import CASES


def body_of_case(name: str) -> Graph:
    function, shapes = CASES[name]
    return traced(function, [tensor(*shape) for shape in shapes])


def prove(kernel: CKernel, body: Graph, layouts: Any = ()) -> None:
    prove_c(kernel, reached(body, layouts))


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_proved(name: str) -> None:
    body = body_of_case(name)
    prove(lower_to_c(body), body)


def test_strides_count() -> None:
    body = traced(lambda x, y: row("tanh")(x) + y, [tensor(6, 10), tensor(6, 10)])
    kernel = lower_to_c(body, layouts=[(1, 6), None])
    prove(kernel, body, [(1, 6), None])
    with pytest.raises(KernelFault, match="elements 0 to 59"):
        prove_c(kernel, {0: 59, 1: 60})


# -- planted faults ----------------------------------------------------------------------------------
def store_where_it_is_computed(self: C, step: Store) -> None:
    """As the writer did before."""
    write(self, step)
    if step.place is Place.LOOP:
        self.passes[-1].reads.append(self.passes[-1].stores.pop())
    else:
        self.each.append(self.ends.pop())


def any_pass_may_be_covered(self: LaneNeeds, output: int, i: int) -> bool:
    stored = self._stores.get(output)
    return stored is not None and all(at == stored[1] for _, at in self._loads[i])


write = C.store

FAULTS: list[tuple[type, str, Callable[..., Any], str, str]] = [
    (C, "store", store_where_it_is_computed, "two_chains", "is read after"),
    (C, "store", store_where_it_is_computed, "columns_then_state", "is read after"),
    (C, "store", store_where_it_is_computed, "rows_then_state", "is read after"),
    (LaneNeeds, "may_cover", any_pass_may_be_covered, "two_passes", "is read after"),
    (LaneNeeds, "may_cover", any_pass_may_be_covered, "row_after_its_pass", "is read after"),
]


@pytest.mark.parametrize(
    ("owner", "method", "fault", "case", "said"), FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_load_behind_a_store_over_it_is_found(
    owner: type, method: str, fault: Any, case: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = body_of_case(case)
    monkeypatch.setattr(owner, method, fault)
    with pytest.raises(KernelFault, match=said):
        prove(lower_to_c(body), body)


def joined() -> Graph:
    return traced(lambda x, y: row("cat")(x * 2.0, row("neg")(y), dim=0), [tensor(6, 10), tensor(7, 10)])


def kept() -> Graph:
    def centred(x: Any) -> Any:
        wide = row("exp")(x)
        return wide - row("mean")(wide, dims=(1,))

    return traced(centred, [tensor(6, 40)])


EDITS = [
    (joined, "0; x < 13;", "0; x < 12;", "is never stored"),  # the tail is missing
    (joined, "0; x < 13;", "0; x < 14;", "elements 0 to 79"),  # one row too many
    (joined, "((x < 6)) ? p0[", "(1) ? p0[", "of p0"),  # no mask
    (joined, "(x < 6)", "(x < 7)", "of p0"),  # a mask that is one off
    (joined, "part += 1024", "part += 5", "is stored"),  # chunks that overlap
    (joined, "q0[x * 10 + ri] =", "q0[x * 10 + ri] = 0; q0[x * 10 + ri] =", "is stored 2 times"),
    (joined, "q0[x * 10 + ri] =", "q0[x * 9 + ri] =", "is stored 2 times"),
    (joined, "q0[x * 10 + ri] =", "q0[x * 10 + ri + 1] =", "elements 1 to 130"),
    (lambda: body_of_case("columns_then_state"), "l < lanes", "l < 64", "elements"),  # lanes beyond the last column
    (kept, "row5[40]", "row5[39]", "elements 0 to 39"),  # a short buffer
]


@pytest.mark.parametrize("number", range(len(EDITS)))
def test_a_fault_in_the_text_is_found(number: int) -> None:
    build, old, new, said = EDITS[number]
    body = build()
    kernel = lower_to_c(body)
    with pytest.raises(KernelFault, match=said):
        prove(with_edit(kernel, old, new), body)


def test_an_output_over_what_others_read_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = traced(lambda x: x + row("flip")(x, axes=(0,)), [tensor(6, 10)])
    monkeypatch.setattr(LaneNeeds, "may_cover", lambda self, output, i: True)
    with pytest.raises(KernelFault, match="is read after or beside"):
        prove(lower_to_c(body), body)


def test_a_long_kernel_is_walked_at_its_ends() -> None:
    body = traced(lambda x: row("tanh")(x * 2.0) + 1.0, [tensor(3000, 3001)])
    kernel = lower_to_c(body)
    prove(kernel, body)
    with pytest.raises(KernelFault, match="elements"):
        prove_c(kernel, {0: 3000 * 3001 - 1})


# -- passes --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "broken",
    [
        lambda graph: Graph(graph.inputs, graph.nodes[1:], graph.outputs),
        lambda graph: Graph(graph.inputs, graph.nodes, [*graph.outputs, graph.inputs[0][0]]),
        lambda graph: Graph(graph.inputs, graph.nodes, [graph.inputs[0][0]]),
    ],
    ids=["a node is lost", "an output more", "another output"],
)
def test_a_pass_that_breaks_a_graph_is_named(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(lambda x: row("sum")(row("tanh")(x * 2.0), dims=(0,)), [tensor(3, 4)])
    driver.pipeline(graph)
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    monkeypatch.setattr(driver, "group_updates", broken)
    with pytest.raises(GraphError) as caught:
        driver.pipeline(graph)
    assert caught.value.__notes__ == ["after the pass group_updates"]
