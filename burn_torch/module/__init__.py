"""Modules: networks as immutable trees of parameters, and what walks them."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.module.display import Content as Content
from burn_torch.module.display import DisplaySettings as DisplaySettings
from burn_torch.module.fields import UntrainedWarning as UntrainedWarning
from burn_torch.module.gradients import GradientsParams as GradientsParams
from burn_torch.module.lora import *
from burn_torch.module.module import *
from burn_torch.module.param import Param as Param
from burn_torch.module.param import ParamId as ParamId
from burn_torch.module.param import ParamMapper as ParamMapper
from burn_torch.module.param_group import ParamGroup as ParamGroup
from burn_torch.module.quantization import QuantizedParam as QuantizedParam
from burn_torch.module.quantization import Quantizer as Quantizer
from burn_torch.module.record import ModuleRecord as ModuleRecord
from burn_torch.module.reparameterization import *
from burn_torch.module.reparameterized import Reparameterized as Reparameterized
from burn_torch.module.running_state import *
from burn_torch.module.scope import StepScope as StepScope
from burn_torch.module.scope import current_scope as current_scope
from burn_torch.module.scope import draw as draw
from burn_torch.module.tree import Tree as Tree
from burn_torch.module.visitor import *
from burn_torch.module.weight_norm import *

_list_exports(globals())
_check_exports(
    globals(),
    hot=("ModuleRecord", "Param", "Param.from_tensor", "GradientsParams.from_grads", "GradientsParams.from_params"),
    quick=True,
    but=("GradientsParams", "map_params", "with_value", "get", "remove"),  # for each step, or parameter of it
)
