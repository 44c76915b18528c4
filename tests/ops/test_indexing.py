"""Tests what the table cannot state of rows that read and write at indices: equal indices, zeros, types, bounds,
messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.libtorch import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BoundsError, ConfigError, DTypeError, ShapeError
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from burn_torch.ops import Value
from burn_torch.ops.indexing import selected_by_mask
from burn_torch.ops.scattering import _device_add, _device_assign, _device_entries, _device_entries_add, _last_positions
from tests.ops.behaviour import Where, check_gradients, everywhere, gradients, on_host, one_message, read

UPDATES = ("assign", "add", "mul", "min", "max")


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


def indices(*shape: int) -> TensorSpec:
    return spec(*shape, dtype=DType.I64)


def one_by_one(x: Any, places: Any, values: Any, update: str) -> Any:
    """Returns what an update means: one value after the other."""
    y = np.array(x)
    for place, value in zip(places, values, strict=True):
        old = y[place]
        if update == "assign":
            y[place] = value
        elif update == "add":
            y[place] = old + value
        elif update == "mul":
            y[place] = old * value
        else:
            y[place] = (np.minimum if update == "min" else np.maximum)(old, value)
    return y


# -- equal indices -----------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("update", UPDATES)
def test_values_meet_one_after_the_other(where: Where, update: str, seed: np.random.Generator) -> None:
    x, at = seed.normal(size=(4, 5)), seed.integers(0, 4, (60, 3))
    values = seed.normal(size=(60, 3))
    places = [(at[i, j], j) for i in range(60) for j in range(3)]
    expected = one_by_one(x, places, [values[i, j] for i in range(60) for j in range(3)], update)
    actual = where.run(ops.scatter, x, at, values, dim=0, update=update)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@everywhere
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("update", UPDATES)
def test_entries_meet_one_after_the_other(where: Where, update: str, dim: int, seed: np.random.Generator) -> None:
    x, at = seed.normal(size=(4, 4)), seed.integers(0, 4, 50)
    values = seed.normal(size=(50, 4) if dim == 0 else (4, 50))
    places = [np.s_[i] if dim == 0 else np.s_[:, i] for i in at]
    expected = one_by_one(x, places, np.moveaxis(values, dim, 0), update)
    actual = where.run(ops.select_assign, x, at, values, dim=dim, update=update)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@everywhere
@pytest.mark.parametrize("update", UPDATES)
def test_slices_meet_one_after_the_other(where: Where, update: str, seed: np.random.Generator) -> None:
    x, at, values = seed.normal(size=(2, 3, 4)), seed.integers(0, 2, (5, 3, 2)), seed.normal(size=(5, 3, 4))
    places = [tuple(at[i, j]) for i in range(5) for j in range(3)]
    expected = one_by_one(x, places, [values[i, j] for i in range(5) for j in range(3)], update)
    actual = where.run(ops.scatter_nd, x, at, values, update=update)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_the_last_of_many_wins_on_many_threads() -> None:
    count, threads = 200_000, torch.get_num_threads()
    where = Where(LibTorch(), "cpu")
    torch.set_num_threads(2)
    try:
        at = np.zeros(count, np.int64)
        y = where.run(
            ops.select_assign, np.zeros((2, 3)), at, np.arange(3.0 * count).reshape(count, 3), dim=0, update="assign"
        )
    finally:
        torch.set_num_threads(threads)
    assert y.tolist() == [[3.0 * count - 3, 3.0 * count - 2, 3.0 * count - 1], [0, 0, 0]]


def test_what_devices_compute_equals_what_the_host_computes(seed: np.random.Generator) -> None:
    # the forms for devices run on any tensor
    x, at = torch.from_numpy(seed.normal(size=(4, 5, 3))), torch.from_numpy(seed.integers(0, 5, (3, 20, 2)))
    values = torch.from_numpy(seed.normal(size=(3, 20, 2)))
    torch.testing.assert_close(_device_add(1)(x, at, values), x.scatter_add(1, at, values))
    assert torch.equal(_device_assign(1)(x, at, values), x.scatter(1, at, values))
    line, entries = at[0, :, 0], torch.from_numpy(seed.normal(size=(4, 20, 3)))
    torch.testing.assert_close(_device_entries_add(1)(x, line, entries), x.index_add(1, line, entries))
    assert torch.equal(_device_entries(1)(x, line, entries), x.scatter(1, line[:, None].expand(4, 20, 3), entries))
    assert torch.equal(_device_entries(1)(x, line[:0], entries[:, :0]), x)
    empty = torch.zeros(3, 0, 2, dtype=torch.int64)
    assert torch.equal(_device_assign(1)(x, empty, values[:, :0]), x)
    assert _last_positions(torch.tensor([2, 0, 2]), 0, 4).tolist() == [1, -1, 2, -1]


@everywhere
def test_last_writer_names_who_stays(where: Where) -> None:
    at = np.array([[0, 1], [0, 0], [2, 1]])
    assert where.run(ops.last_writer, at, dim=0, size=3).tolist() == [[False, False], [True, True], [True, True]]


@everywhere
def test_overwritten_values_get_no_gradient(where: Where) -> None:
    x, at, values = np.zeros(3), np.array([0, 2, 0, 0]), np.ones(4)
    g = [np.array([10.0, 20.0, 30.0])]
    grads = gradients(where, ops.scatter, (x, at, values), g, dim=0, update="assign")
    assert grads[0].tolist() == [0, 20, 0]
    assert grads[2].tolist() == [0, 30, 0, 10]
    grads = gradients(where, ops.select_assign, (x, at, values), g, dim=0, update="assign")
    assert grads[2].tolist() == [0, 30, 0, 10]
    grads = gradients(where, ops.scatter_nd, (x, at[:, None], values), g, update="assign")
    assert grads[2].tolist() == [0, 30, 0, 10]


@everywhere
@pytest.mark.parametrize("update", ["assign", "add", "mul"])
@pytest.mark.parametrize("row", ["scatter", "select_assign", "scatter_nd"])
def test_gradients_at_equal_indices(where: Where, row: str, update: str, seed: np.random.Generator) -> None:
    x = seed.uniform(0.5, 2, (3, 2))
    if row == "scatter":
        at, values, attrs = np.array([[0, 2], [0, 2], [1, 2], [0, 0]]), seed.uniform(0.5, 2, (4, 2)), {"dim": 0}
    elif row == "select_assign":
        at, values, attrs = np.array([1, 0, 1, 1]), seed.uniform(0.5, 2, (3, 4)), {"dim": 1}
    else:
        at, values, attrs = np.array([[2, 1], [0, 0], [2, 1], [2, 1]]), seed.uniform(0.5, 2, 4), {}
    check_gradients(where, ops.REGISTRY[row], x, at, values, **attrs, update=update)


@everywhere
def test_gradient_of_products_is_exact_at_zeros(where: Where) -> None:
    # no zero, one in x, one in the values, two in the values, one in each
    x = np.array([2.0, 0.0, 3.0, 4.0, 0.0])
    at = np.array([0, 1, 2, 2, 3, 3, 3, 4, 4])
    values = np.array([3.0, 2.0, 0.0, 5.0, 0.0, 0.0, 2.0, 0.0, 7.0])
    check_gradients(where, ops.scatter, x, at, values, dim=0, update="mul")
    check_gradients(where, ops.select_assign, x, at, values, dim=0, update="mul")


@everywhere
def test_equal_extremes_share_the_gradient(where: Where) -> None:
    x, at, values = np.array([2.0, 5.0]), np.array([0, 0, 0, 1]), np.array([2.0, 1.0, 2.0, 5.0])
    grads = gradients(where, ops.scatter, (x, at, values), [np.array([6.0, 8.0])], dim=0, update="max")
    assert grads[0].tolist() == [2, 4]
    assert grads[2].tolist() == [2, 0, 2, 4]
    theirs = [torch.from_numpy(a).requires_grad_() for a in (x, values)]
    y = theirs[0].scatter_reduce(0, torch.from_numpy(at), theirs[1], "amax")
    expected = torch.autograd.grad(y, theirs, torch.tensor([6.0, 8.0], dtype=torch.float64))
    assert [grads[0].tolist(), grads[2].tolist()] == [e.tolist() for e in expected]


@everywhere
def test_nan_is_passed_on_by_every_update(where: Where) -> None:
    x, at, values = np.zeros(2), np.array([0, 0]), np.array([np.nan, 1.0])
    for update in ("add", "mul", "min", "max"):
        y = where.run(ops.scatter, x, at, values, dim=0, update=update)
        np.testing.assert_array_equal(np.isnan(y), [True, False], err_msg=update)


def test_gradient_of_select_is_the_same_in_every_run(seed: np.random.Generator) -> None:
    where = Where(LibTorch(), "cpu")
    x, at = seed.normal(size=(10, 8)).astype(np.float32), seed.integers(0, 10, 5000)
    g = [seed.normal(size=(5000, 8)).astype(np.float32)]
    first = gradients(where, ops.select, (x, at), g, dim=0)[0]
    for _ in range(5):
        np.testing.assert_array_equal(gradients(where, ops.select, (x, at), g, dim=0)[0], first)


@pytest.mark.gpu
@pytest.mark.parametrize("row", ["select", "gather"])
def test_gradients_are_the_same_in_every_run_on_cuda(row: str, seed: np.random.Generator) -> None:
    where = Where(LibTorch(), "cuda:0")
    x, at = (
        seed.normal(size=(10, 8)).astype(np.float32),
        seed.integers(0, 10, 50_000 if row == "select" else (50_000, 8)),
    )
    g = [seed.normal(size=(50_000, 8)).astype(np.float32)]
    first = gradients(where, ops.REGISTRY[row], (x, at), g, dim=0)[0]
    for _ in range(5):
        np.testing.assert_array_equal(gradients(where, ops.REGISTRY[row], (x, at), g, dim=0)[0], first)


# -- types -------------------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32])
def test_integers_wrap_around_and_keep_their_type(where: Where, dtype: DType) -> None:
    top = int(np.iinfo(dtype.numpy).max)
    low = int(np.iinfo(dtype.numpy).min)
    x, at = np.array([top, 1], dtype.numpy), np.array([0])
    y = where.run(ops.scatter, x, at, np.array([1], dtype.numpy), dim=0, update="add")
    assert (y.dtype, y.tolist()) == (dtype.numpy, [low, 1])
    y = where.run(ops.select_assign, x, at, np.array([2], dtype.numpy), dim=0, update="mul")
    assert (y.dtype, y.tolist()) == (dtype.numpy, [-2 if low else top - 1, 1])


@everywhere
@pytest.mark.parametrize("dtype", [DType.U16, DType.U32, DType.U64, DType.BOOL])
def test_types_of_storage_are_read_and_assigned(where: Where, dtype: DType) -> None:
    top = True if dtype.is_bool else int(np.iinfo(dtype.numpy).max)
    x = np.array([[top, 0], [0, top]], dtype.numpy)
    assert where.run(ops.select, x, np.array([1]), dim=0).tolist() == [[0, top]]
    assert where.run(ops.gather, x, np.array([[1, 0]]), dim=0).tolist() == [[0, 0]]
    assert where.run(ops.gather_nd, x, np.array([[1, 1]])).tolist() == [top]
    assert where.run(ops.mask_select, x, np.array([[True, False], [False, True]])).tolist() == [top, top]
    assert where.run(ops.nonzero, x).tolist() == [[0, 0], [1, 1]]
    one = np.array([[top, top]], dtype.numpy)
    assert where.run(ops.scatter, x, np.array([[1, 0]]), one, dim=0, update="assign").tolist() == [
        [top, top],
        [top, top],
    ]
    assert where.run(ops.select_assign, x, np.array([1]), one, dim=0, update="assign").tolist() == [
        [top, 0],
        [top, top],
    ]


@everywhere
@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.I16, DType.I8, DType.U8])
def test_indices_of_any_integer_type(where: Where, dtype: DType) -> None:
    x, at = np.arange(6.0).reshape(3, 2), np.array([2, 0], dtype.numpy)
    assert where.run(ops.select, x, at, dim=0).tolist() == [[4, 5], [0, 1]]
    assert where.run(ops.gather, x, at[None], dim=0).tolist() == [[4, 1]]
    assert where.run(ops.gather_nd, x, at[:, None]).tolist() == [[4, 5], [0, 1]]
    assert where.run(ops.select_assign, x, at[:1], np.ones((1, 2)), dim=0, update="add").tolist()[2] == [5, 6]
    assert where.run(ops.scatter, x, at[:1, None], np.ones((1, 1)), dim=0, update="add").tolist()[2] == [5, 5]
    assert where.run(ops.scatter_nd, x, at[:1, None], np.ones((1, 2)), update="min").tolist()[2] == [1, 1]
    assert where.run(ops.one_hot, at, 1, 0, num_classes=3, axis=0, dtype=DType.I32).tolist() == [[0, 1], [0, 0], [1, 0]]


# -- shapes ---------------------------------------------------------------------------------------------------
@everywhere
def test_gather_takes_fewer_places_on_other_axes(where: Where) -> None:
    x, at = np.arange(12.0).reshape(3, 4), np.array([[3, 0], [1, 1]])
    assert where.run(ops.gather, x, at, dim=1).tolist() == [[3, 0], [5, 5]]
    y = where.run(ops.scatter, x, at, -np.ones((2, 2)), dim=1, update="assign")
    assert y.tolist() == [[-1, 1, 2, -1], [4, -1, 6, 7], [8, 9, 10, 11]]


@everywhere
def test_nothing_is_read_or_written_at_no_indices(where: Where) -> None:
    x, none = np.arange(6.0).reshape(3, 2), np.zeros(0, np.int64)
    assert where.run(ops.select, x, none, dim=0).shape == (0, 2)
    assert where.run(ops.select, np.zeros((0, 2)), none, dim=0).shape == (0, 2)
    for update in UPDATES:
        y = where.run(ops.select_assign, x, none, np.zeros((0, 2)), dim=0, update=update)
        np.testing.assert_array_equal(y, x)
        y = where.run(ops.scatter_nd, x, np.zeros((0, 1), np.int64), np.zeros((0, 2)), update=update)
        np.testing.assert_array_equal(y, x)
        grads = gradients(where, ops.scatter, (x[:, 0], none, np.zeros(0)), [np.ones(3)], dim=0, update=update)
        assert grads[0].tolist() == [1, 1, 1]
        assert grads[2].shape == (0,)


@everywhere
def test_expanded_inputs_are_not_written_to(where: Where) -> None:
    x = ops.expand(where.value(np.zeros((1, 3))), shape=(2, 3))  # its rows share their memory
    y = ops.select_assign(x, where.value(np.array([1])), where.value(np.ones((1, 3))), dim=0, update="assign")
    assert read(y).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert read(x).tolist() == [[0, 0, 0], [0, 0, 0]]


# -- masks and one-hot -----------------------------------------------------------------------------------------
@everywhere
def test_mask_select_has_the_shape_that_the_data_gives(where: Where) -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert where.run(ops.mask_select, x, x % 2 == 0).tolist() == [0, 2, 4]
    assert where.run(ops.mask_select, x, x < 0).shape == (0,)
    assert ops.mask_select.bind([spec(2), spec(2, dtype=DType.BOOL)], {}).result is None
    assert ops.mask_select.barrier
    assert ops.nonzero.barrier


@everywhere
def test_elements_selected_by_mask_have_gradients(where: Where) -> None:
    stack = Autodiff(where.leaf)
    x = where.value(np.arange(6.0).reshape(2, 3))
    mask = where.value(np.array([[True, False, True], [False, True, False]]))
    leaf = stack.track(x.primitive, x.spec)
    y = selected_by_mask(Value(stack, leaf, x.spec), Value(stack, mask.primitive, mask.spec))
    assert read(y).tolist() == [0, 2, 4]
    slots = stack.backward([(y.primitive, where.value(np.array([1.0, 2.0, 3.0])).primitive)])
    assert where.leaf.into_data(slots[leaf.node.id]).values.tolist() == [[1, 0, 2], [0, 3, 0]]
    with pytest.raises(ShapeError, match=one_message("mask_select: the mask", "given", r"mask \(2, 3\)", "expand")):
        selected_by_mask(Value(stack, leaf, x.spec), ops.reshape(mask, shape=(6,)))


@everywhere
def test_nonzero_counts_nan_as_true(where: Where) -> None:
    assert where.run(ops.nonzero, np.array([[0.0, np.nan], [-0.0, 1.0]])).tolist() == [[0, 1], [1, 1]]
    assert where.run(ops.nonzero, where.value(np.array(True))).shape == (1, 0)
    assert where.run(ops.nonzero, where.value(np.array(0))).shape == (0, 0)


@everywhere
def test_one_hot_counts_negative_indices_from_the_end(where: Where) -> None:
    y = where.run(ops.one_hot, np.array([[0, -1]]), 5.0, -1.0, num_classes=3, axis=1, dtype=DType.F32)
    assert y.tolist() == [[[5, -1], [-1, -1], [-1, 5]]]
    assert y.dtype == np.float32


# -- diagonals -----------------------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("offset", [-5, -2, -1, 0, 1, 3, 4])
@pytest.mark.parametrize("dims", [(0, 1), (2, 0), (1, 2)])
def test_diagonals_are_those_of_torch(
    where: Where, offset: int, dims: tuple[int, int], seed: np.random.Generator
) -> None:
    x = torch.tensor(seed.normal(size=(4, 3, 5)), requires_grad=True)
    read_there = x.diagonal(offset, *dims)
    values = torch.tensor(seed.normal(size=read_there.shape), requires_grad=True)
    written_there = x.diagonal_scatter(values, offset, *dims)
    fed, attrs = [x.detach().numpy(), values.detach().numpy()], {"offset": offset, "dims": dims}
    for row, expected, leaves in ((ops.diagonal, read_there, [x]), (ops.diagonal_assign, written_there, [x, values])):
        inputs, g = fed[: len(leaves)], torch.tensor(seed.normal(size=expected.shape))
        np.testing.assert_array_equal(where.run(row, *inputs, **attrs), expected.detach())
        slopes = gradients(where, row, inputs, [g.numpy()], **attrs)
        for i, slope in enumerate(torch.autograd.grad(expected, leaves, g)):
            np.testing.assert_array_equal(slopes[i], slope)
    if expected.numel() and not offset:
        check_gradients(where, ops.diagonal_assign, *fed, **attrs)


@on_host
@pytest.mark.parametrize("offset", [1 << 40, 1 << 63, -(1 << 63), -(1 << 70)])
def test_diagonals_far_beyond_the_matrix_are_empty(where: Where, offset: int) -> None:
    """numpy's offsets have 32 bits, torch's 64: the one blamed an element type, the other raised its own error."""
    x = np.ones((2, 3))
    assert where.run(ops.diagonal, x, offset=offset, dims=(0, 1)).shape == (0,)
    written = where.run(ops.diagonal_assign, x, np.ones(0), offset=offset, dims=(0, 1))
    np.testing.assert_array_equal(written, x)


# -- indices out of range -----------------------------------------------------------------------------------------
@on_host
@pytest.mark.parametrize("wrong", [-1, 3])
@pytest.mark.parametrize(
    "name",
    ["select", "gather", "select_assign", "scatter", "scatter_distinct", "gather_nd", "scatter_nd", "last_writer"],
)
def test_an_index_out_of_range_is_reported_in_three_parts(where: Where, name: str, wrong: int) -> None:
    x, at, values = np.zeros(3), np.array([0, wrong]), np.zeros(2)
    cases: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
        "select": ((x, at), {"dim": 0}, "select"),
        "gather": ((x, at), {"dim": 0}, "gather"),
        "select_assign": ((x, at, values), {"dim": 0, "update": "add"}, "select_assign"),
        "scatter": ((x, at, values), {"dim": 0, "update": "assign"}, "scatter"),
        "scatter_distinct": ((at, values), {"dim": 0, "size": 3}, "scatter_distinct"),
        "gather_nd": ((x, at[:, None]), {}, "gather_nd or scatter_nd"),
        "scatter_nd": ((x, at[:, None], values), {"update": "add"}, "gather_nd or scatter_nd"),
        "last_writer": ((at,), {"dim": 0, "size": 3}, "last_writer"),
    }
    inputs, attrs, says = cases[name]
    complaint = f"indices from {min(0, wrong)} to {max(0, wrong)} into an axis of size 3"
    mend = "do not count from the end" if wrong < 0 else "check how"
    with pytest.raises(BoundsError, match=one_message(f"{says}: an index is out of range", complaint, "0 to 2", mend)):
        where.run(ops.REGISTRY[name], *inputs, **attrs)


@on_host
@pytest.mark.parametrize("wrong", [-4, 3])
def test_a_class_out_of_range_is_reported_in_three_parts(where: Where, wrong: int) -> None:
    parts = ("one_hot: an index is out of range", f"{wrong}", "-3 to 2", "check how")
    with pytest.raises(BoundsError, match=one_message(*parts)):
        where.run(ops.one_hot, np.array([wrong]), 1.0, 0.0, num_classes=3, axis=1, dtype=DType.F32)


@on_host
def test_each_axis_of_an_entry_is_checked_by_itself(where: Where) -> None:
    # 1 * 3 + 3 would be a place of the tensor, only not this one
    with pytest.raises(BoundsError, match=one_message("indices from 3 to 3 into an axis of size 3", "0 to 2")):
        where.run(ops.gather_nd, np.zeros((3, 3)), np.array([[1, 3]]))
    with pytest.raises(BoundsError, match=one_message("into an axis of size 0", "the axis is empty")):
        where.run(ops.select, np.zeros((0, 3)), np.array([0]), dim=0)


def test_other_failures_of_torch_keep_their_words() -> None:
    where = Where(LibTorch(), "cpu")
    call = ops.select.bind([spec(3), indices(2)], {"dim": 0})
    with pytest.raises((RuntimeError, IndexError)) as caught:
        where.leaf.execute(call, (torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64)))
    assert not isinstance(caught.value, BoundsError)


# -- messages -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "specs", "attrs", "parts"),
    [
        (
            "select",
            [spec(3), indices(2, 2)],
            {"dim": 0},
            ("select: the indices have 2 axes", "given", r"indices \(n,\)", "flatten"),
        ),
        ("select", [spec(3), indices(2)], {"dim": 1}, ("dim 1", "given", "0 to 0", "count axes")),
        ("select", [spec(), indices(2)], {"dim": 0}, ("dim 0", "given", "at least one axis", "mend")),
        ("gather", [spec(3, 4), indices(2)], {"dim": 0}, ("do not fit", "given", r"2 axes: \(n, <= 4\)", "expand")),
        ("gather", [spec(3, 4), indices(2, 5)], {"dim": 0}, ("do not fit", "given", r"\(n, <= 4\)", "expand")),
        (
            "scatter",
            [spec(3), indices(2), spec(3)],
            {"dim": 0, "update": "add"},
            ("values do not fit", "given", r"values \(2,\)", "expand"),
        ),
        (
            "select_assign",
            [spec(3, 4), indices(2), spec(2, 3)],
            {"dim": 0, "update": "add"},
            ("values do not fit", "given", r"values \(2, 4\)", "expand"),
        ),
        (
            "select_assign",
            [spec(3), indices(2, 1), spec(2)],
            {"dim": 0, "update": "add"},
            ("2 axes", "given", "indices", "flatten"),
        ),
        ("gather_nd", [spec(3), indices(2, 2)], {}, ("leading axes", "given", "k from 1 to 1", "stack")),
        (
            "scatter_nd",
            [spec(3, 4), indices(2, 1), spec(2)],
            {"update": "add"},
            ("values do not fit", "given", r"\(2, 4\)", "expand"),
        ),
        ("linear_index", [indices(2, 3)], {"sizes": (2, 2)}, ("last axis", "given", r"\(\*batch, 2\)", "stack")),
        (
            "mask_select",
            [spec(3), spec(2, dtype=DType.BOOL)],
            {},
            ("mask does not fit", "given", r"mask \(3,\)", "expand"),
        ),
        (
            "scatter_distinct",
            [indices(3), spec(2)],
            {"dim": 0, "size": 4},
            ("do not fit", "given", r"indices \(2,\)", "give one"),
        ),
        ("diagonal", [spec(3)], {"offset": 0, "dims": (0, 1)}, ("dim 1", "given", "0 to 0", "count axes")),
        (
            "diagonal",
            [spec(3, 4)],
            {"offset": 0, "dims": (1, 1)},
            (r"\(1, 1\) are no two axes", "given", "columns", "two axes"),
        ),
        (
            "diagonal_assign",
            [spec(3, 4), spec(4)],
            {"offset": 0, "dims": (0, 1)},
            ("values do not fill", "given", r"values \(3,\)", "expand"),
        ),
        (
            "one_hot",
            [indices(3), 1, 0],
            {"num_classes": 0, "axis": 0, "dtype": DType.I32},
            ("0 classes", "given", "1 or more", "mend"),
        ),
        (
            "one_hot",
            [indices(3), 1, 0],
            {"num_classes": 2, "axis": 2, "dtype": DType.I32},
            ("at axis 2", "given", "0 to 1", "mend"),
        ),
    ],
)
def test_misfits_are_reported_in_three_parts(
    row: str, specs: list[Any], attrs: dict[str, Any], parts: tuple[str, ...]
) -> None:
    fed = [NUMBER_SPECS[type(x)] if isinstance(x, int) else x for x in specs]
    with pytest.raises(ShapeError, match=one_message(*parts)):
        ops.REGISTRY[row].bind(fed, attrs)


def test_wrong_types_are_reported_in_three_parts() -> None:
    truth = spec(3, dtype=DType.BOOL)
    on, off = NUMBER_SPECS[float], NUMBER_SPECS[int]
    with pytest.raises(DTypeError, match=one_message("select: indices has an element type", "f32", "integer", "cast")):
        ops.select.bind([spec(3), spec(2)], {"dim": 0})
    with pytest.raises(
        DTypeError, match=one_message("scatter: the element types differ", "f64", "one element", "cast")
    ):
        ops.scatter.bind([spec(3), indices(2), spec(2, dtype=DType.F64)], {"dim": 0, "update": "add"})
    with pytest.raises(
        DTypeError, match=one_message("scatter: x has an element type", "bool", "float or integer", "cast")
    ):
        ops.scatter.bind([truth, indices(3), truth], {"dim": 0, "update": "add"})
    with pytest.raises(DTypeError, match=one_message("mask_select: mask has", "i64", "bool", "cast")):
        ops.mask_select.bind([spec(3), indices(3)], {})
    with pytest.raises(
        DTypeError, match=one_message("one_hot: a float number beside i32", "given", "can hold", "mend")
    ):
        ops.one_hot.bind([indices(3), on, off], {"num_classes": 2, "axis": 0, "dtype": DType.I32})


def test_unknown_update_is_reported_in_three_parts() -> None:
    with pytest.raises(ConfigError, match=one_message("scatter: unknown update 'sub'", "given", '"mul"', "name one")):
        ops.scatter.bind([spec(3), indices(2), spec(2)], {"dim": 0, "update": "sub"})
