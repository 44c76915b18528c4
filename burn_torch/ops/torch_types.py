"""Element types and places in torch's words, for the torch candidates of rows and for the leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["FROM_TORCH", "SIGNED", "TO_TORCH", "moving"]

TO_TORCH: Final[dict[DType, torch.dtype]] = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I64: torch.int64,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.I8: torch.int8,
    DType.U64: torch.uint64,
    DType.U32: torch.uint32,
    DType.U16: torch.uint16,
    DType.U8: torch.uint8,
    DType.BOOL: torch.bool,
}

FROM_TORCH: Final[dict[torch.dtype, DType]] = {theirs: ours for ours, theirs in TO_TORCH.items()}

SIGNED: Final = {DType.U16: DType.I16, DType.U32: DType.I32, DType.U64: DType.I64}
"""The signed types of the same bits, for types on which torch computes almost nothing."""


def moving(call: Call, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function that only moves elements of input 0 (and of values of its type), made to work on every type.

    torch has few kernels for u16, u32 and u64: these are moved as signed integers of the same bits.
    """
    dtype = call.tensor(0).dtype
    if dtype not in SIGNED:
        return function
    unsigned, signed = TO_TORCH[dtype], TO_TORCH[SIGNED[dtype]]

    def run(*inputs: Primitive) -> torch.Tensor:
        result = function(*(x.view(signed) if getattr(x, "dtype", None) is unsigned else x for x in inputs))
        return result.view(unsigned)

    return run
