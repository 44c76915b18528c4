"""Element types and places in torch's words, for the torch candidates of rows and for the leaf."""

from __future__ import annotations

from typing import Final

import torch

from burn_torch.core.dtype import DType

__all__ = ["FROM_TORCH", "SIGNED", "TO_TORCH"]

TO_TORCH: Final[dict[DType, torch.dtype]] = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F8_E4M3: torch.float8_e4m3fn,
    DType.F8_E5M2: torch.float8_e5m2,
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

SIGNED: Final = {
    DType.U16: DType.I16,
    DType.U32: DType.I32,
    DType.U64: DType.I64,
    DType.F8_E4M3: DType.I8,
    DType.F8_E5M2: DType.I8,
}
"""The signed types of the same bits, for types on which torch computes almost nothing."""
