"""Compilation ahead, by processes that may die: for real where Triton compiles, and with stand-ins that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels import workers
from burn_kernels.autotune.compiling import Compilers, Variant, launches, variants
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.selection import Selector
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.autotune.tuner import reduced
from burn_kernels.autotune.warmup import tune_with
from burn_kernels.launch import H200

pytest.importorskip("triton")
FACTS = Facts((64,), (40,), torch.bfloat16)
STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    number = json.loads(line)["number"]
    if number == 1:
        os._exit(3)
    if number == 2:
        time.sleep(60)
    if number == 3:
        print("no JSON", flush=True)
        continue
    print(json.dumps({"why_not": "ValueError: too wide" if number == 4 else ""}), flush=True)
"""


def stand_in(count: int, patience_s: float = 30.0) -> Compilers:
    return Compilers(H200, count, patience_s=patience_s, command=(sys.executable, "-c", STAND_IN))


def variant(number: int, name: str = "") -> Variant:
    return Variant("softmax", FACTS, {"block": 64}, number, (name or f"kernel {number}",))


def test_keys_come_in_order_as_their_kernels_are_there() -> None:
    with stand_in(2) as compilers:
        compilers.ask("a", [variant(0, "one"), variant(0, "two")])
        compilers.ask("b", [variant(0, "two"), variant(0, "three")])
        compilers.ask("c", [])
        assert compilers.wait(["a", "b"]) in ("a", "b")
        assert compilers.wait(["a"]) == "a"
        assert compilers.wait(["b"]) == "b"
        assert compilers.wait(["c"]) == "c"
    assert compilers.tally.compiled == 3  # what two keys share, once
    assert compilers.tally.failed == []


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (1, r"kernel 1 of softmax: the process that compiles ended with 3 \(EOFError: no answer\)"),
        (2, r"the process that compiles ended with -9 \(TimeoutError: no answer within 2 s\)"),
        (3, r"the process that compiles ended with -9 \(JSONDecodeError"),
        (4, r"kernel 4 of softmax: ValueError: too wide"),
    ],
)
def test_a_process_that_fails_costs_its_own_kernel_only(number: int, complaint: str) -> None:
    with stand_in(1, patience_s=2.0) as compilers:
        compilers.ask("a", [variant(0, "before"), variant(number), variant(0, "after")])
        assert compilers.wait(["a"]) == "a"
    assert compilers.tally.compiled == 2
    (failed,) = compilers.tally.failed
    assert re.search(complaint, failed), failed


def test_where_every_process_dies_nobody_waits() -> None:
    with stand_in(1) as compilers:
        compilers.ask("a", [variant(1, str(name)) for name in range(workers.MOST_DEATHS + 2)])
        assert compilers.wait(["a"]) == "a"
    assert compilers.tally.compiled == 0


def test_a_command_that_is_not_there_is_said() -> None:
    with Compilers(H200, 1, command=("/no/such/command",)) as compilers:
        compilers.ask("a", [variant(0)])
        assert compilers.wait(["a"]) == "a"
    assert compilers.tally.failed == ["kernel 0 of softmax: no process could be begun"]


def test_a_key_that_nothing_is_compiled_for_comes_last() -> None:
    with stand_in(1) as compilers:
        compilers.skip("a", "ValueError: no such problem")
        compilers.ask("b", [variant(0)])
        assert compilers.wait(["a", "b"]) == "b"
        assert compilers.wait(["a"]) == "a"
    assert compilers.tally.failed == ["a: ValueError: no such problem"]


def test_waiting_ends_with_the_time() -> None:
    with stand_in(1) as compilers:
        compilers.ask("a", [variant(2)])
        assert compilers.wait(["a"], until=time.monotonic() + 0.3) is None
        begun = time.monotonic()
    assert time.monotonic() - begun < 20  # and a process that hangs is ended


def test_both_problems_of_a_trial_are_compiled() -> None:
    tunable, facts = TUNABLES["softmax"], Facts((1 << 14,), (1024,), torch.bfloat16)
    config = tunable.candidates(facts, H200)[0]
    asked = list(variants(tunable, facts, [config], H200))
    assert [one.facts for one in asked] == [reduced(tunable, facts), facts]
    assert len({one.print for one in asked}) == 2  # rows that are a multiple of 16, and rows that are not
    assert len({one.print for one in variants(tunable, facts._replace(free=(1 << 15,)), [config], H200)}) == 2
    request = json.loads(json.dumps(asked[1].request()))
    assert (request["op"], request["facts"]["dtype"], request["number"]) == ("softmax", "bfloat16", 0)


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_every_family_says_what_it_launches_without_a_gpu(name: str) -> None:
    tunable = TUNABLES[name]
    facts = tunable.problems(*tunable.shapes[0], tunable.dtype)[-1]
    small = reduced(tunable, facts)
    assert tunable.elements(facts) > 0
    assert tunable.elements(small) <= max(
        1 << 22, tunable.elements(facts._replace(free=tuple(1 for _ in facts.free))) * 4
    )
    counts = [len(launched) for launched in launches(tunable, small, tunable.candidates(facts, H200), H200)]
    assert max(counts) > 0  # a library's own way launches nothing of ours


LAUNCHED = """
import torch
from triton.runtime import driver
from burn_kernels.autotune.compile_worker import Elsewhere
from burn_kernels.autotune.compiling import launches
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.jitted import settle
from burn_kernels.launch import H200
import burn_kernels.softmax
driver._active = Elsewhere(H200)
made, facts = TUNABLES["softmax"], Facts((64,), (64,), torch.float32)
# as launched: real tensors, positional, with what a launch passes to Triton
((launch,),) = launches(made, facts, [made.candidates(facts, H200)[0]], H200)
settle(launch.kernel)
arguments = [torch.empty(64 * 64, dtype=torch.float32) if isinstance(x, torch.Tensor) else x for x in launch.arguments]
launch.kernel.warmup(
    *arguments, grid=launch.grid, num_warps=launch.warps, num_stages=launch.stages, **launch.constants
)
"""


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="nothing is compiled in the interpreter")
def test_what_is_compiled_ahead_is_what_a_launch_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tunable, facts = TUNABLES["softmax"], Facts((64,), (64,), torch.float32)
    config = tunable.candidates(facts, H200)[0]
    (wanted,) = variants(tunable, facts, [config], H200)
    with Compilers(H200, 1) as compilers:
        compilers.ask("a", [wanted])
        assert compilers.wait(["a"]) == "a"
    assert (compilers.tally.compiled, compilers.tally.failed) == (1, [])
    there = {path.relative_to(tmp_path): path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.suffix == ".cubin" for path in there)
    # in a process of its own: what other tests did to Triton here may be part of its keys
    subprocess.run([sys.executable, "-c", LAUNCHED], check=True)
    after = {path.relative_to(tmp_path): path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after == there


def test_tuning_measures_every_key_while_others_compile(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_kernels.autotune import warmup

    fake_tunable = fake.tunable()
    monkeypatch.setattr(warmup, "TUNABLES", {"double": fake_tunable})
    asked = list[str]()

    def wanted(tunable: Any, facts: Facts, configs: Any, machine: Any) -> list[Variant]:
        asked.append(tunable.key(facts))
        if facts.exact == (3,):
            raise ValueError("no such problem")
        return [variant(0, f"{facts} {config}") for config in configs]

    monkeypatch.setattr(warmup, "variants", wanted)
    monkeypatch.setattr(warmup, "Compilers", lambda machine, count, launchers: stand_in(count))
    selector: Selector = fake.selector()
    tallies = list[Any]()
    measurements = tune_with(selector, "", [(8, 2), (8, 3), (8, 5)], workers=2, compiled=tallies.append)
    assert sorted(one.key for one in measurements) == sorted(asked)
    assert [one.why_not for one in measurements] == ["", "", ""]
    assert len(selector.store.all_timings()) == 9
    assert tallies[0].compiled == 6
    assert tallies[0].failed == ["double rows<=8 cols=3 float32 packed align=16: ValueError: no such problem"]


def test_only_so_many_candidates_are_measured(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    selector = fake.selector(most=2)
    plan = selector.plan(fake.tunable(), 0, FACTS)
    monkeypatch.setattr(
        "burn_kernels.autotune.selection.predict", lambda work, machine: {64: 1.0, 128: 3.0, 256: 2.0}[work.elements]
    )
    assert list(selector.contenders(plan)) == ["block=64 warps=4", "block=256 warps=8"]
    selector.most = None
    assert len(selector.contenders(plan)) == 3
