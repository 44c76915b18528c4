"""Triton's interpreter (`TRITON_INTERPRET=1`), mended where it cannot run a kernel beside the installed numpy.

Nothing happens when this is imported.  The first kernel that is launched in the interpreter mends what is known to be
broken in the installed version, and says once what it changed.  Other versions are left as they are.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

from burn_kernels._triton import INTERPRETED, triton

__all__ = ["is_known", "launch_interpreted", "mend_bounds_of_loops"]

_KNOWN: Final = ("3.6.",)
"""The versions of Triton whose interpreter was read and is mended."""


def is_known(triton_version: str, numpy_version: str) -> bool:
    """Tells if these two are known to fail together: numpy refuses int() of arrays with axes from 2.4 on.

    >>> is_known("3.6.0", "2.4.6"), is_known("3.6.0", "2.3.1"), is_known("4.0.0", "2.4.6")
    (True, False, False)
    """
    major, minor = (int(part) for part in numpy_version.split(".")[:2])
    return triton_version.startswith(_KNOWN) and (major, minor) >= (2, 4)


def mend_bounds_of_loops(exchange: Callable[[Any, str, Any], None] = setattr) -> None:
    """Lets a loop run to a bound that a kernel reads or computes: by `item()` where Triton calls `int()`.

    `exchange(owner, name, value)` puts the mended function in its place; tests pass one that can be undone.
    """
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    patch_tensor.is_mended = True  # type: ignore[attr-defined]  # read by _mend_once
    exchange(interpreter, "_patch_lang_tensor", patch_tensor)


def launch_interpreted(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], **options: Any) -> object:
    """Launches a kernel on CPU tensors; lanes that are masked or replaced may compute with infinities."""
    import numpy as np

    _mend_once()
    with np.errstate(all="ignore"):
        return kernel[grid](*arguments, **options)


@functools.lru_cache(maxsize=1)
def _mend_once() -> None:
    import numpy as np

    if not INTERPRETED or not is_known(triton.__version__, np.__version__):
        return
    from triton.runtime import interpreter

    if getattr(interpreter._patch_lang_tensor, "is_mended", False):
        return
    mend_bounds_of_loops()
    warnings.warn(
        f"burn_kernels changes Triton's interpreter in this process (TRITON_INTERPRET=1): Triton {triton.__version__} "
        f"converts the bounds of loops by int(), which numpy {np.__version__} refuses; now by item(). "
        "Changed: triton.runtime.interpreter._patch_lang_tensor. With numpy < 2.4 nothing is changed.",
        RuntimeWarning,
        stacklevel=_user_level(),
    )


def _user_level() -> int:
    """The `stacklevel` of the first line outside of these packages, for a warning in the caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


_OURS: Final = ("burn_kernels", "burn_torch")
