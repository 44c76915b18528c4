"""Memory that is kept between the calls of a program: what is asked of glibc, and that pages are not faulted again."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from burn_torch.backend.libtorch.tensors import allocator

MIB = 1 << 20

_STEPS = """
import os, resource
import torch
from burn_torch.backend.libtorch.tensors.allocator import keep_memory

torch.set_num_threads(1)
x = torch.ones(12 << 18)  # 12 MiB

def step():
    values = [x + number for number in range(8)]  # 96 MiB at once
    return values[-1]

def faults_a_step():
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5

print(faults_a_step())
del os.environ["MALLOC_MMAP_THRESHOLD_"], os.environ["MALLOC_TRIM_THRESHOLD_"]  # glibc has read them
keep_memory(96 << 20)
print(faults_a_step())
"""


def faults_a_step() -> list[float]:
    """Pages that a step has the kernel of the system make, as it is and with memory kept."""
    root = Path(__file__).resolve().parents[3]
    # glibc's first thresholds, fixed: by itself it raises them as it sees fit
    first = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)}
    process = subprocess.run(
        [sys.executable, "-c", _STEPS],
        capture_output=True, text=True, check=True, cwd=root, timeout=120, env={**os.environ, **first},
    )  # fmt: skip
    return [float(line) for line in process.stdout.splitlines()]


@pytest.mark.skipif(not allocator._is_glibc(), reason="the thresholds are those of glibc")
def test_pages_are_faulted_once_and_not_in_each_step() -> None:
    before, after = faults_a_step()  # 24,576 pages of 4 KiB at first; a kernel with larger pages has fewer
    assert before > 40
    assert after < before / 8


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The settings asked of a C library that takes 32 MiB at most for one threshold, as older ones do."""
    calls: list[tuple[int, int]] = []

    class Library:
        def __init__(self, name: object) -> None:
            assert name is None

        def mallopt(self, parameter: int, value: int) -> int:
            calls.append((parameter, value))
            return int(parameter != -3 or value <= 32 * MIB)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(allocator, "_is_glibc", lambda: True)
    monkeypatch.setattr(allocator, "_kept", 0)
    for name in allocator._USERS:
        monkeypatch.delenv(name, raising=False)
    return calls


def test_thresholds_only_grow(asked: list[tuple[int, int]]) -> None:
    assert allocator.keep_memory(10 * MIB) == 20 * MIB
    assert asked == [(-3, 20 * MIB), (-1, 20 * MIB)]
    assert allocator.keep_memory(5 * MIB) == 20 * MIB
    assert len(asked) == 2
    assert allocator.keep_memory(30 * MIB) == 60 * MIB
    assert asked[2:] == [(-3, 60 * MIB), (-3, 32 * MIB), (-1, 60 * MIB)]


def test_an_int_of_c_is_the_most(asked: list[tuple[int, int]]) -> None:
    assert allocator.keep_memory(1 << 40) == 2**31 - 1
    assert (-1, 2**31 - 1) in asked


@pytest.mark.parametrize("name", allocator._USERS)
def test_what_the_user_has_set_stays(name: str, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert allocator.keep_memory(10 * MIB) == 0
    assert asked == []


def test_small_programs_and_other_libraries_ask_nothing(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocator.keep_memory(100 << 10) == 0
    monkeypatch.setattr(allocator, "_is_glibc", lambda: False)
    assert allocator.keep_memory(10 * MIB) == 0
    assert asked == []
