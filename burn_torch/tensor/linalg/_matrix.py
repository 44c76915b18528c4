"""Shared parts of functions of matrices: checks of their arguments, and how half types are computed."""

from __future__ import annotations

from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.ops.op import Op
from burn_torch.tensor.apply import HALVES, apply, require_tensor, widen
from burn_torch.tensor.tensor import Tensor

__all__ = ["compute", "require_axes", "require_square"]


def compute(row: Op, x: Tensor, *inputs: Tensor | float, attrs: tuple[object, ...] = ()) -> tuple[Tensor, ...]:
    """The outputs of a row at tensors of one type: of a half type in float32, and the float results rounded once."""
    require_tensor(x)
    operands, dtype = (x, *inputs), x.dtype
    is_half = dtype in HALVES and all(y.dtype is dtype for y in inputs if isinstance(y, Tensor))
    if is_half:
        operands = tuple(widen(y) if isinstance(y, Tensor) else y for y in operands)
    results = apply(row, operands, *attrs)
    results = results if isinstance(results, tuple) else (results,)
    return tuple(y.cast(dtype) if y.dtype.is_float else y for y in results) if is_half else results


def require_axes(x: Tensor, count: int = 2, name: str = "x") -> None:
    """Raises: DTypeError for what is no tensor, ShapeError for one of fewer axes."""
    require_tensor(x, name)
    if x.spec.ndim < count:
        raise told(
            ShapeError,
            f"{name} has too few axes",
            given=f"{name} {x.spec}",
            expected=f"{count} axes or more, those of a matrix last" if count == 2 else f"{count} axes or more",
            mend=f"insert an axis, for example {name}.unsqueeze_dim(0)",
        )


def require_square(x: Tensor, name: str = "x") -> int:
    """The size of a square matrix.  Raises: DTypeError for what is no tensor, ShapeError for another shape."""
    require_axes(x, 2, name)
    if x.shape[-1] != x.shape[-2]:
        raise told(
            ShapeError,
            f"{name} is not square",
            given=f"{name} {x.spec}",
            expected=f"{name} (*batch, n, n)",
            mend="pinv and lstsq take matrices of any shape",
        )
    return int(x.shape[-1])
