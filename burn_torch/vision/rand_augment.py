"""RandAugment: a few changes of each image, drawn from fourteen, of one strength."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.tensor import InterpolateMode, Tensor
from burn_torch.vision import adjusting
from burn_torch.vision._draws import Draws
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.augmentation import warp

__all__ = ["rand_augment"]

_MOVES: Final = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_COLORS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "brightness": adjusting.adjust_brightness,
    "color": adjusting.adjust_saturation,
    "contrast": adjusting.adjust_contrast,
    "sharpness": adjusting.adjust_sharpness,
}
_CHANGES: Final = ("identity", *_MOVES, *_COLORS, "posterize", "solarize", "autocontrast", "equalize")


def rand_augment(
    images: Tensor, key: int | None = None, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31
) -> Tensor:
    """Each image after `num_ops` changes, each drawn from: none, shears, moves, a turn, brightness, colour, contrast,
    sharpness, fewer levels, solarisation, automatic contrast, equalisation.

    magnitude: the strength, from 0 to num_magnitude_bins - 1, the same for all; the direction is drawn.  Shears are
    about the middle; torchvision's keep the first pixel.

    Shapes: images (batch, 3, height, width) -> the same.  Dtypes: any float, from 0 to 1.
    Raises: ShapeError, DTypeError, ArgumentError.
    Source: Cubuk et al. 2019, https://arxiv.org/abs/1909.13719.  torchvision: transforms.v2.RandAugment.
    """
    require_images(images, 3)
    require_floats(images)
    if num_ops < 0 or not 0 <= magnitude < num_magnitude_bins or num_magnitude_bins < 2:
        raise told(
            ArgumentError,
            "there is no such strength",
            given=f"num_ops {num_ops}, magnitude {magnitude}, num_magnitude_bins {num_magnitude_bins}",
            expected="num_ops of 0 or more, 0 <= magnitude < num_magnitude_bins, 2 bins or more",
            mend="magnitude=9 of 31 bins is the usual one",
        )
    draws = Draws(images, "rand_augment", key)
    strength = magnitude / (num_magnitude_bins - 1)
    for i in range(num_ops):
        chosen = draws.integers(f"change{i}", len(_CHANGES))
        images = _change(images, chosen, draws.sign(f"sign{i}"), strength)
    return images


def _change(images: Tensor, chosen: Tensor, sign: Tensor, strength: float) -> Tensor:
    """Each image after the change of its number."""
    height, width = images.shape[2:]
    slant = math.degrees(math.atan(0.3 * strength))
    amounts = (slant, slant, 150.0 / 331.0 * width * strength, 150.0 / 331.0 * height * strength, 30.0 * strength)
    moves = {
        name: (sign * (float(int(amount)) if "translate" in name else amount)).mask_fill(
            chosen.not_equal(_CHANGES.index(name)), 0.0
        )
        for name, amount in zip(_MOVES, amounts, strict=True)
    }
    x, y, turn = moves["translate_x"], moves["translate_y"], moves["rotate"]
    shear = (moves["shear_x"], moves["shear_y"])
    factor = (sign * (0.9 * strength) + 1.0).cast(images.dtype)
    changed = {name: adjust(images, factor) for name, adjust in _COLORS.items()}
    changed["posterize"] = adjusting.posterize(images, 8 - round(4 * strength))
    changed["solarize"] = adjusting.solarize(images, 1.0 - strength)
    changed["autocontrast"] = adjusting.autocontrast(images)
    changed["equalize"] = adjusting.equalize(images)
    result = warp(images, turn, x, y, turn.ones_like(), shear, InterpolateMode.Nearest)
    for name, other in changed.items():
        result = result.mask_where(chosen.equal(_CHANGES.index(name)).expand(images.shape), other)
    return result


check_functions(globals(), "vision")
