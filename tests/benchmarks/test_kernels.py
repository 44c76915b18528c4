"""The benchmark of kernels: its bars, what holds them and what does not, and that every case with a bar runs."""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks._kernels.judged import BARS, Bar, judge, table
from benchmarks._kernels.rivals import CHOSEN

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


def row(variant: str, ms: float, share: float = 0.5, peak: float = 0.0) -> dict[str, Any]:
    return {
        "case": "norm 8x8",
        "pass": "fb",
        "variant": variant,
        "median_ms": ms,
        "share_of_copy": share,
        "peak_mib": peak,
    }


def test_a_share_and_a_ratio_to_the_fastest_rival() -> None:
    bar = Bar(case="norm 8x8", passed="fb", share=0.9, ahead=1.3)
    rows = [row("ours", 1.0, 0.91), row("ours in place", 0.1), row("eager", 2.0), row("compile", 1.25)]
    share, ratio = judge([bar], rows)
    assert (share.found, share.holds) == (0.91, True)
    assert (ratio.found, ratio.needed, ratio.holds) == (1.25, 1.3, False)  # a form of our own is no rival


def test_a_share_that_no_memory_allows_holds_nothing() -> None:
    bar = Bar(case="norm 8x8", passed="fb", share=0.9, ahead=1.3, peak_mib=1.0)
    verdicts = judge([bar], [row("ours", 0.1, 1.57), row("eager", 2.0)])
    assert [(v.found, v.holds) for v in verdicts] == [(1.57, False), (None, False), (None, False)]
    assert "not above 1.1" in table(verdicts)
    assert all(v.holds for v in judge([bar], [row("ours", 0.1, 1.09), row("eager", 2.0), row("compile", 2.0)]))


def test_only_the_rivals_that_a_bar_names_count() -> None:
    bar = Bar(case="norm 8x8", passed="fb", variant="ours, bf16 sums", ahead=1.0, against=("compile",), peak_mib=100.0)
    rows = [row("ours, bf16 sums", 1.0, peak=101.0), row("eager", 0.5), row("compile", 1.0)]
    ratio, peak = judge([bar], rows)
    assert (ratio.found, ratio.holds) == (1.0, True)
    assert (peak.found, peak.holds) == (101.0, False)


@pytest.mark.parametrize("rows", [[], [row("eager", 1.0)], [row("ours", 1.0) | {"pass": "f"}]])
def test_what_was_not_timed_does_not_hold(rows: list[dict[str, Any]]) -> None:
    verdicts = judge([Bar(case="norm 8x8", passed="fb", share=0.1, ahead=0.1)], rows)
    assert [(verdict.found, verdict.holds) for verdict in verdicts] == [(None, False)] * 2
    assert "not timed" in table(verdicts)
    assert "0 of 2 bars hold" in table(verdicts)


def test_without_torch_compile_nobody_is_the_best_rival() -> None:
    bar = Bar(case="norm 8x8", passed="fb", ahead=1.0)
    (ratio,) = judge([bar], [row("ours", 1.0), row("eager", 9.0)])
    assert ratio.found is None
    (ratio,) = judge([bar], [row("ours", 1.0), row("eager", 9.0), row("compile", 2.0)])
    assert ratio.found == 2.0


def test_without_a_rival_there_is_no_ratio() -> None:
    (ratio,) = judge([Bar(case="norm 8x8", passed="fb", ahead=1.0)], [row("ours", 1.0)])
    assert ratio.found is None


def judged(out: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--judged", "--tiny", *arguments]
    variables = os.environ | {"OUT": str(out), "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "bars hold" in ran.stdout
    return dict(json.loads((out / "kernels-judged-tiny.json").read_text()))


def test_one_family_runs_alone(tmp_path: Path) -> None:
    found = judged(tmp_path, "--only", "softmax", "--no-compile")
    assert {r["variant"] for r in found["rows"]} == {"ours", "eager"}
    assert len(found["bars"]) == 6
    assert found["tiny"] is True


@pytest.mark.slow
def test_every_bar_finds_its_case(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert [verdict["case"] for verdict in found["bars"] if verdict["found"] is None] == []
    assert len({(verdict["case"], verdict["passed"]) for verdict in found["bars"]}) == len(BARS)


def test_every_chosen_case_is_known_and_jax_has_what_it_is_asked_for() -> None:
    from benchmarks.kernels import jax_tasks

    tasks = list(jax_tasks(argparse.Namespace(only="")))
    asked = {f"{case} {passed}" for case, passes in CHOSEN.items() for passed in passes}
    without = {name for name in asked if "softcap" in name or "packed, " in name or name.startswith("attention_packed")}
    assert asked - {task.name for task in tasks} == {name for name in without if name.startswith("attention")}
    worker = ast.parse((ROOT / "benchmarks" / "_kernels" / "jax_worker.py").read_text(encoding="utf-8"))
    functions = {node.name: node.args for node in worker.body if isinstance(node, ast.FunctionDef)}
    for task in tasks:
        named = [argument.arg for argument in functions[task.function].kwonlyargs]
        named += [argument.arg for argument in functions[task.function].args]
        assert set(task.options) <= set(named), task.name
        assert all(math.prod(shape) > 0 for shape, _, _ in task.inputs)
        if task.graded:
            assert all(task.inputs[at][1] != "int32" for at in task.graded)


def test_rivals_are_timed_without_jax_too(tmp_path: Path) -> None:
    variables = os.environ | {"OUT": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--rivals", "--tiny", "--no-compile"]
    command += ["--only", "softmax,tensor_norm", "--jax-python", str(tmp_path / "absent")]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "kernels-rivals-tiny.json").read_text())
    assert found["jax"] == ""
    assert "no JAX" in ran.stdout
    timed = {(r["case"], r["pass"], r["variant"]) for r in found["rows"]}
    assert timed >= {("softmax 4x4096", "fb", "eager"), ("tensor_norm 124M", "f", "ours")}
