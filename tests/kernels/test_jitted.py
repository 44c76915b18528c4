"""Triton's keys do not depend on what ran before, and a kernel's hash on nothing that the compiler does not see."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from burn_kernels import channel_norm_kernels
from burn_kernels._triton import INTERPRETED
from burn_kernels.autotune.compiling import launches
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.jitted import called, function_of, kernel_hash
from burn_kernels.launch import H200

pytest.importorskip("triton")
KEY = """
import sys
from burn_kernels import channel_norm_kernels as kernels
from burn_kernels.jitted import settle
for name in sys.argv[2:]:
    settle(getattr(kernels, name)) if sys.argv[1] == "settled" else getattr(kernels, name).cache_key
print(kernels.sums_of_parts.cache_key)
"""


def key_after(how: str, *names: str) -> str:
    command = [sys.executable, "-c", KEY, how, *names]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled in the interpreter")
def test_the_key_of_a_kernel_is_the_same_whatever_ran_before() -> None:
    alone = key_after("settled", "sums_of_parts")
    assert alone == key_after("settled", "forward_whole", "normalize", "sums_of_parts")
    assert len(alone) == 64


def test_what_a_kernel_calls_is_found_in_this_file_and_in_others() -> None:
    names = [function_of(one).__name__ for one in called(channel_norm_kernels._slopes)]  # type: ignore[union-attr]
    assert names == ["activate", "scaled"]
    names = [function_of(one).__name__ for one in called(channel_norm_kernels.join_moments)]  # type: ignore[union-attr]
    assert "vector_of" not in names
    assert function_of(channel_norm_kernels.Config) is None
    assert function_of(len) is None


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_each_kernel_that_is_launched_is_in_the_hash(name: str) -> None:
    made = TUNABLES[name]
    for facts in made.problems(*made.shapes[0], made.dtype):
        for found in launches(made, facts, made.candidates(facts, H200), H200):
            for launch in found:
                module = function_of(launch.kernel).__module__  # type: ignore[union-attr]  # it is a kernel
                assert module in made.sources, f"{launch.kernel} is launched"


TEXT = """
from burn_kernels._triton import tl, triton

{constant}


@triton.jit
def inner(x):
    {comment}
    return x * FACTOR


@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    {docstring}
    tl.store(x_ptr, {body})


def launcher():
    return {launched}
"""


def hash_with(folder: Path, **parts: str) -> str:
    usual = {"constant": "FACTOR = tl.constexpr(2)", "comment": "# a remark", "docstring": '"""What it does."""'}
    usual |= {"body": "inner(x_ptr)", "launched": "1"}
    place = folder / str(len(list(folder.iterdir())))  # a folder for each, so that no file of byte code is stale
    place.mkdir()
    (place / "a_kernel_of_this_test.py").write_text(TEXT.format(**usual | parts), encoding="utf-8")
    linecache.clearcache()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        found = kernel_hash("a_kernel_of_this_test")
    del sys.modules["a_kernel_of_this_test"]
    return found


def test_the_hash_is_of_what_is_compiled(tmp_path: Path) -> None:
    first = hash_with(tmp_path)
    assert len(first) == 16
    assert hash_with(tmp_path) == first
    for same in ("", "# another one"):
        assert hash_with(tmp_path, comment=same) == first
    for same in ("", '"""Said otherwise,\n\n    at "length".\n    """', '"""A \\n, escaped."""'):
        assert hash_with(tmp_path, docstring=same) == first
    assert hash_with(tmp_path, launched="2") == first  # it launches the same kernels


@pytest.mark.parametrize(
    "change",
    [
        {"constant": "FACTOR = tl.constexpr(3)"},
        {"comment": "x += 1"},
        {"docstring": "x_ptr += 1"},
        {"body": "inner(x_ptr) + 1"},
        {"body": "x_ptr"},
    ],
)
def test_another_body_constant_or_callee_is_another_hash(change: dict[str, str], tmp_path: Path) -> None:
    assert hash_with(tmp_path, **change) != hash_with(tmp_path)
