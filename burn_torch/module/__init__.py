"""Modules: networks as immutable trees of parameters, and what walks them."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.module.display import Content, DisplaySettings
from burn_torch.module.fields import UntrainedWarning
from burn_torch.module.gradients import GradientsParams
from burn_torch.module.module import Module
from burn_torch.module.param import Param, ParamId, ParamMapper
from burn_torch.module.record import ModuleRecord
from burn_torch.module.running_state import RunningState
from burn_torch.module.scope import StepScope, current_scope, draw
from burn_torch.module.tree import Tree
from burn_torch.module.visitor import ModuleMapper, ModuleVisitor, list_param_ids

__all__ = [
    "Content",
    "DisplaySettings",
    "GradientsParams",
    "Module",
    "ModuleMapper",
    "ModuleRecord",
    "ModuleVisitor",
    "Param",
    "ParamId",
    "ParamMapper",
    "RunningState",
    "StepScope",
    "Tree",
    "UntrainedWarning",
    "current_scope",
    "draw",
    "list_param_ids",
]

_check_exports(
    globals(),
    hot=("ModuleRecord", "Param", "Param.from_tensor", "GradientsParams.from_grads", "GradientsParams.from_params"),
    quick=True,
    but=("GradientsParams", "map_params", "with_value", "get", "remove"),  # for each step, or parameter of it
)
