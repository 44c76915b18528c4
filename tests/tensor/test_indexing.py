"""x[...] and slices, against numpy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.core.errors import BoundsError, DTypeError, ShapeError
from burn_torch.tensor import Device, Tensor, s
from tests.tensor.leaves import LEAVES, same, tensors, torches

ADVANCED = [
    s[[0, 2]],
    s[[-1, 0], [1, -2]],
    s[:, [1, 1, 0]],
    s[[[0, 1], [2, 0]]],
    s[..., [0, -1]],
    s[[0, 1], ..., [2, 3]],
    s[1, [0, 1], :],
    s[:, None, [0, 1]],
    s[::-1, [0], [1, 2]],
    s[1:, 1, [[0], [1]]],
    s[[]],
    s[:, [True, False, True]],
    s[[True, False, True, False], 0],
]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("item", ADVANCED, ids=str)
def test_lists_and_tensors_of_indices_equal_torch(item: tuple[Any, ...], leaf: str) -> None:
    array = np.arange(4 * 3 * 5.0).reshape(4, 3, 5)
    if any(part == slice(None, None, -1) for part in item if isinstance(part, slice)):
        expected = torch.from_numpy(array).flip(0)[(slice(None), *item[1:])]
    else:
        expected = torch.from_numpy(array)[item]
    x = Tensor.from_data(array, LEAVES[leaf]())
    same(x[item], expected)
    as_tensors = tuple(Tensor.from_data(part, x.device) if isinstance(part, list) and part else part for part in item)
    same(x[as_tensors], expected)
    as_arrays = tuple(np.array(part) if isinstance(part, list) and part else part for part in item)
    same(x[as_arrays], expected)


@pytest.mark.parametrize("leaf", LEAVES)
def test_masks_equal_torch(leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(ours["x"][ours["x"] > 0], theirs["x"][theirs["x"] > 0])
    same(ours["q"][:, ours["b"]], theirs["q"][:, theirs["b"]])
    same(ours["x"][ours["b"][:, 0]], theirs["x"][theirs["b"][:, 0]])
    same(ours["q"][0, ours["b"]], theirs["q"][0, theirs["b"]])


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_tensor_of_one_index_drops_its_axis(leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    same(ours["x"][ours["r"][0]], theirs["x"][theirs["r"][0]])
    same(ours["x"][:, ours["k"].cast("i32")], theirs["x"][:, theirs["k"]])


@pytest.mark.parametrize("index", [torch.tensor([1]), torch.tensor([[0]]), torch.tensor(True), torch.tensor([True])])
def test_torch_tensors_of_one_element_are_no_integers(index: torch.Tensor) -> None:
    x = Tensor.from_data([[1.0, 2.0], [3.0, 4.0]], Device.cpu())
    for item in (s[index], s[:, index], s[index, 0]):
        with pytest.raises(DTypeError, match=r"given: .*\(Tensor\) for[\s\S]*mend: .*Tensor\.from_torch\(index\)"):
            x[item]
    assert x[torch.tensor(1)].shape == x[np.array(1)].shape == (2,)


def test_gradients_flow_through_every_kind_of_index() -> None:
    device = Device.cpu().autodiff()
    array = np.random.default_rng(3).normal(size=(4, 3, 5))
    weights = np.random.default_rng(4).normal(size=400)
    for item in (*ADVANCED, s[1:, ::-2, 0], s[None, ..., 2]):
        expected = torch.from_numpy(array).requires_grad_()
        turned = expected.flip(0) if item and item[0] == slice(None, None, -1) else expected
        plain = (slice(None), *item[1:]) if turned is not expected else item
        if item == s[1:, ::-2, 0]:
            turned, plain = expected.flip(1), s[1:, ::2, 0]
        y = turned[plain]
        (y * torch.from_numpy(weights[: y.numel()]).reshape(y.shape)).sum().backward()
        x = Tensor.from_data(array, device).require_grad()
        ours = x[item]
        w = Tensor.from_data(weights[: ours.num_elements()].reshape(ours.shape), device)
        gradient = x.grad((ours * w).sum().backward())
        assert gradient is not None
        same(gradient, expected.grad)


def test_iteration_and_length() -> None:
    x = Tensor.from_ints([[1, 2], [3, 4], [5, 6]], Device.cpu())
    assert len(x) == 3
    assert [row.tolist() for row in x] == [[1, 2], [3, 4], [5, 6]]
    assert 4 in x[:, 1]
    with pytest.raises(DTypeError, match=r"(?s)a tensor without axes has no length.*into_scalar"):
        len(x[0, 0])


def test_slices_keep_axes_and_brackets_drop_them() -> None:
    x = Tensor.zeros((4, 5), Device.cpu())
    assert x.slice(s[1]).shape == (1, 5)
    assert x[1].shape == (5,)
    assert x.slice(s[..., -1]).shape == (4, 1)
    assert s[1:3, ..., -1, ::2, None] == (slice(1, 3), Ellipsis, -1, slice(None, None, 2), None)
    assert repr(s) == "s"


def test_a_range_of_python_is_a_slice() -> None:
    x = Tensor.arange(6, Device.cpu())
    assert x.slice([range(1, 4)]).tolist() == [1, 2, 3]
    assert x.slice([range(-3, -1)]).tolist() == [3, 4]
    assert x.slice([range(5, -1, -2)]).tolist() == [5, 3, 1]
    assert x.slice([range(3, 3)]).tolist() == []


def test_equal_slices_share_a_call() -> None:
    from burn_torch import ops

    x = Tensor.zeros((7, 9, 11), Device.cpu())
    assert x[2:5].shape == (3, 9, 11)
    before = len(ops.slice.calls)
    assert x[-5:5].shape == (3, 9, 11)
    assert len(ops.slice.calls) == before


@pytest.mark.parametrize(
    ("item", "error", "match"),
    [
        (s[4], BoundsError, r"(?s)__getitem__: the index names no element.*index 4 on axis 0.*-4 to 3.*count from 0"),
        (s[:, -6], BoundsError, "index -6 on axis 1"),
        (s[0, 0, 0], ShapeError, "(?s)there are more indices than axes.*3 indices.*at most 2"),
        (s[..., ...], ShapeError, r"there is more than one '\.\.\.'"),
        (s["a"], DTypeError, "(?s)an index has the wrong type.*'a' .str..*expected: integers, slices"),
        (s[1.5], DTypeError, "(?s)an index has the wrong type.*1.5 .float."),
        (s[True], DTypeError, "an index has the wrong type"),
        (s["a":"b"], DTypeError, "an index has the wrong type"),
        (s[::0], DTypeError, "an index has the wrong type"),
        (s[[0.5]], DTypeError, "an index has the wrong type"),
        (s[[True, False]], ShapeError, r"(?s)the mask does not fit the axes.*a mask \(2,\) at axis 0.*\(4,\)"),
        (s[[0, 1], [0, 1, 2]], ShapeError, r"(?s)the tensors of indices do not broadcast.*\(2,\), \(3,\)"),
    ],
    ids=str,
)
def test_errors_of_indices(item: Any, error: type[Exception], match: str) -> None:
    x = Tensor.zeros((4, 5), Device.cpu())
    with pytest.raises(error, match=match) as raised:
        x[item]
    assert "mend" in str(raised.value)
    assert "test_indexing.py" in raised.value.__notes__[0]


def test_a_float_tensor_is_no_index() -> None:
    x = Tensor.zeros((4, 5), Device.cpu())
    with pytest.raises(
        DTypeError, match=r"(?s)an index has the wrong type.*f32.*cast a tensor of indices with .int\(\)"
    ):
        x[Tensor.ones((2,), Device.cpu())]


def test_assignment_in_place_is_refused_with_the_way_to_write_it() -> None:
    x = Tensor.zeros((4, 5), Device.cpu())
    with pytest.raises(DTypeError, match=r"(?s)tensors are immutable.*slice_assign"):
        x[0] = 1.0


@pytest.mark.parametrize("leaf", LEAVES)
def test_small_negative_indices_reach_the_end_of_a_long_axis(leaf: str) -> None:
    # -1 + 200 is no int8
    x = Tensor.from_data(np.arange(200.0), LEAVES[leaf]())
    indices = Tensor.from_data(np.array([-1, 5, -128], np.int8), x.device)
    assert x[indices].tolist() == [199.0, 5.0, 72.0]
