"""Kernels attached to rows: the one table of what computes a row on a GPU in place of its torch candidate.

An entry makes the plan of a Call, or None where the kernel does not take it; the row's own candidate computes then, and
everywhere without Triton.  Random rows draw the bits that their definition says, so that a CPU draws the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import torch

from burn_torch.backend.libtorch.attached.attention import ATTENTIONS
from burn_torch.backend.libtorch.attached.convolutions import CONVOLUTIONS
from burn_torch.backend.libtorch.attached.products import PRODUCTS, head_config
from burn_torch.backend.libtorch.attached.rows import ROWS
from burn_torch.backend.libtorch.forms.numbers import FORMS, RUN_TIME, DeviceForm, keyed
from burn_torch.backend.libtorch.forms.updates import UPDATES, writing
from burn_torch.backend.libtorch.generated.anchors import anchor_form, anchor_kernel
from burn_torch.backend.libtorch.generated.attention_kernels import MODIFIED, modified_attention
from burn_torch.backend.libtorch.generated.triton_kernels import fused_kernel, held_form
from burn_torch.core.distribution import check_probability
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rows.product_row import convolution, product
from burn_torch.fusion.rows.row import kernel
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.randomness import Drawing
from burn_torch.ops.sampling import threshold
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["attached", "device_form"]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)
"""Types that kernels take; double precision is torch's."""


# -- rows ------------------------------------------------------------------------------------------------
def _dropout(call: Call) -> Candidate | None:
    if call.result.dtype not in _FLOATS or call.attrs["start"]:  # the kernels begin at the first word
        return None
    from burn_kernels import dropout

    def run(x: torch.Tensor, prob: float, key: Primitive, stream: Primitive) -> torch.Tensor:
        check_probability("dropout", prob)
        return dropout.forward(x, prob, key, stream)

    return run


def _dropout_mask(call: Call) -> Candidate | None:
    spec = call.result
    if spec.dtype not in _FLOATS or call.attrs["start"]:
        return None
    from burn_kernels import random

    kind, device = TO_TORCH[spec.dtype], torch.device(spec.place)
    largest = torch.finfo(kind).max

    def run(prob: float, key: Primitive, stream: Primitive) -> torch.Tensor:
        check_probability("dropout", prob)
        # finite, or a dropped element would be NaN
        scale = min(1.0 / (1.0 - prob), largest) if prob < 1 else 0.0
        return random.yes(spec.shape, threshold(1.0 - prob), scale, key, stream, kind, device)

    return run


def _bernoulli(call: Call) -> Candidate | None:
    if call.attrs["start"]:
        return None
    from burn_kernels import random

    spec = call.result
    kind, device = TO_TORCH[spec.dtype], torch.device(spec.place)

    def run(prob: float, key: Primitive, stream: Primitive) -> torch.Tensor:
        check_probability("bernoulli", prob)
        return random.yes(spec.shape, threshold(prob), 1.0, key, stream, kind, device)

    return run


_NO_CLASS: Final = -(1 << 31)
"""A target that nobody has, where none is to be ignored."""


def _cross_entropy_takes(call: Call, logits: TensorSpec) -> bool:
    weight, smoothing = call.specs[-2:]
    return logits.dtype in _FLOATS and weight is None and smoothing is None and len(call.attrs["pad_tokens"]) <= 1


def _ignored_class(call: Call) -> int:
    pads: tuple[int, ...] = call.attrs["pad_tokens"]
    return pads[0] if pads else _NO_CLASS


def _cross_entropy(call: Call) -> Candidate | None:
    if not _cross_entropy_takes(call, call.tensor(0)):
        return None
    from burn_kernels import cross_entropy

    ignored = _ignored_class(call)

    def run(x: torch.Tensor, targets: torch.Tensor, *_: None) -> torch.Tensor:
        return cross_entropy.forward(x, targets, reduction="none", ignore_index=ignored)[0]

    return run


def _cross_entropy_backward(call: Call) -> Candidate | None:
    if not _cross_entropy_takes(call, call.tensor(1)):
        return None
    from burn_kernels import cross_entropy

    ignored = _ignored_class(call)

    def run(g: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, *_: None) -> torch.Tensor:
        return cross_entropy.backward(g, x, targets, None, reduction="none", ignore_index=ignored)

    return run


def _linear_cross_entropy(call: Call) -> Candidate | None:
    x, weight = call.tensor(1), call.tensor(2)
    if x.dtype not in _FLOATS or len(call.attrs["pad_tokens"]) > 1 or not x.numel or not weight.numel:
        return None
    from burn_kernels import linear_cross_entropy

    ignored, config = _ignored_class(call), head_config(x, weight)

    def run(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> Sequence[torch.Tensor]:
        return linear_cross_entropy.losses_with_gradient(g, x, weight, targets, ignore_index=ignored, config=config)[:3]

    return run


def _sum(call: Call) -> Candidate | None:
    """The gradient of a bias that was added to channels: torch's one pass over (batch, height, width) has few readers
    of neighbours, 13 us for (64, 16, 24, 24) on an H100; first the images, then the batch."""
    spec, dims = call.tensor(0), call.attrs["dims"]
    if spec.ndim < 3 or dims != (0, *range(2, spec.ndim)) or spec.dtype not in (DType.F32, DType.F64):
        return None
    shape = call.result.shape

    def run(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).sum(2).sum(0).reshape(shape)

    return run


def _adaptive_avg_pool(call: Call) -> Candidate | None:
    """Bins of one size that tile the image are the windows of a plain pooling, half the time of the adaptive one."""
    window = _tiles(call.tensor(0).shape[2:], call.attrs["output_size"])
    return None if window is None else lambda x: torch._C._nn.avg_pool2d(x, window)


def _adaptive_avg_pool_backward(call: Call) -> Candidate | None:
    spec = call.tensor(0)
    window = _tiles(call.attrs["size"], spec.shape[2:])
    if window is None:
        return None
    share, shape = 1.0 / (window[0] * window[1]), call.result.shape
    batch, channels, rows, cols = spec.shape
    spread = (batch, channels, rows, window[0], cols, window[1])

    def run(g: torch.Tensor) -> torch.Tensor:
        return (g * share)[:, :, :, None, :, None].expand(spread).reshape(shape)

    return run


def _tiles(size: Sequence[int], counts: Sequence[int]) -> list[int] | None:
    if len(size) != 2 or 0 in (*size, *counts) or any(s % n for s, n in zip(size, counts, strict=True)):
        return None
    return [s // n for s, n in zip(size, counts, strict=True)]


_ATTACHED: Final[dict[str, Callable[[Call], Candidate | None]]] = {
    "adaptive_avg_pool": _adaptive_avg_pool,
    "adaptive_avg_pool_backward": _adaptive_avg_pool_backward,
    "bernoulli": _bernoulli,
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "dropout": _dropout,
    "dropout_mask": _dropout_mask,
    "linear_cross_entropy_with_gradients": _linear_cross_entropy,
    "sum": _sum,
    **ATTENTIONS,
    **CONVOLUTIONS,
    **PRODUCTS,
    **ROWS,
}


def attached(call: Call) -> Candidate | None:
    """Returns the function that computes this Call in place of the row's torch candidate; None where that one does."""
    if call.op is kernel:
        return fused_kernel(call)
    if call.op in (product, convolution):
        return anchor_kernel(call)
    if call.op in MODIFIED:
        return modified_attention(call)
    make = _ATTACHED.get(call.op.name)
    if make is None or not _place(call).startswith("cuda") or not _has_triton():
        return None
    return make(call)


def _place(call: Call) -> str:
    """Returns the place of the results: rows with several results may leave some out."""
    return next((spec.place for spec in call.results if isinstance(spec, TensorSpec)), "")


def device_form(call: Call, known: Sequence[object]) -> DeviceForm | None:
    """How the Call reads its run-time numbers from the device, see `forms`; None where it cannot."""
    if call.op is kernel:
        return held_form(call, known)
    if call.op in (product, convolution):
        return anchor_form(call, known)
    device_call = None
    run = attached(call)
    if run is not None and call.op.random:
        device_call = keyed(lambda _: run)(call, known)
    elif call.op.name in _FORMS and call.result.place.startswith("cuda") and _has_triton():
        device_call = _FORMS[call.op.name](call, known)
    if device_call is not None:
        return device_call
    row = call.op
    form = row.device_numbers or FORMS.get(row.name) or UPDATES.get(row.name)
    if form is None and isinstance(row.torch, Drawing):
        form = keyed(row.torch.on_device)
    return None if form is None else form(call, known)


# -- updates -----------------------------------------------------------------------------------------------
def _adam(call: Call, known: Sequence[Primitive]) -> DeviceForm | None:
    """One launch over chunks of 8,192 elements: 541 thousand parameters take torch's kernel, whose chunks are 65,536,
    54 us on an H100."""
    lr, beta_1, beta_2, epsilon, penalty, decay, time = known[:7]
    types = {spec.dtype for spec in call.results}
    fixed = RUN_TIME not in (beta_1, beta_2, epsilon, penalty, decay)
    if not fixed or penalty or call.attrs["amsgrad"] or (call.attrs["cautious"] and decay) or len(types) != 1:
        return None
    if not types <= set(_FLOATS):
        return None
    from burn_kernels import optimizer

    staged: dict[torch.dtype, torch.Tensor] = {}

    def pack(*given: float) -> Sequence[float]:
        values = iter(given)
        rate = next(values) if lr is RUN_TIME else lr
        count = next(values) if time is RUN_TIME else time
        return 1.0 - rate * decay, rate / (1.0 - beta_1**count), 1.0 / math.sqrt(1.0 - beta_2**count)

    def step(slots: Sequence[torch.Tensor], groups: Sequence[list[torch.Tensor]]) -> None:
        if staged and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()  # a copy of the run before may still read it
        for dtype in dict.fromkeys(g.dtype for g in groups[1]):  # gradients of a product in bf16 among others
            chosen = [i for i, g in enumerate(groups[1]) if g.dtype == dtype]
            tensors = [[group[i] for i in chosen] for group in groups]
            if dtype not in staged:
                staged[dtype] = optimizer.staging_for(tensors[0])
            table = optimizer.table(*tensors, in_place=True, staging=staged[dtype])
            optimizer.adamw_held(table, *slots, betas=(beta_1, beta_2), eps=epsilon)

    return writing(call, known, 4, (DType.F32,) * 3, pack, step, narrow=True)


_FORMS: Final[dict[str, Callable[[Call, Sequence[Primitive]], DeviceForm | None]]] = {"adam_update": _adam}


def _has_triton() -> bool:
    from burn_kernels import AVAILABLE

    return AVAILABLE
