"""Moving values between devices of one leaf."""

from __future__ import annotations

from operator import methodcaller

import torch

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import PerCall, op
from burn_torch.ops.samples import sample, uniform


@op(
    torch=PerCall(lambda call: methodcaller("to", torch.device(call.attrs["place"]))),
    numpy=lambda x, *, place: x,
    view="same",
    same=lambda call: call.result is call.specs[0],
    samples=[sample(uniform(-1, 1, (2, 3)), place="cpu"), sample(uniform(-1, 1, (0,)), place="cpu")],
)
def to_place(x: TensorSpec, *, place: str) -> TensorSpec:
    """The same values at another place; the gradient comes back to the place of x.

    Shapes: x (*s) -> (*s).  Dtypes: any.  PyTorch: Tensor.to(device).
    """
    return TensorSpec.of(x.shape, x.dtype, place)


@to_place.gradient
def _(g, y, x, *, place):
    return to_place(g, place=x.place)
