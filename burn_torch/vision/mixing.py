"""Augmentation that mixes each image, and its label, with the one before it in the batch: mix-up and cut-mix."""

from __future__ import annotations

import math

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import require_tensor
from burn_torch.vision._draws import Draws
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.augmentation import inside

__all__ = ["cut_mix", "mix_up"]


def mix_up(images: Tensor, labels: Tensor, key: int | None = None, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """Each image and its label, times a drawn share, and those before it times the rest.

    The share of each image is drawn from the beta distribution with both parameters `alpha`; torchvision draws one for
    the batch.

    Shapes: images (batch, channels, height, width), labels (batch, classes) -> the same.  Dtypes: any float each;
    labels.one_hot(classes) makes labels of classes.  Raises: ShapeError, DTypeError, ArgumentError.
    Source: Zhang et al. 2017, https://arxiv.org/abs/1710.09412.  torchvision: transforms.v2.MixUp.
    """
    share = _share(images, labels, Draws(images, "mix_up", key), alpha)
    return _mix(images, share), _mix(labels, share.reshape((share.shape[0], 1)))


def cut_mix(images: Tensor, labels: Tensor, key: int | None = None, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    """Each image with a box of the one before it, and its label mixed by the areas.

    A box has the sides of the image times the root of 1 - share, a share as in `mix_up`, and a middle that is drawn
    inside the image; it is cut at the border.

    Shapes, dtypes and errors: as mix_up.
    Source: Yun et al. 2019, https://arxiv.org/abs/1905.04899.  torchvision: transforms.v2.CutMix.
    """
    draws = Draws(images, "cut_mix", key)
    root = (1.0 - _share(images, labels, draws, alpha)).sqrt()
    low, high = [], []
    for name, size in zip(("row", "column"), images.shape[2:], strict=True):
        middle, half = draws.integers(name, size).cast(DType.F32), (root.cast(DType.F32) * (size / 2)).floor()
        low.append((middle - half).clamp_min(0.0))
        high.append((middle + half).clamp_max(float(size)))
    box = inside(images, low, high)
    share = 1.0 - (high[0] - low[0]) * (high[1] - low[1]) / float(images.shape[2] * images.shape[3])
    mixed = images.mask_where(box.expand(images.shape), images.roll([1], [0]))
    return mixed, _mix(labels, share.reshape((share.shape[0], 1)))


def _mix(x: Tensor, share: Tensor) -> Tensor:
    before = x.roll([1], [0])
    return before + (x - before) * share.cast(x.dtype)


def _share(images: Tensor, labels: Tensor, draws: Draws, alpha: float) -> Tensor:
    require_images(images)
    require_floats(images)
    require_tensor(labels, "labels")
    if labels.ndim != 2 or labels.shape[0] != images.shape[0] or labels.dtype not in FLOAT:
        raise told(
            ShapeError,
            "the labels are no weights of classes",
            given=f"labels {labels.spec}, images {images.spec}",
            expected="labels (batch, classes) of floats",
            mend="labels.one_hot(classes).float()",
        )
    if not 0.0 < alpha < math.inf:
        raise told(
            ArgumentError,
            "alpha is no parameter of a beta distribution",
            given=f"alpha {alpha}",
            expected="a finite number above 0",
            mend="1.0 draws shares evenly",
        )
    return draws.beta("share", alpha)


check_functions(globals(), "vision")
