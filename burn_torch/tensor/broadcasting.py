"""The notice of an operation that pairs each element of one tensor with all of another, where one of each was meant.

`output.argmax(1) == targets` is (n, 1) beside (n,), hence (n, n): a reduction keeps its axis.  In Burn ranks are types,
and this does not compile.  A smaller tensor along the last axes of a larger one, such as a bias, is as it should be.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from burn_torch.core.errors import explain
from burn_torch.core.frames import is_users
from burn_torch.core.misfits import WORDED
from burn_torch.core.spec import TensorSpec

__all__ = ["BroadcastWarning", "warn_of_pairing", "warn_of_shapes"]


class BroadcastWarning(UserWarning):
    """An element-wise operation broadcasts tensors of different ranks against each other, or `all_close` tensors of
    different shapes, which is seldom meant.

    `warnings.filterwarnings("ignore", category=BroadcastWarning)` silences it.
    """


def warn_of_pairing(name: str, pair: tuple[TensorSpec, TensorSpec], result: TensorSpec) -> None:
    """Warns at the line of the user that has called the operation itself, once a line; a library's line never."""
    x, y = pair
    higher, lower = ("the first", "the second") if x.ndim > y.ndim else ("the second", "the first")
    _warn(
        lambda: explain(
            f"{name}: two tensors of different ranks are broadcast against each other",
            given=f"{x.shape} and {y.shape}, which make {result.shape}",
            expected="one rank, or a smaller tensor along the last axes of a larger one",
            mend=f"drop the axis of size 1 of {higher} with squeeze_dim(-1), as argmax and sums keep their axis;"
            f" where all pairs are meant, say so: unsqueeze_dim(0) on {lower}",
        )
    )


def warn_of_shapes(name: str, x: TensorSpec, y: TensorSpec) -> None:
    """The same of an operation that compares two tensors as wholes, which have other shapes.

    One element beside others is a number, and is as it should be.
    """
    if x.shape == y.shape or (y.numel == 1 and x.numel):
        return
    _warn(
        lambda: explain(
            f"{name}: tensors of different shapes are compared, by broadcasting",
            given=f"{x.shape} and {y.shape}",
            expected="one shape, or a single number to compare with",
            mend="compare what belongs together: reshape or squeeze_dim one of them; where it is to be repeated, say so"
            " with expand",
        )
    )


def _warn(message: Callable[[], str]) -> None:
    frame: Any = sys._getframe(2)
    methods = 0
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, WORDED)):
        methods += not frame.f_code.co_filename.endswith(_SHORT_WAYS)
        frame = frame.f_back
    if frame is None or methods > 1 or not is_users(frame.f_code.co_filename):
        return  # a function of this library computes with it
    line = (frame.f_code.co_filename, frame.f_lineno)
    if _noticed.get(line) is warnings.filters:
        return
    warnings.warn_explicit(
        message(),
        BroadcastWarning,
        line[0],
        line[1],
        module=frame.f_globals.get("__name__", "__main__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
    _noticed[line] = warnings.filters  # new filters, as of `catch_warnings`, are to see it again


_HERE: Final = str(Path(__file__).resolve().parent)
_SHORT_WAYS: Final = ("apply.py", "broadcasting.py", WORDED)
_noticed: Final[dict[tuple[str, int], object]] = {}
