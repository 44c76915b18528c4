"""Tests what the table cannot state of rows that move elements: values against torch, element types, messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.backend.libtorch import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError, DTypeError, ShapeError
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from tests.ops.behaviour import Where, check_gradients, everywhere, gradients, one_message, read

X = np.arange(24.0).reshape(2, 3, 4)


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


# -- values, against torch -----------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize(
    ("row", "attrs", "theirs"),
    [
        ("flip", {"axes": (2, 0)}, lambda x: x.flip((2, 0))),
        ("roll", {"shifts": (5, -1), "dims": (1, 2)}, lambda x: x.roll((5, -1), (1, 2))),
        ("roll", {"shifts": (1, 1), "dims": (1, 1)}, lambda x: x.roll(2, 1)),
        ("repeat", {"times": (2, 1, 3)}, lambda x: x.repeat(2, 1, 3)),
        ("triu", {"diagonal": -1}, lambda x: x.triu(-1)),
        ("tril", {"diagonal": 2}, lambda x: x.tril(2)),
        ("unfold", {"dim": 1, "size": 2, "step": 1}, lambda x: x.unfold(1, 2, 1)),
        ("slice", {"ranges": ((1, 2, 1), (0, 3, 2), (1, 4, 2))}, lambda x: x[1:2, 0:3:2, 1:4:2]),
        (
            "pad",
            {"padding": ((0, 0), (1, 2), (3, 0)), "mode": "reflect"},
            lambda x: torch.nn.functional.pad(x, (3, 0, 1, 2), "reflect"),
        ),
        (
            "pad",
            {"padding": ((0, 0), (1, 4), (5, 0)), "mode": "edge"},
            lambda x: torch.nn.functional.pad(x, (5, 0, 1, 4), "replicate"),
        ),
        (
            "pad",
            {"padding": ((1, 0), (0, 2), (0, 1)), "mode": "constant"},
            lambda x: torch.nn.functional.pad(x, (0, 1, 0, 2, 1, 0), value=0.0),
        ),
    ],
)
def test_row_moves_elements_as_torch_does(where: Where, row: str, attrs: dict[str, Any], theirs: Any) -> None:
    inputs = (X, 0.0) if row == "pad" else (X,)
    ours = where.run(ops.REGISTRY[row], *inputs, **attrs)
    np.testing.assert_array_equal(ours, theirs(torch.from_numpy(X)).numpy())


@everywhere
def test_reflection_of_an_outer_axis_and_of_integers(where: Where) -> None:
    # torch's reflect pads trailing axes of floats only
    ours = where.run(ops.pad, np.arange(6).reshape(3, 2), 0, padding=((2, 1), (0, 0)), mode="reflect")
    np.testing.assert_array_equal(ours[:, 0], [4, 2, 0, 2, 4, 2])


@everywhere
@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.U16, DType.U32, DType.U64, DType.I32, DType.BOOL])
def test_every_element_type_moves_unchanged(where: Where, dtype: DType) -> None:
    top = True if dtype.is_bool else int(np.iinfo(dtype.numpy).max)  # the bits that a signed type would misread
    data = np.array([[top, 0, 1], [0, top, 0]], dtype.numpy)
    for row, attrs, expected in (
        (ops.flip, {"axes": (1,)}, data[:, ::-1]),
        (ops.roll, {"shifts": (1,), "dims": (1,)}, np.roll(data, 1, 1)),
        (ops.repeat, {"times": (2, 1)}, np.tile(data, (2, 1))),
        (ops.triu, {"diagonal": 1}, np.triu(data, 1)),
        (ops.tril, {"diagonal": 0}, np.tril(data)),
        (ops.slice, {"ranges": ((0, 2, 1), (0, 3, 2))}, data[:, ::2]),
        (ops.unfold, {"dim": 1, "size": 2, "step": 1}, np.stack([data[:, :2], data[:, 1:]], 1)),
    ):
        actual = where.run(row, data, **attrs)
        assert actual.dtype == dtype.numpy
        np.testing.assert_array_equal(actual, expected, err_msg=row.name)
    ranges = ((0, 1, 1), (0, 2, 1))
    np.testing.assert_array_equal(
        where.run(ops.slice_assign, data, data[1:, 1:], ranges=ranges), [[top, 0, 1], [0, top, 0]]
    )
    value = False if dtype.is_bool else top
    padded = where.run(ops.pad, data, value, padding=((0, 0), (1, 0)), mode="constant")
    np.testing.assert_array_equal(padded, np.pad(data, ((0, 0), (1, 0)), constant_values=value))
    np.testing.assert_array_equal(where.run(ops.cat, data, data, dim=1), np.concatenate([data, data], 1))


@everywhere
def test_triangles_are_zero_over_nan_outside(where: Where) -> None:
    nan = np.full((3, 3), np.nan)
    assert np.isnan(where.run(ops.triu, nan, diagonal=0)).sum() == 6
    assert (where.run(ops.tril, nan, diagonal=-1)[0] == 0).all()


@everywhere
def test_values_without_axes_keep_their_number(where: Where) -> None:
    for row, inputs, attrs in (
        (ops.flip, (2.5,), {"axes": ()}),
        (ops.roll, (2.5,), {"shifts": (), "dims": ()}),
        (ops.repeat, (2.5,), {"times": ()}),
        (ops.slice, (2.5,), {"ranges": ()}),
        (ops.slice_assign, (1.0, 2.5), {"ranges": ()}),
        (ops.reshape, (2.5,), {"shape": ()}),
    ):
        fed = [where.value(np.array(x)) for x in inputs]
        assert where.run(row, *fed, **attrs).tolist() == 2.5, row.name
    assert where.run(ops.pad, where.value(np.array(2.5)), 0.0, padding=(), mode="constant").tolist() == 2.5


@everywhere
def test_no_elements_pass_through(where: Where) -> None:
    empty = np.zeros((0, 3))
    assert where.run(ops.flip, empty, axes=(0,)).shape == (0, 3)
    assert where.run(ops.repeat, empty, times=(4, 2)).shape == (0, 6)
    assert where.run(ops.pad, empty, 7.0, padding=((2, 0), (0, 0)), mode="constant").tolist() == [[7.0] * 3] * 2
    assert where.run(ops.unfold, empty, dim=1, size=3, step=2).shape == (0, 1, 3)
    assert where.run(ops.cat, empty, np.ones((1, 3)), dim=0).tolist() == [[1.0] * 3]


# -- gradients where copies meet -----------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_gradient_of_padding_adds_the_copies_up(where: Where, mode: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    check_gradients(where, ops.pad, x, 0.0, padding=((2, 1), (3, 2)), mode=mode)


def test_gradient_of_padding_equals_that_of_torch(seed: np.random.Generator) -> None:
    x = torch.from_numpy(seed.normal(size=(2, 3, 4))).requires_grad_()
    g = seed.normal(size=(2, 6, 9))
    padded = torch.nn.functional.pad(x, (3, 2, 1, 2), "reflect")
    (expected,) = torch.autograd.grad(padded, x, torch.from_numpy(g))
    where = Where(LibTorch(), "cpu")
    padding = ((0, 0), (1, 2), (3, 2))
    grads = gradients(where, ops.pad, (x.detach().numpy(), 0.0), [g], padding=padding, mode="reflect")
    np.testing.assert_allclose(grads[0], expected.numpy(), rtol=1e-14)


@everywhere
def test_overlapping_windows_add_up(where: Where) -> None:
    g = np.ones((3, 3))
    back = where.run(ops.unfold_backward, g, shape=(5,), dim=0, size=3, step=1)
    assert back.tolist() == [1, 2, 3, 2, 1]
    apart = where.run(ops.unfold_backward, np.ones((2, 2)), shape=(6,), dim=0, size=2, step=3)
    assert apart.tolist() == [1, 1, 0, 1, 1, 0]


@everywhere
def test_a_slice_is_a_view_and_an_assigned_one_is_not(where: Where) -> None:
    x = where.value(X)
    y = ops.slice_assign(
        x, ops.slice(x, ranges=((0, 1, 1), (0, 3, 1), (0, 4, 1))), ranges=((1, 2, 1), (0, 3, 1), (0, 4, 1))
    )
    np.testing.assert_array_equal(read(y)[1], X[0])
    np.testing.assert_array_equal(read(x), X)


# -- messages -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "specs", "attrs", "parts"),
    [
        (
            "reshape",
            [spec(2, 3)],
            {"shape": (4,)},
            ("reshape: 6 elements do not fill", r"x \(2, 3\) f32", "product is 6", "use -1"),
        ),
        ("permute", [spec(2, 3)], {"axes": (0, 0)}, ("permute: axes", "given", "each of 0 to 1 once", "name every")),
        (
            "expand",
            [spec(2, 3)],
            {"shape": (4, 3)},
            ("expand: the shapes do not broadcast", "given", "equal or 1", "unsqueeze"),
        ),
        ("expand", [spec(2, 3)], {"shape": (3,)}, ("expand: ", "given", "expected", "unsqueeze_dim")),
        ("expand", [spec(1)], {"shape": (-1,)}, ("does not expand", "given", "expected", "mend")),
        ("flip", [spec(2, 3)], {"axes": (-1,)}, ("flip: dim -1", "given", "0 to 1", "count negative axes")),
        ("flip", [spec(2, 3)], {"axes": (0, 0)}, ("name an axis twice", "given", "distinct", "once")),
        (
            "roll",
            [spec(2, 3)],
            {"shifts": (1,), "dims": (0, 1)},
            ("1 shifts for 2 axes", "given", "one shift", "one length"),
        ),
        ("roll", [spec()], {"shifts": (1,), "dims": (0,)}, ("dim 0", "given", "at least one axis", "mend")),
        ("repeat", [spec(2, 3)], {"times": (2,)}, ("times", "given", "2 counts", "mend")),
        ("repeat", [spec(2)], {"times": (-1,)}, ("times", "given", "0 or more", "mend")),
        ("triu", [spec(3)], {"diagonal": 0}, ("triu: x has 1 axes", "given", "matrix", "unsqueeze")),
        (
            "slice",
            [spec(5)],
            {"ranges": ((2, 7, 0),)},
            ("range 2:7 on axis 0 of size 5; step 0 on axis 0", "given", "start <= end", "mend"),
        ),
        ("slice", [spec(5)], {"ranges": ()}, ("0 ranges for 1 axes", "given", "expected", "mend")),
        (
            "slice_assign",
            [spec(5), spec(3)],
            {"ranges": ((0, 2, 1),)},
            ("do not fill", r"values \(3,\) f32", r"values \(2,\)", "expand"),
        ),
        (
            "cat",
            [spec(2, 3), spec(2, 4), spec(3)],
            {"dim": 0},
            (r"xs\[1\] \(2, 4\), xs\[2\] \(3,\) do not fit", "given", "every axis but 0", "pad or slice"),
        ),
        ("cat", [], {"dim": 0}, ("no tensor", "given", "one tensor or more", "mend")),
        (
            "pad",
            [spec(2, 3), 0.0],
            {"padding": ((0, 0), (3, 0)), "mode": "reflect"},
            ("reflecting 3 elements on axis 1 of size 3", "given", "below the size", "pad less"),
        ),
        ("pad", [spec(0), 0.0], {"padding": ((1, 0),), "mode": "edge"}, ("no edge", "given", "expected", "mend")),
        (
            "pad",
            [spec(2), 0.0],
            {"padding": ((-1, 0),), "mode": "constant"},
            ("negative padding", "given", "0 or more", "slice to cut"),
        ),
        (
            "unfold",
            [spec(3)],
            {"dim": 0, "size": 4, "step": 1},
            ("windows of 4", "given", "1 <= size <= 3", "pad the axis"),
        ),
        (
            "unfold_backward",
            [spec(2, 2)],
            {"shape": (5,), "dim": 0, "size": 2, "step": 1},
            ("do not come from", "given", r"g \(4, 2\)", "mend"),
        ),
    ],
)
def test_misfits_are_reported_in_three_parts(
    row: str, specs: list[Any], attrs: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ShapeError, match=one_message(*parts)):
        ops.REGISTRY[row].bind(_with_numbers(specs), attrs)


def _with_numbers(specs: list[Any]) -> list[Any]:
    return [NUMBER_SPECS[type(x)] if isinstance(x, int | float) else x for x in specs]


def test_types_that_differ_are_reported_in_three_parts() -> None:
    with pytest.raises(
        DTypeError, match=one_message("cat: the element types differ", "i32", "one element type", "cast")
    ):
        ops.cat.bind([spec(2), spec(2, dtype=DType.I32)], {"dim": 0})
    with pytest.raises(DTypeError, match=one_message("slice_assign: the element", "f32", "one element", "cast")):
        ops.slice_assign.bind([spec(2, dtype=DType.I32), spec(2)], {"ranges": ((0, 2, 1),)})
    with pytest.raises(DTypeError, match=one_message("a float number beside i32", "given", "i32 can hold", "convert")):
        ops.pad.bind(_with_numbers([spec(2, dtype=DType.I32), 0.5]), {"padding": ((1, 0),), "mode": "constant"})


def test_unknown_padding_mode_is_reported_in_three_parts() -> None:
    with pytest.raises(ConfigError, match=one_message("pad: unknown mode 'wrap'", "given", '"reflect"', "name one")):
        ops.pad.bind(_with_numbers([spec(2), 0.0]), {"padding": ((1, 0),), "mode": "wrap"})
