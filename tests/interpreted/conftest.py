"""Makes Triton's interpreter run loops with run-time bounds on numpy 2.4 and newer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def loops_with_runtime_bounds() -> Iterator[None]:
    """Triton 3.6 converts an array of one element by int(), which numpy 2.4 refuses; here by item()."""
    interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang_tensor", patched)
        yield
