"""Gradients by the methods of Tensor."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from burn_torch.core.errors import AutodiffError, DeviceError
from burn_torch.tensor import Device, Tensor
from tests.tensor.leaves import same

DEVICE = Device.cpu().autodiff()


def leaf(*values: float) -> Tensor:
    return Tensor.from_data(np.array(values), DEVICE).require_grad()


def test_gradients_are_read_taken_out_and_replaced() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    gradients = (x * y).sum().backward()
    assert len(gradients) == 2
    same(x.grad(gradients), torch.tensor([3.0, 4.0], dtype=torch.float64))
    same(x.grad_remove(gradients), torch.tensor([3.0, 4.0], dtype=torch.float64))
    assert x.grad(gradients) is None
    assert x.grad_remove(gradients) is None
    other = Tensor.from_data(np.array([7.0, 8.0]), DEVICE.inner())
    y.grad_replace(gradients, other)
    same(y.grad(gradients), np.array([7.0, 8.0]))
    assert repr(gradients) == f"Gradients(1 tensors on {DEVICE.inner().backend.name})"


def test_a_gradient_that_does_not_fit_is_refused() -> None:
    x = leaf(1.0, 2.0)
    gradients = x.sum().backward()
    with pytest.raises(AutodiffError, match=r"(?s)grad_replace: the gradient does not fit the tensor.*inner device"):
        x.grad_replace(gradients, leaf(1.0, 2.0))
    with pytest.raises(AutodiffError, match=r"(?s)grad_replace: the gradient does not fit the tensor.*\(3,\)"):
        x.grad_replace(gradients, Tensor.from_data(np.ones(3), DEVICE.inner()))


def test_gradients_live_on_the_inner_device() -> None:
    x = leaf(1.0)
    gradient = x.grad((x * 2.0).backward())
    assert gradient is not None
    assert gradient.device is DEVICE.inner()


def test_asking_and_not_asking() -> None:
    x = Tensor.ones((2,), DEVICE)
    assert not x.is_require_grad()
    asked = x.require_grad()
    assert asked.is_require_grad()
    assert asked.require_grad() is asked
    assert not x.is_require_grad()
    assert not (asked * 2.0).is_require_grad()
    assert x.set_require_grad(True).is_require_grad()
    assert not asked.set_require_grad(False).is_require_grad()


def test_detach_and_no_grad_and_inner() -> None:
    x = leaf(1.0, 2.0)
    y = x * x.detach()
    same(x.grad(y.backward()), np.array([1.0, 2.0]))
    assert x.detach().device is DEVICE
    assert x.no_grad().device is x.inner().device is DEVICE.inner()
    plain = Tensor.ones((2,), Device.cpu())
    assert plain.no_grad() is plain
    assert plain.detach() is plain
    back = Tensor.from_inner(x.inner())
    assert back.device is DEVICE
    assert not back.is_require_grad()
    same(back, np.array([1.0, 2.0]))


def test_second_order_through_the_methods() -> None:
    outer = Device.cpu().autodiff().autodiff()
    values = np.array([0.5, -1.0, 2.0])
    inner_leaf = Tensor.from_data(values, Device.cpu().autodiff()).require_grad()
    x = Tensor.from_inner(inner_leaf).require_grad()
    assert x.device is outer
    first = x.grad((x.sin() * x.square()).sum().backward())
    assert first is not None
    second = inner_leaf.grad(first.sum().backward())
    reference = torch.from_numpy(values).requires_grad_()
    (grad,) = torch.autograd.grad((reference.sin() * reference**2).sum(), reference, create_graph=True)
    (expected,) = torch.autograd.grad(grad.sum(), reference)
    assert second is not None
    np.testing.assert_allclose(second.into_data().array, expected.numpy(), rtol=1e-13)


def test_the_tape_is_used_once_unless_kept() -> None:
    x = leaf(3.0)
    y = x * x
    same(x.grad(y.backward(retain_graph=True)), np.array([6.0]))
    same(x.grad(y.backward()), np.array([6.0]))
    with pytest.raises(AutodiffError, match=r"(?s)an earlier backward has used up.*retain_graph=True"):
        y.backward()


def test_errors() -> None:
    plain = Tensor.ones((2,), Device.cpu())
    with pytest.raises(AutodiffError, match=r"(?s)backward: this tensor lives on a device without gradients.*autodiff"):
        plain.backward()
    with pytest.raises(AutodiffError, match=r"(?s)require_grad: this tensor lives on a device without gradients"):
        plain.require_grad()
    with pytest.raises(AutodiffError, match=r"(?s)inner: this tensor lives on a device without gradients"):
        plain.inner()
    with pytest.raises(AutodiffError, match=r"(?s)backward: there is no tape to walk back.*require_grad\(\)"):
        Tensor.ones((2,), DEVICE).backward()
    with pytest.raises(AutodiffError, match=r"(?s)require_grad: only floats have gradients.*i64.*float\(\)"):
        Tensor.from_ints([1], DEVICE).require_grad()
    with pytest.raises(AutodiffError, match=r"(?s)grad: this tensor lives on a device without gradients"):
        plain.grad(leaf(1.0).sum().backward())


def test_gradient_replaced_on_a_tensor_that_is_no_leaf_does_not_reach_others() -> None:
    x = leaf(1.0, 2.0)
    y, z = x * 2.0, x * 3.0
    gradients = (y + z).sum().backward()
    message = r"(?s)grad_replace: gradients are kept for leaves only.*\(2,\) f64.*require_grad\(\).*detach"
    with pytest.raises(AutodiffError, match=message):
        y.grad_replace(gradients, Tensor.from_data(np.array([9.0, 9.0]), DEVICE.inner()))
    assert z.grad(gradients) is None


def test_mixed_stacks_are_reported_as_the_user_named_them() -> None:
    balanced = Tensor.from_data(np.ones(2), Device.cpu().autodiff("balanced"))
    inner, name = re.escape(DEVICE.inner().backend.name), re.escape(DEVICE.backend.name)
    with pytest.raises(DeviceError, match=rf"Autodiff\({inner}, 'balanced'\) and {name}\n"):
        balanced + leaf(1.0, 2.0)
    numpy = Tensor.from_data(np.ones(2), Device.ndarray())
    with pytest.raises(DeviceError, match=rf"{name} and NdArray\n"):
        leaf(1.0, 2.0) + numpy
