"""Tests what is timed beside what, and that a first call which would measure is an error; no GPU takes part."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from benchmarks.first_call import fastest, first_call, keys
from burn_kernels import softmax
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.launch import H200

KEY = "softmax rows<=8192 cols=4096 bfloat16 packed align=16"


class Clock:
    """Samples in the order of calls: the first of each pair takes twice as long as the second."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.calls = 0

    def milliseconds(self, call: Callable[[], Any]) -> float:
        call()
        self.calls += 1
        return 1.0

    def settle(self) -> None:
        """Nothing runs beside."""

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        yield


def test_the_fastest_config_is_that_of_the_least_sample_of_kernels_as_they_are() -> None:
    one, other, gone = (asdict(config) for config in softmax.candidates(4096, 2, H200)[:3])
    rows = [
        {"key": KEY, "kernel": softmax.FORWARD.kernel, "config": one, "samples_ms": [0.3, 0.1]},
        {"key": KEY, "kernel": softmax.FORWARD.kernel, "config": other, "samples_ms": [0.2, 0.2]},
        {"key": KEY, "kernel": "0" * 16, "config": gone, "samples_ms": [0.01]},
    ]
    assert fastest(rows) == {KEY: one}


def test_the_benchmark_set_is_every_operation_at_its_usual_shapes() -> None:
    choices_by_key = keys(TUNABLES)
    assert KEY in choices_by_key
    assert {tunable.name for tunable, _ in choices_by_key.values()} == set(TUNABLES)


def test_a_first_call_is_timed_beside_the_tuned_config(tmp_path: Path) -> None:
    facts = Facts((8,), (64,), torch.float32)
    tuned = asdict(softmax.candidates(64, 4, H200)[0])
    clock: Any = Clock()
    row = first_call(softmax.FORWARD, facts, tuned, clock, tmp_path)
    assert clock.calls == 16
    assert (row["key"], row["share"], row["wrote"]) == (softmax.FORWARD.key(facts), 1.0, False)
    assert list(tmp_path.iterdir()) == []
