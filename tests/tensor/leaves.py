"""Defines what the tests of tensors share: the same numbers as Tensor, torch and numpy, and a comparison of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from burn_torch.tensor import Device, Tensor

LEAVES = {"torch": Device.cpu, "numpy": Device.ndarray}


def numbers() -> dict[str, np.ndarray[Any, Any]]:
    """Named inputs: x, y any floats; p positive; u within (-1, 1); i, j, k integers; b, c truth values; v a vector."""
    g = np.random.default_rng(20240607)
    return {
        "x": g.normal(size=(3, 4)),
        "y": g.normal(size=(3, 4)),
        "p": g.uniform(0.5, 2.0, (3, 4)),
        "u": g.uniform(-0.9, 0.9, (3, 4)),
        "q": g.normal(size=(2, 3, 4)),
        "n": g.choice([np.nan, np.inf, -np.inf, 0.5], (3, 4)),
        "i": g.integers(-9, 10, (3, 4)),
        "j": g.integers(1, 6, (3, 4)),
        "k": g.integers(0, 3, (2, 4)),
        "r": np.array([2, 0, 2]),
        "b": g.random((3, 4)) < 0.5,
        "c": g.random((3, 4)) < 0.5,
        "v": g.normal(size=7),
        "w": g.normal(size=7),
        "t": g.normal(size=(3, 3)),
    }


def tensors(device: Device) -> dict[str, Tensor]:
    """The named inputs as tensors."""
    return {name: Tensor.from_data(array, device) for name, array in numbers().items()}


def torches() -> dict[str, torch.Tensor]:
    """The named inputs as torch tensors."""
    return {name: torch.from_numpy(array) for name, array in numbers().items()}


def same(ours: Any, theirs: Any) -> None:
    """Asserts equal shapes, element types and values (to 1e-12), through lists and tuples; NaN equals NaN."""
    if isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
        return
    if not isinstance(ours, Tensor):
        assert ours == theirs
        return
    expected = theirs.numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    actual = ours.into_data().array
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)
