"""Rows without tensor inputs: their place and element type are attributes."""

from __future__ import annotations

import numpy as np
import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.op import Call, Number, PerCall, op
from burn_torch.ops.samples import sample
from burn_torch.ops.torch_types import TO_TORCH


def _torch_full(call: Call):
    shape, dtype, place = call.attrs["shape"], TO_TORCH[call.attrs["dtype"]], torch.device(call.attrs["place"])
    return lambda value: torch.full(shape, value, dtype=dtype, device=place)


@op(
    torch=PerCall(_torch_full),
    numpy=lambda value, *, shape, dtype, place: np.full(shape, value, dtype=dtype.numpy),
    cost="cheap",
    nondifferentiable=True,
    samples=[
        sample(1.5, shape=(2, 3), dtype=DType.F32, place="cpu"),
        sample(-2, shape=(), dtype=DType.I64, place="cpu"),
        sample(True, shape=(0,), dtype=DType.BOOL, place="cpu"),
    ],
)
def full(value: Number, *, shape: Shape, dtype: DType, place: str) -> TensorSpec:
    """A tensor whose elements all have one value.

    Shapes: () -> shape.  Dtypes: any; the value is converted.
    """
    return TensorSpec.of(shape, dtype, place)
