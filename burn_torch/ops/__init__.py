"""The table: one row an operation, one file a family.

`from burn_torch import ops`, then `ops.exp(x)`.  A row holds everything about its operation; backends, the tape, the
tests, the methods of Tensor and the docs read it here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY, Call, Op, op
from burn_torch.ops.signature import Number, Operand
from burn_torch.ops.value import Executor, Value

__all__ = ["REGISTRY", "Call", "Executor", "Number", "Op", "Operand", "TensorSpec", "Value", "op"]


def __getattr__(name: str) -> Any:
    """The row of this name, from now on a plain attribute: 0.2 us less a call than through here."""
    if name.startswith("_") or (Path(__file__).parent / f"{name}.py").exists():  # a module that is not imported yet
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        row = globals()[name] = REGISTRY[name]
    except KeyError:
        raise AttributeError(f"the table has no row {name!r}", name=name) from None
    return row


def __dir__() -> list[str]:
    return sorted({*globals(), *REGISTRY})
