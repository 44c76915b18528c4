"""Transforms of functions: compile, and derivatives."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.transform.checkpointing import *
from burn_torch.transform.compilation import Compiled as Compiled
from burn_torch.transform.compilation import RetraceWarning as RetraceWarning
from burn_torch.transform.compilation import compile as compile
from burn_torch.transform.control import *
from burn_torch.transform.custom_rules import *
from burn_torch.transform.differentiation import grad as grad
from burn_torch.transform.differentiation import value_and_grad as value_and_grad
from burn_torch.transform.explaining import *
from burn_torch.transform.explanation import Explanation as Explanation
from burn_torch.transform.jacobians import *
from burn_torch.transform.linearization import hvp as hvp
from burn_torch.transform.linearization import jvp as jvp
from burn_torch.transform.linearization import linearize as linearize
from burn_torch.transform.linearization import vjp as vjp
from burn_torch.transform.per_sample import *
from burn_torch.transform.program import MemoryLimitWarning as MemoryLimitWarning
from burn_torch.transform.replaying import *
from burn_torch.transform.structure import register_container as register_container
from burn_torch.transform.vectorisation import vmap as vmap

_list_exports(globals())
_check_exports(globals())
