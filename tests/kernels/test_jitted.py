"""Triton's keys do not depend on what ran before, and a kernel's hash on nothing that the compiler does not see."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from burn_kernels import activation, glu, jitted, prims
from burn_kernels._triton import INTERPRETED
from burn_kernels.autotune.compiling import launches
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.jitted import called, function_of, kernel_hash
from burn_kernels.launch import H200

pytest.importorskip("triton")
KERNELS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(2)


@triton.jit
def innermost(x):
    return x * FACTOR


@triton.jit
def inner(x):
    return innermost(x) + 1


@triton.jit
def one(x_ptr):
    tl.store(x_ptr, inner(tl.load(x_ptr)))


@triton.jit
def other(x_ptr):
    tl.store(x_ptr, inner(inner(tl.load(x_ptr))))
"""
KEY = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("jitted", sys.argv[1])
jitted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(jitted)
import kernels_of_this_test as kernels
for name in sys.argv[2:]:
    jitted.settle(getattr(kernels, name))
print(kernels.one.cache_key)
"""


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled in the interpreter")
def test_the_key_of_a_kernel_is_the_same_whatever_ran_before(tmp_path: Path) -> None:
    (tmp_path / "kernels_of_this_test.py").write_text(KERNELS, encoding="utf-8")

    def key_after(*names: str) -> str:
        command = [sys.executable, "-c", KEY, str(jitted.__file__), *names]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.strip()

    alone = key_after("one")  # where other kernels ran before, Triton itself makes other keys
    assert len(alone) == 64
    assert key_after("inner", "one") == key_after("other", "one") == alone


def test_what_a_kernel_calls_is_found_in_this_file_and_in_others() -> None:
    callees = called(activation.activate)
    assert prims.erf in callees
    assert len(callees) == len({id(one) for one in callees})
    assert all(function_of(one) is not None for one in callees)
    assert any(activation.activate in called(one) for one in vars(glu).values() if function_of(one) is not None)
    assert function_of(Path) is None
    assert function_of(len) is None


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_each_kernel_that_is_launched_is_in_the_hash(name: str) -> None:
    tunable = TUNABLES[name]
    for facts in tunable.problems(*tunable.shapes[0], tunable.dtype):
        for launched in launches(tunable, facts, tunable.candidates(facts, H200), H200):
            for launch in launched:
                assert launch.kernel in tunable.kernels, f"{launch.kernel} is launched"


def test_a_kernel_may_move_to_another_file(tmp_path: Path) -> None:
    hashes = set()
    for name in ("here", "there"):
        (tmp_path / f"{name}_of_this_test.py").write_text(KERNELS, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(tmp_path))
            hashes.add(kernel_hash(f"{name}_of_this_test"))
        del sys.modules[f"{name}_of_this_test"]
    assert len(hashes) == 1


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
        digest = kernel_hash("a_kernel_of_this_test")
    del sys.modules["a_kernel_of_this_test"]
    return digest


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
