"""Images and signals at another size."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import option, truth
from burn_torch.tensor.apply import apply_one, require_tensor
from burn_torch.tensor.functional._settings import Sizes, each_axis
from burn_torch.tensor.options import (
    InterpolateMode,
    InterpolateOptions,
)
from burn_torch.tensor.tensor import Tensor

__all__ = ["interpolate"]


_INTERPOLATE = {
    InterpolateMode.Nearest: "nearest",
    InterpolateMode.NearestExact: "nearest_exact",
    InterpolateMode.Bilinear: "linear",
    InterpolateMode.Bicubic: "cubic",
    InterpolateMode.Lanczos3: "lanczos",
}


def interpolate(x: Tensor, output_size: Sizes, options: InterpolateOptions | None = None) -> Tensor:
    """An image, or a signal of one axis, at another size.  Corners are aligned unless told otherwise, as in Burn."""
    require_tensor(x)
    chosen = option(options, InterpolateOptions, "options")
    n = max(x.spec.ndim - 2, 1)
    mode = _INTERPOLATE[InterpolateMode.of(chosen.mode)]
    return apply_one(
        ops.interpolate,
        (x,),
        each_axis("output_size", output_size, n),
        mode,
        truth(chosen.align_corners, "align_corners"),
    )


word_functions(globals(), "functional")
