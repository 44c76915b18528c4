"""No import of a module changes another module, nor how a program is planned; and an eager CPU imports no kernel."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def orders() -> dict[int, Any]:
    """By drawn seeds: the globals that an import changed, and digests of plans before and after all imports."""
    return {seed: json.loads(run("-m", "tests.import_order", str(seed))) for seed in random.sample(range(10**6), 2)}


def test_no_import_changes_the_globals_of_another_module(orders: dict[int, Any]) -> None:
    for seed, order in orders.items():
        assert order["changed"] == [], f"python -m tests.import_order {seed}"


def test_plans_do_not_hang_on_what_was_imported(orders: dict[int, Any]) -> None:
    digests = {seed: (order["first"], order["last"]) for seed, order in orders.items()}
    assert len({digest for pair in digests.values() for digest in pair}) == 1, digests


def test_the_first_fused_read_on_a_cpu_imports_no_kernel_module() -> None:
    code = """
import sys
from burn_torch import Device, Tensor
x = Tensor.zeros((7, 9), Device.cpu(fused=True))
((x * 2.0 + 1.0).exp() @ x.transpose()).sum_dim(1).into_data()
print([name for name in sys.modules if name.split(".")[0] in ("burn_kernels", "triton")])
"""
    assert run("-c", code) == "[]\n"
