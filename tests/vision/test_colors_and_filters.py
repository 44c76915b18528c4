"""Colours beside colorsys, filters beside scipy.ndimage, transforms beside torch's sampling, pictures in files."""

from __future__ import annotations

import colorsys
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

import burn_torch
from burn_torch import ArgumentError, ConfigError, DataError, Device, DTypeError, ShapeError, StepScope, Tensor
from burn_torch.tensor import PadMode
from burn_torch.vision import (
    BatchDisplayOpts,
    BoxBlurConfig,
    ColorDisplayOpts,
    ImageDimOrder,
    MedianBlurConfig,
    TensorDisplayOptions,
    Transform2D,
    filter2d,
    gray2rgb,
    hsv2rgb,
    median,
    rgb2gray,
    rgb2hsv,
    save_tensor_as_image,
)

DEVICES = [Device.cpu(), Device.ndarray()]


def images_of(seed: np.random.Generator, *shape: int) -> np.ndarray:
    return seed.random(shape)


# -- colours -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_hue_saturation_and_value_are_those_of_colorsys_and_come_back(device, seed) -> None:
    images = seed.random((2, 3, 4, 5))
    images[0, :, 0] = np.array([[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [0.2, 0.9, 0.9], [0.7, 0.1, 0.7]]).T
    ours = rgb2hsv(Tensor.from_data(images, device))
    expected = np.apply_along_axis(lambda rgb: np.array(colorsys.rgb_to_hsv(*rgb)) * (360, 1, 1), 1, images)
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(hsv2rgb(ours)), images, rtol=1e-12, atol=1e-12)
    turned = np.asarray(hsv2rgb(ours + Tensor.from_data([720.0, 0.0, 0.0], device, "f64").reshape((1, 3, 1, 1))))
    np.testing.assert_allclose(turned, images, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_grey_and_black_have_no_hue_in_any_type_and_no_infinite_slope(dtype) -> None:
    device = Device.cpu().autodiff()
    x = Tensor.from_data(np.array([[0.0, 0.5, 1.0]] * 3).reshape(1, 3, 1, 3), device, dtype).require_grad()
    y = rgb2hsv(x)
    assert np.asarray(y.float().cast("f64")).reshape(3, 3).tolist() == [[0] * 3, [0] * 3, [0, 0.5, 1]]
    assert np.isfinite(np.asarray(x.grad(y.sum().backward()).cast("f64"))).all()


def test_slopes_of_colours_are_those_of_differences(seed) -> None:
    image, upstream, step = seed.random((1, 3, 2, 3)), seed.normal(size=(1, 3, 2, 3)), 1e-6
    for convert in (rgb2hsv, hsv2rgb):
        x = Tensor.from_data(image, Device.cpu().autodiff()).require_grad()
        gradient = np.asarray(x.grad((convert(x) * Tensor.from_data(upstream, x.device)).sum().backward()))
        for at in np.ndindex(image.shape):
            moved = [image.copy(), image.copy()]
            moved[0][at], moved[1][at] = image[at] + step, image[at] - step
            high, low = ((np.asarray(convert(Tensor.from_data(m, Device.cpu()))) * upstream).sum() for m in moved)
            np.testing.assert_allclose(gradient[at], (high - low) / (2 * step), rtol=1e-5, atol=1e-5)


def test_grey_is_a_weighted_sum_of_any_range(seed) -> None:
    images = seed.normal(size=(2, 3, 4, 5)) * 255
    grey = rgb2gray(Tensor.from_data(images, Device.cpu()))
    np.testing.assert_allclose(np.asarray(grey)[:, 0], np.tensordot([0.299, 0.587, 0.114], images, (0, 1)), rtol=1e-12)
    assert np.ptp(np.asarray(gray2rgb(grey)), 1).max() == 0
    with pytest.raises(ShapeError, match="another number of channels"):
        gray2rgb(Tensor.from_data(images, Device.cpu()))
    with pytest.raises(DTypeError, match="pixels are not floats"):
        rgb2hsv(Tensor.zeros((1, 3, 2, 2), (Device.cpu(), "u8")))


# -- filters -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_filters_are_those_of_scipy(device, seed) -> None:
    images = seed.random((2, 3, 7, 8))
    for shape in ((3, 3), (1, 5), (4, 2)):
        kernel = seed.normal(size=shape)
        for border, mode in (
            (PadMode.Reflect, "mirror"),
            (PadMode.Edge, "nearest"),
            (PadMode.Constant(0.0), "constant"),
        ):
            ours = filter2d(Tensor.from_data(images, device), Tensor.from_data(kernel, device), border)
            expected = ndimage.correlate(images, kernel[None, None], mode=mode)
            np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-10, atol=1e-12)
    for size in (1, 2, 3, 5):
        expected = ndimage.median_filter(images, (1, 1, size, size), mode="nearest")
        np.testing.assert_array_equal(np.asarray(median(Tensor.from_data(images, device), size)), expected)
    pixels = seed.integers(0, 256, (1, 1, 6, 6)).astype(np.uint8)
    expected = ndimage.median_filter(pixels, (1, 1, 3, 3), mode="nearest")
    np.testing.assert_array_equal(np.asarray(median(Tensor.from_data(pixels, device), 3)), expected)


def test_blurs_filter_the_images_that_are_drawn(seed) -> None:
    images = Tensor.from_data(seed.random((64, 1, 5, 5)), Device.cpu())
    mean = ndimage.uniform_filter(np.asarray(images), (1, 1, 3, 3), mode="mirror")
    np.testing.assert_allclose(np.asarray(BoxBlurConfig().init(images.device).forward(images)), mean, rtol=1e-12)
    blur = MedianBlurConfig(probability=0.5).init().with_seed(7)
    blurred, other = np.asarray(blur.forward(images)), np.asarray(blur.forward(images))
    untouched = (blurred == np.asarray(images)).all((1, 2, 3))
    assert 15 < untouched.sum() < 49
    chosen = np.where(untouched[:, None, None, None], np.asarray(images), np.asarray(median(images, 3)))
    np.testing.assert_array_equal(blurred, chosen)
    assert (blurred != other).any()
    again = MedianBlurConfig(probability=0.5).init().with_seed(7)
    np.testing.assert_array_equal(np.asarray(again.forward(images)), blurred)
    plain = BoxBlurConfig(probability=0.5).init()
    compiled = burn_torch.compile(plain.forward)
    with StepScope(3):
        first = np.asarray(plain.forward(images))
    with StepScope(3):
        np.testing.assert_allclose(np.asarray(compiled(images)), first, rtol=1e-12)
    with StepScope(4):
        assert (np.asarray(compiled(images)) != first).any()
    for config in (lambda: BoxBlurConfig(kernel_size=4), lambda: MedianBlurConfig(probability=1.5)):
        with pytest.raises(ConfigError):
            config()


# -- affine transforms -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Transform2D.identity(), [[1, 2], [3, 4]]),
        (Transform2D.translation(1.0, 1.0), [[2.5, 3], [3.5, 4]]),
        (Transform2D.rotation(math.pi / 2, 0.0, 0.0), [[2, 4], [1, 3]]),
        (Transform2D.rotation(math.pi / 2, 1.0, -1.0), [[2, 2], [1, 1]]),
        (Transform2D.scale(0.5, 0.5, 0.0, 0.0), [[1.75, 2.25], [2.75, 3.25]]),
        (Transform2D.scale(0.5, 0.5, 1.0, -1.0), [[1.5, 2], [2.5, 3]]),
        (
            Transform2D.composed([Transform2D.translation(0.2, -0.5), Transform2D.rotation(math.pi / 3, 0.0, 0.0)]),
            [[1.7830127, 2.8660254], [1.1339746, 3.2830124]],
        ),
    ],
)
def test_transforms_give_what_burn_gives(transform, expected) -> None:
    for device in DEVICES:
        image = Tensor.from_data([[[[1.0, 2.0], [3.0, 4.0]]]], device)
        np.testing.assert_allclose(np.asarray(transform.transform(image))[0, 0], expected, rtol=1e-5)


def test_transforms_read_as_torch_does_for_each_padding(seed) -> None:
    images = seed.random((2, 3, 6, 5))
    parts = [Transform2D.shear(0.3, -0.2, 0.1, 0.4), Transform2D.scale(1.3, 0.8, 0.2, 0.0)]
    whole = Transform2D.composed(parts)
    matrices = [np.vstack([part.matrix, (0, 0, 1)]) for part in parts]
    np.testing.assert_allclose(np.array(whole.matrix), (matrices[0] @ matrices[1])[:2], rtol=1e-12)
    grid = torch.nn.functional.affine_grid(
        torch.tensor(whole.matrix, dtype=torch.float64).expand(2, 2, 3), images.shape, align_corners=True
    )
    for mode in ("zeros", "border", "reflection"):
        expected = torch.nn.functional.grid_sample(
            torch.from_numpy(images), grid, padding_mode=mode, align_corners=True
        )
        ours = whole.with_padding_mode(mode).transform(Tensor.from_data(images, Device.cpu()))
        np.testing.assert_allclose(np.asarray(ours), expected.numpy(), rtol=1e-9, atol=1e-12)
    assert np.array(Transform2D.shear(0.5, 0.0, 0.0, 0.25).matrix).tolist() == [[1, 0.5, -0.125], [0, 1, 0]]


# -- pictures ----------------------------------------------------------------------------------------------------
def read(path: Path) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as picture:
        return np.asarray(picture)


def test_pictures_have_the_values_between_the_extremes(tmp_path, seed) -> None:
    values = seed.normal(size=(2, 3, 4, 5))
    share = (values - values.min()) / (values.max() - values.min())
    options = {"color_opts": ColorDisplayOpts.Rgb, "width_out": 5, "height_out": 4}
    for order, axes in ((ImageDimOrder.Nchw, (0, 1, 2, 3)), (ImageDimOrder.Nhwc, (0, 2, 3, 1))):
        path = tmp_path / "new" / f"{order.name}.png"
        chosen = TensorDisplayOptions(order, batch_opts=BatchDisplayOpts.Tiled, **options)
        save_tensor_as_image(Tensor.from_data(values.transpose(axes), Device.cpu()), chosen, path)
        expected = np.concatenate((share * 255).astype(np.uint8).transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(read(path), expected)
    grey = TensorDisplayOptions(
        ImageDimOrder.Hw, ColorDisplayOpts.Monochrome((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)), None, 4, 2
    )
    save_tensor_as_image(Tensor.from_data([[3, 5]], Device.cpu()), grey, str(tmp_path / "two.png"))
    assert read(tmp_path / "two.png").tolist() == [[[0, 0, 255]] * 2 + [[255, 0, 0]] * 2] * 2


def test_what_is_no_picture_is_refused(tmp_path) -> None:
    x, size = Tensor.zeros((2, 4, 3), Device.cpu()), (3, 4)
    for order, values, error, words in (
        (ImageDimOrder.Hw, x, ShapeError, "does not have these axes"),
        (ImageDimOrder.Nhw, x, ArgumentError, "how to show so much"),
        (ImageDimOrder.Hwc, x + float("nan"), DataError, "have no colour"),
        (ImageDimOrder.Hwc, x, DataError, "no such kind of picture"),
    ):
        with pytest.raises(error, match=words):
            save_tensor_as_image(
                values, TensorDisplayOptions(order, ColorDisplayOpts.Rgb, None, *size), tmp_path / "x.zzz"
            )
