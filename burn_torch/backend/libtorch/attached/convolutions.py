"""Kernels of `burn_kernels` for convolutions over two axes and their gradients, where few channels are read or made.

As the entries of `attached`.  Without timings `burn_kernels.convolution.is_direct` decides, from bytes and operations;
where it takes the kernels, timings choose among them, torch's convolution included.  In float32 products are exact,
unless torch may multiply convolutions and matrices as tf32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Attrs
from burn_torch.ops.windows import stand_in

__all__ = ["CONVOLUTIONS"]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)


def _options(attrs: Attrs, x: TensorSpec, w: Shape) -> dict[str, Any] | None:
    """The settings as `burn_kernels` takes them; None where its kernels are not for this convolution."""
    stride, padding, dilation, groups = (attrs[name] for name in ("stride", "padding", "dilation", "groups"))
    if x.ndim != 4 or x.dtype not in _FLOATS or not x.numel or any(a != b or a < 0 for a, b in padding):
        return None
    from burn_kernels.convolution import Geometry, is_direct

    pads = tuple(a for a, _ in padding)
    batch, channels, height, width = x.shape
    geometry = Geometry._make((batch, channels, height, width, w[0], w[2], w[3], *stride, *pads, *dilation, groups))
    if not is_direct(geometry, TO_TORCH[x.dtype]):
        return None
    return {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}


def _conv(call: Call) -> Candidate | None:
    x, w = call.specs[:2]
    assert isinstance(x, TensorSpec)
    assert isinstance(w, TensorSpec)
    options = _options(call.attrs, x, w.shape)
    if options is None:
        return None
    from burn_kernels import convolution

    def run(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return convolution.forward(x, w, bias, **options)[0]

    return run


def _input_gradient(call: Call) -> Candidate | None:
    w = call.specs[1]
    assert isinstance(w, TensorSpec)
    options = _options(call.attrs, call.result, w.shape)
    if options is None:
        return None
    from burn_kernels import convolution

    x = stand_in(call.result.shape, call.result.dtype, call.result.place)

    def run(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor | None:
        return convolution.backward(g, x, w, None, needs=(True, False, False), **options)[0]

    return run


def _weight_gradient(call: Call) -> Candidate | None:
    x = call.specs[0]
    assert isinstance(x, TensorSpec)
    options = _options(call.attrs, x, call.result.shape)
    if options is None:
        return None
    from burn_kernels import convolution

    w = stand_in(call.result.shape, call.result.dtype, call.result.place)

    def run(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor | None:
        return convolution.backward(g, x, w, None, needs=(False, True, False), **options)[1]

    return run


CONVOLUTIONS: Final[Mapping[str, Callable[[Call], Candidate | None]]] = {
    "conv": _conv,
    "conv_input_gradient": _input_gradient,
    "conv_weight_gradient": _weight_gradient,
}
"""By the row's name."""
