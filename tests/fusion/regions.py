"""Programs of joined, padded and assigned values at odd sizes: (function, specs, kernels)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, Spec
from tests.fusion.programs import row, tensor


def _padded_by(x: Any, value: Any) -> Any:
    return row("pad")(x * 2.0, value, padding=((2, 0), (0, 3)), mode="constant") + 1.0


def _join_within_join(x: Any, y: Any, z: Any) -> Any:
    inner = row("cat")(x * 2.0, row("permute")(y, axes=(1, 0)), dim=1)
    return row("relu")(row("cat")(inner, row("neg")(z), dim=0))


def _cut_again(x: Any, y: Any) -> Any:
    """Parts of what is joined: across the border, and each side alone."""
    z = row("cat")(x + 1.0, y * 3.0, dim=0)
    ends = [(2, 5), (0, 3), (3, 6)]
    a, b, c = (row("slice")(z, ranges=((start, end, 1), (0, z.shape[1], 1))) for start, end in ends)
    return a * b + c


def _join_flattened(x: Any, y: Any) -> Any:
    """The elements of what is joined in another order than rows."""
    z = row("cat")(x, y, dim=1)
    return row("reshape")(row("permute")(z, axes=(1, 0)), shape=(z.spec.numel,)) * 2.0


def _in_reduced_rows(x: Any, y: Any) -> Any:
    z = row("cat")(x * 0.5, y, dim=1)
    return z - row("mean")(z, dims=(1,)), row("amax")(z, dims=(1,))


COSTLY = ("functions in parts", "random values in a part")
"""No kernels in C: each lane would compute every part."""

REGIONS: dict[str, tuple[Callable[..., Any], list[Spec], int]] = {
    "a number around": (_padded_by, [tensor(3, 5), FLOAT_NUMBER], 1),
    "in one another": (_join_within_join, [tensor(3, 4), tensor(2, 3), tensor(2, 6)], 1),
    "cut again": (_cut_again, [tensor(3, 4), tensor(3, 4)], 1),
    "turned and flattened": (_join_flattened, [tensor(5, 3), tensor(5, 2)], 1),
    "rows that are reduced": (_in_reduced_rows, [tensor(4, 7), tensor(4, 6)], 1),
    "parts without elements": (
        lambda x, y, z: row("cat")(x, y, z, dim=1) * 2.0,
        [tensor(3, 2), tensor(3, 0), tensor(3, 1)],
        1,
    ),
    "whole numbers": (
        lambda x, y: row("pad")(row("cat")(x, y, dim=0) + 1, 7, padding=((1, 1),), mode="constant") * 2,
        [tensor(3, dtype=DType.I64), tensor(2, dtype=DType.I64)],
        1,
    ),
    "booleans": (
        lambda x, y: row("bool_not")(row("pad")(x, True, padding=((0, 0), (2, 1)), mode="constant")),
        [tensor(3, 4, dtype=DType.BOOL), tensor(1)],
        1,
    ),
    "functions in parts": (
        lambda x, y: row("cat")(row("tanh")(x), row("sigmoid")(y) * 2.0, x, dim=1) + 1.0,
        [tensor(5, 70), tensor(5, 40)],
        1,
    ),
    "random values in a part": (
        lambda x, y: row("cat")(row("dropout")(x, 0.5, 11, 3), y, dim=0) * 2.0,
        [tensor(3, 4), tensor(2, 4)],
        1,
    ),
}
