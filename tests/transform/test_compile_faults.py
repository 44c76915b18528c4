"""Faults planted wherever a program is made: it runs a plainer way, with the right results, a word, and a note."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, FusionWarning, Tensor, compile
from burn_torch.backend.libtorch import source_file
from burn_torch.backend.libtorch.attached import programs as kernel_programs
from burn_torch.backend.libtorch.generated import c_kernels, c_libraries
from burn_torch.backend.libtorch.programs import program as libtorch_program
from burn_torch.core.errors import BurnTorchError
from burn_torch.graph.passes import driver
from burn_torch.transform import program as compiled_program

FAULTS: dict[str, BaseException] = {
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
    "pool": RuntimeError("cannot schedule new futures after shutdown"),
    "memory": MemoryError(),
    "cache": ValueError("not a cache"),
    "timeout": subprocess.TimeoutExpired("cc", 30.0),
    "locked": sqlite3.OperationalError("database is locked"),
    "ours": AssertionError("planted"),
    "deep": RecursionError("maximum recursion depth exceeded"),
}

PLACES: dict[str, tuple[ModuleType, str]] = {
    "the folder of kernels": (c_libraries, "kernel_folders"),
    "a build": (c_libraries, "_build"),
    "the compilers": (c_kernels, "build_apart"),
    "a library": (c_kernels, "loaded"),
    "a launcher": (c_kernels, "_launcher"),
    "C": (c_kernels, "lowered_for_cpu"),
    "the file of a program": (source_file, "_write_file"),
    "a program": (libtorch_program, "memory_plan"),
    "compiling ahead": (kernel_programs, "compile_ahead"),
    "patterns": (compiled_program, "replaced"),
    "a pass": (driver, "fold_views"),
    "an early pass": (driver, "algebra"),
}


def function(x: Tensor, y: Tensor, n: float) -> tuple[Tensor, Tensor]:
    return (x.tanh() * n + y).exp().sum_dim(1) * x, x.sin().matmul(y.transpose())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_a_program_runs_a_plainer_way(
    place: str, fault: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BURN_TORCH_VERIFY", raising=False)
    columns = 20 + 8 * list(PLACES).index(place) + list(FAULTS).index(fault)  # kernels that no other test has made
    x, y = (Tensor.from_data(seed.standard_normal((3, columns)), Device.cpu()) for _ in range(2))
    expected = function(x, y, 0.5)
    called = []

    def broken(*_: Any, **__: Any) -> Any:
        called.append(place)
        raise FAULTS[fault]

    module, name = PLACES[place]
    monkeypatch.setattr(module, name, broken)
    c_kernels.c_function.cache_clear()
    run = compile(function, fuse=True)
    with pytest.warns((FusionWarning, c_kernels.CompilerWarning)):
        outputs = run(x, y, 0.5)
    assert called
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(ours.into_data().values, theirs.into_data().values, rtol=1e-9)
    shown = str(run.explain(x, y, 0.5))
    said = type(FAULTS[fault]).__name__
    assert said in shown or str(FAULTS[fault]) in shown, shown
    c_kernels.c_function.cache_clear()


def test_errors_of_the_program_itself_are_the_user_s() -> None:
    with pytest.raises(BurnTorchError, match="matmul"):
        compile(lambda x: x.matmul(x))(Tensor.ones((2, 3), Device.cpu()))
