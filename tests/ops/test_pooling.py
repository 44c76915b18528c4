"""Pooling against torch.nn.functional over odd settings; ties, NaN, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY
from burn_torch.ops.mean_pooling import bins
from burn_torch.ops.pooling import pool_counts
from tests.ops.window_cases import LEAVES, assert_close, by_torch, gradients, run

functional = torch.nn.functional
MAX = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVG = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
ADAPTIVE = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}


@st.composite
def poolings(draw: Any, *, dilated: bool) -> dict[str, Any]:
    spatial = draw(st.sampled_from([1, 2, 2, 3]))
    axes = []
    for _ in range(spatial):
        kernel, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2)) if dilated else 1
        reach = dilation * (kernel - 1) + 1
        padding = draw(st.integers(0, kernel // 2))
        # an element for each window: torch reads beyond the input where the dilation is larger than it
        size = draw(st.integers(max(dilation, reach - 2 * padding), 7 if spatial < 3 else 5))
        axes.append((size, kernel, draw(st.integers(1, 3)), padding, dilation))
    names = ("size", "kernel", "stride", "padding", "dilation")
    case: dict[str, Any] = dict(zip(names, zip(*axes, strict=True), strict=True))
    return {**case, "ceil_mode": draw(st.booleans()), "batch": draw(st.integers(0, 2))}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=poolings(dilated=True))
def test_max_pool_agrees_with_torch(case: dict[str, Any]) -> None:
    attrs = {name: case[name] for name in ("kernel", "stride", "padding", "dilation", "ceil_mode")}
    x = np.random.default_rng(0).normal(size=(case["batch"], 2, *case["size"]))

    def theirs(x: Any, *, return_indices: bool = False) -> Any:
        pool = MAX[len(case["size"])]
        arguments = (case["kernel"], case["stride"], case["padding"], case["dilation"], case["ceil_mode"])
        return pool(x, *arguments, return_indices)

    values, indices = theirs(torch.from_numpy(x), return_indices=True)
    g = np.random.default_rng(1).normal(size=values.shape)
    _, expected = by_torch(theirs, x, g=g)
    for leaf in LEAVES:
        outputs = run(leaf, "max_pool_with_indices", x, **attrs)
        np.testing.assert_array_equal(outputs[0], values.numpy())
        np.testing.assert_array_equal(outputs[1], indices.numpy())
        assert outputs[1].dtype == np.int64
        grad = gradients(leaf, "max_pool_with_indices", x, g=g, **attrs)[0]
        assert grad is not None
        assert expected[0] is not None
        assert_close(grad, expected[0])


def torch_avg_pool(x: Any, case: dict[str, Any], count_include_pad: bool) -> Any:
    """torch's mean; over three axes it refuses an input smaller than the kernel: then over one axis after another."""

    def over(x: Any, axes: slice) -> Any:
        pool = AVG[len(case["size"][axes])]
        chosen = (case[name][axes] for name in ("kernel", "stride", "padding"))
        return pool(x, *chosen, case["ceil_mode"], count_include_pad)

    if len(case["size"]) < 3 or all(s >= k for s, k in zip(case["size"], case["kernel"], strict=True)):
        return over(x, slice(None))
    for axis in range(3):
        x = over(x.movedim(axis + 2, -1).flatten(1, 3), slice(axis, axis + 1)).unflatten(
            1, [n for i, n in enumerate(x.shape[1:], 1) if i != axis + 2]
        )
        x = x.movedim(-1, axis + 2)
    return x


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=poolings(dilated=False), count_include_pad=st.booleans())
def test_avg_pool_agrees_with_torch(case: dict[str, Any], count_include_pad: bool) -> None:
    attrs = {name: case[name] for name in ("kernel", "stride", "padding", "ceil_mode")}
    x = np.random.default_rng(2).normal(size=(case["batch"], 2, *case["size"]))

    def theirs(x: Any) -> Any:
        return torch_avg_pool(x, case, count_include_pad)

    y, _ = by_torch(theirs, x)
    g = np.random.default_rng(3).normal(size=y.shape)
    _, expected = by_torch(theirs, x, g=g)
    for leaf in LEAVES:
        assert_close(run(leaf, "avg_pool", x, count_include_pad=count_include_pad, **attrs)[0], y)
        grad = gradients(leaf, "avg_pool", x, g=g, count_include_pad=count_include_pad, **attrs)[0]
        assert grad is not None
        assert expected[0] is not None
        assert_close(grad, expected[0])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    axes=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=3),
    batch=st.integers(0, 2),
)
def test_adaptive_avg_pool_agrees_with_torch(axes: list[tuple[int, int]], batch: int) -> None:
    size, output_size = zip(*axes, strict=True)
    x = np.random.default_rng(4).normal(size=(batch, 2, *size))
    y, _ = by_torch(lambda x: ADAPTIVE[len(size)](x, output_size), x)
    g = np.random.default_rng(5).normal(size=y.shape)
    _, expected = by_torch(lambda x: ADAPTIVE[len(size)](x, output_size), x, g=g)
    for leaf in LEAVES:
        assert_close(run(leaf, "adaptive_avg_pool", x, output_size=output_size)[0], y)
        grad = gradients(leaf, "adaptive_avg_pool", x, g=g, output_size=output_size)[0]
        assert grad is not None
        assert expected[0] is not None
        assert_close(grad, expected[0])


WINDOW = {"kernel": (2,), "stride": (2,), "padding": (0,), "dilation": (1,), "ceil_mode": False}


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
@pytest.mark.parametrize(
    ("window", "value", "index"),
    [
        ([3.0, 3.0, 1.0], 3.0, 0),  # the first of equals
        ([1.0, np.nan, 5.0], np.nan, 1),
        ([np.nan, 9.0, np.nan], np.nan, 2),  # the last of several
        ([-np.inf, -np.inf, -np.inf], -np.inf, 0),
        ([-0.0, 0.0, -0.0], -0.0, 0),
    ],
)
def test_max_pool_at_ties_and_nan(leaf: Any, window: list[float], value: float, index: int) -> None:
    x = np.array(window).reshape(1, 1, 3)
    attrs = {**WINDOW, "kernel": (3,), "stride": (3,)}
    values, indices = run(leaf, "max_pool_with_indices", x, **attrs)
    np.testing.assert_array_equal(values, [[[value]]])
    assert indices.tolist() == [[[index]]]
    grad = gradients(leaf, "max_pool_with_indices", x, g=np.array([[[2.5]]]), **attrs)[0]
    assert grad is not None
    assert grad[0, 0].tolist() == [2.5 if i == index else 0.0 for i in range(3)]


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_padding_never_wins(leaf: Any) -> None:
    x = np.full((1, 1, 3, 3), -np.inf)
    attrs = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": False}
    values, indices = run(leaf, "max_pool_with_indices", x, **attrs)
    assert (values == -np.inf).all()
    assert indices.tolist() == [[[[0, 1], [3, 4]]]]  # the first element of each window


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_nan_stays_in_its_windows(leaf: Any) -> None:
    x = np.arange(8.0).reshape(1, 1, 8)
    x[0, 0, 3] = np.nan
    y = run(leaf, "avg_pool", x, kernel=(2,), stride=(2,), padding=(0,), count_include_pad=True, ceil_mode=False)[0]
    np.testing.assert_array_equal(y, [[[0.5, np.nan, 4.5, 6.5]]])
    y = run(leaf, "adaptive_avg_pool", x, output_size=(4,))[0]
    np.testing.assert_array_equal(y, [[[0.5, np.nan, 4.5, 6.5]]])


def test_the_last_window_of_ceil_mode_starts_inside() -> None:
    assert pool_counts((5,), (2,), (2,), (0,), (1,), True) == (3,)  # the third reaches past the end
    assert pool_counts((4,), (1,), (3,), (0,), (1,), True) == (2,)
    assert pool_counts((3,), (2,), (3,), (1,), (1,), True) == (2,)  # a third would start beyond the input
    assert pool_counts((5,), (2,), (2,), (0,), (1,), False) == (2,)


def test_bins_cover_all_elements_and_may_overlap() -> None:
    assert bins(7, 3) == [(0, 3), (2, 5), (4, 7)]
    assert bins(2, 4) == [(0, 1), (0, 1), (1, 2), (1, 2)]


# -- messages ----------------------------------------------------------------------------------------------
def refuse(name: str, *specs: Any, **attrs: Any) -> str:
    bound = [spec if isinstance(spec, TensorSpec) else TensorSpec.of(spec, DType.F32, "cpu") for spec in specs]
    with pytest.raises((ShapeError, DTypeError), match=r"(?s)given:.*expected:.*mend:") as caught:
        REGISTRY[name].bind(bound, attrs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("shape", "changes", "words"),
    [
        ((1, 2, 1), {}, "kernel is larger than the padded input along spatial axis 0"),
        ((1, 2, 5), {"padding": (2,)}, "padding 2 is too large along spatial axis 0"),
        ((1, 2, 1), {"padding": (1,), "dilation": (2,), "stride": (1,)}, "an element of the input in each window"),
        ((1, 2, 5), {"kernel": (0,)}, "kernel (0,) has an entry below 1"),
        ((1, 2, 5), {"stride": (1, 1)}, "stride (1, 1) has 2 entries"),
        ((1, 2, 0), {}, "x has an empty axis besides the batch"),
        ((2, 5), {}, "x has 2 axes"),
    ],
)
def test_max_pool_refuses(shape: tuple[int, ...], changes: dict[str, Any], words: str) -> None:
    message = refuse("max_pool_with_indices", shape, **{**WINDOW, **changes})
    assert message.startswith("max_pool_with_indices: ")
    assert words in message


def test_avg_and_adaptive_pool_refuse() -> None:
    plain = {"kernel": (2,), "stride": (1,), "padding": (2,), "count_include_pad": True, "ceil_mode": False}
    assert "padding 2 is too large" in refuse("avg_pool", (1, 2, 5), **plain)
    assert "output_size (0,) has an entry below 1" in refuse("adaptive_avg_pool", (1, 2, 5), output_size=(0,))
    assert "output_size (2, 2) has 2 entries" in refuse("adaptive_avg_pool", (1, 2, 5), output_size=(2, 2))
    integers = TensorSpec.of((1, 2, 5), DType.I64, "cpu")
    assert "x of type float" in refuse("adaptive_avg_pool", integers, output_size=(2,))


def test_backward_rows_refuse_what_is_no_output() -> None:
    assert "g (batch, channels, 2)" in refuse(
        "max_pool_with_indices_backward", (1, 2, 3), TensorSpec.of((1, 2, 3), DType.I64, "cpu"), size=(5,), **WINDOW
    )
    assert "indices (1, 2, 2) i64" in refuse(
        "max_pool_with_indices_backward", (1, 2, 2), TensorSpec.of((1, 2, 2), DType.I32, "cpu"), size=(5,), **WINDOW
    )
    assert "size (5, 5) has 2 entries" in refuse(
        "max_pool_with_indices_backward", (1, 2, 2), TensorSpec.of((1, 2, 2), DType.I64, "cpu"), size=(5, 5), **WINDOW
    )


def test_a_pool_of_a_strided_input() -> None:
    wide = np.random.default_rng(6).normal(size=(2, 6, 7, 4))
    x = wide.transpose(0, 3, 1, 2)[:, :, ::-1]
    attrs = {"kernel": (2, 3), "stride": (1, 2), "padding": (1, 1), "dilation": (1, 1), "ceil_mode": True}
    torch_leaf, numpy_leaf = LEAVES
    strided = torch.from_numpy(wide[:, ::-1].copy()).permute(0, 3, 1, 2)
    assert not strided.is_contiguous()
    call = REGISTRY["max_pool_with_indices"].bind([torch_leaf.spec(strided)], attrs)
    ours, theirs = torch_leaf.execute(call, [strided]), numpy_leaf.execute(call, [x])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
