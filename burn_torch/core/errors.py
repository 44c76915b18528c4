"""Every error that a user of burn_torch can meet, and the one way to word it.

    BurnTorchError                       catch this to catch all of ours
    ├── ShapeError        (ValueError)   sizes that do not fit an operation or a layer
    ├── DTypeError        (TypeError)    element types that an operation does not take
    ├── ArgumentError     (ValueError)   a number outside the range that a function takes
    ├── BoundsError       (IndexError)   an index in a tensor's data that lies outside the axis it points into
    ├── DeviceError       (RuntimeError) a place that is absent, or values of stacks that do not mix
    ├── AutodiffError     (RuntimeError) backward without a tape, through a used tape, or over a changed value
    ├── TraceError        (RuntimeError) a value was read while a function was being traced
    ├── MovedError        (RuntimeError) a value was used after a compiled step had taken it over
    ├── GraphError        (ValueError)   a graph that is malformed, or data that holds none
    ├── ConfigError       (ValueError)   a configuration field that is unknown, missing or ill-typed
    ├── DataError         (ValueError)   a data file or folder that is missing, damaged or empty
    │   └── OnnxError                    an ONNX file that is damaged, or that asks for what is not supported
    ├── RecordError       (ValueError)   saved parameters that are damaged or belong to another model
    ├── ArtifactError     (OSError)      an artifact directory that cannot be written or is already in use
    ├── DistributedError  (RuntimeError) processes that do not work together: one is missing, silent or another's
    ├── NonFiniteError    (ArithmeticError) the loss became NaN or infinite
    └── OutOfMemoryError  (MemoryError)  a result that the host has no memory for

A message has three parts: what was given, what was expected, how to mend it.  Each class takes them by name and puts
them together as `explain` does:

    raise ShapeError("add: the shapes differ", given="lhs (2,), rhs (3,)", expected="one shape", mend="slice rhs")
"""

from __future__ import annotations

from typing import Any, overload

from burn_torch.core.wording import visible

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "AutodiffError",
    "BoundsError",
    "BurnTorchError",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "DistributedError",
    "GraphError",
    "MovedError",
    "NonFiniteError",
    "OnnxError",
    "OutOfMemoryError",
    "RecordError",
    "ShapeError",
    "TraceError",
    "explain",
]


class BurnTorchError(Exception):
    """Base of all errors that burn_torch raises on a user's mistake or a damaged file."""

    @overload
    def __init__(self, what: str, /, *, given: str, expected: str, mend: str) -> None: ...
    @overload
    def __init__(self, *args: object) -> None: ...
    def __init__(self, *args: Any, **parts: str) -> None:
        super().__init__(*((explain(*args, **parts),) if parts else args))


class ShapeError(BurnTorchError, ValueError):
    """Sizes that do not fit an operation or a layer."""


class DTypeError(BurnTorchError, TypeError):
    """Element types that an operation does not take."""


class ArgumentError(BurnTorchError, ValueError):
    """A number outside the range that a function takes."""


class BoundsError(BurnTorchError, IndexError):
    """An index in a tensor's data that lies outside the axis it points into."""


class DeviceError(BurnTorchError, RuntimeError):
    """A place that is absent, or values of backend stacks that do not mix."""


class AutodiffError(BurnTorchError, RuntimeError):
    """Backward without a tape, through a used tape, or over a value that was changed since."""


class TraceError(BurnTorchError, RuntimeError):
    """A value was read while a function was being traced."""


class MovedError(BurnTorchError, RuntimeError):
    """A value was used after a compiled step had taken it over (`compile(fn, donate=...)`)."""


class GraphError(BurnTorchError, ValueError):
    """A graph that is malformed, or data that holds none."""


class ConfigError(BurnTorchError, ValueError):
    """A configuration field that is unknown, missing or ill-typed."""


class DataError(BurnTorchError, ValueError):
    """A data file or folder that is missing, damaged or empty."""


class OnnxError(DataError):
    """An ONNX file that is damaged, or that asks for what is not supported."""


class RecordError(BurnTorchError, ValueError):
    """Saved parameters that are damaged or belong to another model."""


class ArtifactError(BurnTorchError, OSError):
    """An artifact directory that cannot be written or is already in use."""


class DistributedError(BurnTorchError, RuntimeError):
    """Processes that do not work together: one is missing, silent, or of another world."""


class NonFiniteError(BurnTorchError, ArithmeticError):
    """The loss became NaN or infinite."""


class OutOfMemoryError(BurnTorchError, MemoryError):
    """A result that the host has no memory for."""


def explain(what: str, *, given: str, expected: str, mend: str) -> str:
    """Words an error: one line of what went wrong, then its three parts, one line each, without control characters.

    >>> print(explain("add: the shapes differ", given="lhs (2,), rhs (3,)", expected="one shape", mend="slice rhs"))
    add: the shapes differ
      given:    lhs (2,), rhs (3,)
      expected: one shape
      mend:     slice rhs
    """
    return visible(f"{what}\n  given:    {given}\n  expected: {expected}\n  mend:     {mend}", "\n")
