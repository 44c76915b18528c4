"""Non-maximum suppression and regions of interest beside plain loops over their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from burn_torch import ArgumentError, Device, ShapeError, Tensor
from burn_torch.core.dtype import DType
from burn_torch.vision import NmsOptions, nms, roi_align


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in range(2))
    shared = max(width, 0) * max(height, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return shared / (areas - shared) if areas > shared else 0.0


def suppressed(boxes: np.ndarray, scores: np.ndarray, options: NmsOptions) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        full = options.max_output_boxes and len(kept) == options.max_output_boxes
        apart = all(overlap(boxes[i], boxes[j]) <= options.iou_threshold for j in kept)
        if scores[i] >= options.score_threshold and not full and apart:
            kept.append(i)
    return kept


@pytest.mark.parametrize("device", [Device.cpu(), Device.ndarray()], ids=str)
@pytest.mark.parametrize(
    "options", [None, NmsOptions(0.3, 0.4), NmsOptions(0.7, -10.0, 3), NmsOptions(0.0), NmsOptions(1.0)], ids=str
)
def test_boxes_that_stay(options, device, seed) -> None:
    for count in (0, 1, 40):
        corners = np.sort(seed.uniform(0, 10, (count, 2, 2)), 1)
        boxes, scores = corners.reshape(count, 4), seed.normal(size=count).round(1)
        ours = nms(Tensor.from_data(boxes, device), Tensor.from_data(scores, device), options)
        assert ours.dtype is DType.I64
        assert np.asarray(ours).tolist() == suppressed(boxes, scores, options or NmsOptions())


def test_scores_that_are_no_numbers_and_boxes_without_an_area() -> None:
    boxes = Tensor.from_data([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]], Device.cpu())
    scores = Tensor.from_data([float("nan"), 0.5, 0.2], Device.cpu())
    assert nms(boxes, scores).into_data().to_vec() == [1, 2]


def test_boxes_that_do_not_fit_are_refused() -> None:
    boxes, scores = Tensor.zeros((3, 4), Device.cpu()), Tensor.zeros((2,), Device.cpu())
    with pytest.raises(ShapeError, match="the boxes and their scores do not fit"):
        nms(boxes, scores)
    with pytest.raises(ArgumentError, match="max_output_boxes is negative"):
        NmsOptions(max_output_boxes=-1)


def bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = image[:, top, left] * (1 - x + left) + image[:, top, right] * (x - left)
    lower = image[:, bottom, left] * (1 - x + left) + image[:, bottom, right] * (x - left)
    return upper * (1 - y + top) + lower * (y - top)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_regions_are_means_of_points_between_pixels(aligned, sampling_ratio, seed) -> None:
    images, corners = seed.normal(size=(2, 3, 7, 9)), np.sort(seed.uniform(-2, 20, (5, 2, 2)), 1)
    rois, items, scale, size = corners.reshape(5, 4), seed.integers(0, 2, 5), 0.5, (2, 3)
    expected = np.zeros((5, 3, *size))
    for n, roi in enumerate(rois):
        x1, y1, x2, y2 = roi * scale - (0.5 if aligned else 0.0)
        sides = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
        counts = [sampling_ratio or max(math.ceil(side / bins), 1) for side, bins in zip(sides, size, strict=True)]
        for i, j in np.ndindex(*size):
            for a, b in np.ndindex(*counts):
                y = y1 + (i + (a + 0.5) / counts[0]) * sides[0] / size[0]
                x = x1 + (j + (b + 0.5) / counts[1]) * sides[1] / size[1]
                expected[n, :, i, j] += bilinear(images[items[n]], y, x) / math.prod(counts)
    for device in (Device.cpu().autodiff(), Device.ndarray()):
        x, regions, places = (Tensor.from_data(value, device) for value in (images, rois, items))
        x = x.require_grad() if device.is_autodiff() else x
        y = roi_align(x, regions, places, size, scale, sampling_ratio, aligned)
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-12, atol=1e-12)
        if device.is_autodiff():  # it is linear in the images: the gradient is its transpose
            upstream = seed.normal(size=expected.shape)
            gradient = np.asarray(x.grad((y * Tensor.from_data(upstream, device)).sum().backward()))
            np.testing.assert_allclose((gradient * images).sum(), (upstream * expected).sum(), rtol=1e-10)


def test_regions_that_do_not_fit_are_refused() -> None:
    device = Device.cpu()
    x, rois, items = (
        Tensor.zeros((1, 2, 4, 4), device),
        Tensor.zeros((2, 4), device),
        Tensor.zeros((2,), (device, "i64")),
    )
    assert roi_align(x, rois.narrow(0, 0, 0), items.narrow(0, 0, 0), (2, 2)).shape == (0, 2, 2, 2)
    with pytest.raises(ShapeError, match="the regions do not fit"):
        roi_align(x, rois, items.narrow(0, 0, 1), (2, 2))
    with pytest.raises(ArgumentError, match="an image that is not there"):
        roi_align(x, rois, items + 1, (2, 2))
    with pytest.raises(ArgumentError, match="how bins are read"):
        roi_align(x, rois, items, (2, 2), mode="mean")
