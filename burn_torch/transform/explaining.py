"""explain: what `compile` makes of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burn_torch.transform.compilation import Compiled
from burn_torch.transform.explanation import Explanation

__all__ = ["explain"]


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """How a function is, or would be, compiled for these arguments.  It is traced, not run; nothing is donated.

    Raises: TraceError as `compile` does.
    """
    compiled: Compiled[..., Any] = function if isinstance(function, Compiled) else Compiled(function)
    return compiled.explain(*args, **kwargs)
