"""The first choice of a fresh machine beside the fastest candidate, from an export; no GPU takes part."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

pytest.importorskip("triton")

from benchmarks.first_choice import choices, told
from burn_kernels import softmax
from burn_kernels.autotune import shipped
from burn_kernels.launch import H200

DEVICE = "NVIDIA H200 sm_90 x132"
KEY = "softmax rows<=8192 cols=4096 bfloat16 packed align=16"


def rows(**times: float) -> list[dict[str, Any]]:
    head = {"kernel": softmax.FORWARD.kernel, "device": DEVICE, "key": KEY}
    return [head | {"candidate": name, "median_ms": ms} for name, ms in times.items()]


@pytest.fixture
def times() -> dict[str, float]:
    from burn_kernels.autotune.key import Candidate

    return {Candidate.of(c).name: 1.0 + at for at, c in enumerate(softmax.candidates(4096, 2, H200))}


def test_a_share_is_the_fastest_time_over_that_of_what_is_taken(times: dict[str, float]) -> None:
    (choice,) = choices(rows(**times), table=False)
    taken = times[choice.taken]
    assert choice.op == "softmax"
    assert choice.best == next(iter(times))
    assert choice.share == pytest.approx(1.0 / taken)
    times[choice.taken] = 0.1
    (again,) = choices(rows(**times), table=False)
    assert (again.taken, again.share) == (choice.taken, 1.0)


def test_the_table_that_is_shipped_counts_where_it_is_asked_for(
    times: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"op": "softmax", "backend": "cuda", "arch": 90, "free": [8192], "exact": [4096], "itemsize": 2, "align": 16}
    row |= {
        "kernel": softmax.FORWARD.kernel,
        "layout": "packed",
        "flags": "",
        "configs": [[0.04, asdict(softmax.candidates(4096, 2, H200)[1])]],
    }
    monkeypatch.setattr(shipped, "load", lambda: [row])
    (with_table,), (without,) = (choices(rows(**times), table=table) for table in (True, False))
    assert with_table.source == "shipped"
    assert without.source in ("default", "model")


def test_what_is_below_the_bar_is_listed(times: dict[str, float]) -> None:
    (choice,) = choices(rows(**times), table=False)
    slow = dict.fromkeys(times, 1.0) | {choice.taken: 2.0}
    text = told(choices(rows(**slow), table=False))
    assert f"0.500 {KEY}: {choice.taken}" in text
    fast = dict.fromkeys(times, 1.0)
    assert KEY not in told(choices(rows(**fast), table=False))


def test_keys_of_kernels_that_are_gone_do_not_count(times: dict[str, float]) -> None:
    known = rows(**times)
    assert choices([row | {"key": row["key"].replace("softmax", "softmix")} for row in known], table=True) == []
    assert choices([row | {"kernel": "0" * 16} for row in known], table=True) == []
