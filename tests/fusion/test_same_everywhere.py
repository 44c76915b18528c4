"""The same program has the same key and the same kernels in every process, however Python orders its sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from burn_torch import Device, Tensor, compile
from tests.fusion.blocks import BLOCKS, TINY

ROOT = Path(__file__).resolve().parents[2]


def keys_and_kernels() -> list[list[str]]:
    """Returns the keys and kernels of a stream, and of a step with clipping and optimizer: many small groups."""
    fused = Device.cpu().fused()
    fused.flush()
    x = Tensor.ones((4, 6), fused)
    for y in (x, x * 2.0):
        h = (y * 0.5).exp()
        ((h / h.sum_dim(1)).tanh() + (h @ h.transpose()).sum_dim(1)).into_data()
    programs = fused.explain().programs[-2:]
    step = BLOCKS["loss and optimizer"]
    plan = compile(step.step, fuse=True).explain(*step.make(Device.cpu().autodiff(), TINY)).fusion
    assert plan is not None
    return [
        [program.key for program in programs],
        [kernel.name for program in programs for kernel in program.plan.kernels],
        [kernel.name for kernel in plan.kernels],
        [f"{b.value} {b.producer} {b.consumer} {b.reason} {b.detail}" for b in plan.boundaries],
    ]


def test_in_processes_with_other_hashes() -> None:
    here = keys_and_kernels()
    code = (
        "import json\n"
        "from tests.fusion.test_same_everywhere import keys_and_kernels\n"
        "print(json.dumps(keys_and_kernels()))"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'kernels'}"},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "77")
    ]
    for other in others:
        out, _ = other.communicate(timeout=120)
        assert other.returncode == 0
        assert json.loads(out) == here
    assert len(here[0]) == 2
    assert all(here)
