"""Every node case of the onnx package: none that passed may stop to, and none may give a wrong result."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("onnx")

import onnx

from tests.onnx import node_cases


@pytest.fixture(scope="module")
def judged():
    return [(node_cases.is_standard(case), node_cases.run(case)) for case in node_cases.cases()]


def test_what_passed_still_passes(judged, capsys):
    good = {verdict.name for _, verdict in judged if verdict.kind == "pass"}
    standard = sum(verdict.kind == "pass" for is_standard, verdict in judged if is_standard)
    total = sum(is_standard for is_standard, _ in judged)
    with capsys.disabled():
        print(
            f"\nONNX {onnx.__version__} node cases: {len(good)} of {len(judged)} pass, {standard} of {total} of ai.onnx"
        )
    there = {verdict.name for _, verdict in judged}
    lost = {name: verdict.why for _, verdict in judged if (name := verdict.name) in node_cases.passing() - good}
    assert lost == {}
    assert standard >= 1_600 or len(there) < 1_884, "the cases of an older onnx are fewer"


def test_the_list_names_all_that_pass(judged):
    good = {verdict.name for _, verdict in judged if verdict.kind == "pass"}
    new = good - node_cases.passing() - node_cases.RANDOM
    if onnx.__version__.startswith("1.23."):
        assert new == set(), "python -m tests.onnx.node_cases --write"


def test_no_case_gives_a_wrong_result(judged):
    wrong = {v.name: v.why for _, v in judged if v.kind in ("wrong", "crash") and v.name not in node_cases.RANDOM}
    assert wrong == {}


def test_what_is_not_supported_is_named_with_its_opset(judged):
    refused = [verdict for _, verdict in judged if verdict.kind == "refused" and "cannot be imported" in verdict.why]
    assert Counter("(opset " in verdict.why and "'" in verdict.why for verdict in refused).keys() == {True}


def test_every_case_that_is_not_supported_is_refused_when_it_is_read(judged):
    refused = [verdict for _, verdict in judged if verdict.kind == "refused"]
    late = {v.name: v.why for v in refused if "cannot be imported" not in v.why and "\nin " not in v.why}
    assert late == {}
    assert all("(opset " in verdict.why and "'" in verdict.why for verdict in refused)
