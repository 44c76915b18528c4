"""Products that end with GELU or its slope, by cuBLASLt; and where that is ahead of a product with a kernel after it.

As the entries of `attached`: each makes the plan of a Call, or None where the library does not take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.endings import set_ending_chooser
from burn_torch.fusion.products import Product
from burn_torch.ops.linear_gelu import matmul_gelu_backward
from burn_torch.ops.op import Call, Op
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["PRODUCTS", "chosen_ending"]

_HALVES: Final = (DType.F16, DType.BF16)
_ALIGNED: Final = 8
"""Elements: rows of the library's operands and of what it keeps begin at multiples of 16 bytes."""


def _takes(call: Call) -> bool:
    """Whether the library computes it: halves, whose rows are aligned."""
    x, weight = call.specs[0], call.specs[1]
    assert isinstance(x, TensorSpec)
    assert isinstance(weight, TensorSpec)
    if x.dtype not in _HALVES or not x.numel or not weight.numel or any(n % _ALIGNED for n in weight.shape):
        return False
    from burn_kernels import cublaslt

    return cublaslt.available()


def _linear_gelu(call: Call) -> Callable[..., Any] | None:
    if not _takes(call):
        return None
    from burn_kernels import cublaslt

    shape = call.results[0].shape

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Sequence[torch.Tensor]:
        y, z = cublaslt.product(x.reshape(-1, x.shape[-1]), weight, bias, ending="gelu_kept")
        assert z is not None
        return z.view(shape), y.view(shape)

    return run


def _matmul_gelu_backward(call: Call) -> Callable[..., Any] | None:
    if not _takes(call):
        return None
    from burn_kernels import cublaslt

    def run(g: torch.Tensor, weight: torch.Tensor, z: torch.Tensor) -> Sequence[torch.Tensor]:
        dz, sums = cublaslt.product(g, weight, ending="gelu_slope_and_sums", kept=z.contiguous())
        assert sums is not None
        return dz, sums

    return run


PRODUCTS: Final[Mapping[str, Callable[[Call], Callable[..., Any] | None]]] = {
    "linear_gelu": _linear_gelu,
    "matmul_gelu_backward": _matmul_gelu_backward,
}
"""By the row's name."""


# -- choosing ------------------------------------------------------------------------------------------
def chosen_ending(product: Product, row: Op) -> bool:
    """Whether a product should end with the row's work: on a Hopper, where that was timed.

    In deterministic mode the sums of a bias stay with a kernel that adds in a fixed order.
    """
    if not product.place.startswith("cuda") or product.dtype not in _HALVES:
        return False
    if product.cols % _ALIGNED or product.inner % _ALIGNED or product.rows < LEAST_ROWS:
        return False
    from burn_kernels import AVAILABLE, cublaslt
    from burn_kernels.autotune import levels
    from burn_kernels.launch import machine_at

    if not AVAILABLE or not cublaslt.available() or (row is matmul_gelu_backward and levels.is_deterministic()):
        return False
    index = torch.device(product.place).index or 0
    return machine_at(index).arch == 90 and cublaslt.proposals(_problem(product, row), index) > 0


def _problem(product: Product, row: Op) -> Any:
    """What the library would be asked: packed operands, of a backward the weight turned."""
    from burn_kernels.cublaslt import Layout, Problem

    rows, cols, inner = product.rows, product.cols, product.inner
    backward = row is matmul_gelu_backward
    weight = Layout(inner, cols, inner) if backward else Layout(cols, inner, cols)
    kind, ending = TO_TORCH[product.dtype], "gelu_slope_and_sums" if backward else "gelu_kept"
    layouts = weight, Layout(inner, rows, inner), Layout(cols, rows, cols)
    return Problem(*layouts, (backward, False), kind, kind, ending, bias=not backward, adds=False, tf32=False)


LEAST_ROWS: Final = 1024
"""Fewer fill no machine with tiles: what a library chooses for them was not timed."""

set_ending_chooser(chosen_ending)
