"""Users' rows: they fuse by their expression, and stand for patterns of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Fusion, LibTorch, Tensor, compile, op
from burn_torch.backend.lazy import fusion_of
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ConfigError
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.fusion import Pattern, plan_of, register_pattern, unregister_pattern
from burn_torch.fusion.body.dialect import Expression
from burn_torch.fusion.body.loops import domain_of
from burn_torch.fusion.body.templates import read_template
from burn_torch.fusion.body.tiles import decide_tiles
from burn_torch.fusion.c.dialect import C
from burn_torch.fusion.c.lanes import LaneNeeds, Loops
from burn_torch.fusion.rewrites.patterns import replaced
from burn_torch.fusion.triton.dialect import Triton
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from burn_torch.ops.elementary import ELEMENTARY
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.signature import Number
from burn_torch.ops.template import FUNCTIONS, require_template
from tests.fusion.programs import MATRIX, row, tensor, traced

CALLS: list[str] = []


def _product_relu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    CALLS.append("product_relu")
    return torch.relu(x * y)


@op(namespace="pattern_tests", torch=_product_relu, nondifferentiable=True)
def product_relu(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """relu(x * y) in one call."""
    return x


@op(namespace="pattern_tests", torch=lambda x, a: torch.tanh(x * a) * 0.5, nondifferentiable=True)
def half_tanh(x: TensorSpec, a: Number) -> TensorSpec:
    """tanh(a x) / 2."""
    return x


@op(namespace="pattern_tests", torch=lambda x: (torch.exp(x), torch.exp(x) + 1), nondifferentiable=True)
def two(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """exp(x) and one more."""
    return x, x


@op(namespace="pattern_tests", torch=lambda x: x**3, pointwise="({0} * {0} * {0})", nondifferentiable=True)
def cubed(x: TensorSpec) -> TensorSpec:
    """x to the third."""
    return x


@pytest.fixture
def register() -> Iterator[Callable[..., Pattern]]:
    patterns: list[Pattern] = []

    def registered(*args: Any, **options: Any) -> Pattern:
        patterns.append(register_pattern(*args, **options))
        return patterns[-1]

    yield registered
    for pattern in patterns:
        unregister_pattern(pattern)


def names(graph: Any) -> list[str]:
    return [node.call.op.__name__ for node in graph.nodes]


def relu_of_product(x: Any, y: Any) -> Any:
    return row("relu")(x * y)


# -- rows ------------------------------------------------------------------------------------------------
def test_a_row_of_a_user_fuses_by_its_expression() -> None:
    plan = plan_of(traced(lambda x: row("exp")(cubed(x) + 1.0), [MATRIX]))
    assert plan.kernels == 1
    assert plan.groups[0].rows == ("pattern_tests::cubed", "add", "exp")


# -- patterns --------------------------------------------------------------------------------------------
def test_a_pattern_is_replaced_at_any_shape_and_type(register: Callable[..., Pattern]) -> None:
    register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
    for spec in (MATRIX, tensor(3), tensor(2, 3, 4, dtype=DType.F64)):
        graph = traced(lambda x, y: relu_of_product(x + 1.0, y) - y, [spec, spec])
        rewritten = replaced(graph)
        verify(rewritten)
        assert names(rewritten) == ["add", "product_relu", "sub"]


def test_before_scheduling(register: Callable[..., Pattern]) -> None:
    register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
    plan = plan_of(traced(lambda x, y: relu_of_product(x, y) * 2.0 + 1.0, [MATRIX, MATRIX]))
    assert plan.kernels == 2
    assert {(b.producer, b.consumer) for b in plan.boundaries} == {("pattern_tests::product_relu", "mul")}


DIFFERENT: dict[str, Callable[[Any, Any], Any]] = {
    "another operation": lambda x, y: row("tanh")(x * y),
    "a value inside is read": lambda x, y: (lambda h: row("relu")(h) + h)(x * y),
    "a value inside is returned": lambda x, y: (lambda h: (row("relu")(h), h))(x * y),
    "broadcasting": lambda x, y: row("relu")(x * row("sum")(y, dims=(0,))),
    "a number": lambda x, y: row("relu")(x * 2.0) + y,
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_no_such_pattern_stays(name: str, register: Callable[..., Pattern]) -> None:
    register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
    graph = traced(DIFFERENT[name], [MATRIX, MATRIX])
    rows = names(replaced(graph))
    assert ("product_relu" in rows) == (name == "broadcasting")
    if name == "broadcasting":  # the row's rule says that its result is as x, which it is here
        assert rows == ["sum", "product_relu"]


def test_literal_numbers_are_part_of_a_pattern(register: Callable[..., Pattern]) -> None:
    register(lambda x, a: row("tanh")(x * a) * 0.5, half_tanh, like=[MATRIX, FLOAT_NUMBER])
    assert names(replaced(traced(lambda x: row("tanh")(x * 3.0) * 0.5, [MATRIX]))) == ["half_tanh"]
    assert names(replaced(traced(lambda x: row("tanh")(x * 3.0) * 0.25, [MATRIX]))) == ["mul", "tanh", "mul"]


def test_several_results(register: Callable[..., Pattern]) -> None:
    register(lambda x: (lambda h: (h, h + 1.0))(row("exp")(x)), two, like=[MATRIX])
    graph = traced(lambda x: (lambda h: (h * 2.0, h + 1.0))(row("exp")(x)), [MATRIX])
    rewritten = replaced(graph)
    verify(rewritten)
    assert names(rewritten) == ["two", "mul"]
    x = torch.randn(MATRIX.shape)
    for y, z in zip(interpret(rewritten, LibTorch(), [x]), interpret(graph, LibTorch(), [x]), strict=True):
        assert torch.equal(y, z)


def test_the_first_pattern_that_was_registered_wins(register: Callable[..., Pattern]) -> None:
    first = register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
    register(lambda x, a: row("tanh")(x * a) * 0.5, half_tanh, like=[MATRIX, FLOAT_NUMBER])
    graph = traced(lambda x, y: relu_of_product(relu_of_product(x, y), y), [MATRIX, MATRIX])
    assert names(replaced(graph)) == ["product_relu", "product_relu"]
    assert replaced(graph) == replaced(graph)
    unregister_pattern(first)
    assert replaced(graph) is graph


def test_compiled_steps_and_streams_find_patterns(
    register: Callable[..., Pattern], monkeypatch: pytest.MonkeyPatch, seed: np.random.Generator
) -> None:
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
    register(lambda x, a: row("tanh")(x * a) * 0.5, half_tanh, like=[MATRIX, FLOAT_NUMBER])
    device = Device.cpu().fused()
    x, y = (Tensor.from_data(seed.standard_normal((5, 4)), device) for _ in range(2))
    fusion = fusion_of(device.backend)
    assert isinstance(fusion, Fusion)
    fusion.planner._recent.clear()
    exact = torch.relu(x.into_torch() * y.into_torch())
    CALLS.clear()
    outputs = [(x * y).relu().into_torch(), compile(lambda x, y: (x * y).relu())(x, y).into_torch()]
    assert torch.equal(outputs[0], exact)
    assert torch.equal(outputs[1], exact)
    assert CALLS == ["product_relu"] * 2
    for number, wanted in ((0.5, ["half_tanh"]), (0.25, ["mul", "tanh", "mul"])):
        z = ((x * 3.0).tanh() * number).into_torch()
        torch.testing.assert_close(z, torch.tanh(x.into_torch() * 3) * number, rtol=0, atol=0)
        plan = fusion.stream("cpu").history[-1].plan
        assert [name for node in plan.graph.nodes for name in names_in(node)] == wanted


def test_what_was_planned_before_is_planned_again(
    register: Callable[..., Pattern], monkeypatch: pytest.MonkeyPatch, seed: np.random.Generator
) -> None:
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    fusion = fusion_of(Device.cpu().fused().backend)
    assert fusion is not None
    fusion.planner._recent.clear()
    x, y = (Tensor.from_data(seed.standard_normal((7, 4)), Device.cpu().fused()) for _ in range(2))
    calls = []
    for number in range(3):
        if number == 1:
            pattern = register(relu_of_product, product_relu, like=[MATRIX, MATRIX])
        elif number == 2:
            unregister_pattern(pattern)
        CALLS.clear()
        (x * y).relu().into_data()
        calls.append(len(CALLS))
    assert calls == [0, 1, 0]


def names_in(node: Any) -> list[str]:
    from burn_torch.fusion.rows.row import body_of, kernel

    return names(body_of(node.call.attrs["body"])) if node.call.op is kernel else [node.call.op.__name__]


@pytest.mark.parametrize(
    ("function", "like", "fault"),
    [
        (lambda x: x, [MATRIX], "computes nothing"),
        (lambda x, y: row("exp")(x), [MATRIX, MATRIX], "input 1 of <lambda> is not read"),
        (lambda x: row("exp")(x), [MATRIX], "does not take its inputs"),
        (lambda x, y: row("sum")(x * y, dims=(0,)), [MATRIX, MATRIX], r"gives \(\(6, 10\)"),
    ],
    ids=["nothing", "unread", "inputs", "results"],
)
def test_a_row_that_cannot_stand_for_it_is_refused(function: Any, like: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"register_pattern(?s:.)*given: .*{fault}(?s:.)*expected:(?s:.)*mend:"):
        register_pattern(function, product_relu, like=like)


def test_what_is_no_row_stands_for_no_pattern() -> None:
    with pytest.raises(ConfigError, match=r"a row stands for the pattern(?s:.)*given: *3(?s:.)*custom-op.md"):
        register_pattern(lambda x: row("exp")(x), 3, like=[MATRIX])  # type: ignore[arg-type]  # which is the fault


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("({0} + ", "never closed"),
        ("{1} * 2.0", r"\{1\} is none of 1 inputs"),
        ("x = {0}", "invalid syntax"),
        ("x * 2.0", "x is no input"),
        ("{0} ** 2", "Pow is not written in kernels"),
        ("{0} if {0} > 0 else 0", "is not written in kernels"),
        ("0 < {0} < 1", "is not written in kernels"),
        ("tl.exp({0})", "no function tl.exp"),
        ("fmod({0})", "fmod takes 2, not 1"),
        ("exp({0}, {0})", "exp takes 1, not 2"),
        ("exp('a') + {0}", "'a' is no number"),
        ("", "invalid syntax"),
    ],
)
def test_a_template_that_is_no_expression_is_refused_where_it_is_declared(template: str, fault: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"pattern_tests::wrong: (?s:.)*{fault}(?s:.)*\{{0\}} for x(?s:.)*leave pointwise"
    ):

        @op(namespace="pattern_tests", torch=torch.relu, pointwise=template, nondifferentiable=True)
        def wrong(x: TensorSpec) -> TensorSpec:
            return x


def written_by_both(template: str, operands: list[str], kind: DType) -> tuple[str, str]:
    """A template in Triton and in C."""
    body = traced(row("exp"), [tensor(4)])
    dialects = Triton(decide_tiles(body, Triton)), C(LaneNeeds(body, domain_of(body), C, Loops(4)).decide())
    triton, c = (
        Expression(dialect, lambda name: operands[int(name[1:])], kind, None, str, {}).write(
            read_template(template).tree
        )
        for dialect in dialects
    )
    return triton, c


def test_templates_may_call_what_kernels_write() -> None:
    """In Triton and in C, in float32 or at least there; and every row of the table is such a template."""
    for name in FUNCTIONS:
        operands = range(ELEMENTARY[name].operands) if name in ELEMENTARY else ()
        template = f"{name}({', '.join(f'{{{i}}}' for i in operands)})" if name != "float" else "float('inf')"
        assert written_by_both(template, ["a", "b", "c"], DType.F32)
    for row_ in REGISTRY.values():
        if row_.pointwise is not None:
            require_template(row_.name, row_.pointwise, [name for name, _ in row_.signature.inputs])


@pytest.mark.parametrize("sign", ["<<", ">>"])
def test_a_literal_is_shifted_in_the_type_of_the_result(sign: str) -> None:
    """85 << 36 was that of an int, of 32 bits: 1360 with some compilers."""
    _, text = written_by_both(f"({{0}} {sign} {{1}})", ["85", "x"], DType.I64)
    assert f"(int64_t)85 {sign}" in text
