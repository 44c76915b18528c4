"""The kernels as a drop-in for PyTorch: operators, functions, modules, optimizers, `patch` and `check`.

    functional      softmax, layer_norm, cross_entropy, linear_cross_entropy, swiglu, ... as torch.nn.functional
    LayerNorm ...   modules with the constructors and state_dict of torch.nn
    AdamW ...       optimizers with the constructors and state_dict of torch.optim
    patch           replaces what it can in a model that exists, and says what not and why; `unpatch` restores it
    check           runs every fused operation of a model beside float64, on the model's own inputs

Importing this registers the operators under `torch.ops.burn_kernels`; nothing of torch is changed.
"""

from __future__ import annotations

from burn_kernels.torch import functional, modules, optim
from burn_kernels.torch.checking import Finding, Report, check
from burn_kernels.torch.defining import fallbacks
from burn_kernels.torch.modules import *
from burn_kernels.torch.optim import *
from burn_kernels.torch.patching import PatchEntry, PatchReport, patch, unpatch
from burn_kernels.torch.registering import register_operators
from burn_kernels.torch.tables import clip_grad_norm_, get_total_norm

__all__ = [
    "Finding",
    "PatchEntry",
    "PatchReport",
    "Report",
    "check",
    "clip_grad_norm_",
    "fallbacks",
    "functional",
    "get_total_norm",
    "patch",
    "unpatch",
]
__all__ += modules.__all__
__all__ += optim.__all__

register_operators()
