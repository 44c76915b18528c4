"""Transforms of functions: compile."""

from burn_torch.transform.compile import Compiled, RetraceWarning, compile
from burn_torch.transform.structure import register_container

__all__ = ["Compiled", "RetraceWarning", "compile", "register_container"]
