"""The benchmark of whole steps: it compares what variants compute, takes turns, judges, and survives a broken rival."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._steps.measure import Bar, Local, Result, judge, measure, prepare, table
from benchmarks.steps import main

ROOT = Path(__file__).parents[2]


class Counting(Local):
    """A variant whose step notes who ran and whose loss is a number of its own."""

    def __init__(self, name, loss, order):
        self.name, self.loss, self.order = name, loss, order

    def start(self):
        self.steps, self.read = 0, float
        if self.loss is None:
            raise RuntimeError("no such machine\nsecond line")

        def step(i):
            self.order.append(self.name)
            return self.loss

        self.step = step


def run(*losses, tolerance=1e-5, rounds=4):
    order: list[str] = []
    variants = [Counting(name, loss, order) for name, loss in zip("abc", losses, strict=False)]
    results = prepare(variants, tolerance, lambda variant: 1.0)
    order.clear()
    measure(variants, results, visit_s=0.0, seconds=10.0, rounds=rounds)
    return results, order


def test_variants_take_turns_there_and_back():
    results, order = run(1.0, 1.0, 1.0, rounds=4)
    visits = order[12:]  # three steps and one that warms up, of each, to see how many fill a visit
    assert "".join(visits[::2]) == "abccbaabccba"  # each visit: one step that warms up, one timed
    assert [len(r.us) for r in results] == [4, 4, 4]


def test_a_variant_that_computes_something_else_is_not_timed():
    results, order = run(1.0, 1.0 + 5e-6, 1.0 + 5e-5)
    assert "c" not in order
    assert results[2].why.startswith("computes something else: 5.0e-05 apart")
    assert not results[2].us
    assert results[1].apart == pytest.approx(5e-6)


def test_a_loss_that_is_not_finite_is_found_without_a_comparison():
    results, _ = run(1.0, float("nan"), tolerance=None)
    assert results[1].why.startswith("numbers that are not finite")


def test_a_rival_that_fails_says_why_in_its_row():
    results, order = run(1.0, None, 1.0)
    assert results[1].why == "RuntimeError: no such machine"
    assert set(order) == {"a", "c"}
    assert any(line.split()[0] == "b" and "no such machine" in line for line in table(results)[1:])


def test_a_variant_without_time_is_left_out():
    variants = [Counting("a", 1.0, []), Counting("b", 1.0, [])]
    results = prepare(variants, 1e-5, lambda variant: -1.0 if variant.name == "b" else 1.0)
    assert [r.why for r in results] == ["", "left out: no time"]


def timed(name, us, **facts):
    return Result(name, us=us, **facts)


def test_a_ratio_is_the_median_of_times_next_to_each_other():
    ours, rival = timed("ours", [1.0, 20.0, 3.0]), timed("rival", [2.0, 40.0, 3.0])
    bars = [Bar(0.5, "rival"), Bar(0.49, "rival"), Bar(0.49, "rival", goal=True)]
    verdicts = judge(bars, [ours, rival], "ours")
    assert [bar["ratio"] for bar in verdicts] == [0.5, 0.5, 0.5]
    assert [bar["verdict"] for bar in verdicts] == ["pass", "FAIL", "FAIL"]
    assert [bar["goal"] for bar in verdicts] == [False, False, True]


def test_memory_has_its_own_bar():
    ours, rival = timed("ours", [1.0], peak_mib=90.0), timed("rival", [1.0], peak_mib=100.0)
    (verdict,) = judge([Bar(0.95, "rival", of="peak_mib")], [ours, rival], "ours")
    assert (verdict["ratio"], verdict["verdict"]) == (0.9, "pass")


def test_a_bar_without_its_rival_is_not_measured():
    (verdict,) = judge([Bar(0.9, "rival")], [timed("ours", [1.0]), Result("rival", why="broken")], "ours")
    assert (verdict["verdict"], verdict["why"]) == ("not measured", "no rival")


@pytest.mark.parametrize(
    ("groups", "count"), [("mlp,host", 2), pytest.param("mnist,gpt2,sequence", 7, marks=pytest.mark.slow)]
)
def test_the_program_runs_and_all_variants_agree(tmp_path, groups, count):
    out = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "steps.py"), "--tiny", "--no-compile", "--no-jax"]
    done = subprocess.run(
        [*command, "--only", groups, "--out", str(out)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text(encoding="utf-8"))
    assert len(report["cases"]) == count
    for case in report["cases"]:
        rows = {row["variant"]: row for row in case["rows"]}
        assert {"burn_torch eager", "burn_torch compiled"} <= set(rows)
        assert not any(row["why"] for row in rows.values()), rows
        assert all(len(row["us"]) == 5 for row in rows.values())
        assert case["traces"]["burn_torch compiled"] == 1
    assert {bar["verdict"] for bar in report["bars"] if bar["of"] == "us" and not bar["goal"]} <= {"pass", "FAIL"}


def test_the_program_says_what_it_does_not_know(capsys):
    assert main(["--only", "mlp,nmist"]) == 2
    assert "nmist is no group; there are mnist, mlp, gpt2, sequence, host" in capsys.readouterr().err
