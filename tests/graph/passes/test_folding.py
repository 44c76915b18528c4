"""Nodes that the simplifying passes fold, and nodes that they must leave alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER
from burn_torch.graph import Graph, Literal, Node, Origin, verify
from burn_torch.graph.passes import (
    Numerics,
    algebra,
    common_subexpressions,
    dead_code,
    fold_constants,
    fold_views,
)
from burn_torch.graph.passes.constants import held_by
from burn_torch.ops import Value
from tests.graph.passes.checks import made, names, spec, traced

X, M = spec(4, 3), spec(3, 3)


def full(like: Value, number: Any, shape: tuple[int, ...], dtype: DType = DType.F32) -> Value:
    return made(ops.full, like, number, shape=shape, dtype=dtype, place="cpu")


def fast(one_pass: Callable[[Graph, Numerics], Graph], function: Callable[..., Any], *specs: Any) -> list[str]:
    return names(dead_code(verify(one_pass(traced(function, *specs), "fast"))))


def eager(one_pass: Callable[[Graph, Numerics], Graph], function: Callable[..., Any], *specs: Any) -> list[str]:
    return names(dead_code(verify(one_pass(traced(function, *specs), "eager"))))


# -- numbers ---------------------------------------------------------------------------------------------
def test_numbers_are_computed_on_the_host() -> None:
    def function(x: Value, n: Value) -> Any:
        known = ops.mul.run(n.backend, Value, (2.0, 3.0), {})
        return x * (known + 1.0), n * (known / 6.0), known

    graph = dead_code(verify(fold_constants(traced(function, X, FLOAT_NUMBER))))
    assert names(graph) == ["mul", "mul", "mul"]  # the first is an output, and no literal can be one
    assert [i for node in graph.nodes for i in node.inputs if isinstance(i, Literal)] == [
        Literal(2.0), Literal(3.0), Literal(7.0), Literal(1.0)
    ]  # fmt: skip


def test_numbers_that_cannot_be_computed_stay_for_the_run() -> None:
    def function(x: Value, n: Value) -> Any:
        return x * ops.pow.run(n.backend, Value, (10.0, 1e6), {})

    graph = fold_constants(traced(function, X, FLOAT_NUMBER))
    assert graph.nodes[-1].inputs[1] == Literal(math.inf) or names(graph) == ["pow", "mul"]


# -- tensors full of one number ------------------------------------------------------------------------------
def test_an_expanded_constant_becomes_a_number() -> None:
    assert eager(fold_constants, lambda x: x * ops.expand(full(x, 0.1, (1,)), shape=(4, 3)), X) == ["mul"]
    graph = fold_constants(traced(lambda x: x * ops.expand(full(x, 0.1, (1,)), shape=(4, 3)), X))
    assert graph.nodes[-1].inputs[1] == Literal(0.10000000149011612)  # as float32 holds it


def test_a_constant_with_memory_of_its_own_stays_for_it_may_decide_the_layout() -> None:
    assert eager(fold_constants, lambda x: full(x, 2.0, (4, 3)) * x, X) == ["full", "mul"]
    assert fast(fold_constants, lambda x: full(x, 2.0, (4, 3)) * x, X) == ["mul"]


def test_a_constant_that_gives_the_shape_stays() -> None:
    assert fast(fold_constants, lambda x: full(x, 2.0, (4, 3)) * x, spec(3)) == ["full", "mul"]


def test_a_rounded_half_constant_stays() -> None:
    half = spec(4, 3, dtype=DType.BF16)
    for number, expected in ((0.1, ["full", "expand", "mul"]), (0.5, ["mul"])):
        folded = eager(
            fold_constants, lambda x, n=number: x * ops.expand(full(x, n, (1,), DType.BF16), shape=(4, 3)), half
        )
        assert folded == expected  # fmt: skip


def test_constants_are_computed() -> None:
    graph = dead_code(fold_constants(traced(lambda x: (full(x, 1.0, (2,)) / 3.0, x), X)))
    assert names(graph) == ["full"]
    assert graph.nodes[0].inputs == (Literal(held_by(DType.F32, 1 / 3) or 0),)
    assert eager(fold_constants, lambda x: ops.reshape(-full(x, 1.0, (4,)), shape=(2, 2)), X) == ["full"]
    assert eager(fold_constants, lambda x: ops.cast(full(x, 1.5, (4,)), dtype=DType.F64), X) == ["full"]
    assert eager(fold_constants, lambda x: ops.cast(full(x, 1.5, (4,)), dtype=DType.I64), X) == ["full", "cast"]
    assert eager(fold_constants, lambda x: ops.permute(full(x, 1.5, (4, 2)), axes=(1, 0)), X) == ["full", "permute"]
    assert fast(fold_constants, lambda x: ops.permute(full(x, 1.5, (4, 2)), axes=(1, 0)), X) == ["full"]
    assert eager(fold_constants, lambda x: ops.sum(full(x, 1.5, (4, 2)), dims=(0,)), X) == ["full", "sum"]
    assert fast(fold_constants, lambda x: ops.sum(full(x, 1.5, (4, 2)), dims=(0,)), X) == ["full"]
    assert eager(fold_constants, lambda x: ops.exp(full(x, 1.5, (4, 2))), X) == ["full", "exp"]


def test_a_quotient_off_the_cpu_is_left_to_the_device() -> None:
    def function(x: Value) -> Any:
        return made(ops.full, x, 1.0, shape=(2,), dtype=DType.F32, place="cuda:0") / 3.0

    assert eager(fold_constants, function, X) == ["full", "div"]
    assert fast(fold_constants, function, X) == ["full"]


@pytest.mark.parametrize("truth", [True, False])
def test_a_choice_that_is_known(truth: bool) -> None:
    def function(x: Value, y: Value) -> Any:
        mask = full(x, truth, (4, 3), DType.BOOL)
        return ops.mask_where(ops.exp(x), mask, ops.sin(y))

    assert fast(fold_constants, function, X, X) == ["sin" if truth else "exp"]
    # how the sides lie is not known, and the choice lies otherwise
    assert eager(fold_constants, function, X, X) == ["full", "exp", "sin", "mask_where"]
    drawn = {"shape": (4, 3), "dtype": DType.F32, "place": "cpu"}

    def of_rows(x: Value, key: Value) -> Any:
        y = ops.exp(ops.uniform.run(x.backend, Value, (0.0, 1.0, key, 1), drawn))
        z = ops.sin(ops.uniform.run(x.backend, Value, (0.0, 1.0, key, 2), drawn))
        return ops.mask_where(y, full(x, truth, (4, 3), DType.BOOL), z)

    assert eager(fold_constants, of_rows, X, INT_NUMBER) == ["uniform", "sin" if truth else "exp"]


# -- algebra ---------------------------------------------------------------------------------------------
EXACT: dict[str, Callable[[Any], Any]] = {
    "x * 1": lambda x: x * 1.0,
    "1 * x": lambda x: 1 * x,
    "x / 1": lambda x: x / 1.0,
    "x - 0": lambda x: x - 0.0,
    "x + -0": lambda x: x + -0.0,
    "-0 + x": lambda x: -0.0 + x,
    "x ** 1": lambda x: x**1,
    "-(-x)": lambda x: ops.neg(ops.neg(x)),
}


@pytest.mark.parametrize("what", EXACT)
def test_exact_identities_are_left_out(what: str) -> None:
    assert eager(algebra, lambda x: EXACT[what](ops.exp(x)), X) == ["exp"]


@pytest.mark.parametrize("what", EXACT)
def test_identities_stay_where_the_copy_lies_otherwise_in_memory(what: str) -> None:
    kept = eager(algebra, lambda x: EXACT[what](x), X)
    assert kept  # an input may have gaps, which its copy has not
    assert fast(algebra, lambda x: EXACT[what](x), X) == []


def test_identities_that_change_the_sign_of_zero_are_for_fast() -> None:
    assert eager(algebra, lambda x: ops.exp(x) + 0.0, X) == ["exp", "add"]
    assert fast(algebra, lambda x: ops.exp(x) + 0.0, X) == ["exp"]
    assert eager(algebra, lambda x: ops.exp(x) - -0.0, X) == ["exp", "sub"]
    assert fast(algebra, lambda x: x * 0.0, X) == ["mul"]  # NaN and infinity stay NaN


def test_identities_of_integers_and_truth() -> None:
    whole = spec(4, 3, dtype=DType.I64)
    assert eager(algebra, lambda x: ops.abs(x) + 0, whole) == ["abs"]
    assert eager(algebra, lambda x: ops.bitwise_not(ops.bitwise_not(ops.abs(x))), whole) == ["abs"]
    assert eager(algebra, lambda x: ops.bool_not(ops.bool_not(ops.is_nan(x))), X) == ["is_nan"]


def test_broadcasting_is_no_identity() -> None:
    assert fast(algebra, lambda x, y: x * 1.0 + ops.expand(y, shape=(4, 3)) ** 1, X, spec(3)) == ["expand", "add"]
    assert fast(algebra, lambda x: ops.full.run(x.backend, Value, (1.0,), {"shape": (4, 3), "dtype": DType.F32,
                "place": "cpu"}) * x, spec(3)) == ["full", "mul"]  # fmt: skip


def test_idempotent_rows_run_once() -> None:
    assert eager(algebra, lambda x: ops.floor(ops.floor(ops.abs(ops.abs(x)))), X) == ["abs", "floor"]
    assert eager(algebra, lambda x: ops.floor(ops.abs(ops.floor(x))), X) == ["floor", "abs", "floor"]


def test_host_numbers_obey_the_same_laws() -> None:
    assert eager(algebra, lambda x, n: x * (n * 1.0 - 0.0), X, FLOAT_NUMBER) == ["mul"]
    assert eager(algebra, lambda x, n: x * (n * 1.0), X, INT_NUMBER) == ["mul", "mul"]  # a float number now


def test_fast_joins_factors_and_strength() -> None:
    graph = dead_code(algebra(traced(lambda x: (x * 3.0) * 0.5, X), "fast"))
    assert [node.inputs[1] for node in graph.nodes] == [Literal(1.5)]
    graph = dead_code(algebra(traced(lambda x: 2.0 + (x + 1.0), X), "fast"))
    assert [node.inputs[1] for node in graph.nodes] == [Literal(3.0)]
    graph = dead_code(algebra(traced(lambda x: x / 4.0, X), "fast"))
    assert (names(graph), graph.nodes[0].inputs[1]) == (["mul"], Literal(0.25))
    graph = dead_code(algebra(traced(lambda x: x**2, X), "fast"))
    assert (names(graph), graph.nodes[0].inputs) == (["mul"], (0, 0))
    assert eager(algebra, lambda x: ((x * 3.0) * 0.5) / 4.0, X) == ["mul", "mul", "div"]
    assert fast(algebra, lambda x: x / 0.0, X) == ["div"]
    assert fast(algebra, lambda x: x / 7, spec(4, 3, dtype=DType.I64)) == ["div"]


# -- views -------------------------------------------------------------------------------------------------
def test_chains_of_views_are_one_view() -> None:
    assert eager(fold_views, lambda x: ops.permute(ops.permute(x, axes=(1, 0)), axes=(1, 0)), X) == []
    assert eager(fold_views, lambda x: ops.expand(ops.expand(x, shape=(2, 4, 3)), shape=(5, 2, 4, 3)), X) == ["expand"]
    cut = ((0, 4, 2), (1, 3, 1))
    graph = dead_code(
        fold_views(traced(lambda x: ops.slice(ops.slice(x, ranges=cut), ranges=((1, 2, 1), (0, 1, 1))), X))
    )
    assert [node.call.attrs["ranges"] for node in graph.nodes] == [((2, 3, 2), (1, 2, 1))]
    assert (
        eager(fold_views, lambda x: ops.sum(ops.reshape(ops.cast(x, dtype=DType.F32), shape=(4, 3)), dims=()), X) == []
    )
    assert eager(fold_views, lambda x: ops.flip(ops.flip(ops.flip(x, axes=(0,)), axes=(1,)), axes=(0,)), X) == ["flip"]


def test_a_reshape_that_may_copy_is_joined_only_where_memory_is_known() -> None:
    def joined_axes(x: Value) -> Any:
        return ops.reshape(ops.reshape(x, shape=(12,)), shape=(2, 6))

    def split_axes(x: Value) -> Any:
        return ops.reshape(ops.reshape(x, shape=(2, 2, 1, 3)), shape=(2, 6))

    assert eager(fold_views, joined_axes, X) == ["reshape", "reshape"]
    assert fast(fold_views, joined_axes, X) == ["reshape"]
    assert eager(fold_views, split_axes, X) == ["reshape"]

    def of_rows(key: Value) -> Any:
        drawn = {"shape": (4, 3), "dtype": DType.F32, "place": "cpu"}
        return joined_axes(ops.uniform.run(key.backend, Value, (0.0, 1.0, key, 1), drawn))

    assert eager(fold_views, of_rows, INT_NUMBER) == ["uniform", "reshape"]


def test_casts_that_widen_and_come_back() -> None:
    def there_and_back(x: Value) -> Any:
        return ops.cast(ops.cast(x, dtype=DType.F64), dtype=DType.F32)

    assert eager(fold_views, lambda x: there_and_back(ops.exp(x)), X) == ["exp"]
    assert eager(fold_views, there_and_back, X) == ["cast", "cast"]  # it copies, and an input may have gaps
    assert fast(fold_views, there_and_back, X) == []
    assert fast(fold_views, lambda x: ops.cast(ops.cast(x, dtype=DType.BF16), dtype=DType.F32), X) == ["cast", "cast"]
    assert eager(fold_views, lambda x: ops.cast(ops.cast(x, dtype=DType.F64), dtype=DType.F16), X) == ["cast"]


# -- common subexpressions -------------------------------------------------------------------------------------
def test_equal_nodes_are_one() -> None:
    assert eager(common_subexpressions, lambda x: ops.exp(x) * ops.exp(x), X) == ["exp", "mul"]
    assert eager(common_subexpressions, lambda x: (x * 1.0, x * 1, x * 1.0), X) == ["mul", "mul"]
    assert eager(common_subexpressions, lambda x: (x + 0.0, x + -0.0), X) == ["add", "add"]


def test_draws_of_one_key_and_stream_are_one() -> None:
    def function(x: Value, key: Value) -> Any:
        return tuple(ops.dropout(x, 0.5, key, stream) for stream in (1, 1, 2))

    assert eager(common_subexpressions, function, X, INT_NUMBER) == ["dropout", "dropout"]


def test_data_dependent_shapes_are_left_alone() -> None:
    call = ops.nonzero.bind([X], {})
    graph = Graph([(0, X)], [Node(call, [0], [1]), Node(call, [0], [2])], [1, 2])
    assert common_subexpressions(graph) is graph


def test_live_outputs_are_joined() -> None:
    def function(x: Value) -> Any:
        y, mean, rstd = ops.layer_norm(x, None, None, 1e-5)
        inputs = (y, x, mean, rstd, None)
        first = ops.layer_norm_backward(*inputs, live=(True, False, False))[0]
        return first, ops.layer_norm_backward(*inputs, live=(True, True, False))[1]

    graph = verify(common_subexpressions(traced(function, X)))
    assert names(graph) == ["layer_norm", "layer_norm_backward"]
    assert graph.nodes[1].call.attrs["live"] == (True, True, False)

    def apart(x: Value) -> Any:
        y, mean, rstd = ops.layer_norm(x, None, None, 1e-5)
        inputs = (y, x, mean, rstd, None)
        rest = ops.layer_norm_backward(*inputs, live=(False, True, True))
        return ops.layer_norm_backward(*inputs, live=(True, False, False))[0], rest[2]

    graph = dead_code(verify(common_subexpressions(traced(apart, X))))
    assert names(graph) == ["layer_norm", "layer_norm_backward"]
    assert graph.nodes[1].call.attrs["live"] == (True, False, True)


def test_swapped_inputs_are_equal_where_no_bit_can_differ() -> None:
    def swap(x: Any, y: Any) -> Any:
        return x + y, y + x

    def both(x: Any, y: Any) -> Any:
        return ops.maximum(x, y), ops.maximum(y, x)

    assert eager(common_subexpressions, lambda x: (ops.exp(x) + 2.0, 2.0 + ops.exp(x)), X) == ["exp", "add"]
    assert eager(common_subexpressions, swap, X, X) == ["add", "add"]  # one may lie in columns
    assert eager(common_subexpressions, lambda x, y: swap(ops.exp(x), ops.sin(y)), spec(5), spec(5)) == [
        "exp",
        "sin",
        "add",
    ]
    assert fast(common_subexpressions, swap, X, X) == ["add"]
    assert (
        eager(common_subexpressions, lambda x, y: both(ops.exp(x), ops.sin(y)), spec(5), spec(5))[2:] == ["maximum"] * 2
    )
    assert fast(common_subexpressions, lambda x, y: (x - y, y - x), X, X) == ["sub", "sub"]


# -- what all of them keep -------------------------------------------------------------------------------------
def test_origins_go_along() -> None:
    graph = traced(lambda x: ops.reshape(ops.reshape(ops.exp(x) * 1.0, shape=(2, 2, 3)), shape=(2, 6)) / 2.0, X)
    marked = [
        Node(n.call, n.inputs, n.outputs, Origin("model.py", line, "forward")) for line, n in enumerate(graph.nodes)
    ]
    graph = Graph(graph.inputs, marked, graph.outputs)
    for one_pass in (fold_constants, algebra, fold_views, common_subexpressions):
        graph = dead_code(one_pass(graph, "fast"))
    assert [(n.call.op.name, n.origin and n.origin.line) for n in graph.nodes] == [
        ("exp", 0),
        ("reshape", 3),
        ("mul", 4),
    ]


def test_a_graph_with_nothing_to_do_is_returned_as_it_is() -> None:
    graph = traced(lambda x: ops.exp(x) * 2.0, X)
    for one_pass in (fold_constants, algebra, fold_views, common_subexpressions):
        assert one_pass(graph, "fast") is graph
    assert dead_code(graph) is graph
