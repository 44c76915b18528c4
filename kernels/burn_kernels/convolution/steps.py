"""The data gradient of a convolution by steps, as torch's convolution by steps of 1.

    dx[c, h a + r, w b + s] = sum over o, t, u of dz[o, a + t, b + u] * weight[o, c, r + pad - h t, s + pad - w u]

where a step is h x w: every place (r, s) in a step is a channel, which its own taps of the kernel make.  Of a 7 x 7
kernel by steps of 2 those are 16 or fewer of 49, so 64 taps are multiplied where 49 count; but no pixel is masked, and
with 3 input channels there are 12 to make, which tiles of a convolution are filled with, and not 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from burn_kernels.convolution.references import Geometry, in_tf32

__all__ = ["MOST_CHANNELS", "by_steps", "takes_steps"]

MOST_CHANNELS = 64
"""Input channels by places in a step, up to which this is a candidate: tiles of 64 are full without it."""


def takes_steps(geometry: Geometry) -> bool:
    """Tells if the gradient can be had so: of few channels, whose steps are not 1."""
    steps = geometry.stride_h * geometry.stride_w
    return (
        geometry.groups == geometry.dilation_h == geometry.dilation_w == 1 < steps
        and geometry.sources * steps <= MOST_CHANNELS
    )


def by_steps(dz: torch.Tensor, w: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """The gradient of x from that of the convolution's output, in order."""
    tall = _Side(geometry.kernel_h, geometry.stride_h, geometry.pad_h, geometry.height, geometry.out_h)
    wide = _Side(geometry.kernel_w, geometry.stride_w, geometry.pad_w, geometry.width, geometry.out_w)
    padded = functional.pad(w, (wide.before, wide.behind, tall.before, tall.behind))
    cut = padded.view(geometry.outs, geometry.sources, tall.taps, tall.step, wide.taps, wide.step).flip(2, 4)
    weights = cut.permute(1, 3, 5, 0, 2, 4).reshape(-1, geometry.outs, tall.taps, wide.taps)
    z = _convolve(dz, weights, (tall.pad, wide.pad))
    z = z[:, :, tall.skip : tall.skip + tall.places, wide.skip : wide.skip + wide.places]
    parts = z.reshape(geometry.batch, geometry.sources, tall.step, wide.step, tall.places, wide.places)
    dx = parts.permute(0, 1, 4, 2, 5, 3).reshape(
        geometry.batch, geometry.sources, tall.places * tall.step, wide.places * wide.step
    )
    return dx[:, :, : geometry.height, : geometry.width].contiguous()


class _Side:
    """Rows, or columns: the kernel's, in parts of a step, and those of x, in places of one."""

    def __init__(self, kernel: int, step: int, pad: int, size: int, out: int) -> None:
        self.step = step
        last = (pad + step - 1) // step  # the farthest output ahead of a place that its pixels are read by
        self.before = step * last - pad
        self.taps = -(-(kernel + self.before) // step)
        self.behind = self.taps * step - kernel - self.before
        self.places = -(-size // step)
        first = last - self.taps + 1
        self.pad = max(-first, self.places - 1 + last - (out - 1), 0)
        self.skip = self.pad + first


def _convolve(dz: torch.Tensor, weights: torch.Tensor, pad: tuple[int, int]) -> torch.Tensor:
    if not dz.is_cuda or torch.version.hip or not torch.backends.cudnn.is_available():
        return functional.conv2d(dz, weights, None, 1, pad)
    # cuDNN's own gradient of a stem is exact in float32 where torch allows tf32 in convolutions (seven of seven, H200):
    # so is this one, unless all products are asked for in tf32
    cudnn: Any = torch.backends.cudnn
    exactly = (cudnn.benchmark, cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    run: Any = torch.ops.aten.cudnn_convolution
    z: torch.Tensor = run(dz, weights, list(pad), [1, 1], [1, 1], 1, *exactly, in_tf32(dz.dtype))
    return z
