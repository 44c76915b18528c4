"""Why something is not part of a kernel: one of a closed list, with the details in words."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

__all__ = ["FusionWarning", "Reason", "Unfusible", "Unsymbolic"]


class FusionWarning(UserWarning):
    """Operations run without generated kernels, or are planned again and again."""


@final
class Reason(StrEnum):
    """The reasons for which two operations are two kernels."""

    SHAPE = "shape"
    """The results have different numbers of elements, and no reduction lies between them."""
    REDUCTION_ORDER = "reduction order"
    """A reduction over other axes, or one whose results are needed in another order than they are made."""
    DTYPE = "dtype"
    """An element type in which generated kernels do not compute this operation."""
    ALIAS = "alias"
    """The value is a view of what the caller holds, so it is no kernel at all."""
    MEMORY = "memory"
    """One kernel would hold more at once than the two need."""
    BARRIER = "barrier"
    """The shape of a result depends on data, or the host reads it."""
    UNSUPPORTED = "unsupported operation"
    """No kernel is generated for this operation."""
    LIBRARY = "library"
    """A library's kernel computes this operation, and nothing is joined to it."""
    LIMIT = "limit"
    """The kernel would have too many operations or tensors, or too few programs to fill a device."""


@final
class Unfusible(Exception):
    """A body cannot be one kernel."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Final = reason
        self.detail: Final = detail


@final
class Unsymbolic(Exception):
    """No symbolic form of a graph was found."""
