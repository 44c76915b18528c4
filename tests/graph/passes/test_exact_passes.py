"""The passes that simplify, on random graphs: under "eager" no bit of any output changes on either leaf."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from burn_torch.graph import Graph
from burn_torch.graph.passes import algebra, common_subexpressions, dead_code, fold_constants, fold_views
from tests.graph.passes.checks import Pass, check, check_signature, programs_with_layouts
from tests.graph.random_graphs import Program

EXACT: list[Pass] = [dead_code, common_subexpressions, fold_constants, algebra, fold_views]


def all_of_them(graph: Graph) -> Graph:
    for one_pass in (fold_constants, algebra, fold_views, common_subexpressions, dead_code):
        graph = one_pass(graph)
    return graph


@pytest.mark.parametrize("one_pass", EXACT)
@settings(max_examples=60, deadline=None)
@given(drawn=programs_with_layouts())
def test_pass_changes_no_bit(one_pass: Pass, drawn: tuple[Program, tuple[int, ...]]) -> None:
    check(one_pass, *drawn)


@settings(max_examples=60, deadline=None)
@given(drawn=programs_with_layouts(backward=True, max_nodes=10))
def test_all_together_change_no_bit_of_values_and_gradients(drawn: tuple[Program, tuple[int, ...]]) -> None:
    program, layouts = drawn
    after = all_of_them(program.graph)
    check_signature(program.graph, after)
    check(lambda graph: all_of_them(graph) if graph is program.graph else graph, program, layouts)
