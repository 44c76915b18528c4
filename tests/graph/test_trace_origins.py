"""The line and the module that a trace gives to nodes: forward, gradients, graphs that run over the trace."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from burn_torch import nn, ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.decorator import Decorator
from burn_torch.core.dtype import DType
from burn_torch.core.frames import PACKAGE_DIRECTORY, is_users
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Node, Origin, Trace, interpret
from burn_torch.module import Module
from burn_torch.ops import Value
from burn_torch.tensor import Tensor
from burn_torch.tensor.functional import linear

SPEC = TensorSpec.of((3, 3), DType.F32, "cpu")


class Affine(Module):
    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)  # line of linear


class Block(Module):
    linear: Affine
    activation: nn.Relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear.forward(x)
        return self.activation.forward(x).exp()  # line of relu and exp


class Net(Module):
    blocks: list[Block]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block.forward(x)
        return x


def line_of(text: str) -> int:
    """The one line of this file that ends so."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()  # type: ignore[arg-type]  # a module it is
    (number_of_line,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return number_of_line


LINEAR, RELU = line_of("line of linear"), line_of("line of relu and exp")


def paths_of(module: Module) -> Callable[[object], str | None]:
    """As the compiler hands it: paths by identity."""
    known: dict[int, str] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, tuple):
            for i, child in enumerate(value):
                visit(child, f"{path}.{i}")
        elif isinstance(value, Module):
            known[id(value)] = path
            for name in type(value).__annotations__:
                visit(getattr(value, name), f"{path}.{name}" if path else name)

    visit(module, "")
    return lambda value: known.get(id(value))


def traced_net(stack: Callable[[Any], Any] = Autodiff.over) -> tuple[Trace, Tensor, Net]:
    blocks = [None, None]
    known: list[Callable[[object], str | None]] = []
    trace = Trace(origins=True, paths=lambda value: known[0](value))
    backend = stack(trace)

    def tensor() -> Tensor:
        value: Any = trace.input(SPEC)
        primitive = value.primitive
        for tape in tapes(backend):
            primitive = tape.track(primitive, SPEC)
        return Tensor(backend, primitive, SPEC)

    net = Net([Block(Affine(tensor()), nn.Relu()) for _ in blocks])
    known.append(paths_of(net))
    return trace, tensor(), net


def tapes(backend: Any) -> list[Autodiff]:
    """From the inner one to the outer one."""
    stacked: list[Autodiff] = []
    while isinstance(backend, Autodiff):
        stacked.insert(0, backend)
        backend = backend.inner
    return stacked


def told(graph: Graph) -> list[tuple[str, int, str, bool]]:
    return [(n.call.op.name, o.line, o.path, o.backward) for n in graph.nodes if (o := n.origin) is not None]


def test_forward_nodes_know_line_and_innermost_module() -> None:
    trace, x, net = traced_net()
    y = net.forward(x)
    graph = trace.graph([Value(trace, y.primitive.primitive, y.spec)])
    assert told(graph) == [
        ("linear", LINEAR, "blocks.0.linear", False),
        ("relu", RELU, "blocks.0.activation", False),
        ("exp", RELU, "blocks.0", False),
        ("linear", LINEAR, "blocks.1.linear", False),
        ("relu", RELU, "blocks.1.activation", False),
        ("exp", RELU, "blocks.1", False),
    ]
    assert {(n.origin.file, n.origin.function) for n in graph.nodes if n.origin} == {(__file__, "forward")}


def test_gradient_nodes_have_the_origin_of_the_operation_they_differentiate() -> None:
    trace, x, net = traced_net()
    y = net.forward(x)
    forward = len(trace.graph([]).nodes)
    tape = y.backend
    assert isinstance(tape, Autodiff)
    seed = trace.input(SPEC)
    slots = tape.backward([(y.primitive, seed.primitive)])
    assert len(slots) == 3  # two weights and x
    gradients = told(trace.graph([]))[forward:]
    assert len(gradients) == len(trace.graph([]).nodes) - forward  # each has one
    by_path: dict[str, set[tuple[int, bool]]] = {}
    for _, line, path, backward in gradients:
        by_path.setdefault(path, set()).add((line, backward))
    assert by_path == {
        f"blocks.{i}{part}": {(line, True)}
        for i in (0, 1)
        for part, line in (("", RELU), (".activation", RELU), (".linear", LINEAR))
    }
    assert str(trace.graph([]).nodes[-1].origin).startswith("gradient of blocks.0.linear at ")


def test_after_a_backward_nodes_have_their_own_line_again() -> None:
    trace, x, net = traced_net()
    y = net.forward(x)
    y.backend.backward([(y.primitive, trace.input(SPEC).primitive)])  # type: ignore[attr-defined]  # an Autodiff it is
    ops.exp(Value(trace, y.primitive.primitive, SPEC))  # after
    last = trace.graph([]).nodes[-1].origin
    assert last is not None
    assert (last.line, last.path, last.backward) == (line_of("after"), "", False)


def test_gradients_of_gradients_keep_the_forward_origin() -> None:
    trace, x, net = traced_net(lambda trace: Autodiff.over(Autodiff.over(trace)))
    inner, outer = tapes(x.backend)
    y = net.forward(x)
    seed = trace.input(SPEC)
    first = outer.backward([(y.primitive, seed.primitive)])
    before = len(trace.graph([]).nodes)
    gradient = first[x.primitive.node.id]
    inner.backward([(gradient, seed.primitive)])
    nodes = trace.graph([]).nodes[before:]
    assert {n.origin.backward for n in nodes if n.origin} == {True}
    assert {n.origin.path.partition(".")[2].partition(".")[0] for n in nodes if n.origin} == {"0", "1"}
    assert all(n.origin is not None and n.origin.line in (LINEAR, RELU) for n in nodes)


def test_gradient_of_a_decomposition_has_the_line_of_the_row() -> None:
    trace = Trace(origins=True)
    tape = Autodiff.over(trace)
    x = tape.track(trace.input(SPEC).primitive, SPEC)
    y = ops.var_mean(Value(tape, x, SPEC), dims=(0,), correction=0)[0]  # line of var_mean
    tape.backward([(y.primitive, trace.input(y.spec).primitive)])
    graph = trace.graph([])
    assert len(graph.nodes) > 2
    assert {line for _, line, _, _ in told(graph)} == {line_of("line of var_mean")}
    assert [b for *_, b in told(graph)] == [False] + [True] * (len(graph.nodes) - 1)


def test_sum_of_gradients_belongs_to_the_backward() -> None:
    trace = Trace(origins=True)
    tape = Autodiff.over(trace)
    x = Value(tape, tape.track(trace.input(SPEC).primitive, SPEC), SPEC)
    y = ops.exp(x)
    z = y * ops.sin(y)
    tape.backward([(z.primitive, trace.input(SPEC).primitive)])
    names = told(trace.graph([]))
    assert ("add", True) in [(name, backward) for name, _, _, backward in names]
    assert [b for *_, b in names] == [False] * 3 + [True] * (len(names) - 3)


def origins(line: int, graph: Graph) -> Graph:
    nodes = [Node(n.call, n.inputs, n.outputs, Origin("model.py", line, "f", f"at.{i}"))
             for i, n in enumerate(graph.nodes)]  # fmt: skip
    return Graph(graph.inputs, nodes, graph.outputs)


@pytest.mark.parametrize("decorate", [lambda trace: trace, Autodiff.over], ids=["trace", "autodiff"])
def test_graph_that_runs_over_a_trace_keeps_its_origins(decorate: Callable[[Trace], Any]) -> None:
    source = Trace()
    a = source.input(SPEC)
    graph = origins(7, source.graph([ops.exp(ops.exp(a))]))
    trace = Trace(origins=True)
    backend = decorate(trace)
    x = trace.input(SPEC)
    interpret(graph, backend, [x.primitive])
    backend.compile(graph)(x.primitive)
    ops.exp(x)  # beside the graph
    node_origins = [n.origin for n in trace.graph([]).nodes]
    inner = [n.origin for n in graph.nodes]
    assert node_origins[:4] == inner * 2
    assert node_origins[4] is not None
    assert node_origins[4].line == line_of("beside the graph")


def test_graph_without_origins_gets_the_line_that_runs_it() -> None:
    source = Trace()
    graph = source.graph([ops.exp(source.input(SPEC))])
    trace = Trace(origins=True)
    interpret(graph, trace, [trace.input(SPEC).primitive])  # line of interpret
    assert told(trace.graph([])) == [("exp", line_of("line of interpret"), "", False)]


def test_compiling_over_two_traced_tapes_leaves_numbers_to_the_trace() -> None:
    trace = Trace()
    tape = Autodiff.over(Autodiff.over(trace))
    source = Trace()
    x, rate = source.input(SPEC), source.input(FLOAT_NUMBER)
    graph = source.graph([x * (rate + 1.0)])
    results = tape.compile(graph)(trace.input(SPEC).primitive, trace.input(FLOAT_NUMBER).primitive)
    again = trace.graph([Value(trace, results[0], SPEC)])
    assert again == graph


def test_trace_collects_nothing_unless_asked() -> None:
    trace = Trace()
    ops.exp(trace.input(SPEC))
    assert trace.origins is None
    assert [n.origin for n in trace.graph([]).nodes] == [None]


def test_rebased_stack_of_two_tapes_is_not_kept() -> None:
    stack = Autodiff(Autodiff(Tensor.zeros((1,), _cpu()).backend))
    before = len(Decorator._instances)
    rebased = stack.onto(stack.inner.onto(Trace()))
    assert len(Decorator._instances) == before
    assert tapes(rebased)[0].inner.name == "Trace"


def _cpu() -> Any:
    from burn_torch import Device

    return Device.cpu()


class Outer(Module):
    def forward(self) -> Graph:
        return trace_here()


def trace_here() -> Graph:
    trace = Trace(origins=True, paths=lambda value: "outer" if isinstance(value, Outer) else None)
    ops.exp(trace.input(SPEC))  # within Outer
    return trace.graph([])


def test_modules_that_run_outside_of_the_trace_are_not_its() -> None:
    assert told(Outer().forward()) == [("exp", line_of("within Outer"), "", False)]


def test_line_is_that_which_called_the_package_where_no_nearer_one_is_the_users() -> None:
    names: dict[str, Any] = {"Trace": Trace, "ops": ops, "SPEC": SPEC}
    source = "def f():\n  t = Trace(origins=True)\n  ops.exp(t.input(SPEC))\n  return t.graph([])\n"
    exec(compile(source, "<generated>", "exec"), names)
    assert told(names["f"]()) == [("exp", line_of("calls what is ours"), "", False)]  # calls what is ours


def test_code_beside_the_package_is_the_users() -> None:
    assert is_users(f"{PACKAGE_DIRECTORY}_experiments/train.py")
    assert not is_users(f"{PACKAGE_DIRECTORY}/nn/linear.py")
    assert not is_users("<string>")


def test_steps_of_recipes_are_programs_of_users() -> None:
    names = ("digits", "image_folder", "regression", "text_classification", "text_generation")
    recipes = [importlib.import_module(f"burn_torch.cli.recipes.{name}") for name in names]
    models = [kind for recipe in recipes for kind in vars(recipe).values() if hasattr(kind, "train_step")]
    files = {getattr(kind, step).__code__.co_filename for kind in models for step in ("train_step", "valid_step")}
    assert any(file.endswith("recipe_model.py") for file in files)
    assert [file for file in files if not is_users(file)] == []
