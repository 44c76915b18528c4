"""The benchmark of kernels: its bars, what holds them and what does not, and that every case with a bar runs."""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import math
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks._kernels.bars import BARS, passes_in_order
from benchmarks._kernels.cases import chosen, chosen_cases, jax_tasks
from benchmarks._kernels.judged import BARE, Bar, judge, table
from benchmarks._kernels.preparing import Queue, in_order_of_length, measuring_alone
from benchmarks._kernels.problems import SIZES
from benchmarks._kernels.rivals import CHOSEN
from benchmarks._kernels.rows import apart, merged, sampled, timed
from benchmarks._kernels.timing import Timer

ROOT = Path(__file__).parents[2]


def asked(only: str = "", **more: Any) -> argparse.Namespace:
    """Returns what the command line would say."""
    return argparse.Namespace(**{"only": only, "part": "", "judged": False, "there": set(), "missing": False} | more)


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
    report = judged(tmp_path, "--only", "argmax", "--no-compile")
    assert {r["variant"] for r in report["rows"]} == {"ours", "eager"}
    assert [bar["asked"] for bar in report["bars"] if not bar["goal"]] == ["share of copy"] * 3
    assert report["tiny"] is True


@pytest.mark.slow
def test_every_bar_finds_its_case(tmp_path: Path) -> None:
    report = judged(tmp_path)
    unmet = {(bar["case"], bar["passed"]) for bar in report["bars"] if bar["found"] is None}
    timed = {(row["case"], row["pass"]) for row in report["rows"]}
    assert len(timed) >= len(passes_in_order())
    # bars that name a rival which is not here, or the memory that a CPU does not count
    assert {verdict["asked"] for verdict in report["bars"] if verdict["found"] is None} <= {
        "times as fast as liger",
        "times as fast as cudnn",
        "times as fast as flex",
        "peak of compile's, at most",
    }, unmet


def test_every_bar_and_every_size_that_was_asked_for_is_there() -> None:
    bars = {(bar.case, bar.passed) for bar in BARS if not bar.goal}
    widths = (1024, 2048, 4096, 5120, 6144, 8192, 11008, 16384, 32768, 50257, 49, 1)
    assert {(f"softmax 8192x{cols}", "f") for cols in widths} <= bars
    for name in ("layer_norm", "rms_norm"):
        assert {(f"{name} 8192x{cols}", "fb") for cols in widths if cols not in (1024, 2048)} <= bars
        assert {(f"{name} {rows}x4096", "fb") for rows in (1, 7)} <= bars
    assert {(f"{kind} 16384x16384 dim {dim}", "f") for kind in ("argmax", "var") for dim in (0, 1, None)} <= bars
    assert {(f"cross_entropy 8192x{cols}", "fb") for cols in (32000, 50257, 128256)} <= bars
    assert {bar.goal for bar in BARS if bar.goal} == {f"G{n}" for n in range(2, 15)}


def test_every_chosen_case_is_known_and_jax_has_what_it_is_asked_for() -> None:
    tasks = list(jax_tasks(asked()))
    wanted = {f"{case} {passed}" for case, passes in CHOSEN.items() for passed in passes}
    without = {
        name for name in wanted if "softcap" in name or "packed, " in name or name.startswith("attention_packed")
    }
    assert wanted - {task.name for task in tasks} == {name for name in without if name.startswith("attention")}
    worker = ast.parse((ROOT / "benchmarks" / "_kernels" / "jax_worker.py").read_text(encoding="utf-8"))
    functions = {node.name: node.args for node in worker.body if isinstance(node, ast.FunctionDef)}
    for task in tasks:
        named = [argument.arg for argument in functions[task.function].kwonlyargs]
        named += [argument.arg for argument in functions[task.function].args]
        assert set(task.options) <= set(named), task.name
        assert all(math.prod(shape) > 0 for shape, _, _ in task.inputs)
        if task.graded:
            assert all(task.inputs[at][1] != "int32" for at in task.graded)


@pytest.mark.parametrize("judged", [False, True])
def test_parts_are_all_cases_and_none_twice(judged: bool) -> None:
    parts = [chosen(asked(part=f"{at}/3", judged=judged)) for at in range(3)]
    everything = [(case, one) for case, both in CHOSEN.items() for one in both]
    if judged:
        everything = list(dict.fromkeys([*passes_in_order(), *everything]))
    assert sorted(pair for part in parts for pair in part) == sorted(everything)
    assert len(everything) == len(set(everything))


def test_what_is_there_is_timed_last_or_not_again() -> None:
    there = {("softmax 8192x4096", "f"), ("softmax 8192x4096", "fb"), ("softmax 8192x32768", "f")}
    assert chosen(asked("softmax", there=there, missing=True)) == [("softmax 8192x32768", "fb")]
    names = chosen(asked("softmax", there=there))
    assert names[0] == ("softmax 8192x32768", "fb")  # what it lacks first
    assert len(names) == 4
    assert chosen(asked("sum,softmax"))[0][0] == "sum 16384x16384 dim 1"  # in the order asked for


def test_a_queue_gives_each_case_to_one_taker_and_searches_apart(tmp_path: Path) -> None:
    one, other = Queue(str(tmp_path)), Queue(str(tmp_path))
    assert one.take("norm 8x8", "fb", searched=False)
    assert not other.take("norm 8x8", "fb", searched=False)
    assert other.take("norm 8x8", "f", searched=False)
    assert other.take("norm 8x8", "fb", searched=True)
    variants = ["ours", "eager", "compile", "compile, searched", "liger"]
    assert one.calls(variants, searched=False) == ["ours", "compile", "liger"]  # nothing compiles for eager torch
    assert one.calls(variants, searched=True) == ["compile, searched"]
    other.done("norm 8x8", "fb", "compile", 3.0)
    assert [one.ready("norm 8x8", "fb", name) for name in variants] == [True, True, True, False, True]
    assert one.told().startswith("1 calls are ready, 0 of them searched, 3 s of work; longest: norm 8x8 fb compile 3 s")
    assert in_order_of_length([("sum 8", "f"), ("adamw 8", "step")])[0] == ("adamw 8", "step")


def test_searches_measure_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.runtime.benchmarking  # so that there is something to replace

    other = (tmp_path / "measuring").open("w")

    def is_free() -> bool:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(other, fcntl.LOCK_UN)
        return True

    class Plain:
        def benchmark_gpu(self, free: bool) -> tuple[bool, bool]:
            return free, is_free()

    class Nested(Plain):
        def benchmark_gpu(self, free: bool) -> tuple[bool, bool]:
            return super().benchmark_gpu(is_free())

    fake = types.SimpleNamespace(Plain=Plain, Nested=Nested)
    monkeypatch.setattr(torch._inductor.runtime, "benchmarking", fake)
    measuring_alone(tmp_path)
    assert is_free()
    assert Plain().benchmark_gpu(True) == (True, False)
    assert Nested().benchmark_gpu(True) == (False, False)  # a measurement within another waits for nobody
    assert is_free()
    other.close()


def test_rivals_whose_results_are_others_do_not_count() -> None:
    x = torch.randn(64, 64)
    eager = sampled((x, x * 2))
    assert apart(eager, eager, last=True) == 0.0
    assert apart(sampled((torch.ones(3), x, x * 3)), eager, last=True) == pytest.approx(1 / 5**0.5, rel=1e-6)
    assert apart(sampled((x, x * 2, torch.ones(3))), eager, last=False) == 0.0
    assert apart(sampled(torch.ones(3)), eager, last=True) is None
    assert sampled(torch.arange(3)) == []  # whole numbers: which of equal values comes first is free
    bar = Bar(case="norm 8x8", passed="fb", ahead=1.3)
    rows = [row("ours", 1.0), row("compile", 2.0), row("liger", 1.1) | {"apart": 0.4}, row(BARE, 0.1)]
    assert judge([bar], rows)[0].found == 2.0
    bare = Bar(case="norm 8x8", passed="fb", ahead=1.3, against=(BARE,))
    assert judge([bare], [*rows, row(BARE, 0.1) | {"apart": 1.1}])[0].found == 0.1  # less work, which the bar knows
    beyond = [row("ours", 1.0), row("compile", 2.0), row("jax", 0.4, share=1.3) | {"floor_bytes": 1 << 30}]
    assert judge([bar], beyond)[0].found == 2.0  # nobody moves the bytes faster than a copy
    assert judge([bar], [row("ours", 1.0), row("compile", 0.5, share=1.3) | {"floor_bytes": 99}])[0].found == 0.5


def test_torch_compile_counts_in_all_its_modes_and_memory_beside_it() -> None:
    bar = Bar(case="norm 8x8", passed="fb", ahead=1.0, against=("compile",), peak_of_compiled=0.5)
    rows = [row("ours", 1.0, peak=3.0), row("compile", 3.0, peak=8.0), row("compile, searched", 2.0, peak=4.0)]
    ratio, peak = judge([bar], [*rows, row("eager", 0.1)])
    assert (ratio.found, peak.found, peak.holds) == (2.0, 0.75, False)


def run_of(rows: list[dict[str, Any]], day: str, **more: Any) -> dict[str, Any]:
    return {"date": day, "device": "H", "torch": "2", "triton": "3", "rounds": 15, "rows": rows} | more


def case_row(case: str, variant: str, ms: float) -> dict[str, Any]:
    return {"case": case, "pass": "f", "variant": variant, "median_ms": ms}


def test_a_later_run_replaces_the_cases_that_it_timed_and_no_others() -> None:
    first = run_of(
        [case_row("b", "ours", 1.0), case_row("b", "eager", 2.0), case_row("c", "ours", 3.0)], "1st", jax="J"
    )
    second = run_of([case_row("a", "ours", 4.0), case_row("b", "ours", 5.0)], "2nd", jax="")
    union = merged(first, second, order=["a", "b"])
    assert [(row["case"], row["variant"], row["median_ms"], row["date"]) for row in union["rows"]] == [
        ("a", "ours", 4.0, "2nd"),
        ("b", "ours", 5.0, "2nd"),  # and no rival of another day beside it
        ("c", "ours", 3.0, "1st"),
    ]
    assert (union["date"], union["jax"]) == ("2nd", "J")
    assert merged(union, second, order=["a", "b"]) == union


def test_a_search_that_was_not_ready_keeps_its_row() -> None:
    first = run_of([case_row("b", "ours", 1.0), case_row("b", "compile, searched", 2.0)], "1st")
    rows = merged(first, run_of([case_row("b", "ours", 0.5)], "2nd"))["rows"]
    assert [(r["variant"], r["median_ms"], r["date"]) for r in rows] == [
        ("compile, searched", 2.0, "1st"),
        ("ours", 0.5, "2nd"),
    ]
    again = merged(first, run_of([case_row("b", "ours", 0.5), case_row("b", "compile, searched", 3.0)], "2nd"))["rows"]
    assert [r["median_ms"] for r in again] == [0.5, 3.0]


def test_rows_of_unlike_software_are_not_put_together() -> None:
    with pytest.raises(ValueError, match=r"unlike runs stand in files of their own: torch 2 and 3"):
        merged(run_of([], "1st"), run_of([], "2nd", torch="3"))


@pytest.mark.slow
def test_a_file_of_rows_grows_and_is_merged_into_another(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "kernels.py")
    tiny = [sys.executable, script, "--rivals", "--tiny", "--no-compile", "--jax-python", str(tmp_path / "absent")]

    def ran(*more: str) -> str:
        variables = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([*tiny, *more], env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    one, two = tmp_path / "one.json", tmp_path / "two.json"
    ran("--only", "softmax", "--out", str(one))
    count = len(json.loads(one.read_text())["rows"])
    assert "2 rows in" in ran("--only", "softmax,lion", "--missing", "--out", str(one))
    rows = json.loads(one.read_text())["rows"]
    assert [row["case"].split()[0] for row in rows] == ["softmax"] * count + ["lion"] * 2  # as the cases stand
    ran("--merge", str(one), "--out", str(two))
    assert json.loads(two.read_text())["rows"] == rows


def test_parts_of_a_judged_run_become_one_file_with_all_verdicts(tmp_path: Path) -> None:
    from benchmarks.kernels import merge

    def part(case: str, minute: int) -> Path:
        rows = [row("ours", 1.0, 0.95) | {"case": case}, row("compile", 2.0) | {"case": case}]
        file = tmp_path / f"{minute}.json"
        file.write_text(json.dumps(run_of(rows, f"2026-11-22 07:0{minute}", jax="J")), encoding="utf-8")
        return file

    files = [part("rms_norm 8192x4096", 1), part("layer_norm 8192x4096", 2)]
    merge(files, tmp_path / "all.json", asked(judged=True))
    report = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [r["case"].split()[0] for r in report["rows"]] == ["layer_norm"] * 2 + ["rms_norm"] * 2  # as the bars stand
    assert [r["date"] for r in report["rows"]] == ["2026-11-22 07:02"] * 2 + ["2026-11-22 07:01"] * 2
    bars = {(bar["case"], bar["asked"]): bar for bar in report["bars"] if not bar["goal"]}
    assert len(report["bars"]) > len(BARS)  # a verdict for each number that a bar asks for
    assert bars["rms_norm 8192x4096", "times as fast as the best rival"]["found"] == 2.0
    assert bars["layer_norm 8192x4096", "share of copy"]["holds"] is True
    assert bars["rms_norm 8192x5120", "share of copy"]["found"] is None


def test_errors_that_fail_do_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    def errors() -> dict[str, float]:
        raise ValueError("no such config")

    rows_timed = timed("norm 8x8", "f", 64, {"ours": lambda: torch.ones(3)}, Timer(2, "cpu"), errors=errors)
    assert [(row["variant"], row["error"]) for row in rows_timed] == [("ours", None)]
    assert "norm 8x8 f, its errors: ValueError: no such config" in capsys.readouterr().out


def test_beside_bars_torch_compile_searches_and_a_step_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks._kernels import cases

    arguments_of = dict[str, argparse.Namespace]()

    def op_cases(name: str, make: Any, tag: str, arguments: Any, timer: Any, **options: Any) -> Any:
        arguments_of[f"{name} {tag}"] = arguments
        return iter(())

    def own(arguments: Any) -> Any:
        arguments_of["adamw"] = arguments
        return iter(())

    monkeypatch.setattr(cases, "op_cases", op_cases)
    monkeypatch.setattr(cases, "OWN", {"adamw": own})
    monkeypatch.setattr(SIZES, "device", "meta")
    pairs = [("rms_norm 8192x4096", "fb"), ("adamw 124M", "step")]
    for judged in (True, False):
        arguments = asked(judged=judged, no_compile=False)
        assert list(chosen_cases(arguments, None, pairs)) == []  # type: ignore[arg-type]
        assert arguments_of["rms_norm 8192x4096"].best_mode is judged
        assert arguments_of["adamw"].no_compile is not judged  # which takes longer than all the rest of --rivals


def test_rivals_are_timed_without_jax_too(tmp_path: Path) -> None:
    variables = os.environ | {"OUT": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--rivals", "--tiny", "--no-compile"]
    command += ["--only", "softmax,lion", "--jax-python", str(tmp_path / "absent")]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "kernels-rivals-tiny.json").read_text())
    assert report["jax"] == ""
    assert "no JAX" in ran.stdout
    timed = {(r["case"], r["pass"], r["variant"]) for r in report["rows"]}
    assert timed >= {("softmax 4x4096", "fb", "eager"), ("lion 124M", "step", "ours")}
