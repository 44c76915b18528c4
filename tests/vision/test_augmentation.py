"""Augmentation: what each image becomes, beside torch and plain numpy; how its draws follow from keys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import burn_torch
from burn_torch import ArgumentError, Device, DType, DTypeError, ShapeError, StepScope, Tensor, vision
from burn_torch.vision._draws import Draws

DEVICES = [Device.cpu(), Device.ndarray()]
CALLS = {
    "crop": lambda x, key: vision.random_crop(x, (5, 4), key, padding=2),
    "resized": lambda x, key: vision.random_resized_crop(x, (5, 4), key),
    "horizontal": lambda x, key: vision.random_horizontal_flip(x, key),
    "vertical": lambda x, key: vision.random_vertical_flip(x, key),
    "jitter": lambda x, key: vision.color_jitter(x, key, 0.4, 0.4, 0.4, 0.2),
    "affine": lambda x, key: vision.random_affine(x, key, 30.0, (0.2, 0.1), (0.8, 1.2), 10.0),
    "erasing": lambda x, key: vision.random_erasing(x, key, 0.7, value=0.5),
    "mix_up": lambda x, key: vision.mix_up(x, x.mean_dims((2, 3)).reshape((x.shape[0], 3)), key, 0.4)[0],
    "cut_mix": lambda x, key: vision.cut_mix(x, x.mean_dims((2, 3)).reshape((x.shape[0], 3)), key)[0],
    "rand_augment": lambda x, key: vision.rand_augment(x, key, magnitude=20),
}


def drawn(seed: np.random.Generator, *shape: int) -> np.ndarray:
    return seed.random(shape)


@pytest.mark.parametrize("name", CALLS)
def test_equal_keys_give_equal_images_on_both_leaves_and_other_keys_others(name, seed) -> None:
    images, call = drawn(seed, 6, 3, 7, 8), CALLS[name]
    ours = [np.asarray(call(Tensor.from_data(images, device), 5)) for device in (*DEVICES, DEVICES[0])]
    np.testing.assert_array_equal(ours[0], ours[2])
    np.testing.assert_allclose(ours[0], ours[1], rtol=1e-6, atol=1e-9)
    assert (ours[0] != np.asarray(call(Tensor.from_data(images, DEVICES[0]), 6))).any()
    same = Tensor.from_data(np.repeat(images[:1], 16, 0), DEVICES[0])
    if name not in ("mix_up", "cut_mix"):  # which mix equal images
        assert len({image.tobytes() for image in np.asarray(call(same, 5))}) > 1, "each image has a draw of its own"


@pytest.mark.parametrize("name", CALLS)
def test_compiled_steps_take_keys_as_they_run(name, seed) -> None:
    x = Tensor.from_data(drawn(seed, 3, 3, 7, 8).astype(np.float32), DEVICES[0])
    compiled = burn_torch.compile(CALLS[name])
    for key in (5, 6):
        np.testing.assert_allclose(np.asarray(compiled(x, key)), np.asarray(CALLS[name](x, key)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_without_a_key_draws_follow_from_the_step_scope(name, seed) -> None:
    x, results = Tensor.from_data(drawn(seed, 4, 3, 7, 8), DEVICES[0]), []
    for key in (1, 1, 2):
        with StepScope(key):
            results.append(np.asarray(CALLS[name](x, None)))
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()


def test_gradients_pass_through_what_is_smooth(seed) -> None:
    images, upstream = drawn(seed, 2, 3, 7, 8), None
    for name in ("crop", "resized", "affine", "mix_up", "horizontal", "erasing"):
        x = Tensor.from_data(images, Device.cpu().autodiff()).require_grad()
        y = CALLS[name](x, 3)
        upstream = seed.normal(size=y.shape)
        gradient = np.asarray(x.grad((y * Tensor.from_data(upstream, x.device)).sum().backward()))
        step = seed.normal(size=images.shape)
        moved = np.asarray(CALLS[name](Tensor.from_data(images + step, DEVICES[0]), 3))
        np.testing.assert_allclose(
            (gradient * step).sum(), ((moved - np.asarray(y)) * upstream).sum(), rtol=1e-6, err_msg=name
        )


def test_crops_are_windows_from_every_place(seed) -> None:
    images = np.repeat(np.arange(36.0).reshape(1, 1, 6, 6), 400, 0)
    crops = np.asarray(vision.random_crop(Tensor.from_data(images, DEVICES[0]), (4, 5), 3))
    places = {(int(crop[0, 0, 0]) // 6, int(crop[0, 0, 0]) % 6) for crop in crops}
    assert places == {(top, left) for top in range(3) for left in range(2)}
    for crop in crops:
        top, left = divmod(int(crop[0, 0, 0]), 6)
        np.testing.assert_array_equal(crop[0], images[0, 0, top : top + 4, left : left + 5])
    whole = vision.random_crop(Tensor.from_data(images, DEVICES[0]), (8, 8), 1, padding=1, padding_mode="reflect")
    np.testing.assert_array_equal(np.asarray(whole)[3, 0], np.pad(images[3, 0], 1, "reflect"))


def test_resized_crops_are_those_that_torch_resizes(seed) -> None:
    images = drawn(seed, 12, 2, 9, 11)
    x = Tensor.from_data(images, DEVICES[0])
    ours = np.asarray(vision.random_resized_crop(x, (4, 6), 7, (0.2, 0.9)))
    draws = Draws(x, "random_resized_crop", 7)
    area = np.asarray(draws.uniform("area", 0.2, 0.9)).ravel() * 99
    ratio = np.exp(np.asarray(draws.uniform("ratio", math.log(3 / 4), math.log(4 / 3))).ravel())
    top, left = (np.asarray(draws.uniform(name, 0.0, 1.0)).ravel() for name in ("top", "left"))
    for i, image in enumerate(images):
        height, width = min(round(math.sqrt(area[i] / ratio[i])), 9), min(round(math.sqrt(area[i] * ratio[i])), 11)
        row, column = int(top[i] * (10 - height)), int(left[i] * (12 - width))
        window = torch.from_numpy(image[None, :, row : row + height, column : column + width])
        theirs = torch.nn.functional.interpolate(window, (4, 6), mode="bilinear", align_corners=False)
        np.testing.assert_allclose(ours[i], theirs[0].numpy(), rtol=1e-9, atol=1e-9)


def test_flips_and_erasing_happen_as_often_as_asked(seed) -> None:
    images = drawn(seed, 800, 1, 4, 6)
    x = Tensor.from_data(images, DEVICES[0])
    flipped = np.asarray(vision.random_horizontal_flip(x, 2, 0.25))
    happened = (flipped == images[..., ::-1]).all((1, 2, 3))
    assert 150 < happened.sum() < 250
    np.testing.assert_array_equal(flipped[~happened], images[~happened])
    np.testing.assert_array_equal(np.asarray(vision.random_vertical_flip(x, 2, 1.0)), images[:, :, ::-1])
    erased = np.asarray(vision.random_erasing(x, 3, 0.5, value=-1.0)) == -1.0
    assert 320 < erased.any((1, 2, 3)).sum() < 480
    for mask in erased[erased.any((1, 2, 3))][:50, 0]:
        rows, columns = np.nonzero(mask)
        assert mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all(), "a box"


def test_affine_maps_are_those_of_torchvisions_matrix(seed) -> None:
    images = drawn(seed, 5, 2, 8, 6)
    x = Tensor.from_data(images, DEVICES[0])
    ours = np.asarray(vision.random_affine(x, 4, 40.0, (0.2, 0.3), (0.7, 1.4), 15.0))
    draws = Draws(x, "random_affine", 4)
    wanted = {"degrees": (-40.0, 40.0), "shear": (-15.0, 15.0), "scale": (0.7, 1.4), "x": (-0.2, 0.2), "y": (-0.3, 0.3)}
    turn, slant, scale, right, down = (np.asarray(draws.uniform(name, *ends)).ravel() for name, ends in wanted.items())
    for i, image in enumerate(images):
        rotation, shear = np.radians(turn[i]), np.radians(slant[i])
        turned = np.array([[np.cos(rotation), -np.sin(rotation)], [np.sin(rotation), np.cos(rotation)]])
        forward = scale[i] * turned @ np.array([[1.0, -np.tan(shear)], [0.0, 1.0]])
        shift = np.array([np.round(right[i] * 6), np.round(down[i] * 8)])
        back = np.linalg.inv(forward)
        pixels = np.stack(np.meshgrid(np.arange(6) - 2.5, np.arange(8) - 3.5), -1) - shift
        grid = torch.from_numpy((pixels @ back.T) / np.array([3.0, 4.0]))[None]
        theirs = torch.nn.functional.grid_sample(torch.from_numpy(image[None]), grid, align_corners=False)
        np.testing.assert_allclose(ours[i], theirs[0].numpy(), rtol=1e-9, atol=1e-9)


def test_colours_change_as_torchvision_says(seed) -> None:
    images = drawn(seed, 2, 3, 5, 6)
    x = Tensor.from_data(images, DEVICES[0])
    grey = np.tensordot([0.299, 0.587, 0.114], images, (0, 1))[:, None]
    mean = grey.mean((1, 2, 3), keepdims=True)
    for factor in (0.0, 0.5, 1.7):
        for adjust, other in (
            (vision.adjust_brightness, 0.0),
            (vision.adjust_contrast, mean),
            (vision.adjust_saturation, grey),
        ):
            expected = (images * factor + other * (1 - factor)).clip(0, 1)
            np.testing.assert_allclose(np.asarray(adjust(x, factor)), expected, atol=1e-12)
    blurred = images.copy()
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=torch.float64).expand(3, 1, 3, 3) / 13
    blurred[:, :, 1:-1, 1:-1] = torch.nn.functional.conv2d(torch.from_numpy(images), kernel, groups=3).numpy()
    expected = (images * 1.9 - blurred * 0.9).clip(0, 1)
    np.testing.assert_allclose(np.asarray(vision.adjust_sharpness(x, 1.9)), expected, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(vision.posterize(x, 3)), np.floor(images * 8) / 8)
    np.testing.assert_array_equal(np.asarray(vision.solarize(x, 0.4)), np.where(images >= 0.4, 1 - images, images))
    low, high = images.min((2, 3), keepdims=True), images.max((2, 3), keepdims=True)
    np.testing.assert_allclose(np.asarray(vision.autocontrast(x)), (images - low) / (high - low), rtol=1e-12)
    turned = vision.rgb2hsv(vision.adjust_hue(x, 0.25)) - vision.rgb2hsv(x)
    np.testing.assert_allclose(np.asarray(turned)[:, 0] % 360, 90.0, atol=1e-8)
    flat = Tensor.full((1, 1, 2, 2), 0.3, (DEVICES[0], "f64"))
    assert np.asarray(vision.autocontrast(flat)).tolist() == np.asarray(flat).tolist()


def test_equalized_bytes_are_those_of_the_published_table(seed) -> None:
    levels = (seed.random((2, 3, 20, 30)) ** 2 * 255).round()
    ours = np.asarray(vision.equalize(Tensor.from_data(levels / 255, DEVICES[0]))) * 255
    for at in np.ndindex(2, 3):
        counts = np.bincount(levels[at].astype(int).ravel(), minlength=256)
        step = (counts.sum() - counts[np.nonzero(counts)[0][-1]]) // 255
        table = np.array([(counts[:i].sum() + step // 2) // step for i in range(256)]).clip(0, 255)
        np.testing.assert_allclose(ours[at], table[levels[at].astype(int)], atol=1e-9)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0, 60.0])
def test_shares_have_the_beta_distribution(alpha) -> None:
    images = Tensor.zeros((4000, 1, 1, 1), DEVICES[0])
    shares = np.asarray(Draws(images, "test", 3).beta("share", alpha)).ravel()
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).statistic < 0.03
    places = np.asarray(Draws(images, "test", 3).uniform("share", 0.0, 1.0)).ravel()
    exact, middle = stats.beta(alpha, alpha).ppf(places), (places > 0.001) & (places < 0.999)
    np.testing.assert_allclose(shares[middle], exact[middle], atol=1e-3)
    np.testing.assert_allclose(shares, exact, atol=2e-2)


def test_mixed_images_have_mixed_labels(seed) -> None:
    images, labels = np.zeros((64, 1, 8, 10)), np.eye(64)
    images[:, 0] = np.arange(64)[:, None, None]
    x, y = Tensor.from_data(images, DEVICES[0]), Tensor.from_data(labels, DEVICES[0])
    mixed, weights = (np.asarray(value) for value in vision.mix_up(x, y, 3, 0.5))
    np.testing.assert_allclose(mixed.mean((1, 2, 3)), weights @ np.arange(64), rtol=1e-9)
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-12)
    cut, weights = (np.asarray(value) for value in vision.cut_mix(x, y, 3))
    assert set(cut[5].ravel()) <= {4.0, 5.0}
    np.testing.assert_allclose(cut.mean((1, 2, 3)), weights @ np.arange(64), rtol=1e-6)
    assert len(np.unique(weights.max(1).round(6))) > 10


def test_no_strength_and_no_change_leave_images_as_they_were(seed) -> None:
    images = drawn(seed, 3, 3, 5, 6)
    x = Tensor.from_data(images, DEVICES[0])
    np.testing.assert_array_equal(np.asarray(vision.rand_augment(x, 1, num_ops=0)), images)
    np.testing.assert_array_equal(np.asarray(vision.color_jitter(x, 1)), images)
    normal = vision.normalize(x, (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    expected = (images - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape([1.0, 2.0, 4.0], (3, 1, 1))
    np.testing.assert_allclose(np.asarray(normal), expected, rtol=1e-12)
    for dtype in ("f16", "bf16", "f32"):
        for name, call in CALLS.items():
            assert np.isfinite(np.asarray(call(x.cast(dtype), 2).float())).all(), name
            assert call(x.cast(dtype), 2).dtype is x.cast(dtype).dtype


def test_what_cannot_be_drawn_is_refused() -> None:
    x = Tensor.zeros((2, 3, 4, 4), DEVICES[0])
    for error, words, call in (
        (ShapeError, "the window is larger", lambda: vision.random_crop(x, (5, 4))),
        (ArgumentError, "scale is no range", lambda: vision.random_erasing(x, 1, scale=(0.5, 0.1))),
        (ArgumentError, "hue is no range", lambda: vision.color_jitter(x, hue=0.7)),
        (ArgumentError, "do not fit the channels", lambda: vision.normalize(x, (0.0,), (1.0,))),
        (ArgumentError, "no such strength", lambda: vision.rand_augment(x, 1, magnitude=31)),
        (ArgumentError, "alpha is no parameter", lambda: vision.mix_up(x, Tensor.zeros((2, 5), x.device), 1, 0.0)),
        (ShapeError, "no weights of classes", lambda: vision.cut_mix(x, Tensor.zeros((2,), x.device))),
        (DTypeError, "not floats", lambda: vision.rand_augment(x.cast("u8"))),
        (ArgumentError, "no number of bits", lambda: vision.posterize(x, 9)),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_hues_of_half_types_are_turned_in_float32(dtype: DType, seed) -> None:
    images = Tensor.from_data(drawn(seed, 4, 3, 5, 5), Device.cpu()).cast(dtype)
    turned = vision.adjust_hue(images, 0.3).cast(DType.F64)
    expected = vision.adjust_hue(images.cast(DType.F64), 0.3)
    assert np.abs(np.asarray(turned) - np.asarray(expected)).max() <= {DType.F16: 2e-3, DType.BF16: 1e-2}[dtype]
