"""Burn's names for element types, as its files have them."""

from __future__ import annotations

from typing import Any, Final

from burn_torch.core.dtype import DType
from burn_torch.record.faults import Unsound

__all__ = ["burn_type", "read_burn_type"]

_NAMED: Final = {
    dtype.name.upper(): dtype for dtype in vars(DType).values() if isinstance(dtype, DType) and dtype is not DType.BOOL
}
_READ: Final = {**_NAMED, "Flex32": DType.F32, "Bool": DType.BOOL}
_BOOL_WIDTHS: Final = {"Native": 1, "U8": 1, "U32": 4}


def burn_type(dtype: DType) -> Any:
    """Returns what Burn writes: "F32", and for truth values how they are stored."""
    return {"Bool": "Native"} if dtype is DType.BOOL else dtype.name.upper()


def read_burn_type(key: str, name: object) -> tuple[DType, int]:
    """The element type, and its bytes in the file where they are others.  Raises: Unsound for what we lack."""
    if isinstance(name, str) and name in _READ:
        return _READ[name], 0
    if isinstance(name, dict) and list(name) == ["Bool"] and name["Bool"] in list(_BOOL_WIDTHS):
        return DType.BOOL, _BOOL_WIDTHS[name["Bool"]]
    raise Unsound(f"{key} has the type {str(name)[:80]}; known are {', '.join(_READ)}")
