"""interpolate and grid_sample_2d against torch.nn.functional, lanczos by its formula, exact nearest, and messages."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY
from burn_torch.ops.resampling import MODES, nearest_index
from tests.ops.window_cases import LEAVES, assert_close, by_torch, gradients, run

functional = torch.nn.functional
TORCH_MODES = {
    ("nearest", 1): "nearest",
    ("nearest", 2): "nearest",
    ("nearest_exact", 1): "nearest-exact",
    ("nearest_exact", 2): "nearest-exact",
    ("linear", 1): "linear",
    ("linear", 2): "bilinear",
    ("cubic", 2): "bicubic",
}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    mode=st.sampled_from(sorted(TORCH_MODES)),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    output_size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    align_corners=st.booleans(),
    batch=st.integers(0, 2),
)
def test_interpolate_agrees_with_torch(
    mode: tuple[str, int], size: tuple[int, int], output_size: tuple[int, int], align_corners: bool, batch: int
) -> None:
    name, spatial = mode
    x = np.random.default_rng(0).normal(size=(batch, 2, *size[:spatial]))
    wanted = output_size[:spatial]

    def theirs(x: Any) -> Any:
        corners = None if name.startswith("nearest") else align_corners
        return functional.interpolate(x, wanted, mode=TORCH_MODES[mode], align_corners=corners)

    y, _ = by_torch(theirs, x)
    g = np.random.default_rng(1).normal(size=y.shape)
    _, expected = by_torch(theirs, x, g=g)
    attrs = {"output_size": wanted, "mode": name, "align_corners": align_corners}
    for leaf in LEAVES:
        assert_close(run(leaf, "interpolate", x, **attrs)[0], y, f"{leaf}")
        grad = gradients(leaf, "interpolate", x, g=g, **attrs)[0]
        assert grad is not None
        assert expected[0] is not None
        assert_close(grad, expected[0], f"{leaf} gradient")


@pytest.mark.parametrize("align_corners", [True, False])
def test_cubic_over_one_axis_is_bicubic_of_height_one(align_corners: bool) -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 5))
    expected = functional.interpolate(
        torch.from_numpy(x)[:, :, None], (1, 8), mode="bicubic", align_corners=align_corners
    )[:, :, 0].numpy()
    for leaf in LEAVES:
        y = run(leaf, "interpolate", x, output_size=(8,), mode="cubic", align_corners=align_corners)[0]
        assert_close(y, expected)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("m", [1, 3, 5, 11])
def test_lanczos_sums_six_taps_with_weights_that_sum_to_one(m: int, align_corners: bool) -> None:
    n = 5
    x = np.random.default_rng(3).normal(size=(1, 1, n))

    def kernel(d: float) -> float:
        if d == 0:
            return 1.0
        return 3 * math.sin(math.pi * d) * math.sin(math.pi * d / 3) / (math.pi * d) ** 2 if abs(d) < 3 else 0.0

    expected = []
    for i in range(m):
        p = i * (n - 1) / max(m - 1, 1) if align_corners else (i + 0.5) * n / m - 0.5
        first = math.floor(p + 1e-12)  # p is an integer where it should be
        weights = [kernel(p - first - k) for k in range(-2, 4)]
        read = [x[0, 0, min(max(first + k, 0), n - 1)] for k in range(-2, 4)]
        expected.append(sum(w * v for w, v in zip(weights, read, strict=True)) / sum(weights))
    for leaf in LEAVES:
        y = run(leaf, "interpolate", x, output_size=(m,), mode="lanczos", align_corners=align_corners)[0]
        np.testing.assert_allclose(y[0, 0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("align_corners", [True, False])
def test_an_even_image_stays_even(mode: str, align_corners: bool) -> None:
    x = np.full((1, 2, 4, 3), 1.75)
    for leaf in LEAVES:
        y = run(leaf, "interpolate", x, output_size=(7, 2), mode=mode, align_corners=align_corners)[0]
        np.testing.assert_allclose(y, np.full((1, 2, 7, 2), 1.75), rtol=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_size_gives_the_same_image(mode: str) -> None:
    x = np.random.default_rng(4).normal(size=(2, 1, 4, 5))
    for leaf, align_corners in itertools.product(LEAVES, (True, False)):
        y = run(leaf, "interpolate", x, output_size=(4, 5), mode=mode, align_corners=align_corners)[0]
        np.testing.assert_allclose(y, x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearest_from_2_to_82_takes_the_second_element_at_41(dtype: Any) -> None:
    # in floating point 41 * (2 / 82) is below 1 in float32: torch takes the first element there
    x = np.array([[[10.0, 20.0]]], dtype=dtype)
    for leaf in LEAVES:
        y = run(leaf, "interpolate", x, output_size=(82,), mode="nearest", align_corners=False)[0][0, 0]
        assert y.tolist() == [10.0] * 41 + [20.0] * 41
        grad = gradients(
            leaf, "interpolate", x, g=np.ones((1, 1, 82), dtype), output_size=(82,), mode="nearest", align_corners=False
        )[0]
        assert grad is not None
        assert grad.tolist() == [[[41.0, 41.0]]]


def test_nearest_index_is_the_exact_floor() -> None:
    for n, m in itertools.product((1, 2, 3, 7, 10), (1, 2, 5, 55, 82)):
        assert nearest_index(n, m, exact=False).tolist() == [i * n // m for i in range(m)]
        assert nearest_index(n, m, exact=True).tolist() == [(2 * i + 1) * n // (2 * m) for i in range(m)]


@pytest.mark.parametrize("mode", ["linear", "cubic", "lanczos"])
def test_nan_stays_near_its_pixel(mode: str) -> None:
    x = np.arange(24.0).reshape(1, 1, 24)
    x[0, 0, 2] = np.nan
    for leaf in LEAVES:
        y = run(leaf, "interpolate", x, output_size=(30,), mode=mode, align_corners=False)[0]
        assert np.isnan(y[0, 0, 2])
        assert np.isfinite(y[0, 0, 9:]).all()


def test_a_strided_image() -> None:
    wide = torch.from_numpy(np.random.default_rng(5).normal(size=(2, 5, 6, 4)))
    strided = wide.permute(0, 3, 1, 2)[:, ::2, :, 1:]
    torch_leaf = LEAVES[0]
    for mode in MODES:
        attrs = {"output_size": (7, 3), "mode": mode, "align_corners": False}
        call = REGISTRY["interpolate"].bind([torch_leaf.spec(strided)], attrs)
        y = torch_leaf.execute(call, [strided])[0].numpy()
        assert_close(y, run(LEAVES[1], "interpolate", strided.numpy(), **attrs)[0])


# -- grid_sample_2d ----------------------------------------------------------------------------------------
@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    mode=st.sampled_from(["bilinear", "nearest", "bicubic"]),
    padding_mode=st.sampled_from(["zeros", "border", "reflection"]),
    align_corners=st.booleans(),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    places=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    batch=st.integers(0, 2),
    reach=st.sampled_from([1.0, 3.5]),
)
def test_grid_sample_agrees_with_torch(
    mode: str,
    padding_mode: str,
    align_corners: bool,
    size: tuple[int, int],
    places: tuple[int, int],
    batch: int,
    reach: float,
) -> None:
    generator = np.random.default_rng(6)
    x = generator.normal(size=(batch, 2, *size))
    grid = generator.uniform(-reach, reach, size=(batch, *places, 2))

    def theirs(x: Any, grid: Any) -> Any:
        return functional.grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)

    attrs = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    y, _ = by_torch(theirs, x, grid)
    g = generator.normal(size=y.shape)
    _, expected = by_torch(theirs, x, grid, g=g)
    for leaf in LEAVES:
        np.testing.assert_allclose(run(leaf, "grid_sample_2d", x, grid, **attrs)[0], y, rtol=1e-9, atol=1e-9)
        grads = gradients(leaf, "grid_sample_2d", x, grid, g=g, **attrs)
        for name, ours, other in zip(("x", "grid"), grads, expected, strict=True):
            assert other is not None
            if ours is None:
                assert (name, mode) == ("grid", "nearest")
                assert not other.any()
            else:
                np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-9, err_msg=f"{leaf} {name}")


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_nearest_takes_the_even_pixel_at_halves(leaf: Any) -> None:
    x = np.arange(5.0).reshape(1, 1, 1, 5)
    grid = np.stack([np.array([0.25, 0.75, 1.25, 1.75]) - 1, np.zeros(4)], -1).reshape(1, 1, 4, 2)  # 0.5 1.5 2.5 3.5
    y = run(leaf, "grid_sample_2d", x, grid, mode="nearest", padding_mode="zeros", align_corners=True)[0]
    assert y[0, 0, 0].tolist() == [0.0, 2.0, 2.0, 4.0]


@pytest.mark.parametrize("leaf", LEAVES, ids=repr)
def test_a_position_at_the_border_has_no_slope(leaf: Any) -> None:
    x = np.arange(4.0).reshape(1, 1, 1, 4)
    grid = np.array([[[[-1.5, 0.0], [-1.0, 0.0], [0.1, 0.0], [1.0, 0.0]]]])
    grad = gradients(
        leaf,
        "grid_sample_2d",
        x,
        grid,
        g=np.ones((1, 1, 1, 4)),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )[1]
    assert grad is not None
    assert_close(grad[0, 0, :, 0], np.array([0.0, 0.0, 1.5, 0.0]))


def test_the_mixed_derivative_of_a_saddle() -> None:
    # x[i, j] = i * j is bilinear: its derivative by both pixel coordinates is 1 everywhere
    x = np.multiply.outer(np.arange(4.0), np.arange(5.0)).reshape(1, 1, 4, 5)
    grid = np.random.default_rng(7).uniform(-0.9, 0.9, (1, 2, 3, 2))
    attrs = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": True}
    for leaf in LEAVES:
        y = run(leaf, "grid_sample_2d_derivative", x, grid, order=2, **attrs)[0]
        scale = (4 - 1) / 2 * (5 - 1) / 2
        assert_close(y, np.broadcast_to(np.array([0.0, scale, scale, 0.0]), (1, 1, 2, 3, 4)))


# -- messages ----------------------------------------------------------------------------------------------
def refuse(error: type[Exception], name: str, *specs: Any, **attrs: Any) -> str:
    bound = [spec if isinstance(spec, TensorSpec) else TensorSpec.of(spec, DType.F32, "cpu") for spec in specs]
    with pytest.raises(error, match=r"(?s)given:.*expected:.*mend:") as caught:
        REGISTRY[name].bind(bound, attrs)
    return str(caught.value)


def test_interpolate_refuses() -> None:
    plain = {"mode": "linear", "align_corners": True}
    assert "x has 5 axes" in refuse(ShapeError, "interpolate", (1, 2, 3, 4, 5), output_size=(2, 2, 2), **plain)
    assert "has 1 entries" in refuse(ShapeError, "interpolate", (1, 2, 3, 4), output_size=(2,), **plain)
    assert "below 1" in refuse(ShapeError, "interpolate", (1, 2, 3), output_size=(0,), **plain)
    assert "empty axis" in refuse(ShapeError, "interpolate", (1, 2, 0), output_size=(2,), **plain)
    integers = TensorSpec.of((1, 2, 3), DType.I64, "cpu")
    assert "x of type float" in refuse(DTypeError, "interpolate", integers, output_size=(2,), **plain)
    message = refuse(ArgumentError, "interpolate", (1, 2, 3), output_size=(2,), mode="bilinear", align_corners=True)
    assert "mode is 'bilinear'" in message
    assert "'nearest', 'nearest_exact', 'linear'" in message


def test_grid_sample_refuses() -> None:
    plain = {"mode": "bilinear", "padding_mode": "zeros", "align_corners": True}
    fit = "grid (batch, out_height, out_width, 2)"
    for x, grid in (
        ((1, 2, 3, 4), (2, 3, 3, 2)),
        ((1, 2, 3, 4), (1, 3, 3, 3)),
        ((1, 2, 3), (1, 3, 3, 2)),
        ((1, 2, 0, 4), (1, 3, 3, 2)),
    ):
        assert fit in refuse(ShapeError, "grid_sample_2d", x, grid, **plain)
    assert "no positions" in refuse(ShapeError, "grid_sample_2d", (1, 2, 3, 4), (1, 0, 3, 2), **plain)
    assert "mode is 'linear'" in refuse(
        ArgumentError, "grid_sample_2d", (1, 2, 3, 4), (1, 3, 3, 2), **{**plain, "mode": "linear"}
    )
    assert "padding_mode is 'wrap'" in refuse(
        ArgumentError, "grid_sample_2d", (1, 2, 3, 4), (1, 3, 3, 2), **{**plain, "padding_mode": "wrap"}
    )
    wide = TensorSpec.of((1, 3, 3, 2), DType.F64, "cpu")
    assert "element types differ" in refuse(DTypeError, "grid_sample_2d", (1, 2, 3, 4), wide, **plain)
    assert "g (1, 2, 3, 3)" in refuse(
        ShapeError, "grid_sample_2d_backward", (1, 2, 2, 3), (1, 2, 3, 4), (1, 3, 3, 2), live=(True, True), **plain
    )
    assert "order is -1" in refuse(
        ShapeError, "grid_sample_2d_derivative", (1, 2, 3, 4), (1, 3, 3, 2), order=-1, **plain
    )
    assert "size is (0, 4)" in refuse(
        ShapeError, "grid_sample_2d_scatter", (1, 2, 3, 3, 1), (1, 3, 3, 2), size=(0, 4), order=0, **plain
    )
