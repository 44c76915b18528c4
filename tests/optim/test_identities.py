"""Tests which parameter a gradient and a state belong to: copies, tied parameters, other devices."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Module, Param, Tensor
from burn_torch.core.errors import ArgumentError
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import AdamConfig, GradientsAccumulator, GradientsParams, SgdConfig


class Pair(Module):
    student: Linear
    teacher: Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.student.forward(x)


def _step_of_pair(pair: Pair) -> tuple[Pair, GradientsParams]:
    x = Tensor.from_data(np.ones((2, 3), np.float32), Device.cpu().autodiff())
    gradients = GradientsParams.from_grads(pair.forward(x).sum().backward(), pair)
    return SgdConfig().init().step(0.1, pair, gradients)[0], gradients


@pytest.mark.parametrize("frozen", [lambda model: model.no_grad(), lambda model: model.valid()])
@pytest.mark.parametrize("teacher_first", [False, True])
def test_a_frozen_copy_beside_the_model_is_not_trained_in_its_place(frozen: Any, teacher_first: bool) -> None:
    model = LinearConfig(3, 3).init(Device.cpu().autodiff())
    fields = {"teacher": frozen(model), "student": model}
    pair = dataclasses.replace(Pair(model, model), **(fields if teacher_first else dict(reversed(fields.items()))))
    stepped, gradients = _step_of_pair(pair)
    assert stepped.student.weight is not pair.student.weight
    assert stepped.teacher is pair.teacher
    accumulator = GradientsAccumulator()
    accumulator.accumulate(pair, gradients)
    grad = accumulator.grads().get(model.weight.id)
    expected = gradients.get(model.weight.id)
    assert grad is not None
    assert expected is not None
    assert np.array_equal(_array(grad), _array(expected))  # once, not once for each of the two


def test_two_trainable_parameters_with_one_id_are_refused_not_lost(tmp_path: Path) -> None:
    path = LinearConfig(3, 3).init(Device.cpu()).save_file(tmp_path / "m")
    first, second = (LinearConfig(3, 3).init(Device.cpu().autodiff()).load_file(path) for _ in range(2))
    with pytest.raises(
        ArgumentError,
        match=r"two parameters of one module have one id\n  given:    student.weight and teacher.weight, both trainable"
        r".*\n  expected: an id for each.*\n  mend:     give one part new ids: part.map_params",
    ):
        _step_of_pair(Pair(first, second))
    renewed = second.map_params(lambda param: Param.from_tensor(param.val()))  # as the message says
    assert len(_step_of_pair(Pair(first, renewed))[1]) == 2


def test_state_follows_a_model_that_moves_to_another_device() -> None:
    def gradients(model: Linear) -> GradientsParams:
        inner = model.weight.device.inner()
        ones = {p.id: Tensor.from_data(np.ones(p.shape, np.float32), inner) for _, p in model.named_params()}
        return GradientsParams(ones)

    model = LinearConfig(3, 3).init(Device.cpu().autodiff())
    stayed = moved = AdamConfig().init().step(0.1, model, gradients(model))
    stayed = stayed[1].step(0.1, stayed[0], gradients(stayed[0]))
    there = moved[0].to_device(Device.ndarray().autodiff())
    moved = moved[1].step(0.1, there, gradients(there))
    assert moved[0].devices() == [Device.ndarray().autodiff()]
    assert np.allclose(_array(moved[0].weight.val()), _array(stayed[0].weight.val()), rtol=1e-6, atol=1e-7)


def test_tied_parameters_are_stepped_once_with_the_sum_of_their_gradients() -> None:
    model = LinearConfig(3, 3).init(Device.cpu().autodiff())
    stepped, gradients = _step_of_pair(Pair(model, model))
    assert len(gradients) == 2
    assert stepped.student is stepped.teacher


def _array(tensor: Tensor) -> Any:
    return tensor.into_data().array
