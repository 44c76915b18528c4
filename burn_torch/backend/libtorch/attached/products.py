"""Products by cuBLASLt: those that end with GELU or its slope, and those that another algorithm computes faster.

As the entries of `attached`: each makes the plan of a Call, or None where the library does not take it.  Algorithms
were timed when the program was planned, beside torch's own product and a kernel after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.choices import Asked
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["PRODUCTS", "chosen_rank", "head_config"]

_HALVES: Final = (DType.F16, DType.BF16)
_ALIGNED: Final = 8
"""Elements: rows of the library's operands and of what it keeps begin at multiples of 16 bytes."""
LEAST_WORK: Final = 1 << 32
"""Multiplications: of smaller products a launch is a large part, and what algorithms differ by a small one."""


def _takes(call: Call) -> bool:
    """Asks whether the library computes it: halves, whose rows are aligned."""
    x, weight = call.tensor(0), call.tensor(1)
    if x.dtype not in _HALVES or not x.numel or not weight.numel or any(n % _ALIGNED for n in weight.shape):
        return False
    from burn_kernels import cublaslt

    return cublaslt.available()


def _linear_gelu(call: Call) -> Callable[..., object] | None:
    if not _takes(call):
        return None
    from burn_kernels import cublaslt

    shape, rank = call.results[0].shape, call.attrs["rank"]

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> Sequence[torch.Tensor]:
        y, z = cublaslt.product(x.reshape(-1, x.shape[-1]), weight, bias, ending="gelu_kept", rank=rank)
        assert z is not None
        return z.view(shape), y.view(shape)

    return run


def _matmul_gelu_backward(call: Call) -> Callable[..., object] | None:
    if not _takes(call):
        return None
    from burn_kernels import cublaslt

    rank = call.attrs["rank"]

    def run(g: torch.Tensor, weight: torch.Tensor, z: torch.Tensor) -> Sequence[torch.Tensor]:
        dz, sums = cublaslt.product(g, weight, ending="gelu_slope_and_sums", kept=z.contiguous(), rank=rank)
        assert sums is not None
        return dz, sums

    return run


def _library_product(call: Call) -> Callable[..., object] | None:
    if not _takes(call):
        return None
    from burn_kernels import cublaslt

    shape, rank = call.result.shape, call.attrs["rank"]

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        ending = "none" if bias is None else "bias"
        return cublaslt.product(flat, weight, bias, ending=ending, rank=rank)[0].view(shape)

    return run


PRODUCTS: Final[Mapping[str, Callable[[Call], Callable[..., object] | None]]] = {
    "fusion::library_product": _library_product,
    "linear_gelu": _linear_gelu,
    "matmul_gelu_backward": _matmul_gelu_backward,
}
"""By the row's name."""


# -- choosing ------------------------------------------------------------------------------------------
def chosen_rank(asked: Asked) -> int | None:
    """The proposal of cuBLASLt that computes a product, by timing; None where torch's own is as good, or untried.

    Tried are halves on a GPU, of some size, whose rows are aligned.
    """
    size = asked.product
    aligned = all(n % _ALIGNED == 0 for n in (size.cols, size.inner))
    if not aligned or size.dtype not in _HALVES or not _large(size.place, size.rows * size.cols * size.inner):
        return None
    from burn_kernels.cublaslt import Layout, Problem
    from burn_kernels.cublaslt_choice import best

    rows, cols, inner = size.rows, size.cols, size.inner
    first = Layout(inner, cols, inner) if asked.turned[1] else Layout(cols, inner, cols)
    second = Layout(rows, inner, rows) if asked.turned[0] else Layout(inner, rows, inner)
    kind, turned = TO_TORCH[size.dtype], (asked.turned[1], asked.turned[0])
    problem = Problem(first, second, Layout(cols, rows, cols), turned, kind, kind, asked.ending, asked.bias)
    return best(problem, _index(size.place))


def _large(place: str, work: int) -> bool:
    """Asks whether a product with this number of multiplications is worth a trial at its place."""
    if not place.startswith("cuda") or work < LEAST_WORK:
        return False
    from burn_kernels import cublaslt

    return cublaslt.available()


def _index(place: str) -> int:
    return torch.device(place).index or 0


def head_config(x: TensorSpec, weight: TensorSpec) -> Any:
    """The chunks of a head, and who computes its three products; None for what `burn_kernels` takes by itself.

    Rows are a power of two: GPT-2's head took 6.4 ms in chunks of 3,277 rows, which leave tiles half empty, and in
    chunks of 4,096 6.2 at the same clock (H200, 2026-11-22); 2,048 rows are as fast, and need the least memory.
    """
    from burn_kernels import linear_cross_entropy
    from burn_kernels.launch import machine_at

    (rows, cols), vocab = x.shape, weight.shape[0]
    if x.dtype not in _HALVES or not _large(x.place, rows * cols * vocab) or cols % _ALIGNED or vocab % _ALIGNED:
        return None
    most = linear_cross_entropy.default(vocab, x.dtype.itemsize, machine_at(_index(x.place))).rows
    chunk = min(rows, 1 << (most.bit_length() - 1))
    from burn_kernels.cublaslt import Layout, Problem
    from burn_kernels.cublaslt_choice import best

    kind, index = TO_TORCH[x.dtype], _index(x.place)
    narrow, wide, result = Layout(cols, chunk, cols), Layout(vocab, chunk, vocab), Layout(cols, vocab, cols)
    problems = (
        Problem(result, narrow, wide, (True, False), kind, kind),
        Problem(result, wide, narrow, (False, False), kind, kind),
        Problem(narrow, wide, result, (False, True), kind, torch.float32, adds=True),
    )
    ranks = [best(problem, index) for problem in problems]
    return linear_cross_entropy.Config(chunk, *(-1 if rank is None else rank for rank in ranks))
