"""Checks of the arguments that functions of images share."""

from __future__ import annotations

from burn_torch.core.dtype import FLOAT
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import require_tensor

__all__ = ["require_floats", "require_images"]


def require_images(x: Tensor, channels: int | None = None) -> None:
    """Raises: ShapeError unless x is (batch, channels, height, width), with so many channels if a number is given."""
    require_tensor(x, "images")
    if x.ndim != 4 or channels not in (None, x.shape[1]):
        raise told(
            ShapeError,
            "these are no images" if x.ndim != 4 else "the images have another number of channels",
            given=str(x.spec),
            expected=f"(batch, {'channels' if channels is None else channels}, height, width)",
            mend="unsqueeze_dim(0) inserts the batch, permute moves channels in front of height and width",
        )


def require_floats(x: Tensor) -> None:
    """Raises: DTypeError unless the elements of x are floats."""
    if x.dtype not in FLOAT:
        raise told(
            DTypeError,
            "pixels are not floats",
            given=str(x.spec),
            expected="images of a float type",
            mend="images.cast(DType.F32) / 255 for bytes",
        )
