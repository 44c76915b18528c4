"""The examples of the fused kernels: patched and plain follow the same curve, and it goes down."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import burn_kernels.torch as bk

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
    printed = capsys.readouterr().out
    assert "replaced" in printed
    assert ": 0 with faults" in printed


def test_compiled_they_have_no_more_graphs_and_follow_the_curve_too(example: dict[str, Any]) -> None:
    torch._dynamo.reset()
    make = example.get("LanguageModel", example.get("Classifier"))
    assert make is not None
    (batch, *_) = example["batches"](1, "cpu")
    x = batch if isinstance(batch, torch.Tensor) else batch[0]
    plain, patched = make(), make()
    bk.patch(patched)
    counts = [torch._dynamo.explain(model)(x).graph_break_count for model in (plain, patched)]
    assert counts == [0, 0]
    torch._dynamo.reset()
    train = example["train"]
    fused = train(12, patched=True, backend="aot_eager")
    torch.testing.assert_close(fused, train(12, patched=False), rtol=2e-3, atol=1e-4)


@pytest.mark.gpu
def test_compiled_they_do_so_on_a_gpu(example: dict[str, Any]) -> None:
    torch._dynamo.reset()
    train = example["train"]
    fused = train(40, patched=True, device="cuda", backend="inductor")
    torch.testing.assert_close(fused, train(40, patched=False, device="cuda"), rtol=1e-2, atol=1e-3)


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
