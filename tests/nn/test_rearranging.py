"""Rearranging and resampling layers and distances against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn as tnn

from burn_torch import nn
from burn_torch.core.errors import ConfigError, ShapeError
from tests.nn.twins import CPU, array, compare, tensor

Rng = np.random.Generator


# -- rearranging and resampling --------------------------------------------------------------------------------
def test_pixel_shuffle_and_back(seed: Rng) -> None:
    compare(seed, nn.PixelShuffleConfig(3).init(), tnn.PixelShuffle(3), seed.standard_normal((2, 18, 2, 4)))
    compare(seed, nn.PixelUnshuffleConfig(2).init(), tnn.PixelUnshuffle(2), seed.standard_normal((2, 3, 4, 6)))
    with pytest.raises(ShapeError, match=r"(?s)the sizes do not divide.*multiple of 4"):
        nn.PixelShuffleConfig(2).init().forward(tensor(np.zeros((1, 6, 2, 2), np.float32), CPU))
    with pytest.raises(ShapeError, match="the sizes do not divide"):
        nn.PixelUnshuffleConfig(2).init().forward(tensor(np.zeros((1, 6, 3, 2), np.float32), CPU))


def test_unfold_and_fold(seed: Rng) -> None:
    settings: dict[str, Any] = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 0)}
    kernel = (3, 2)
    unfold = nn.Unfold4dConfig(kernel, **settings).init()
    compare(seed, unfold, tnn.Unfold(kernel, (1, 2), (1, 0), (2, 1)), seed.standard_normal((2, 3, 7, 6)))
    fold = nn.Fold4dConfig((7, 6), kernel, **settings).init()
    compare(seed, fold, tnn.Fold((7, 6), kernel, (1, 2), (1, 0), (2, 1)), seed.standard_normal((2, 18, 16)))


def test_interpolate(seed: Rng) -> None:
    image, line = seed.standard_normal((2, 3, 5, 4)), seed.standard_normal((2, 3, 7))
    mode = nn.InterpolateMode
    two: Any = nn.Interpolate2dConfig
    cases = [
        (two(output_size=(7, 9)), tnn.Upsample((7, 9))),
        (
            two(scale_factor=(2.0, 3.0), mode=mode.NearestExact),
            tnn.Upsample(scale_factor=(2.0, 3.0), mode="nearest-exact"),
        ),
        (two(output_size=(7, 9), mode=mode.Linear), tnn.Upsample((7, 9), mode="bilinear", align_corners=True)),
        (
            two(output_size=(7, 3), mode=mode.Cubic, align_corners=False),
            tnn.Upsample((7, 3), mode="bicubic", align_corners=False),
        ),
    ]
    for config, twin in cases:
        compare(seed, config.init(), twin, image)
    one = nn.Interpolate1dConfig(scale_factor=1.5, mode=mode.Linear)
    compare(seed, one.init(), tnn.Upsample(10, mode="linear", align_corners=True), line)
    compare(seed, nn.Interpolate1dConfig(output_size=4).init(), tnn.Upsample(4), line)
    with pytest.raises(ConfigError, match="do not settle the size"):
        nn.Interpolate1dConfig()
    with pytest.raises(ConfigError, match="do not settle the size"):
        two(output_size=(1, 1), scale_factor=(1.0, 1.0))


# -- distances -----------------------------------------------------------------------------------------------
def test_cosine_similarity_and_pairwise_distance(seed: Rng) -> None:
    a, b = seed.standard_normal((2, 4, 5)), seed.standard_normal((2, 4, 5))
    for dim in (1, -1):
        compare(seed, nn.CosineSimilarityConfig(dim=dim).init(), tnn.CosineSimilarity(dim), a, b)
    for p in (1.0, 2.0, 3.5):
        compare(seed, nn.PairwiseDistanceConfig(p=p).init(), tnn.PairwiseDistance(p), a, b)
    zero = tensor(np.zeros((1, 3)), CPU)
    assert array(nn.CosineSimilarityConfig().init().forward(zero, zero)).tolist() == [0.0]
    with pytest.raises(ShapeError, match="CosineSimilarity: the inputs do not fit together"):
        nn.CosineSimilarityConfig().init().forward(zero, tensor(np.zeros((2, 3)), CPU))
