"""Element types and numbers as C writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from burn_torch.core.dtype import DType
from burn_torch.ops.value import Primitive

__all__ = ["C_TYPES", "c_number"]

C_TYPES: Final[Mapping[DType, str]] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "_Float16",
    DType.BF16: "uint16_t",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.BOOL: "_Bool",
}
"""How element types lie in memory."""


def c_number(value: Primitive, kind: DType) -> str:
    """A number as source, of floats rounded to `kind`; beside integers it is whole."""
    if not isinstance(value, float) or not kind.is_float:
        value = int(value)
        return f"{value}LL" if abs(value) > 1 << 30 else str(value)
    end = "" if kind is DType.F64 else "f"
    if value != value:
        return f'__builtin_nan{end}("")'
    if value in (float("inf"), float("-inf")):
        return f"(-__builtin_inf{end}())" if value < 0 else f"__builtin_inf{end}()"
    return f"{value!r}{end}"
