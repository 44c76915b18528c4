"""Right values that checks of arguments once refused, or took for others."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from burn_kernels import torch as bk
from burn_torch import Device, DType, TensorData, nn
from burn_torch.core.checking import checked_late
from burn_torch.core.philox import fold
from burn_torch.train.evaluator import Evaluation


def test_an_evaluation_may_hold_nan() -> None:
    assert math.isnan(Evaluation("test", 3, 1, 0.1, (), {"Loss": [1.0, math.nan]}).columns["Loss"][1])


def test_data_of_nan_and_of_truths() -> None:
    assert np.isnan(TensorData.full((2,), math.nan).values).all()
    assert TensorData.full((2,), True, DType.BOOL).values.tolist() == [True, True]


def test_keys_of_numpys_integers_are_those_of_python() -> None:
    assert fold(np.int64(3), np.uint64(4)) == fold(3, 4)  # type: ignore[arg-type]


def test_rows_of_an_array_are_a_list_of_lists() -> None:
    rows = np.ones((2, 3), np.int64)
    assert nn.generate_padding_mask(0, rows, None, Device.cpu()).tensor.shape == (2, 3)  # type: ignore[arg-type]


def test_an_error_of_a_function_of_any_number_of_values_is_its_own() -> None:
    def fail(*xs: int) -> None:
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        checked_late(fail)(1, 2)


def test_norms_take_what_torch_takes() -> None:
    x = torch.ones(3, requires_grad=True)
    x.grad = torch.full((3,), 4.0)
    assert bk.clip_grad_norm_([x], torch.tensor(1.0), norm_type="inf").item() == 4.0
    assert x.grad.max().item() == pytest.approx(1.0, abs=1e-5)


def test_words_of_torch_and_of_users_layers_pass() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: object) -> None:
            raise torch.OutOfMemoryError("of the user")

    with pytest.raises(torch.OutOfMemoryError):
        bk.Sequential(Fails())((1, 2))
    with pytest.raises(TypeError, match="bogus"):
        bk.LayerNorm(4)(torch.ones(2, 4), bogus=1)
    assert bk.Linear(4, 4, bias=np.True_).bias is not None
