"""A pass that breaks a graph is caught where it does so: faults planted in every pass, and in programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from burn_torch import Device, Tensor, compile, nn, ops
from burn_torch.backend.libtorch.programs import program as libtorch_program
from burn_torch.core.dtype import DType
from burn_torch.core.errors import GraphError
from burn_torch.core.spec import INT_NUMBER, TensorSpec
from burn_torch.fusion.planning import planner
from burn_torch.fusion.planning.composites import open_composites
from burn_torch.graph import Graph, Node, Trace
from burn_torch.graph.passes import driver, invariants, memory
from burn_torch.ops.op import REGISTRY
from burn_torch.transform import program as compiled_program

X = Tensor.from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], Device.cpu())

PASSES = [
    "dead_code",
    "dtype_policy",
    "common_subexpressions",
    "fold_constants",
    "algebra",
    "fold_views",
    "group_updates",
    "narrow_gradients",
    "launch_early",
]


def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A sum over an axis, a product, and two masks that differ in their keys alone."""
    shown = ops.dropout(x, 0.5, 3, 7) + ops.dropout(y, 0.5, 4, 7) * 2.0
    return (shown.exp().sum_dim(1) * x.tanh()), y.sin().matmul(x.transpose())


def changed(graph: Graph, change: Callable[[int, Node], Node | None]) -> Graph:
    """The graph with other nodes, or without those that become None."""
    nodes = [change(n, node) for n, node in enumerate(graph.nodes)]
    return Graph(graph.inputs, [node for node in nodes if node is not None], graph.outputs)


def first(graph: Graph, name: str) -> int:
    return next((n for n, node in enumerate(graph.nodes) if node.call.op.name == name), -1)


# -- the faults ---------------------------------------------------------------------------------------------
def of_another_shape(graph: Graph) -> Graph:
    """Sums over the other axis."""
    at = first(graph, "sum")

    def change(n: int, node: Node) -> Node:
        if n != at:
            return node
        return Node(node.call.op.bind(node.call.specs, {**node.call.attrs, "dims": (0,)}), node.inputs, node.outputs)

    return changed(graph, change)


def dangling(graph: Graph) -> Graph:
    """Drops a node that is read."""
    return changed(graph, lambda n, node: None if n == first(graph, "sin") else node)


def of_another_type(graph: Graph) -> Graph:
    """Gives the first output as f64, though the caller asks for f32."""
    last = max(i for node in graph.nodes for i in node.outputs if i is not None) + 1
    i = graph.outputs[0]
    assert i is not None
    cast = REGISTRY["cast"].bind([graph.specs()[i]], {"dtype": DType.F64})
    return Graph(graph.inputs, [*graph.nodes, Node(cast, [i], [last])], [last, *graph.outputs[1:]])


def drawn_in_another_order(graph: Graph) -> Graph:
    """The two masks have each other's key."""
    places = [n for n, node in enumerate(graph.nodes) if node.call.op.name in ("dropout", "dropout_mask")]
    keys = [graph.nodes[n].inputs[-2] for n in reversed(places)]

    def change(n: int, node: Node) -> Node:
        if n not in places:
            return node
        *rest, _, stream = node.inputs
        return Node(node.call, [*rest, keys[places.index(n)], stream], node.outputs)

    return changed(graph, change)


def read_before_it_is_made(graph: Graph) -> Graph:
    """The nodes in the reverse order."""
    return Graph(graph.inputs, graph.nodes[::-1], graph.outputs)


FAULTS: dict[Callable[[Graph], Graph], str] = {
    of_another_shape: r"input . is %|a pass changed what a graph takes or gives",
    dangling: r"nothing makes %",
    of_another_type: r"a pass changed what a graph takes or gives",
    drawn_in_another_order: r"hang on other random numbers",
    read_before_it_is_made: r"before it is made",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("name", PASSES)
def test_a_fault_in_any_pass_is_caught_after_it(
    name: str, fault: Callable[[Graph], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = getattr(driver, name)
    monkeypatch.setattr(driver, name, lambda graph, *rest: fault(run(graph, *rest)))
    with pytest.raises(GraphError, match=FAULTS[fault]) as caught:
        compile(function)(X, X)
    assert caught.value.__notes__ == [f"after the pass {name}"]


PLANNING = {
    "patterns": (compiled_program, "replaced"),
    "losses in chunks": (compiled_program, "chunk_losses"),
    "gradients of tables by rows": (compiled_program, "add_rows"),
    "endings of products": (compiled_program, "with_endings"),
    "group": (planner, "schedule"),
    "open composites": (planner, "open_composites"),
}


IN_PLANNING = [(step, fault) for step in PLANNING for fault in (dangling, of_another_type, drawn_in_another_order)
               if step != "group" or fault is of_another_type]  # else operations are in kernels by then  # fmt: skip


@pytest.mark.parametrize(("step", "fault"), IN_PLANNING)
def test_a_fault_in_planning_is_caught_after_its_step(
    step: str, fault: Callable[[Graph], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    module, name = PLANNING[step]
    run = getattr(module, name)

    def broken(*args: Any, **kwargs: Any) -> Any:
        outcome = run(*args, **kwargs)
        if isinstance(outcome, tuple):
            return fault(outcome[0]), outcome[1]
        return fault(outcome) if isinstance(outcome, Graph) else replace(outcome, graph=fault(outcome.graph))

    monkeypatch.setattr(module, name, broken)
    with pytest.raises(GraphError, match=FAULTS[fault]) as caught:
        compile(function, fuse=True)(X, X)
    assert f"after the pass {step}" in caught.value.__notes__


def test_a_draw_inside_a_kernel_of_another_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan whose kernel reads the key of another mask."""
    masks = nn.DropoutConfig(0.5).init()
    run = planner.schedule

    def broken(*given: Any) -> Any:
        plan = run(*given)
        numbers = [i for i, spec in plan.graph.inputs if not hasattr(spec, "shape")]

        def change(n: int, node: Node) -> Node:
            return Node(node.call, [numbers[0] if i in numbers else i for i in node.inputs], node.outputs)

        return replace(plan, graph=changed(plan.graph, change))

    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return masks.forward(x).exp() * 2.0, masks.forward(y).sin() + 1.0

    x = Tensor.from_inner(X)
    compile(two, fuse=True)(x, x)
    monkeypatch.setenv("BURN_TORCH_VERIFY", "1")
    monkeypatch.setattr(planner, "schedule", broken)
    with pytest.raises(GraphError, match="hang on other random numbers"):
        compile(two, fuse=True)(x, x)


# -- programs ---------------------------------------------------------------------------------------------------
def reads_later(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp() * y, x.sin() + y


@pytest.mark.parametrize("donate", [(), ("x",)], ids=["kept", "donated"])
def test_a_use_after_donation_is_caught(donate: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = X * 1.0
    compile(reads_later, donate=donate)(x, X)
    real = memory._Lives._overwritten

    def blind(lives: Any, node: Node, position: int, last_use: Any, layouts: Any) -> Any:
        """Takes each node for the last that reads its inputs, and each input for the program's own."""
        ours = dict.fromkeys(range(len(lives.region)), "state")
        saved, lives.region[:] = list(lives.region), list(ours.values())
        try:
            return real(lives, node, position, dict.fromkeys(last_use, position), layouts)
        finally:
            lives.region[:] = saved

    monkeypatch.setattr(memory._Lives, "_overwritten", blind)
    monkeypatch.setattr(memory.Layouts, "of", lambda *_: 2)
    with pytest.raises(GraphError, match="writes over a value that is still needed"):
        compile(reads_later, donate=donate)(X * 1.0, X)


def test_an_output_in_memory_of_the_caller_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "isolate_outputs", lambda graph, donated: graph)
    for function in (
        lambda x: x,
        lambda x: x.transpose(),
        lambda x: (x.exp(),) * 2,
        lambda x: x.exp().expand((4, 2, 3)),
    ):
        with pytest.raises(GraphError, match="left an output in memory that another value holds"):
            compile(function)(X)


def test_nothing_is_checked_where_the_library_does_not_prove_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BURN_TORCH_VERIFY")
    for name in ("check_rewrite", "check_isolated"):
        monkeypatch.setattr(invariants, name, None)
    monkeypatch.setattr(driver, "check_isolated", None)
    monkeypatch.setattr(libtorch_program, "check_overwrites", None)
    compile(reads_later)(X, X)


@pytest.mark.parametrize("fault", [False, True])
def test_a_row_of_several_results_may_be_closed_again(fault: bool) -> None:
    """The gradient of a norm's shift does not hang on the mask before it, though the row that computes it does."""
    trace = Trace()
    x, weight = (trace.input(TensorSpec.of(shape, DType.F32, "cpu")) for shape in ((4, 8), (8,)))
    key, stream = trace.input(INT_NUMBER), trace.input(INT_NUMBER)
    h = x + ops.dropout(x, 0.5, key, stream)
    _, mean, scale = ops.layer_norm(h, weight, weight, 1e-5)
    closed = trace.graph(list(ops.layer_norm_backward(h if fault else x, h, mean, scale, weight, live=(True,) * 3)))
    other = trace.graph(list(ops.layer_norm_backward(x, h, mean, scale, weight, live=(True,) * 3)))
    opened, _ = open_composites(other)
    assert len(opened.nodes) > len(closed.nodes)
    with pytest.raises(GraphError, match="hang on other random numbers") if fault else nullcontext():
        invariants.check_rewrite("group", opened, closed)
