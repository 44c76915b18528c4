"""Rewrites know operations by laws and templates: reshapes from flips, sums of rows, and a user's rows like ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.properties import (
    formula,
    is_product_alone,
    is_transposition,
    keeps_order,
    permutes,
    sums_rows,
)
from burn_torch.fusion.rewrites.tables import add_rows
from burn_torch.graph.ir import Node
from burn_torch.ops import REGISTRY
from burn_torch.ops.laws import EndsHead, EndsProduct, Onto
from burn_torch.ops.op import unlisted
from tests.fusion.programs import row, tensor, traced


def node_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Node:
    return traced(function, [tensor(*shape) for shape in shapes]).nodes[-1]


MOVED = {
    "reshape": ({"shape": (4, 3)}, {keeps_order}),
    "flip": ({"axes": (0,)}, set()),
    "permute": ({"axes": (1, 0)}, {permutes, is_transposition}),
    "expand": ({"shape": (3, 4)}, set()),
}


@pytest.mark.parametrize("name", MOVED)
def test_moves_are_distinguished(name: str) -> None:
    attrs, holds = MOVED[name]
    node = node_of(lambda x: row(name)(x, **attrs), (3, 4) if name != "expand" else (1, 4))
    assert {ask for ask in (keeps_order, permutes, is_transposition) if ask(node)} == holds


def test_a_permutation_of_three_axes_is_no_transposition() -> None:
    node = node_of(lambda x: row("permute")(x, axes=(0, 2, 1)), (2, 3, 4))
    assert permutes(node)
    assert not is_transposition(node)


@pytest.mark.parametrize(
    ("name", "attrs", "is_sum"),
    [
        ("sum_to_shape", {"shape": (4,)}, True),
        ("sum_to_shape", {"shape": (3, 1)}, False),
        ("sum_to_shape", {"shape": (3, 4)}, False),
        ("sum", {"dims": (0,)}, False),
    ],
)
def test_sums_of_rows(name: str, attrs: dict[str, Any], is_sum: bool) -> None:
    assert sums_rows(node_of(lambda x: row(name)(x, **attrs), (3, 4))) is is_sum


def test_formulas_hold_what_is_read_and_attributes() -> None:
    assert formula(node_of(lambda x: x * x, (2,))) == "(%0 * %0)"
    assert formula(node_of(lambda x: x * 2.0, (2,))) == "(%0 * 2.0)"
    assert formula(node_of(lambda x: row("cast")(x, dtype=x.spec.dtype), (2,))) == "cast(%0, f32)"
    assert formula(node_of(lambda x, y: row("matmul")(x, y), (2, 3), (3, 2))) is None


def test_a_layer_with_a_bias_is_no_product_alone() -> None:
    assert is_product_alone(node_of(lambda x, w: row("linear")(x, w, None), (2, 3), (3, 4)))
    assert not is_product_alone(node_of(lambda x, w, b: row("linear")(x, w, b), (2, 3), (3, 4), (4,)))


def test_laws_name_rows_that_there_are() -> None:
    for each in REGISTRY.values():
        for law in each.laws.values():
            if isinstance(law, EndsProduct | EndsHead | Onto):
                assert law.row in REGISTRY
            if isinstance(law, EndsHead):
                assert law.loss in REGISTRY


def test_a_users_gradient_of_a_table_is_added_onto_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def scattered(g: TensorSpec) -> TensorSpec:
        """Rows of a table."""
        return g

    def scattered_onto(x: TensorSpec, g: TensorSpec) -> TensorSpec:
        """The table x with rows added."""
        return x

    mine = unlisted(scattered, laws=[Onto("scattered_onto")])
    monkeypatch.setitem(REGISTRY, "scattered_onto", unlisted(scattered_onto))
    graph = traced(lambda x, g: x + mine(g), [tensor(2, 3), tensor(2, 3)])
    assert [node.call.op.name for node in add_rows(graph).nodes] == ["scattered_onto"]
