"""Arguments of another type end in an error of ours, for each function of images."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import numpy as np
import pytest

from burn_torch import BurnTorchError, Device, Tensor, vision

IMAGES = Tensor.from_data(np.linspace(0.0, 1.0, 2 * 3 * 5 * 6).reshape(2, 3, 5, 6), Device.cpu())
BOXES = Tensor.from_data(np.array([[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 2.0, 2.0]]), Device.cpu())
RIGHT: dict[str, Any] = {
    "images": IMAGES, "x": IMAGES, "size": (3, 3), "kernel": Tensor.from_data(np.eye(3, dtype=np.bool_), Device.cpu()),
    "boxes": BOXES, "rois": BOXES, "scores": Tensor.from_data(np.array([0.5, 0.6]), Device.cpu()),
    "batch_indices": Tensor.from_data(np.array([0, 1]), Device.cpu()), "output_size": (2, 2), "factor": 0.5,
    "turn": 0.1,
    "bits": 3, "threshold": 0.5, "mean": (0.1, 0.2, 0.3), "std": (1.0, 1.0, 1.0), "key": 3, "ksize": (3, 3),
    "labels": Tensor.from_data(np.eye(2), Device.cpu()), "shape": vision.KernelShape.Cross, "anchor": (1, 1),
    "connectivity": vision.Connectivity.Four, "device": Device.cpu(), "hue": [-0.1, 0.1], "degrees": [0.0, 10.0],
}  # fmt: skip
FUNCTIONS = [
    name for name in vision.__all__ if inspect.isfunction(getattr(vision, name)) and name != "save_tensor_as_image"
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_ends_in_a_raw_error(name: str) -> None:
    function = getattr(vision, name)
    parameters = inspect.signature(function).parameters
    named = {n: RIGHT[n] for n in parameters if n in RIGHT}
    named |= {"images": IMAGES.greater(0.5)} if "connected" in name else {}
    named |= {"size": 3} if name == "median" else {}
    named |= {"images": IMAGES.narrow(1, 0, 1)} if name == "gray2rgb" else {}
    function(**named)
    for parameter in parameters:
        for wrong in (None, "no", (), [None], 0.5, np.ones((2, 2)), object(), BOXES):
            with contextlib.suppress(BurnTorchError):
                function(**{**named, parameter: wrong})
