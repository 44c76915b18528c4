"""Transforms of functions: compile."""

from burn_torch.transform.compile import Compiled, RetraceWarning, compile
from burn_torch.transform.explain import explain
from burn_torch.transform.explanation import Explanation
from burn_torch.transform.structure import register_container

__all__ = ["Compiled", "Explanation", "RetraceWarning", "compile", "explain", "register_container"]
