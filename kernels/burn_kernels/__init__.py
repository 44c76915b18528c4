"""Fused Triton kernels over plain torch tensors: forward, backward, and a reference that needs no kernel.

Each family is a module of launchers, listed in `registry.FAMILIES`: norms, softmax, losses, activations and gated
units, linear layers, dropout, optimizers' steps, embedding tables, reductions, convolution, attention, rotary
embedding.  Tensors on a GPU run kernels, others the reference; the module's docstring has its formulas.

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
