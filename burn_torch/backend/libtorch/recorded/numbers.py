"""The numbers of a recorded program: computed on the host in double, then copied to the device in one piece.

Each slot has 8 bytes of one block.  The host side is a ring of pinned rows, since a copy may still be reading a row
when the next call packs its numbers; a half of the ring is waited for only when its turn comes again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.backend.libtorch.recorded.device import Arena
from burn_torch.backend.libtorch.recorded.segments import Segmentation
from burn_torch.core.dtype import DType
from burn_torch.graph.ir import Node
from burn_torch.graph.source import straight_line
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["NumberBlock"]

_FORMATS: Final = {
    DType.F64: "d", DType.F32: "f4x", DType.I64: "q", DType.I32: "i4x", DType.I16: "h6x", DType.I8: "b7x",
    DType.U8: "B7x", DType.BOOL: "?7x",
}  # fmt: skip
_ROWS: Final = 64


@final
class NumberBlock:
    """The slots of a plan, and how a call fills them."""

    def __init__(self, plan: Segmentation, machine: Arena) -> None:
        self._machine: Final = machine
        self._compute: Final = straight_line(plan.numbers, _no_tensor)
        self._packs: Final = [(pack.pack, [plan.number_ids.index(i) for i in pack.numbers]) for pack in plan.packs]
        self._ids: Final = plan.number_ids
        order = [i for pack in plan.packs for i in pack.slots]
        self._dtypes: Final = [plan.slots[i] for i in order]
        self._format: Final = struct.Struct("<" + "".join(_FORMATS[dtype] for dtype in self._dtypes))
        self._last: bytes | None = None if order else b""  # numbers that no slot holds are checked, and not copied
        self.slots: Final[dict[int, torch.Tensor]] = {}
        """The 0-d tensors by id; recorded programs read them where they lie."""
        if not order:
            return
        size = 8 * len(order)
        cuda = machine.device.type == "cuda"
        self._device = torch.zeros(size, dtype=torch.uint8, device=machine.device)
        ring = torch.zeros((_ROWS, size), dtype=torch.uint8, pin_memory=cuda)
        self._rows: list[torch.Tensor] = list(ring)
        self._views: list[memoryview] = [
            memoryview(row.numpy())  # type: ignore[arg-type]  # numpy's stubs say no buffer
            for row in self._rows
        ]
        self._next = 0
        self._behind: list[Any] = [None, None]
        for number, (i, dtype) in enumerate(zip(order, self._dtypes, strict=True)):
            kind = TO_TORCH[dtype]
            self.slots[i] = self._device[8 * number : 8 * number + dtype.itemsize].view(kind).reshape(())

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return 8 * len(self._dtypes)

    def fill(self, given: Sequence[object]) -> dict[int, Primitive]:
        """Computes all numbers from the number inputs and brings the slots up to date.  Returns numbers by id."""
        values = self._compute(*given)
        if self._packs:
            packed: list[Any] = []
            for pack, at in self._packs:
                packed += pack(*[values[i] for i in at])
            row = self._pack_values(packed)
            if row != self._last:  # bytes, since 0.0 == -0.0
                self._copy(row)
                self._last = row
        return dict(zip(self._ids, values, strict=True))

    def _pack_values(self, values: Sequence[Primitive]) -> bytes:
        try:
            return self._format.pack(*values)
        except OverflowError:  # a double past the largest float32 is infinite there, as it is in every kernel
            with np.errstate(over="ignore"):
                held = [
                    float(np.float32(x)) if dtype is DType.F32 else x
                    for x, dtype in zip(values, self._dtypes, strict=True)
                ]
            return self._format.pack(*held)

    def _copy(self, row: bytes) -> None:
        at = self._next
        half, first = divmod(at, _ROWS // 2)
        if first == 0:
            # the other half was submitted whole: a mark behind it; this half may be written once its mark has passed
            self._behind[1 - half] = self._machine.mark()
            behind = self._behind[half]
            if behind is not None:
                behind.wait()
        self._views[at][:] = row
        self._device.copy_(self._rows[at], non_blocking=True)
        self._next = (at + 1) % _ROWS


def _no_tensor(node: Node, inputs: Sequence[str], name: object) -> str:
    raise AssertionError(f"{node} computes no number")
