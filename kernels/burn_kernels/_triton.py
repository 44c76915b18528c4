"""Triton, or stand-ins that let kernel files be imported where it is not installed (Windows, macOS).

Without Triton the launchers use the references, on every device; `AVAILABLE` says so.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

try:
    import triton
    import triton.language as tl
    from triton.language.extra.cuda import gdc_launch_dependents as let_next_begin
    from triton.language.extra.cuda import gdc_wait as wait_for_last

    AVAILABLE = True
except ImportError:
    triton: object  # type: ignore[no-redef]  # a module above
    tl: object  # type: ignore[no-redef]  # a module above

    def _jit(function: Any = None, **_: object) -> object:
        if function is None:
            return _jit
        function.is_kernel = True  # as `jitted` knows it
        return function

    triton = SimpleNamespace(jit=_jit, constexpr_function=lambda function: function)
    tl = SimpleNamespace(constexpr=lambda value: value)
    let_next_begin = wait_for_last = None
    AVAILABLE = False

__all__ = ["AVAILABLE", "INTERPRETED", "let_next_begin", "tl", "triton", "wait_for_last"]

INTERPRETED = AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
"""True if kernels run on CPU tensors in Triton's interpreter; read when Triton is imported, as Triton does."""
