"""The errors of launchers, and the one way to word them.

    KernelError
    ├── KernelShapeError    (ValueError)    sizes that do not fit each other or the operation
    ├── KernelDTypeError    (TypeError)     element types that the kernel does not take
    ├── KernelDeviceError   (RuntimeError)  tensors on different devices, or on one that runs no kernel
    ├── KernelArgumentError (ValueError)    a number or an option outside its range
    └── KernelLimitError    (RuntimeError)  a right call that this kernel cannot run; `reference` can

A caller that catches `KernelLimitError` falls back to the reference, counts it and says so; the other errors are
mistakes of the caller.  Each class takes the three parts of its message by name and puts them together by `explain`:

    raise KernelShapeError("softmax: no columns", given="(3,)", expected="(rows, cols)", mend="add an axis")
"""

from __future__ import annotations

from typing import Any, overload

__all__ = [
    "KernelArgumentError",
    "KernelDTypeError",
    "KernelDeviceError",
    "KernelError",
    "KernelLimitError",
    "KernelShapeError",
    "explain",
]


class KernelError(Exception):
    """Base of all errors that a launcher raises."""

    @overload
    def __init__(self, what: str, /, *, given: str, expected: str, mend: str) -> None: ...
    @overload
    def __init__(self, *args: object) -> None: ...
    def __init__(self, *args: Any, **parts: str) -> None:
        super().__init__(*((explain(*args, **parts),) if parts else args))


class KernelShapeError(KernelError, ValueError):
    """Sizes that do not fit each other or the operation."""


class KernelDTypeError(KernelError, TypeError):
    """Element types that the kernel does not take."""


class KernelDeviceError(KernelError, RuntimeError):
    """Tensors on different devices, or on one that runs no kernel."""


class KernelArgumentError(KernelError, ValueError):
    """A number or an option outside its range."""


class KernelLimitError(KernelError, RuntimeError):
    """A right call that this kernel cannot run; its reference can."""


def explain(what: str, *, given: str, expected: str, mend: str) -> str:
    """Words an error in three parts.

    >>> print(explain("softmax: no columns", given="(3,)", expected="(rows, cols)", mend="add an axis"))
    softmax: no columns
      given:    (3,)
      expected: (rows, cols)
      mend:     add an axis
    """
    return f"{what}\n  given:    {given}\n  expected: {expected}\n  mend:     {mend}"
