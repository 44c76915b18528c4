"""Transforms of functions: compile, and derivatives."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.transform.compilation import Compiled, RetraceWarning, compile
from burn_torch.transform.differentiation import grad, value_and_grad
from burn_torch.transform.explaining import assert_fused, explain
from burn_torch.transform.explanation import Explanation
from burn_torch.transform.linearization import hvp, jvp, vjp
from burn_torch.transform.per_sample import PerSampleLoopWarning, per_sample_grad
from burn_torch.transform.program import MemoryLimitWarning
from burn_torch.transform.structure import register_container

__all__ = [
    "Compiled",
    "Explanation",
    "MemoryLimitWarning",
    "PerSampleLoopWarning",
    "RetraceWarning",
    "assert_fused",
    "compile",
    "explain",
    "grad",
    "hvp",
    "jvp",
    "per_sample_grad",
    "register_container",
    "value_and_grad",
    "vjp",
]

_check_exports(globals())
