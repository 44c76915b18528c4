"""Fused Triton kernels over plain torch tensors: forward, backward, and a reference that needs no kernel.

Each family is a module of launchers; tensors on a GPU run kernels, others the reference:

    norm            layer_norm, rms_norm and their backwards
    softmax         forward, backward; log_forward, log_backward
    cross_entropy   forward, backward; forward_with_gradient in one pass
    linear_cross_entropy  forward, backward; forward_with_gradient: the logits exist a chunk at a time
    activation      forward, backward of GELU, SiLU, ReLU
    matmul          forward, backward of a linear layer with bias, activation and residual
    glu             forward, backward of SwiGLU, GEGLU, ReGLU
    dropout         forward, backward; the mask is a function of (key, stream, element)
    random          words and yes or no of (key, stream, element), drawn from numbers or from device memory
    optimizer       adamw, adam, sgd over many tensors in one launch
    lion            lion, in one launch too
    tensor_norm     norm of many tensors, and the factor that clips it
    embedding       backward of a table: sums by index, without atomics
    reduce          sum, mean, var, logsumexp, amax, amin, argmax, argmin over any axes
    residual_norm   layer_norm, rms_norm of residual + dropout(x), and their backwards
    batch_norm      forward in training, evaluate, and their backwards, with ReLU or SiLU in the same kernels
    group_norm      forward, backward, of groups of channels; one channel a group is instance norm
    convolution     forward, backward for few channels, with dropout, ReLU and a pool in the same kernel
    attention       forward, backward; forward_packed, backward_packed: sequences of unlike lengths; give lse too
    rope            forward, backward of q and k together, from tables or computed angles

A family is imported when its name is first used.  `autotune` chooses the config of each launch, and measures where that
is allowed.
`REGISTRY` holds a `KernelSpec` for each operation; `verify` checks one against float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from burn_kernels.lazy import public_names
from burn_kernels.registry import FAMILIES

if TYPE_CHECKING:
    from burn_kernels._triton import AVAILABLE as AVAILABLE
    from burn_kernels.errors import KernelArgumentError as KernelArgumentError
    from burn_kernels.errors import KernelDeviceError as KernelDeviceError
    from burn_kernels.errors import KernelDTypeError as KernelDTypeError
    from burn_kernels.errors import KernelError as KernelError
    from burn_kernels.errors import KernelLimitError as KernelLimitError
    from burn_kernels.errors import KernelShapeError as KernelShapeError
    from burn_kernels.spec import REGISTRY as REGISTRY
    from burn_kernels.spec import KernelSpec as KernelSpec
    from burn_kernels.spec import Problem as Problem
    from burn_kernels.spec import register as register
    from burn_kernels.verification import verify as verify

_EXPORTS: Final = {
    "_triton": ("AVAILABLE",),
    "errors": (
        "KernelArgumentError",
        "KernelDTypeError",
        "KernelDeviceError",
        "KernelError",
        "KernelLimitError",
        "KernelShapeError",
    ),
    "spec": ("REGISTRY", "KernelSpec", "Problem", "register"),
    "verification": ("verify",),
}
"""Public names that are no module, by the module that has them."""

__all__, __getattr__ = public_names(__name__, _EXPORTS, (*FAMILIES, "autotune"))  # a list
