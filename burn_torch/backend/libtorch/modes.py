"""torch's modes of the calling thread that must not reach what the leaf computes: autocast and inference mode.

Under autocast a product would have another element type than its spec says; what inference mode makes has no count of
writes, so no tape could check it and no optimizer write to it.  The leaf looks at both before it computes, and leaves
them while it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call

__all__ = ["in_autocast", "in_inference", "is_cast_by_autocast", "outside", "without_autocast"]

in_inference: Final[Callable[[], bool]] = torch.is_inference_mode_enabled  # 35 ns
in_autocast: Final[Callable[[], bool]] = torch._C._is_any_autocast_enabled  # 160 ns


def is_cast_by_autocast(call: Call) -> bool:
    """Whether autocast may change what a Call computes: not an element-wise one, or a view, of float32."""
    if any(isinstance(spec, TensorSpec) and spec.dtype.is_float and spec.dtype.itemsize == 2 for spec in call.specs):
        return True
    return call.op.pointwise is None and not call.op.view


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, out of autocast's reach."""

    def run(*inputs: Any) -> Any:
        return outside(function, inputs) if in_autocast() else function(*inputs)

    return run


def outside(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """`function(*inputs)` outside of both modes."""
    with torch.inference_mode(False), _autocast_off():
        return function(*inputs)


@contextmanager
def _autocast_off() -> Iterator[None]:
    enabled = [kind for kind in _KINDS if torch.is_autocast_enabled(kind)]
    for kind in enabled:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in enabled:
            torch.set_autocast_enabled(kind, True)


_KINDS: Final = ("cpu", "cuda", "mps")
