"""Operators on tensors and numbers, on either side, against torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.core.errors import DeviceError, DTypeError, ShapeError
from burn_torch.tensor import Device, Tensor
from tests.tensor.leaves import LEAVES, same, tensors, torches

FLOATS: list[Callable[..., Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
BITS: list[Callable[..., Any]] = [operator.and_, operator.or_, operator.xor]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("f", FLOATS, ids=lambda f: f.__name__)
def test_floats_with_tensors_and_numbers_on_both_sides(f: Callable[..., Any], leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(f(ours["x"], ours["p"]), f(theirs["x"], theirs["p"]))
    for number in (2, 0.75, np.float64(0.75), np.int64(2)):
        plain = number.item() if isinstance(number, np.generic) else number
        same(f(ours["p"], number), f(theirs["p"], plain))
        same(f(number, ours["p"]), f(plain, theirs["p"]))


@pytest.mark.parametrize("leaf", LEAVES)
def test_powers_on_both_sides(leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(ours["p"] ** ours["y"], theirs["p"] ** theirs["y"])
    same(ours["p"] ** 1.5, theirs["p"] ** 1.5)
    same(ours["x"] ** 3, theirs["x"] ** 3)
    same(2.0 ** ours["x"], 2.0 ** theirs["x"])
    same(ours["i"] ** 2, theirs["i"] ** 2)


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("f", BITS, ids=lambda f: f.__name__)
def test_bits_of_integers_and_of_truth(f: Callable[..., Any], leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(f(ours["i"], ours["j"]), f(theirs["i"], theirs["j"]))
    same(f(ours["i"], 5), f(theirs["i"], 5))
    same(f(5, ours["i"]), f(theirs["i"], 5))
    same(f(ours["b"], ours["c"]), f(theirs["b"], theirs["c"]))
    same(f(ours["b"], True), f(theirs["b"], torch.tensor(True)))
    same(f(np.bool_(False), ours["b"]), f(torch.tensor(False), theirs["b"]))


@pytest.mark.parametrize("leaf", LEAVES)
def test_the_others(leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(-ours["x"], -theirs["x"])
    same(+ours["x"], theirs["x"])
    same(abs(ours["i"]), abs(theirs["i"]))
    same(~ours["b"], ~theirs["b"])
    same(~ours["i"], ~theirs["i"])
    same(ours["i"] << 2, theirs["i"] << 2)
    same(ours["i"] >> ours["j"], theirs["i"] >> theirs["j"])
    same(ours["q"] @ ours["x"].t(), theirs["q"] @ theirs["x"].t())
    same(1.0 / ours["p"], 1.0 / theirs["p"])


def test_equality_is_element_wise_and_hash_is_identity() -> None:
    x = Tensor.from_floats([1.0, 2.0], Device.cpu())
    y = Tensor.from_floats([1.0, 2.0], Device.cpu())
    assert (x == y).tolist() == [True, True]
    assert (x != y).tolist() == [False, False]
    assert hash(x) != hash(y)
    assert len({x, y, x}) == 2
    assert (x == None) is False  # noqa: E711, what is compared
    assert (x != "text") is True


@pytest.mark.parametrize("other", ["text", None, [1.0, 2.0], (1.0,), object(), 1j])
@pytest.mark.parametrize("sign", ["add", "sub", "truediv", "mod", "pow", "lt", "ge", "matmul"])
def test_what_is_no_operand_is_refused_in_three_parts(sign: str, other: Any) -> None:
    x, f = Tensor.ones((2,), Device.cpu()), getattr(operator, sign)
    calls = (lambda: f(x, other), lambda: f(other, x))
    for call in calls[: 1 if (sign, other) == ("mod", "text") else 2]:  # text % x puts x into the text
        with pytest.raises(TypeError, match=r"given: [\s\S]*expected: [\s\S]*mend: .*Tensor\.from_data"):
            call()


def test_a_matrix_product_with_a_number_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"matmul takes tensors of one kind[\s\S]*given: .* and 2.0"):
        Tensor.ones((2,), Device.cpu()) @ 2.0


@pytest.mark.parametrize("call", [lambda x: x // 2, lambda x: 2 // x, lambda x: divmod(x, 2), lambda x: divmod(2, x)])
def test_floor_division_says_what_to_write(call: Any) -> None:
    with pytest.raises(DTypeError, match=r"given: [\s\S]*expected: [\s\S]*mend: .*floor\(\) of floats; .* of integers"):
        call(Tensor.ones((2,), Device.cpu()))


def test_round_and_trunc_are_those_of_python() -> None:
    x = Tensor.from_floats([0.5, -1.5, 2.5], Device.cpu())
    assert round(x).tolist() == [0.0, -2.0, 2.0]
    assert math.trunc(x.sum() * 3.0) == 4
    with pytest.raises(DTypeError, match=r"mend: +\(x \* 10"):
        round(x, 2)


def test_shifts_of_a_number_by_a_tensor() -> None:
    x = Tensor.from_ints([0, 1, 3], Device.cpu())
    assert (1 << x).tolist() == [1, 2, 8]
    assert (64 >> x).tolist() == [64, 32, 8]


def test_an_operator_object_of_another_class_has_its_say() -> None:
    class Other:
        def __radd__(self, x: Any) -> str:
            return "mine"

    assert Tensor.ones((2,), Device.cpu()) + Other() == "mine"


def test_errors_of_operands() -> None:
    x, i = Tensor.ones((2, 3), Device.cpu()), Tensor.from_ints([[1, 2, 3]], Device.cpu())
    with pytest.raises(ShapeError, match=r"(?s)add: the shapes do not broadcast.*given.*expected.*mend"):
        x + Tensor.ones((4,), Device.cpu())
    with pytest.raises(DTypeError, match=r"(?s)add: the element types differ.*cast one side"):
        x + i
    with pytest.raises(DTypeError, match=r"(?s)a float number beside i64 values"):
        i + 0.5
    with pytest.raises(DeviceError, match=r"(?s)different backend stacks.*to_device"):
        x + Tensor.ones((2, 3), Device.ndarray())
    with pytest.raises(DTypeError, match=r"(?s)mul: an input is neither a tensor nor a number.*str"):
        x.mul("text")  # type: ignore[arg-type]  # the mistake


def test_an_inner_value_mixes_as_a_constant() -> None:
    device = Device.cpu().autodiff()
    x = Tensor.from_floats([1.0, 2.0], device).require_grad()
    c = Tensor.from_floats([3.0, 4.0], Device.cpu())
    for y in (x * c, c * x):
        assert x.grad(y.backward()).tolist() == [3.0, 4.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("other", [np.ones(2), torch.ones(2)], ids=["numpy", "torch"])
def test_array_beside_a_tensor_is_named_by_its_library(other: Any) -> None:
    # Python alone says "unsupported operand type(s) for +: 'Tensor' and 'Tensor'"
    x = Tensor.from_data([1.0, 2.0], Device.cpu())
    message = r"(?s)takes tensors of one kind.*\(2,\) f32 cpu and a (numpy.ndarray|torch.Tensor).*Python numbers.*from_"
    for operate in (operator.add, operator.sub, operator.truediv, operator.lt, operator.matmul):
        with pytest.raises(DTypeError, match=message):
            operate(x, other)
    for reflected in (lambda: other - x, lambda: other + x, lambda: x == other):  # `==` must not be a silent False
        with pytest.raises(DTypeError, match=message):
            reflected()
