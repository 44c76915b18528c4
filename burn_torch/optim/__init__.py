"""Optimizers as pure functions, gradient clipping, learning-rate schedules."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.packages import OPTIM as _OPTIM
from burn_torch.module import GradientsParams as GradientsParams
from burn_torch.optim.adam import *
from burn_torch.optim.averaging import *
from burn_torch.optim.clipping import GradientClipping as GradientClipping
from burn_torch.optim.clipping import GradientClippingConfig as GradientClippingConfig
from burn_torch.optim.grads import *
from burn_torch.optim.groups import *
from burn_torch.optim.lion import *
from burn_torch.optim.optimizer import Optimizer as Optimizer
from burn_torch.optim.optimizer import StateGroup as StateGroup
from burn_torch.optim.record import *
from burn_torch.optim.scheduler import *
from burn_torch.optim.sgd import *

_list_exports(globals())
_check_exports(globals(), but=("scheduler_of",))
_hint_missing(globals(), _OPTIM, torch="optim")
