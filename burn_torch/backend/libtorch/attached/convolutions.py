"""Kernels of `burn_kernels` for convolutions over two axes and their gradients, where few channels are read or made.

As the entries of `attached`.  Without timings `burn_kernels.convolution.is_direct` decides, from bytes and operations;
where it takes the kernels, timings choose among them, torch's convolution included.  In float32 products are exact,
unless torch may multiply convolutions and matrices as tf32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
    options = _options(call.attrs, call.tensor(0), call.tensor(1).shape)
    if options is None:
        return None
    from burn_kernels import convolution

    return lambda x, w, bias: convolution.forward(x, w, bias, **options)[0]


def _input_gradient(call: Call) -> Candidate | None:
    return _gradient(call, 0, call.result, call.tensor(1))


def _weight_gradient(call: Call) -> Candidate | None:
    return _gradient(call, 1, call.tensor(0), call.result)


def _gradient(call: Call, position: int, x: TensorSpec, w: TensorSpec) -> Candidate | None:
    """The gradient of x (0) or w (1), of which the kernels ask nothing but the shape."""
    options = _options(call.attrs, x, w.shape)
    if options is None:
        return None
    from burn_kernels import convolution

    absent = stand_in(call.result.shape, call.result.dtype, call.result.place)
    needs = (position == 0, position == 1, False)
    if position == 0:
        return lambda g, w: convolution.backward(g, absent, w, None, needs=needs, **options)[0]
    return lambda x, g: convolution.backward(g, x, absent, None, needs=needs, **options)[1]


CONVOLUTIONS: Final[Mapping[str, Callable[[Call], Candidate | None]]] = {
    "conv": _conv,
    "conv_input_gradient": _input_gradient,
    "conv_weight_gradient": _weight_gradient,
}
"""By the row's name."""
