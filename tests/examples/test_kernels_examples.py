"""The examples of the fused kernels: patched and plain follow the same curve, and it goes down."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(params=["kernels_lm", "kernels_classifier"])
def example(request: pytest.FixtureRequest) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{request.param}.py"))


def test_patched_and_plain_follow_the_same_curve(example: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    train = example["train"]
    fused, plain = train(40, patched=True), train(40, patched=False)
    # the roundings of float32, forty steps of them
    torch.testing.assert_close(fused, plain, rtol=2e-3, atol=1e-4)
    assert sum(plain[-5:]) < 0.8 * sum(plain[:5])
    told = capsys.readouterr().out
    assert "replaced" in told
    assert ": 0 with faults" in told


@pytest.mark.gpu
def test_they_do_so_on_a_gpu(example: dict[str, Any]) -> None:
    train = example["train"]
    fused, plain = (train(40, patched=patched, device="cuda") for patched in (True, False))
    torch.testing.assert_close(fused, plain, rtol=1e-2, atol=1e-3)


def test_they_run_as_programs(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["example", "6"])
    example["main"]()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert len(lines) == 6
