"""Erosion and dilation beside scipy.ndimage, for each border and each kind of element."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from burn_torch import ArgumentError, Device, DTypeError, ShapeError, Tensor
from burn_torch.core.dtype import DType
from burn_torch.vision import (
    BorderType,
    KernelShape,
    MorphOptions,
    Size,
    create_structuring_element,
    dilate,
    erode,
)

DEVICES = [Device.cpu(), Device.ndarray()]
MODES = {
    BorderType.Replicate: "nearest",
    BorderType.Reflect: "reflect",
    BorderType.Reflect101: "mirror",
    BorderType.Wrap: "wrap",
}


def by_scipy(image: np.ndarray, kernel: np.ndarray, anchor: tuple[int, int], largest: bool, **border: object):
    """The extreme under the kernel, by a filter over its footprint; scipy's origin counts from the middle."""
    origin = (anchor[1] - kernel.shape[0] // 2, anchor[0] - kernel.shape[1] // 2)
    run = ndimage.maximum_filter if largest else ndimage.minimum_filter
    return run(image, footprint=kernel, origin=origin, **border)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("border", BorderType)
def test_every_border_anchor_and_kernel(border, largest, seed) -> None:
    run = dilate if largest else erode
    for trial in range(6):
        image = seed.standard_normal((7, 9)).round(1)
        kernel = seed.random((int(seed.integers(1, 6)), int(seed.integers(1, 5)))) < 0.6
        kernel[tuple(seed.integers(0, kernel.shape))] = True
        kernel |= trial == 0
        anchor = (int(seed.integers(kernel.shape[1])), int(seed.integers(kernel.shape[0])))
        options = MorphOptions(anchor, 1, border, (0.3,) if border is BorderType.Constant else None)
        mode = {"mode": "constant", "cval": 0.3} if border is BorderType.Constant else {"mode": MODES[border]}
        expected = by_scipy(image, kernel, anchor, largest, **mode)
        for device in DEVICES:
            ours = run(Tensor.from_data(image, device), Tensor.from_data(kernel, device), options)
            np.testing.assert_array_equal(np.asarray(ours), expected)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.U8, DType.I32, DType.BOOL])
def test_every_type_by_default_ignores_the_border(dtype, seed) -> None:
    values = seed.integers(0, 2 if dtype is DType.BOOL else 100, (2, 3, 6, 5))
    kernel = create_structuring_element(KernelShape.Cross, Size(3, 5), None, Device.cpu())
    footprint = np.asarray(kernel)[None, None]
    for largest, run, beyond in ((True, dilate, -1), (False, erode, 101)):
        ours = run(Tensor.from_data(values, Device.cpu()).cast(dtype), kernel, MorphOptions(iterations=2))
        assert ours.dtype is dtype
        expected = values
        for _ in range(2):
            filtered = ndimage.maximum_filter if largest else ndimage.minimum_filter
            expected = filtered(expected, footprint=footprint, mode="constant", cval=beyond)
        np.testing.assert_array_equal(np.asarray(ours.cast(DType.I64)), expected)


def test_burns_axes_have_channels_last_and_a_border_value_each(seed) -> None:
    image = seed.standard_normal((5, 6, 3))
    kernel = np.ones((3, 3), bool)
    options = MorphOptions(border_value=(9.0, -9.0, 0.5))
    ours = np.asarray(dilate(Tensor.from_data(image, Device.cpu()), Tensor.from_data(kernel, Device.cpu()), options))
    for channel, value in enumerate((9.0, -9.0, 0.5)):
        expected = ndimage.maximum_filter(image[..., channel], footprint=kernel, mode="constant", cval=value)
        np.testing.assert_array_equal(ours[..., channel], expected)


def test_gradients_go_to_the_extreme_pixels(seed) -> None:
    device = Device.cpu().autodiff()
    image, upstream = seed.standard_normal((2, 1, 5, 6)), seed.standard_normal((2, 1, 5, 6))
    x = Tensor.from_data(image, device).require_grad()
    kernel = create_structuring_element(KernelShape.Rect, Size(3, 3), None, Device.cpu())
    gradients = (dilate(x, kernel) * Tensor.from_data(upstream, device)).sum().backward()
    expected = np.zeros_like(image)
    for n, i, j in np.ndindex(2, 5, 6):
        window = image[n, 0, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
        row, column = np.unravel_index(window.argmax(), window.shape)
        expected[n, 0, max(i - 1, 0) + row, max(j - 1, 0) + column] += upstream[n, 0, i, j]
    np.testing.assert_allclose(np.asarray(x.grad(gradients)), expected, rtol=1e-12)


def test_not_a_number_under_the_kernel_is_not_a_number() -> None:
    x = Tensor.from_data([[1.0, float("nan"), 3.0, 4.0]], Device.cpu())
    kernel = create_structuring_element(KernelShape.Rect, Size(3, 1), None, Device.cpu())
    for run in (erode, dilate):
        assert np.isnan(np.asarray(run(x, kernel))).tolist() == [[True, True, True, False]]


def test_empty_images_stay_empty() -> None:
    kernel = create_structuring_element(KernelShape.Cross, Size(3, 3), None, Device.cpu())
    for shape in ((0, 3, 4, 4), (1, 2, 0, 4), (0, 5), (4, 4, 0)):
        assert erode(Tensor.zeros(shape, Device.cpu()), kernel).shape == shape


def test_structuring_elements_are_those_of_opencv() -> None:
    device = Device.cpu()
    ellipse = np.asarray(create_structuring_element(KernelShape.Ellipse, Size(5, 5), None, device)).astype(int)
    assert ellipse.tolist() == [[0, 0, 1, 0, 0], [1] * 5, [1] * 5, [1] * 5, [0, 0, 1, 0, 0]]
    cross = np.asarray(create_structuring_element(KernelShape.Cross, (3, 2), (2, 0), device)).astype(int)
    assert cross.tolist() == [[1, 1, 1], [0, 0, 1]]
    for shape in KernelShape:
        assert create_structuring_element(shape, Size(1, 1), None, device).into_data().to_vec() == [True]
    flat = np.asarray(create_structuring_element(KernelShape.Ellipse, Size(3, 1), None, device))
    assert flat.shape == (1, 3)


def test_what_does_not_fit_is_refused() -> None:
    device = Device.cpu()
    x, kernel = Tensor.zeros((4, 4), device), Tensor.full((3, 3), True, device)
    for error, words, call in (
        (ArgumentError, "the kernel has no pixel", lambda: erode(x, Tensor.full((2, 2), False, device))),
        (ArgumentError, "the anchor lies outside the kernel", lambda: erode(x, kernel, MorphOptions(anchor=(3, 0)))),
        (ArgumentError, "iterations is negative", lambda: MorphOptions(iterations=-1)),
        (DTypeError, "this is no structuring element", lambda: dilate(x, Tensor.zeros((3, 3), device))),
        (ShapeError, "this is no image", lambda: dilate(x.flatten(0, 1), kernel)),
        (ShapeError, "border_value does not fit", lambda: dilate(x, kernel, MorphOptions(border_value=(1.0, 2.0)))),
        (
            ArgumentError,
            "a kernel has pixels",
            lambda: create_structuring_element(KernelShape.Rect, (0, 3), None, device),
        ),
    ):
        with pytest.raises(error, match=words):
            call()
