"""Rows of linear algebra: the matrices that they accept, and results of which the signs are a library's choice.

Rows that say nothing of NaN and infinities are told here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from burn_torch import Tensor

__all__ = ["SIGNED", "SYMMETRIC", "is_well_posed"]

SYMMETRIC: Final = frozenset({"cholesky", "eigh"})
"""Rows whose gradient is that along symmetric changes: differences along others tell nothing of it."""
SIGNED: Final = {"eigh": (1,), "svd": (0, 2)}
"""Results that are vectors up to a sign: programs read their squares alone."""
_INVERTING: Final = frozenset({"cholesky", "eigh", "lu", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd"})
_FINITE: Final = _INVERTING | {"ctc_loss", "det", "over_gaps"}
"""Rows whose steps are another library's choice: infinities and NaN reach other elements of their results."""
_LEAST: Final = 1e-2
"""The smallest singular value, and of vectors the smallest gap, as parts of the largest value.  Less of them, and one
library refuses a matrix as singular that another one has rounded to a regular one."""


def is_well_posed(name: str, operands: Sequence[Tensor]) -> bool:
    """Returns whether small changes of the operands change the results of a row and its gradient a little."""
    if name not in _FINITE:
        return True
    arrays = [x.into_data().array.astype(np.float64) for x in operands if x.dtype.is_float]
    if not all(np.isfinite(x).all() for x in arrays):
        return False
    if name not in _INVERTING or not arrays[0].size:
        return True
    sizes = np.linalg.svd(arrays[0], compute_uv=False)
    spread = sizes if name not in SIGNED else np.concatenate([sizes, sizes[..., :-1] - sizes[..., 1:]], axis=-1)
    return bool((spread.min(axis=-1) > _LEAST * sizes.max(axis=-1)).all())
