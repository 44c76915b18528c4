"""explain: what `compile` makes of a function; assert_fused: that it is no more kernels than said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.core.errors import explain as worded
from burn_torch.core.wording import counted
from burn_torch.transform.compilation import Compiled
from burn_torch.transform.explanation import Explanation
from burn_torch.transform.structure import Function

__all__ = ["assert_fused", "explain"]

P = ParamSpec("P")


def explain(function: Function, /, *args: object, **kwargs: object) -> Explanation:
    """How a function is, or would be, compiled for these arguments.  It is traced, not run; nothing is donated.

    Raises: TraceError as `compile` does.
    """
    compiled: Compiled[..., Any] = function if isinstance(function, Compiled) else Compiled(function)
    return compiled.explain(*args, **kwargs)


@checked(but=("max_kernels",))
def assert_fused(function: Callable[P, object], /, *, max_kernels: int) -> Callable[P, Explanation]:
    """For tests: a function of the same arguments that fuses `function` for them and counts its kernels.

        assert_fused(gelu, max_kernels=1)(x)

    It is traced, not run, so any machine will do.  Returns: the explanation, whose `fusion` has the kernels.
    Raises: AssertionError, with all kernels and what lies between them, where there are more than `max_kernels`;
    ArgumentError for what is no number of kernels.
    """
    if not isinstance(max_kernels, int) or isinstance(max_kernels, bool) or max_kernels < 0:
        raise ArgumentError(
            "assert_fused: max_kernels must be a whole number",
            given=f"max_kernels={max_kernels!r}",
            expected="an int of 0 or more",
            mend="write assert_fused(fn, max_kernels=1)(*arguments)",
        )
    compiled: Compiled[P, Any] = function if isinstance(function, Compiled) else Compiled(function)
    compiled = compiled.fusing()

    def check(*args: P.args, **kwargs: P.kwargs) -> Explanation:
        explanation = compiled.explain(*args, **kwargs)
        assert explanation.fusion is not None
        if len(explanation.fusion.kernels) > max_kernels:
            raise AssertionError(
                worded(
                    f"{explanation.function} is more kernels than expected",
                    given=f"{counted(len(explanation.fusion.kernels), 'kernel')}\n{explanation.fusion}",
                    expected=f"{max_kernels} at most",
                    mend="see what lies between the kernels, and why",
                )
            )
        return explanation

    return check
