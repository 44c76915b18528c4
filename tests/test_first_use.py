"""A first tensor and `--help` import what they need: times of first uses are told by `benchmarks/first_use.py`."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS_OF_A_FIRST_TENSOR = {"creation", "indexing", "shapes"}
"""The families of rows that `Tensor.zeros` computes with, or that passes of graphs name."""

COUNTED = """
import gc, torch
collections = []
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
from burn_torch import Device, Tensor
gc.callbacks.clear()
assert 2 not in collections, "a collection has walked all objects of torch"
assert gc.isenabled()
"""


def modules_after(code: str) -> set[str]:
    """The modules of a fresh process after some code."""
    code = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def first_tensor() -> set[str]:
    return modules_after(f"{COUNTED}\nTensor.zeros((2, 3), Device.cpu(fused=False))")


@pytest.mark.parametrize(
    "floor",
    [
        "fusion",
        "transform",
        "module",
        "nn",
        "optim",
        "data",
        "train",
        "onnx",
        "record",
        "monitor",
        "cli",
        "graph.passes",
    ],
)
def test_a_first_tensor_imports_no_floor_that_it_does_not_need(first_tensor: set[str], floor: str) -> None:
    assert [name for name in first_tensor if name.startswith(f"burn_torch.{floor}")] == []


@pytest.mark.parametrize("room", ["generated", "attached", "recorded", "programs", "forms"])
def test_a_first_tensor_imports_neither_programs_nor_kernels(first_tensor: set[str], room: str) -> None:
    assert [name for name in first_tensor if name.startswith(f"burn_torch.backend.libtorch.{room}")] == []
    assert [name for name in first_tensor if name.split(".")[0] in ("burn_kernels", "triton")] == []


def test_a_first_tensor_imports_few_families_of_rows(first_tensor: set[str]) -> None:
    from burn_torch.ops.registry import FAMILIES

    families = {name.rpartition(".")[2] for name in first_tensor if name.startswith("burn_torch.ops.")} & {*FAMILIES}
    assert families <= ROWS_OF_A_FIRST_TENSOR


def test_a_first_tensor_imports_nothing_heavy_of_others(first_tensor: set[str]) -> None:
    assert first_tensor.isdisjoint({"numpy.random", "sympy", "sqlite3", "urllib3", "matplotlib"})


def test_operators_of_onnx_are_imported_without_docstrings() -> None:
    code = "import burn_torch.onnx.operators.elementwise as of; print(of.PLAIN['exp'])"
    done = subprocess.run([sys.executable, "-OO", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Exp"], done.stderr


def test_datasets_need_no_torch() -> None:
    assert "torch" not in modules_after("import burn_torch\nburn_torch.data")


def test_imports_of_several_threads_leave_the_collector_as_it_was() -> None:
    import burn_torch

    for was_enabled in (True, False):
        gc.enable() if was_enabled else gc.disable()
        try:
            first, second = ExitStack(), ExitStack()
            first.enter_context(burn_torch._paused)
            second.enter_context(burn_torch._paused)  # in another thread, which ends later
            first.close()
            assert not gc.isenabled()
            second.close()
            assert gc.isenabled() == was_enabled
        finally:
            gc.enable()


def test_help_imports_neither_arrays_nor_rows_nor_what_reads_packages() -> None:
    code = "import sys\nsys.argv[1:] = ['--help']\nfrom burn_torch.cli.main import main\n"
    imported = modules_after(f"{code}try:\n    main()\nexcept SystemExit:\n    pass")
    floors = {".".join(name.split(".")[:2]) for name in imported if name.startswith("burn_torch.")}
    assert floors <= {f"burn_torch.{floor}" for floor in ("cli", "config", "core", "monitor", "version")}
    assert imported.isdisjoint({"torch", "numpy", "jinja2", "shtab", "textual", "asyncio", "http.client"})
    assert "burn_torch.cli.recipes.digits" not in imported
    assert "importlib.metadata" not in imported - modules_after("")
