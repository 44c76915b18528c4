"""Symbolic plans: which sizes become symbols, what joins them, what is guarded, and how many plans are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from burn_torch import Device, Tensor
from burn_torch.backend import Fusion, LibTorch
from burn_torch.backend.lazy import FusionWarning, plans
from burn_torch.backend.lazy.storms import MOST_PLANS
from burn_torch.backend.lazy.stream import Stream
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, GraphError
from burn_torch.core.spec import FLOAT_NUMBER, Spec, TensorSpec
from burn_torch.fusion import Unfusible, plan_of
from burn_torch.fusion.rows.symbolic import Symbolic, Unsymbolic, form_of, sizes_of, symbolised
from burn_torch.fusion.shapes.variants import MOST_SYMBOLIC, Schedules, SymbolicPlan, Variants
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.op import REGISTRY, unlisted
from burn_torch.ops.samples import normalise
from burn_torch.symbolic.sizes import Size
from burn_torch.tensor import activation
from tests.fusion.programs import COLS, PROGRAMS, ROWS, row, tensor, traced

Shapes = Sequence[tuple[int, ...]]


def symbolic(function: Callable[..., Any], one: Shapes, other: Shapes) -> Symbolic:
    """The function at the other shapes, with symbols for what differs from the first."""
    first, second = (traced(function, [tensor(*shape) for shape in shapes]) for shapes in (one, other))
    assert form_of(first) == form_of(second)
    pairs = enumerate(zip(sizes_of(first), sizes_of(second), strict=True))
    return symbolised(second, [n for n, (a, b) in pairs if a != b], [sizes_of(first)])


def shown(plan: Symbolic, i: int) -> str:
    spec = plan.graph.specs()[plan.graph.inputs[i][0]]
    assert isinstance(spec, TensorSpec)
    return str(spec.shape)


# -- what joins sizes ------------------------------------------------------------------------------------
def test_sizes_that_are_equal_by_chance_stay_two_symbols() -> None:
    """Batch 8 and width 8, then 9 and 9: nothing that is done asks for one of the other."""
    plan = symbolic(lambda x: row("tanh")(x * 2.0), [(8, 8)], [(9, 9)])
    assert shown(plan, 0) == "(s0, s1)"
    plan_of(plan.graph)
    assert plan.match((5, 7, 5, 7)) == (5, 7)
    assert all("==" not in guard.text for guard in plan.guards)


def test_element_wise_operations_join_what_they_meet() -> None:
    plan = symbolic(lambda x, y, z: (x + y) * z, [(8, 8), (8, 8), (8, 1)], [(9, 9), (9, 9), (9, 1)])
    assert [shown(plan, i) for i in range(3)] == ["(s0, s1)", "(s0, s1)", "(s0, 1)"]


def test_what_is_repeated_is_no_symbol() -> None:
    plan = symbolic(lambda x, y: x + y, [(8, 1), (1, 6)], [(9, 1), (1, 7)])
    assert [shown(plan, i) for i in range(2)] == ["(s0, 1)", "(1, s1)"]
    assert plan.graph.specs()[plan.graph.outputs[0]].shape[1] is not None  # type: ignore[index,union-attr]
    sizes = sizes_of(traced(lambda x, y: x + y, [tensor(8, 1), tensor(1, 6)]))
    assert plan.match(sizes) == (8, 6)
    assert plan.match((8, 6, 1, 6)) is None, "an axis that was repeated is there now"


def test_products_join_the_inner_axes() -> None:
    plan = symbolic(lambda x, y: row("matmul")(x, y), [(8, 8), (8, 8)], [(9, 9), (9, 9)])
    assert [shown(plan, i) for i in range(2)] == ["(s0, s1)", "(s1, s2)"]


def test_a_written_shape_follows_from_what_it_divides() -> None:
    def heads(x: Any) -> Any:
        batch, seq, width = x.shape
        return row("permute")(row("reshape")(x, shape=(batch, seq, 4, width // 4)), axes=(0, 2, 1, 3))

    plan = symbolic(heads, [(8, 8, 64)], [(9, 9, 64)])
    assert shown(plan, 0) == "(s0, s1, 64)"
    assert [str(size) for size in plan.sites.values() if isinstance(size, Size)] == ["s0", "s1", "s0", "s1"]
    joined = symbolic(lambda x: row("reshape")(x, shape=(x.shape[0] * x.shape[1], 64)), [(8, 8, 64)], [(9, 9, 64)])
    assert [str(size) for size in joined.sites.values() if isinstance(size, Size)] == ["s0", "s1", "(s0 * s1)"]


def test_a_written_end_is_tied_where_it_ends_an_axis_and_guarded_where_it_does_not() -> None:
    def first(n: int) -> Callable[[Any], Any]:
        return lambda x: row("slice")(x, ranges=((0, n, 1), (0, 4, 1))) * 2.0

    ends = [traced(first(n), [tensor(n, 4)]) for n in (8, 9)]
    plan = symbolised(ends[1], [0, 3], [sizes_of(ends[0])])
    assert [str(size) for size in plan.sites.values() if isinstance(size, Size)] == ["s0", "s0"]
    parts = [traced(first(n), [tensor(2 * n + 1, 4)]) for n in (8, 9)]
    plan = symbolised(parts[1], [0, 3], [sizes_of(parts[0])])
    assert [guard.text for guard in plan.guards] == ["s0 >= s1"]
    assert plan.match(sizes_of(traced(first(5), [tensor(5, 4)]))) == (5, 5)


def test_two_products_that_must_be_equal_are_a_guard() -> None:
    def at(a: int, b: int, c: int, d: int) -> Graph:
        def flat(x: Any, y: Any) -> Any:
            left = row("reshape")(x, shape=(x.shape[0] * x.shape[1], 4))
            right = row("reshape")(y, shape=(y.shape[0] * y.shape[1], 4))
            return row("matmul")(row("permute")(left, axes=(1, 0)), right)

        return traced(flat, [tensor(a, b, 4), tensor(c, d, 4)])

    one, other = at(8, 8, 8, 8), at(9, 10, 9, 10)
    pairs = enumerate(zip(sizes_of(one), sizes_of(other), strict=True))
    plan = symbolised(other, [n for n, (a, b) in pairs if a != b], [sizes_of(one)])
    assert [guard.text for guard in plan.guards] == ["s0 * s1 == s2 * s3"]
    assert plan.match(sizes_of(at(6, 4, 2, 12))) == (6, 4, 2, 12)
    assert len(plan.symbols) == 4


def test_sizes_that_nothing_may_be_of_are_refused() -> None:
    graph = traced(lambda x: x * 2.0, [tensor(1, 5)])
    with pytest.raises(Unsymbolic, match="no size that may be a symbol"):
        symbolised(graph, [0])


def test_no_row_of_the_table_raises_anything_but_a_limit_with_symbols() -> None:
    """Each row at the sizes of its first sample, all of them symbols: planned, or refused by name."""
    planned, refused = 0, list[str]()
    for number, (name, op) in enumerate(REGISTRY.items()):
        if not op.samples or "::" in name or (op.pointwise is not None and number % 5):  # element by element: all alike
            continue
        if "norm" in name or name == "log_softmax_backward":  # other tests plan these, and they take most of the time
            continue
        trace = Trace()
        drawn = normalise(op.samples)[0]
        arrays = drawn.draw(np.random.default_rng(0))
        operands = [trace.input(spec_of_array(x)) if isinstance(x, np.ndarray) else x for x in arrays]
        try:
            output = op(*operands, **drawn.attrs)
        except BurnTorchError:  # of another type than these
            continue
        graph = trace.graph(
            [x for x in (output if isinstance(output, tuple | list) else (output,)) if x is not None]
        ).dense()
        try:
            plan = symbolised(graph, range(len(sizes_of(graph))))
            SymbolicPlan(plan, plan_of(plan.graph, plainer=False))
            planned += 1
        except (Unsymbolic, Unfusible):
            refused.append(name)
    assert planned > 70
    assert len(refused) < 40, refused


def spec_of_array(x: NDArray[Any]) -> TensorSpec:
    return tensor(*x.shape, dtype={"f": DType.F32, "b": DType.BOOL}.get(x.dtype.kind, DType.I64))


def test_a_rule_that_takes_no_symbols_is_a_limit_with_its_name() -> None:
    def rule(x: TensorSpec) -> TensorSpec:
        """A rule that looks its size up."""
        return x.with_shape({8: (8,), 9: (9,)}[x.shape[0]]) if type(x.shape[0]) is int else x.with_shape("no")  # type: ignore[arg-type]

    graph = traced(lambda x: unlisted(rule, torch=torch.neg)(x), [tensor(9)])
    with pytest.raises(Unsymbolic, match="the rule of rule takes no symbols: TypeError"):
        symbolised(graph, [0])


# -- guards -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "guards"),
    [
        ("gelu", ["s0 * s1 < 2147418112"]),  # indexes of 32 bits
        ("softmax", ["s0 * s1 < 2147418112", "s1 <= 16384"]),  # rows that a program holds whole
    ],
)
def test_what_kernels_ask_is_guarded(name: str, guards: list[str]) -> None:
    plan = planned(name, (8, 24))
    assert [guard.text for guard in plan.guards] == guards
    rows, cols = 100_000, 100_000
    assert plan.match(sizes_of(at_sizes(name, rows, cols))) is None
    assert plan.match(sizes_of(at_sizes(name, 300, 500))) == (300, 500)


def test_a_dropout_of_whole_fours_guards_them_and_another_does_not() -> None:
    fours, any_size = planned("dropout_residual_norm", (8, 24)), planned("dropout_residual_norm", (9, 23))
    assert "((s1) % 4) == 0" in [guard.text for guard in fours.guards]
    assert all("%" not in guard.text for guard in any_size.guards)
    sizes = sizes_of(at_sizes("dropout_residual_norm", 7, 22))
    assert fours.match(sizes) is None
    assert any_size.match(sizes) == (7, 22)
    assert any_size.match(sizes_of(at_sizes("dropout_residual_norm", 8, 24))) == (8, 24)


def specs_at(name: str, rows: int, cols: int) -> list[Spec]:
    sizes = {ROWS: rows, COLS: cols, COLS // 2: cols // 2, 1: 1}
    return [
        spec.with_shape(tuple(sizes[n] for n in spec.shape)) if isinstance(spec, TensorSpec) else spec
        for spec in PROGRAMS[name][1]
    ]


def at_sizes(name: str, rows: int, cols: int) -> Graph:
    return traced(PROGRAMS[name][0], specs_at(name, rows, cols))


def planned(name: str, sizes: tuple[int, int]) -> Symbolic:
    variants = Variants()
    assert variants.made(at_sizes(name, 6, 10), sizes_of(at_sizes(name, 6, 10)), plan_of) is None
    graph = at_sizes(name, *sizes)
    variant = variants.made(graph, sizes_of(graph), plan_of)
    assert variant is not None
    return variant.symbolic


# -- the same results, the same kernels ---------------------------------------------------------------------
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_symbolic_plan_is_the_plan_at_every_shape(name: str, seed: np.random.Generator) -> None:
    """As many kernels as the shape's own plan, and the same values; here operation by operation."""
    variants = Variants()
    for rows, cols in [(6, 10), (9, 22), (7, 8), (8, 8), (2, 4), (31, 64)]:
        graph = at_sizes(name, rows, cols)
        instance_at = variants.found(sizes_of(graph))
        if instance_at is None and variants.made(graph, sizes_of(graph), plan_of) is not None:
            instance_at = variants.found(sizes_of(graph))
        if instance_at is None:
            assert (rows, cols) == (6, 10), "the first shape has a plan of its own, and no other"
            continue
        _, instance = instance_at
        assert sum(not node.call.aliases for node in instance.nodes) == plan_of(graph).kernels
        inputs = [
            torch.from_numpy(seed.uniform(0.5, 1.5, spec.shape).astype(np.float32))
            if isinstance(spec, TensorSpec)
            else (1e-5 if spec is FLOAT_NUMBER else 3)
            for _, spec in graph.inputs
        ]
        for y, z in zip(interpret(instance, LibTorch(), inputs), interpret(graph, LibTorch(), inputs), strict=True):
            torch.testing.assert_close(y, z, rtol=2e-5, atol=2e-5)
    assert variants.planned == 1


def test_numbers_that_are_made_of_sizes_are_made_of_the_new_sizes() -> None:
    """A norm from a row multiplies with one divided by the width, which a kernel of symbolic width is told."""
    variants = Variants()
    for cols in (10, 24, 7):
        graph = at_sizes("layer_norm", 6, cols)
        variants.made(graph, sizes_of(graph), plan_of)
    instance_at = variants.found(sizes_of(at_sizes("layer_norm", 6, 7)))
    assert instance_at is not None
    (kernel,) = [node for node in instance_at[1].nodes if node.call.op.name == "fusion::kernel"]
    numbers = [i for i in kernel.inputs if not isinstance(i, int)]
    assert 1.0 / 7 in [number.value for number in numbers if number is not None]


# -- how many plans -------------------------------------------------------------------------------------------
FUSED = Device.cpu().fused()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """This thread's stream, empty, on a leaf that says that it runs kernels: they run operation by operation."""
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    backend = FUSED.backend
    assert isinstance(backend, Fusion)
    opened = backend.stream("cpu")
    opened.flush()
    opened.history.clear()
    backend.replan()
    backend.planner._recent.clear()
    yield opened
    opened.flush()
    backend.replan()  # what follows runs no kernels


def counts(stream: Stream) -> tuple[int, int]:
    planner = stream.fusion.planner
    return planner.misses, planner.shared


def block(x: Tensor) -> Tensor:
    h = (x * 2.0 + 1.0).tanh()
    return activation.softmax(h * x, 1)


def test_ever_new_lengths_level_off_at_two_plans(stream: Stream, seed: np.random.Generator) -> None:
    before = counts(stream)
    for length in range(2, 52):
        x = torch.from_numpy(seed.standard_normal((length, 6)).astype(np.float32))
        y = block(Tensor.from_torch(x, FUSED)).into_torch()
        torch.testing.assert_close(y, torch.softmax((x * 2 + 1).tanh() * x, 1), rtol=2e-5, atol=2e-5)
    misses, shared = (b - a for a, b in zip(before, counts(stream), strict=True))
    assert (misses, shared) == (2, 48)
    assert len({id(ready.symbolic) for ready in stream.history}) == 2, "one of the first length, one for all others"
    assert "48 at new shapes of known programs" in str(FUSED.explain())


def test_explain_shows_symbols_with_lines_and_guards(stream: Stream, tmp_path: Path) -> None:
    for shape in ((4, 6), (5, 7), (6, 9), (7, 7)):
        block(Tensor.from_torch(torch.ones(shape), FUSED)).into_data()
    explained = FUSED.explain()
    first, shared = explained.programs
    assert (first.shapes, shared.shapes, shared.times) == (1, 3, 3)
    assert first.plan.symbols == ()
    assert [(symbol.name, symbol.planned_at) for symbol in shared.plan.symbols] == [("s0", 5), ("s1", 7)]
    assert "h = (x * 2.0 + 1.0).tanh()" in shared.plan.symbols[1].source
    assert shared.plan.guards == ("s0 * s1 < 2147418112", "s1 <= 16384")
    text = str(explained)
    assert "3 times at 3 shapes" in text
    assert "    s1, 7 when it was planned, is axis 1 of input 0 of mul, at " in text
    assert "    as long as s0 * s1 < 2147418112, s1 <= 16384\n" in text
    data = json.loads(explained.to_json())
    assert data["shared"] == stream.fusion.planner.shared
    assert data["programs"][1]["plan"]["guards"] == ["s0 * s1 < 2147418112", "s1 <= 16384"]
    (kernel,) = shared.plan.kernels
    assert kernel.source is not None
    assert ", s0, s1, XB: tl.constexpr" in kernel.source
    assert "s0 * s1 &lt; 2147418112" in shared.plan.show(tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_length_that_comes_again_is_found_without_a_look(stream: Stream) -> None:
    for length in (4, 5, 6, 7):
        block(Tensor.ones((length, 6), FUSED)).into_data()
    before = counts(stream)
    for _ in range(3):
        block(Tensor.ones((7, 6), FUSED)).into_data()
    assert counts(stream) == before
    assert stream.history[-1] is stream.history[-2]
    assert stream.history[-1].runs == 4, "often enough for a program of its own"


def test_lengths_0_and_1_are_planned_as_they_are(stream: Stream) -> None:
    for length in (4, 5, 1, 0, 6, 1, 0):
        x = torch.linspace(-1, 1, length * 6).reshape(length, 6)
        y = block(Tensor.from_torch(x, FUSED)).into_torch()
        torch.testing.assert_close(y, torch.softmax((x * 2 + 1).tanh() * x, 1), rtol=2e-5, atol=2e-5)
    symbols = [ready.symbolic is not None for ready in stream.history]
    assert symbols == [False, True, False, False, True, False, False]


def test_a_size_that_begins_to_differ_later_becomes_a_symbol_too(stream: Stream) -> None:
    for shape in ((4, 6), (5, 6), (5, 7), (9, 11), (8, 8)):
        block(Tensor.ones(shape, FUSED)).into_data()
    variants_of_runs = [ready.symbolic for ready in stream.history]
    assert variants_of_runs[0] is None
    assert variants_of_runs[1] is not None
    assert variants_of_runs[2] is not None
    assert variants_of_runs[1].symbolic.symbols == ("s0",)
    assert variants_of_runs[2].symbolic.symbols == ("s0", "s1")
    assert variants_of_runs[3] is variants_of_runs[4] is variants_of_runs[2]


def test_plans_of_symbolic_sizes_are_few_and_the_last_used_stay() -> None:
    variants = Variants()
    for number, cols in enumerate((10, 23, 24, 16386, 16388, 40000)):
        for rows in (6, 9 + number):
            graph = at_sizes("dropout_residual_norm", rows, cols)
            if variants.found(sizes_of(graph)) is None:
                variants.made(graph, sizes_of(graph), plan_of)
    assert 2 < len(variants.plans) <= MOST_SYMBOLIC


def test_a_storm_is_reported_once_with_the_axis_and_the_line(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> Symbolic:
        raise Unsymbolic("as of an operation whose rule takes no symbols")

    monkeypatch.setattr("burn_torch.fusion.shapes.variants.symbolised", refused)
    outputs: list[torch.Tensor] = []

    def run() -> None:
        tensors = [Tensor.from_torch(torch.ones(length, 6), FUSED) for length in range(2, 30)]
        outputs.extend(block(x).into_torch() for x in tensors)

    line = r"axis 0 of input 0 of mul, at .*test_symbolic.*: \d+, \d+, \d+, \d+, \d+, \d+, \.\.\."
    with pytest.warns(FusionWarning, match=rf"9 plans, 0 of them of symbolic sizes.*; {line}(?s:.)*bucket") as warned:
        run()
    assert len(warned) == 1
    for y, length in zip(outputs, range(2, 30), strict=True):
        torch.testing.assert_close(y, torch.full((length, 6), 1 / 6))
    planned = [ready.fused for ready in stream.history]
    assert planned == [True] * (MOST_PLANS + 1) + [False] * (28 - MOST_PLANS - 1)


def test_a_symbolic_kernel_that_fails_is_reported_and_shapes_are_planned_as_they_are(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> Any:
        raise SyntaxError("ptxas does not like this kernel")

    block(Tensor.ones((3, 6), FUSED)).into_data()
    with monkeypatch.context() as patch:
        patch.setattr(plans, "steps_of", lambda graph, inner: fails)
        with pytest.warns(FusionWarning, match=r"kernel failed(?s:.)*ptxas"):
            y = block(Tensor.ones((4, 6), FUSED)).into_torch()
    torch.testing.assert_close(y, torch.full((4, 6), 1 / 6))
    block(Tensor.ones((5, 6), FUSED)).into_data()
    assert [ready.symbolic is not None for ready in stream.history] == [False, True, False]


# -- compile ---------------------------------------------------------------------------------------------------
def test_traces_at_other_shapes_share_schedules_and_numbers_of_their_own() -> None:
    """The count of a mean is a number in each trace."""

    def mean(x: Any) -> Any:
        y = x * (1.0 / x.shape[0])
        return row("sum")(row("tanh")(y), dims=(1,))

    schedules = Schedules()
    inputs = {n: torch.linspace(-1, 1, n * 4).reshape(n, 4) for n in (4, 7, 9, 12)}
    kernels: list[Any] = []
    for n, x in inputs.items():
        graph = traced(mean, [tensor(n, 4)])
        plan = schedules.of(graph)
        kernels += [(node.call.attrs["body"], node.call.attrs["dynamic"]) for node in plan.graph.nodes]
        (y,) = interpret(plan.graph, LibTorch(), [x])
        torch.testing.assert_close(y, (x / n).tanh().sum(1, keepdim=True))
    assert len(set(kernels)) == 2
    assert len(kernels) == 4
    assert kernels[1] == kernels[2] == kernels[3]


# -- as data ---------------------------------------------------------------------------------------------------
def test_a_graph_with_kernels_of_symbolic_sizes_is_data(seed: np.random.Generator) -> None:
    variants = Variants()
    for rows, cols in ((6, 10), (9, 22)):
        graph = at_sizes("softmax", rows, cols)
        variants.made(graph, sizes_of(graph), plan_of)
    instance_at = variants.found(sizes_of(at_sizes("softmax", 5, 7)))
    assert instance_at is not None
    again = Graph.from_json(instance_at[1].to_json())
    assert again == instance_at[1]
    x = torch.from_numpy(seed.standard_normal((5, 7))).float()
    torch.testing.assert_close(interpret(again, LibTorch(), [x])[0], torch.softmax(x * 0.5, 1))


@pytest.mark.parametrize(
    "dynamic",
    [
        "8,8|__import__('os').system('true')",
        "8|s0;s1",
        "|",
        "8",
        "s0|8",
        "8|s0 ** 9",
        "8|s0;(s0)",
        "8|s0 * 2;\nimport os",
    ],
)
def test_sizes_from_a_file_are_read_before_they_are_run(dynamic: str) -> None:
    variants = Variants()
    for rows, cols in ((6, 10), (9, 22)):
        graph = at_sizes("gelu", rows, cols)
        variants.made(graph, sizes_of(graph), plan_of)
    instance_at = variants.found(sizes_of(graph))
    assert instance_at is not None
    (node,) = instance_at[1].nodes
    with pytest.raises(
        GraphError, match=r"sizes cannot be read(?s:.)*given: *dynamic(?s:.)*mend: *write the graph anew"
    ):
        node.call.op.bind(node.call.specs, {**node.call.attrs, "dynamic": dynamic})


def test_sizes_that_are_equal_outside_of_a_kernel_are_equal_in_it() -> None:
    """Two parts of one kernel share nothing but their loops: an operation elsewhere says that these are the same."""

    def parts(x: Any, y: Any) -> Any:
        product = row("matmul")(x, row("permute")(y, axes=(1, 0)))
        return row("tanh")(x) * 2.0, row("exp")(y) + 1.0, product

    variants = Variants()
    for rows, cols in ((6, 10), (9, 22), (5, 7)):
        graph = traced(parts, [tensor(rows, cols), tensor(rows, cols)])
        variants.made(graph, sizes_of(graph), plan_of) if variants.found(sizes_of(graph)) is None else None
    assert variants.planned == 1
