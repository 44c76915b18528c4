"""Pixels and channels in another order, and grids of places."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import integer, truth, whole_list
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.functional._settings import require_spatial
from burn_torch.tensor.grid import affine_grid_2d, affine_grid_3d
from burn_torch.tensor.tensor import Tensor

__all__ = ["affine_grid", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Groups of r^2 channels as blocks of r x r pixels.

    Shapes: x (batch, channels r^2, height, width) -> (batch, channels, height r, width r).
    Source: Shi et al. 2016, https://arxiv.org/abs/1609.05158.  PyTorch: torch.nn.functional.pixel_shuffle.
    """
    require_spatial(x, 2)
    r, (batch, channels, height, width) = integer(upscale_factor, "upscale_factor"), x.shape
    _require_division(r > 0 and channels % (r * r) == 0, x, f"channels that are a multiple of {r * r}")
    blocks = x.reshape((batch, channels // (r * r), r, r, height, width)).permute((0, 1, 4, 2, 5, 3))
    return blocks.reshape((batch, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """Blocks of r x r pixels as groups of r^2 channels: what undoes `pixel_shuffle`.

    Shapes: x (batch, channels, height r, width r) -> (batch, channels r^2, height, width).
    PyTorch: torch.nn.functional.pixel_unshuffle.
    """
    require_spatial(x, 2)
    r, (batch, channels, height, width) = integer(downscale_factor, "downscale_factor"), x.shape
    fits = r > 0 and height % r == 0 and width % r == 0
    _require_division(fits, x, f"height and width that are multiples of {r}")
    blocks = x.reshape((batch, channels, height // r, r, width // r, r)).permute((0, 1, 3, 5, 2, 4))
    return blocks.reshape((batch, channels * r * r, height // r, width // r))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The first channel of each group, then the second of each, and so on.

    Shapes: x (batch, channels, *s), the channels a multiple of `groups` -> the same.
    Source: Zhang et al. 2017, https://arxiv.org/abs/1707.01083.  PyTorch: torch.nn.functional.channel_shuffle.
    """
    require_tensor(x)
    count = integer(groups, "groups")
    if x.ndim < 2 or count < 1 or x.shape[1] % count:
        _require_division(False, x, f"(batch, channels, *s) with channels that are a multiple of {count}")
    batch, channels, *rest = x.shape
    parts = x.reshape((batch, count, channels // count, *rest))
    return parts.swap_dims(1, 2).reshape((batch, channels, *rest))


def _require_division(fits: bool, x: Tensor, expected: str) -> None:
    if not fits:
        raise told(
            ShapeError,
            "the sizes do not divide",
            given=f"x {x.spec}",
            expected=expected,
            mend="change the factor, or pad the input",
        )


def affine_grid(transform: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Returns where each pixel of images, or voxel of volumes, lands under an affine map, for `grid_sample`.

    Coordinates run from -1 to 1 over the outer edges of the outer pixels, or with align_corners over their centres.
    Shapes: transform (batch, 2, 3), size (batch, channels, height, width) -> (batch, height, width, 2); or transform
    (batch, 3, 4), size (batch, channels, depth, height, width) -> (batch, depth, height, width, 3); (x, y, z) last.
    PyTorch: torch.nn.functional.affine_grid; Burn: affine_grid_2d, which aligns corners unless told.
    """
    dims = whole_list(size, "size")
    grid = affine_grid_3d if len(dims) == 5 else affine_grid_2d
    return grid(transform, dims, truth(align_corners, "align_corners"))


word_functions(globals(), "functional")
