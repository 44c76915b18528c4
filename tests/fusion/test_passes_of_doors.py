"""Every door's explanation shows every pass that it runs, in the one order, with what each of them did."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from burn_torch import Device, Tensor, compile, explain, fusion
from burn_torch.graph.passes import PASSES, PassReport, pipeline
from burn_torch.graph.passes import driver as passes
from burn_torch.onnx.exporting import tracing
from tests.fusion.programs import row, tensor, traced

FUSED = ("patterns", "fuse", "losses in chunks", "gradients of tables by rows", "endings of products",
         "values made again")  # fmt: skip
PLANNED = ["dead_code", "patterns", "dead_code", "open composites", "group", "anchors"]


def softmax(x: Tensor) -> Tensor:
    """As people write it: a pattern makes one row of it, and opening makes several again."""
    e = (x - x.max_dim(1)).exp()
    return (e / e.sum_dim(1)) * 2.0


def in_order(profile: str, handed: Sequence[str] = (), limited: bool = False) -> list[str]:
    settings = passes.Settings(handed=dict.fromkeys(handed, lambda g: g), target_bytes=0 if limited else None)
    return [each.name for each in PASSES if each.takes_part(profile, settings)]  # type: ignore[arg-type]  # a profile


def require(reports: Sequence[PassReport], names: Sequence[str], text: str) -> None:
    assert [report.name for report in reports] == list(names)
    assert all(a.nodes_after == b.nodes_before for a, b in itertools.pairwise(reports))
    assert all(str(report) in text for report in reports)


def changed(reports: Sequence[PassReport]) -> dict[str, int]:
    return {r.name: r.nodes_after - r.nodes_before for r in reports if r.nodes_after != r.nodes_before}


def test_the_profiles_are_parts_of_one_order() -> None:
    simple = ["common_subexpressions", "fold_constants", "algebra", "fold_views", "common_subexpressions", "dead_code"]
    assert in_order("export") == ["dead_code", *simple]
    assert in_order("body") == ["fold_views", "dead_code"]
    assert in_order("plan", PLANNED) == PLANNED
    tidied = ["fuse", "fold_views", "dead_code"]
    assert in_order("stream", FUSED) == ["dead_code", "patterns", *simple, "group_updates", *tidied]
    assert in_order("compile")[-3:] == ["narrow_gradients", "launch_early", "isolate_outputs"]


@pytest.mark.parametrize("limit", [None, 1 << 30, 0])
@pytest.mark.filterwarnings("ignore:.*at its peak")
def test_a_compiled_function_without_fusion(limit: int | None) -> None:
    explanation = explain(compile(softmax, memory_limit_bytes=limit), Tensor.zeros((6, 10), Device.cpu()))
    require(explanation.passes, in_order("compile", limited=limit is not None), str(explanation))
    assert explanation.fusion is None


def test_a_compiled_function_with_fusion() -> None:
    explanation = explain(compile(softmax, fuse=True), Tensor.zeros((6, 10), Device.cpu()))
    assert explanation.fusion is not None
    require(explanation.passes, in_order("compile", FUSED), str(explanation))
    require(explanation.fusion.passes, PLANNED, str(explanation))
    assert changed(explanation.passes)["patterns"] < 0, "five operations are one row"
    assert changed(explanation.fusion.passes)["open composites"] > 0
    assert changed(explanation.fusion.passes)["group"] < 0


def test_a_lazy_stream() -> None:
    device = Device.cpu().fused()
    softmax(Tensor.zeros((6, 10), device) + 1.0).into_data()
    explanation = device.explain()
    plan = explanation.programs[-1].plan
    before = in_order("stream", FUSED)
    require(plan.passes[: len(before)], before, str(explanation))
    require(plan.passes[len(before) :], PLANNED, str(explanation))
    assert changed(plan.passes[: len(before)])["patterns"] < 0
    assert changed(plan.passes[: len(before)])["fuse"] < 0


def test_what_is_planned_from_outside() -> None:
    plan = fusion.plan_of(traced(lambda x: row("softmax")(x * 2.0, dim=1) + 1.0, [tensor(6, 10)]))
    explanation = fusion.explain(plan)
    require(explanation.passes, PLANNED, str(explanation))
    assert explanation.to_dict()["passes"][0]["name"] == "dead_code"


def test_what_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[PassReport] = []

    def listened(*given: object, **how: object) -> object:
        graph, more = pipeline(*given, **how)  # type: ignore[arg-type]  # as it was called
        reports.extend(more)
        return graph, more

    monkeypatch.setattr(tracing, "pipeline", listened)
    tracing.prepared(traced(lambda x: row("tanh")(x) + row("tanh")(x), [tensor(6, 10)]), 18)
    assert [report.name for report in reports] == in_order("export")
    assert changed(reports)["common_subexpressions"] == -1


def test_a_pass_that_has_no_place_in_the_order_is_refused() -> None:
    with pytest.raises(AssertionError, match="a pass without a place"):
        pipeline(traced(lambda x: x * 2.0, [tensor(6, 10)]), handed={"unheard of": lambda g: g})
