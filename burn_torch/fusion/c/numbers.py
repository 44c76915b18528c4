"""Element types, numbers and totals of reductions as C writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from burn_torch.core.dtype import DType
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size

__all__ = ["COLUMNS", "C_TYPES", "Total", "c_number"]

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


# -- totals ------------------------------------------------------------------------------------------
COLUMNS: Final = 64
"""Columns that are reduced side by side: their totals stay in the first cache."""


@final
class Total:
    """The total of a reduction: a number, or one of each column."""

    def __init__(self, name: str, kind: str, kept_in: DType, columns: bool) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.kept_in: Final = kept_in
        self.columns: Final = columns
        self.adds: Final = kind in ("sum", "mean")
        self.seeks_nan: Final = kind in ("max", "min") and kept_in.is_float
        wide = DType.F64 if kept_in.is_float else DType.I64
        self.part_type: Final = C_TYPES[kept_in]
        self.type: Final = C_TYPES[wide] if self.adds or kind == "prod" else C_TYPES[kept_in]
        self.at: Final = f"{name}[l]" if columns else f"{name}_part"
        self.nan_at: Final = f"{name}_nan[l]" if columns else f"{name}_nan"

    @property
    def neutral(self) -> str:
        """The number to start from."""
        if self.adds:
            return "0"
        if self.kind in ("prod", "all"):
            return "1"
        if self.kind == "any":
            return "0"
        if self.kept_in.is_float:
            return c_number(float("-inf") if self.kind == "max" else float("inf"), self.kept_in)
        edge = (1 << (8 * self.kept_in.itemsize - 1)) - 1
        return f"(-{edge}LL - 1)" if self.kind == "max" else f"{edge}LL"

    def step(self, value: str) -> list[str]:
        """Returns the lines that each element runs."""
        if self.adds:
            return [f"{self.at} += {value};"]
        if self.kind == "prod":
            return [f"{self.at} *= {value};"]
        if self.kind in ("any", "all"):
            return [f"{self.at} {'|' if self.kind == 'any' else '&'}= ({value} != 0);"]
        sign = ">" if self.kind == "max" else "<"
        lines = [f"{self.at} = {value} {sign} {self.at} ? {value} : {self.at};"]
        if self.seeks_nan:
            lines.append(f"{self.nan_at} |= ({value} != {value});")
        return lines

    def declared(self) -> str:
        """The declarations before a pass."""
        if self.columns:
            nan = f" int {self.name}_nan[{COLUMNS}];" if self.seeks_nan else ""
            return f"{self.type} {self.name}[{COLUMNS}];{nan}"
        nan = f" int {self.name}_nan = 0;" if self.seeks_nan else ""
        return f"{self.type} {self.name} = {self.neutral};{nan}"

    def cleared(self) -> str:
        """Starts a column."""
        return f"{self.at} = {self.neutral};" + (f" {self.nan_at} = 0;" if self.seeks_nan else "")

    def part_declared(self) -> str:
        """The declaration before the lanes of a chunk of a row."""
        return f"{self.part_type} {self.name}_part = {self.neutral};"

    def clauses(self) -> list[str]:
        """How lanes are joined."""
        sign = {"sum": "+", "mean": "+", "prod": "*", "any": "|", "all": "&"}.get(self.kind, self.kind)
        clauses = [f" reduction({sign}:{self.name}_part)"]
        return [*clauses, f" reduction(|:{self.name}_nan)"] if self.seeks_nan else clauses

    def joined(self) -> list[str]:
        """Adds a chunk of a row."""
        if self.adds or self.kind == "prod":
            return [f"{self.name} {'+' if self.adds else '*'}= {self.name}_part;"]
        if self.kind in ("any", "all"):
            return [f"{self.name} {'|' if self.kind == 'any' else '&'}= {self.name}_part;"]
        sign = ">" if self.kind == "max" else "<"
        return [f"{self.name} = {self.name}_part {sign} {self.name} ? {self.name}_part : {self.name};"]

    def result(self, length: int | Size) -> str:
        """The reduction's value."""
        name = f"{self.name}[l]" if self.columns else self.name
        if self.kind == "mean" and isinstance(length, Size):
            return f"{name} / (double){length}"
        if self.kind == "mean":
            return f"{name} / {length}.0" if length else '__builtin_nan("")'
        if self.kind in ("any", "all"):
            return f"{name} != 0"
        if self.seeks_nan:
            return f"{self.nan_at} ? {c_number(float('nan'), self.kept_in)} : {name}"
        return name
