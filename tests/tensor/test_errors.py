"""Tests what users read when they name what is not there: three parts, their own words, their own line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import nn
from burn_torch.core.ambient import seed
from burn_torch.core.errors import ArgumentError, BurnTorchError, DeviceError, DTypeError, ShapeError
from burn_torch.tensor import Device, IndexingUpdateOp, PadMode, Tensor

X = Tensor.from_data(np.zeros((3, 4), np.float32), Device.cpu())
N = Tensor.from_data(np.zeros((3, 4), np.int64), Device.cpu())
B = Tensor.from_data(np.zeros((3, 4), bool), Device.cpu())

Mistake = tuple[Callable[[], Any], type[BurnTorchError], str]

MISTAKES: list[Mistake] = [
    (
        lambda: Tensor.arange_step(5, 0, Device.cpu()),
        ArgumentError,
        r"arange_step: the step is 0.*range\(0, 5\).*above or",
    ),
    (
        lambda: Tensor.zeros((2**40, 2**30), Device.cpu()),
        ShapeError,
        r"the result is larger than any memory.*fewer than.*\(1099511627776, ",
    ),
    (
        lambda: Tensor.full((2,), 300, (Device.cpu(), "i8")),
        ArgumentError,
        r"full: a number does not fit.*300.*-128 to 127.*wider",
    ),
    (lambda: seed(1.5), DTypeError, r"seed: a seed is a whole number.*1.5 \(float\).*64 bits.*seed\(42\)"),  # type: ignore[arg-type]  # the fault
    (lambda: X.sum_dim(2), ShapeError, r"sum_dim: dim 2 is out of range.*\(3, 4\) f32.*dim 2.*-2 to 1.*count axes"),
    (lambda: X.mean_dim(-3), ShapeError, "mean_dim: dim -3 is out of range"),
    (lambda: X.max().squeeze().sum_dim(0), ShapeError, "at least one axis.*unsqueeze_dim"),
    (lambda: X.argmax(1.0), DTypeError, r"argmax: dim is not a whole number.*1.0 .float..*pass dim as an int"),
    (lambda: X.sum_dims([0, -2]), ShapeError, r"sum_dims: an axis is named twice.*\(0, -2\).*name each axis once"),
    (lambda: X.reshape(5, -1), ShapeError, r"reshape: 12 elements do not fill \(5, -1\).*product is 12"),
    (lambda: X.reshape(-1, -1), ShapeError, r"reshape: 12 elements do not fill"),
    (lambda: X.reshape(2.0, 6), DTypeError, r"reshape: a size is not a whole number.*2.0"),
    (lambda: X.reshape((2.5, 6)), DTypeError, r"reshape: an argument has the wrong type.*2.5.*whole numbers"),
    (lambda: X.reshape("12"), DTypeError, r"reshape: shape is not a whole number.*'12'"),
    (lambda: X.expand(2, 2, 4), ShapeError, r"expand: .*do not broadcast|expand: .*does not expand"),
    (lambda: X.expand(-1), ShapeError, "expand"),
    (lambda: X.permute(0, 0), ShapeError, r"permute: axes \(0, 0\)"),
    (lambda: X.permute(0, 5), ShapeError, r"permute: axes \(0, 5\)"),
    (lambda: X.flatten(1, 0), ShapeError, "flatten: start_dim comes after end_dim.*swap"),
    (lambda: X.squeeze_dim(0), ShapeError, "squeeze_dim: an axis that is to go has a size other than 1.*select_dim"),
    (lambda: X.unsqueeze(1), ShapeError, "unsqueeze: there are as many axes, or more.*rank of 3 or more"),
    (lambda: X[0].transpose(), ShapeError, "transpose: there are no two axes to swap"),
    (lambda: X.movedim([0, 1], [0]), ShapeError, "movedim: not as many places as axes"),
    (lambda: X.roll([1], [0, 1]), ShapeError, "roll: not as many shifts as axes"),
    (lambda: X.repeat([2]), ShapeError, "repeat: a number of repetitions is missing.*repeat_dim"),
    (lambda: X.pad([(1, 1)] * 3), ShapeError, r"pad: the padding fits no axes.*\(left, right, top, bottom\)"),
    (lambda: X.pad([1, 2, 3]), ShapeError, "pad: the padding fits no axes"),
    (lambda: X.pad([(1, 1)], "replicate"), ArgumentError, "pad: there is no such way to pad.*'edge'"),
    (lambda: PadMode.of(None), ArgumentError, "there is no such way to pad"),
    (lambda: N.pad([(1, 1)], 0.5), DTypeError, "pad: "),
    (lambda: Tensor.cat([], 0), DTypeError, r"cat: there are no tensors.*pass \[a, b\]"),
    (lambda: Tensor.cat([X, 1], 0), DTypeError, "cat: an item is no tensor.*Tensor, int"),  # type: ignore[list-item]
    (lambda: Tensor.cat([X, N], 0), DTypeError, "cat: the element types differ"),
    (lambda: Tensor.stack([X, X[:2]], 0), ShapeError, "cat: "),
    (lambda: X.narrow(0, 2, 2), ShapeError, "narrow: the range does not fit the axis.*start 2, length 2.*slice_dim"),
    (lambda: X.chunk(0), ShapeError, "chunk: there must be a part"),
    (lambda: X.split(0), ShapeError, "split: a part must have elements"),
    (lambda: X.split_with_sizes([1, 1]), ShapeError, "split_with_sizes: the parts do not make up the axis.*sum 3"),
    (lambda: X.dot(X), ShapeError, "dot: two vectors of one length are needed"),
    (lambda: X[0].matmul(X), ShapeError, "matmul: an input has fewer than two axes.*unsqueeze_dim"),
    (lambda: X.matmul(X), ShapeError, "matmul: the inner sizes differ.*k is 4 and 3"),
    (lambda: X.unsqueeze().cov(0, 1), ShapeError, "cov: a matrix of observations is needed"),
    (lambda: X.cast("float"), DTypeError, "cast: there is no such element type.*'float'.*torch.float32 is DType.F32"),
    (lambda: X.select(0, X[0]), DTypeError, r"select: .*int\(\)"),
    (lambda: X.mask_fill(X, 1.0), DTypeError, r"mask_where: .*bool\(\)"),
    (lambda: X.scatter(0, N, X, "sub"), ArgumentError, "scatter: there is no such IndexingUpdateOp.*'sub'.*'add'"),
    (lambda: X.scatter(0, N, X, None), ArgumentError, "IndexingUpdateOp.Assign"),  # type: ignore[arg-type]
    (lambda: X.bitwise_and(X), DTypeError, r"bitwise_and: .*int\(\)"),
    (lambda: X.bool_not(), DTypeError, r"bool_not: .*bool\(\)"),
    (lambda: ~X, DTypeError, "bitwise_not: x has an element type that the operation does not take"),
    (lambda: N.exp(), DTypeError, r"exp: .*float\(\)"),
    (lambda: B.sum(), DTypeError, "sum: "),
    (lambda: N.clamp(0.5, 2), DTypeError, "clamp: "),
    (lambda: N.mask_fill(B, 0.5), DTypeError, "mask_where: "),
]


@pytest.mark.parametrize(("mistake", "error", "match"), MISTAKES, ids=[str(i) for i in range(len(MISTAKES))])
def test_a_mistake_is_reported_in_three_parts(
    mistake: Callable[[], Any], error: type[BurnTorchError], match: str
) -> None:
    with pytest.raises(error, match=f"(?s){match}") as raised:
        mistake()
    text = str(raised.value)
    assert text.count("\n  given:    ") == text.count("\n  expected: ") == text.count("\n  mend:     ") == 1
    assert any("test_errors.py" in note for note in raised.value.__notes__)


def test_choices_are_accepted_as_enum_name_or_text() -> None:
    for choice in (IndexingUpdateOp.Add, "add", "Add"):
        assert IndexingUpdateOp.of(choice) is IndexingUpdateOp.Add
    assert PadMode.of("Reflect") is not None
    assert PadMode.of(PadMode.Edge) is PadMode.Edge
    assert PadMode.of(2) == PadMode.Constant(2)


@pytest.mark.parametrize("name", ["cpu", torch.device("cpu"), 0, None], ids=str)
def test_a_name_of_a_device_is_no_device(name: Any) -> None:
    # a layer was made without a word, and its first forward failed from inside
    makers = [Device, nn.LinearConfig(3, 2).init, nn.BatchNormConfig(3).init, nn.LstmConfig(3, 2, True).init]
    for make in makers:
        with pytest.raises(DeviceError, match=r"this is not a device(.|\n)*mend: +write Device\.cpu\(\)"):
            make(name)
