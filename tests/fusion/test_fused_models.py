"""Whole models on a fused device, eager and compiled: every bit as unfused where no generated kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import burn_torch
from burn_torch import Device, compile
from tests.transform import test_compile_models as models

STEPS = 6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(step: Any, name: str, tape: Device, monkeypatch: pytest.MonkeyPatch) -> models.Run:
    monkeypatch.setattr(models, "TAPE", tape)
    return models.trained(step, name, "adamw, amsgrad, clipped by norm", "cosine", STEPS)


PLAIN, FUSED = Device.cpu().autodiff(), Device.cpu().fused().autodiff()


@pytest.mark.parametrize("name", models.MODELS)
def test_training_has_the_bits_of_unfused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trained(models.training_step, name, PLAIN, monkeypatch)
    assert trained(models.training_step, name, FUSED, monkeypatch) == wanted
    balanced = Device.cpu().fused().autodiff(checkpoint="balanced")
    assert trained(models.training_step, name, balanced, monkeypatch) == wanted


@pytest.mark.parametrize("name", models.MODELS)
def test_a_compiled_step_has_the_bits_of_unfused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = trained(models.training_step, name, PLAIN, monkeypatch)
    step = compile(models.training_step, donate=("model", "optim"))
    assert trained(step, name, FUSED, monkeypatch) == wanted
    assert step.traces == 1


def test_a_compiled_step_gives_values_of_the_fused_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TAPE", FUSED)
    burn_torch.seed(1)
    model, x, y = models.mlp()
    model, _, loss = compile(models.training_step)(model, models.OPTIMIZERS["adam"].init(), x, y, 0.01)
    assert loss.device == FUSED
    assert {param.val().device for _, param in model.named_params()} == {FUSED}
