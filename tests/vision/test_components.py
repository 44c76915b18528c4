"""Connected components beside scipy.ndimage.label, and their figures beside numpy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from burn_torch import Device, DTypeError, ShapeError, Tensor, compile
from burn_torch.transform import per_sample_grad
from burn_torch.vision import (
    ConnectedStatsOptions,
    Connectivity,
    connected_components,
    connected_components_with_stats,
)

STRUCTURES = {Connectivity.Four: None, Connectivity.Eight: np.ones((3, 3))}
DEVICES = [Device.cpu(), Device.ndarray()]


def spiral(size: int) -> np.ndarray:
    """One long winding path: labels have the furthest to go."""
    image = np.zeros((size, size), bool)
    low, high = 0, size - 1
    while low <= high:
        image[low, low : high + 1] = image[low : high + 1, high] = image[high, low : high + 1] = True
        image[low + 2 : high + 1, low] = True
        if low + 2 <= high:
            image[low + 2, low : low + 2] = True
        low, high = low + 2, high - 2
    return image


def in_order_of_first_pixels(labels: np.ndarray) -> np.ndarray:
    names, first = np.unique(labels, return_index=True)
    numbers = dict.fromkeys(names, 0)
    for number, at in enumerate(sorted(first[names != 0]), 1):
        numbers[labels.ravel()[at]] = number
    return np.vectorize(numbers.get, otypes=[np.int64])(labels)


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("connectivity", Connectivity)
def test_labels_are_those_of_scipy_in_the_order_of_first_pixels(connectivity, device, seed) -> None:
    images = [seed.random(shape) < share for shape, share in (((1, 9), 0.6), ((17, 13), 0.5), ((40, 31), 0.6))]
    images += [np.ones((3, 4), bool), np.zeros((4, 2), bool), spiral(23), ~spiral(20), images[2].T[::-1, ::2]]
    for image in images:
        ours = np.asarray(connected_components(Tensor.from_data(image, device), connectivity))
        theirs, _ = ndimage.label(image, STRUCTURES[connectivity])
        np.testing.assert_array_equal(ours, in_order_of_first_pixels(theirs))


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_images_of_a_batch_are_labelled_apart(device, seed) -> None:
    images = seed.random((2, 3, 6, 7)) < 0.5
    labels = np.asarray(connected_components(Tensor.from_data(images, device), Connectivity.Four))
    for at in np.ndindex(2, 3):
        single = connected_components(Tensor.from_data(images[at], device), Connectivity.Four)
        np.testing.assert_array_equal(labels[at], np.asarray(single))


def test_strided_images_and_compiled_calls(seed) -> None:
    images = Tensor.from_data(seed.random((5, 6, 4)) < 0.6, Device.cpu())
    moved = images.permute((2, 1, 0))
    expected = np.asarray(
        connected_components(Tensor.from_data(np.asarray(moved).copy(), Device.cpu()), Connectivity.Eight)
    )
    np.testing.assert_array_equal(np.asarray(connected_components(moved, Connectivity.Eight)), expected)
    compiled = compile(lambda x: connected_components(x, Connectivity.Eight))
    np.testing.assert_array_equal(np.asarray(compiled(moved)), expected)


def test_areas_of_parts_differentiate_nothing_but_weigh_samples(seed) -> None:
    images = Tensor.from_data(seed.random((3, 5, 6)) < 0.6, Device.cpu().autodiff())
    weights = Tensor.from_data(seed.random((1,)), Device.cpu().autodiff())
    total = per_sample_grad(lambda w, x: (connected_components(x, Connectivity.Four).float().cast("f64") * w).sum())
    gradients = np.asarray(total(weights, images))
    sums = [np.asarray(connected_components(images.narrow(0, i, 1), Connectivity.Four)).sum() for i in range(3)]
    np.testing.assert_array_equal(gradients.ravel(), sums)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_figures_of_parts_are_those_of_their_pixels(device, seed) -> None:
    images = seed.random((3, 8, 9)) < np.array([0.4, 0.0, 0.7])[:, None, None]
    labels, stats = connected_components_with_stats(
        Tensor.from_data(images, device), Connectivity.Eight, ConnectedStatsOptions.all()
    )
    numbers = np.asarray(labels)
    assert stats.area.shape == (3, numbers.max() + 1)
    np.testing.assert_array_equal(np.asarray(stats.max_label), numbers.max((1, 2)))
    for at, image in enumerate(numbers):
        for label in range(stats.area.shape[1]):
            rows, columns = np.nonzero(image == label)
            box = [columns.min(), rows.min(), columns.max(), rows.max()] if len(rows) else [0] * 4
            ours = [stats.area, stats.left, stats.top, stats.right, stats.bottom]
            assert [int(np.asarray(x)[at, label]) for x in ours] == [len(rows), *box]


def test_a_space_invader_has_the_figures_that_burn_has() -> None:
    image = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]], bool)
    labels, stats = connected_components_with_stats(Tensor.from_data(image, Device.cpu()), Connectivity.Eight)
    assert np.asarray(labels).tolist() == [[0, 1, 0, 2], [1, 0, 0, 2], [0, 0, 2, 0]]
    assert np.asarray(stats.area).tolist() == [7, 2, 3]
    assert [np.asarray(x).tolist()[1:] for x in (stats.left, stats.right)] == [[0, 2], [1, 3]]
    assert np.asarray(stats.max_label).tolist() == [2]
    _, none = connected_components_with_stats(
        Tensor.from_data(image, Device.cpu()), Connectivity.Eight, ConnectedStatsOptions.none()
    )
    assert none.left is none.max_label is None


def test_empty_images_have_no_parts() -> None:
    for shape in ((0, 3), (2, 0, 4), (0, 2, 2)):
        labels, stats = connected_components_with_stats(Tensor.zeros(shape, (Device.cpu(), "bool")), Connectivity.Four)
        assert labels.shape == shape
        assert stats.area.shape == (*shape[:-2], 1)


def test_what_is_no_binary_image_is_refused() -> None:
    with pytest.raises(DTypeError, match="bool"):
        connected_components(Tensor.zeros((3, 3), Device.cpu()), Connectivity.Four)
    with pytest.raises(ShapeError, match="an image has two axes"):
        connected_components(Tensor.zeros((3,), (Device.cpu(), "bool")), Connectivity.Four)
