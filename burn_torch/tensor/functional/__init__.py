"""Layers as functions of tensors: `functional.conv2d(x, weight, bias, ConvOptions(padding=1))`.

Burn's `tensor::module` and `tensor::loss`.  Settings of spatial axes are one number for all axes, or one each.
"""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.layers import FUNCTIONAL as _FUNCTIONAL
from burn_torch.tensor.functional.attending import *
from burn_torch.tensor.functional.convolution import *
from burn_torch.tensor.functional.distances import *
from burn_torch.tensor.functional.losses import *
from burn_torch.tensor.functional.normalisation import *
from burn_torch.tensor.functional.pooling import *
from burn_torch.tensor.functional.rearranging import *
from burn_torch.tensor.functional.resampling import *
from burn_torch.tensor.functional.unpooling import *
from burn_torch.tensor.functional.weighting import *

_list_exports(globals())
_hint_missing(globals(), _FUNCTIONAL, torch="nn.functional")
