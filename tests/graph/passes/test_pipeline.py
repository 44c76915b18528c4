"""All passes in their order."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch import ops
from burn_torch.core.errors import ConfigError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, verify
from burn_torch.graph.passes import PassReport, peak_bytes, pipeline
from tests.graph.passes.checks import check, check_signature, names, programs_with_layouts, spec, traced
from tests.graph.passes.example_graphs import deep_mlp, mnist_step
from tests.graph.random_graphs import Program

X = spec(4, 3)


@settings(max_examples=60, deadline=None)
@given(drawn=programs_with_layouts(backward=True, max_nodes=10), donated=st.sets(st.integers(0, 5)))
def test_eager_numerics_change_no_bit(drawn: tuple[Program, tuple[int, ...]], donated: set[int]) -> None:
    program, layouts = drawn
    tensors = tuple(p for p, (_, s) in enumerate(program.graph.inputs) if p in donated and isinstance(s, TensorSpec))
    after = verify(pipeline(program.graph, donated=tensors)[0])
    check(lambda graph: after, program, layouts)
    again, _ = pipeline(after, donated=tensors)
    assert len(again.nodes) <= len(after.nodes)


@settings(max_examples=30, deadline=None)
@given(drawn=programs_with_layouts(backward=True, max_nodes=8))
def test_every_setting_gives_a_valid_graph(drawn: tuple[Program, tuple[int, ...]]) -> None:
    graph = drawn[0].graph
    for numerics in ("eager", "fast"):
        for precision in ("float32", "bfloat16"):
            after, _ = pipeline(graph, numerics=numerics, precision=precision, memory_limit_bytes=0)
            check_signature(graph, verify(after))


def test_reports_say_what_each_pass_did() -> None:
    graph, donated = mnist_step(4)
    after, reports = pipeline(graph, donated=donated)
    assert reports[0].nodes_before == len(graph.nodes)
    assert reports[-1].nodes_after == len(after.nodes)
    assert reports[-1].bytes_after == peak_bytes(after, donated)
    assert all(a.nodes_after == b.nodes_before for a, b in itertools.pairwise(reports))
    grouped = next(r for r in reports if r.name == "group_updates")
    assert grouped.nodes_before - grouped.nodes_after == 7
    assert names(after).count("adam_update") == 1
    assert str(PassReport("dead_code", 70, 66, 1_200_000, 1_100_000)) == "dead_code: 70 -> 66 nodes, 1.20 -> 1.10 MB"
    again, repeated = pipeline(graph, donated=donated)
    assert again == after
    assert list(repeated) == list(reports)


def test_recomputation_runs_only_when_memory_is_limited() -> None:
    graph, donated = deep_mlp(4)
    assert "recompute" not in [r.name for r in pipeline(graph, donated=donated)[1]]
    assert "recompute" in [r.name for r in pipeline(graph, donated=donated, memory_limit_bytes=10**6)[1]]


def test_what_is_left_is_simple() -> None:
    def function(x: Any) -> Any:
        y = ops.exp(x) * 1.0 + -0.0
        return ops.reshape(ops.reshape(y - 0.0, shape=(4, 3)), shape=(4, 3)) * ops.exp(x)

    assert names(pipeline(traced(function, X))[0]) == ["exp", "mul"]


def test_unknown_settings_are_refused() -> None:
    graph = traced(lambda x: x, X)
    with pytest.raises(ConfigError, match=r"(?s)no such numerics.*given:.*'exact'.*expected:.*'eager'.*mend:"):
        pipeline(graph, numerics="exact")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"(?s)no such precision.*given:.*'f16'"):
        pipeline(graph, precision="f16")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("example", "most_ms"), [(mnist_step(64), 20.0), (deep_mlp(83), 400.0)], ids=["mnist", "1000 nodes"]
)
def test_it_is_fast_enough_to_run_at_every_trace(example: tuple[Graph, tuple[int, ...]], most_ms: float) -> None:
    graph, donated = example
    pipeline(graph, donated=donated)
    times = []
    for _ in range(7):
        # not the clock on the wall, and four times what it takes on an idle core: the machine does other things too,
        # and what this is to find is a pass whose time grows with the square of the graph
        start = time.process_time()
        pipeline(graph, donated=donated)
        times.append(time.process_time() - start)
    assert min(times) * 1e3 < most_ms
