"""Kernels of burn_kernels attached to rows: the one table of what computes a row on a GPU in place of torch's functions.

An entry makes the plan of a Call, or None where the kernel does not take it; the row's own candidate computes then, and
everywhere without Triton.  Random rows draw the bits that their definition says, so that a CPU draws the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from burn_torch.core.distribution import check_probability
from burn_torch.core.dtype import DType
from burn_torch.ops import philox_torch
from burn_torch.ops.device_numbers import DeviceForm, keyed
from burn_torch.ops.op import Call
from burn_torch.ops.sampling import threshold
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["attached", "device_form"]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)
"""What kernels take; double precision is torch's."""


# -- rows ------------------------------------------------------------------------------------------------
def _dropout(call: Call) -> Callable[..., Any] | None:
    if call.result.dtype not in _FLOATS:
        return None
    from burn_kernels import dropout

    def run(x: torch.Tensor, prob: float, key: Any, stream: Any) -> torch.Tensor:
        check_probability("dropout", prob)
        return dropout.forward(x, prob, key, stream)

    return run


def _dropout_mask(call: Call) -> Callable[..., Any] | None:
    spec = call.result
    if spec.dtype not in _FLOATS:
        return None
    from burn_kernels import random

    kind, device = TO_TORCH[spec.dtype], torch.device(spec.place)
    largest = torch.finfo(kind).max

    def run(prob: float, key: Any, stream: Any) -> torch.Tensor:
        check_probability("dropout", prob)
        # finite, or a dropped element would be NaN
        scale = min(1.0 / (1.0 - prob), largest) if prob < 1 else 0.0
        return random.yes(spec.shape, threshold(1.0 - prob), scale, key, stream, kind, device)

    return run


def _bernoulli(call: Call) -> Callable[..., Any] | None:
    from burn_kernels import random

    spec = call.result
    kind, device = TO_TORCH[spec.dtype], torch.device(spec.place)

    def run(prob: float, key: Any, stream: Any) -> torch.Tensor:
        check_probability("bernoulli", prob)
        return random.yes(spec.shape, threshold(prob), 1.0, key, stream, kind, device)

    return run


_ATTACHED: Final[dict[str, Callable[[Call], Callable[..., Any] | None]]] = {
    "bernoulli": _bernoulli,
    "dropout": _dropout,
    "dropout_mask": _dropout_mask,
}


def attached(call: Call) -> Callable[..., Any] | None:
    """What computes this Call in place of the row's torch candidate; None where that one does."""
    make = _ATTACHED.get(call.op.name)
    if make is None or not call.result.place.startswith("cuda") or not _has_triton():
        return None
    return make(call)


def device_form(call: Call, known: Sequence[Any]) -> DeviceForm | None:
    """How the Call reads its run-time numbers from the device; None where it cannot.  See `ops/device_numbers.py`."""
    run = attached(call)
    if run is not None and call.op.random:
        found = keyed(lambda _: run)(call, known)
        if found is not None:
            return found
    return None if call.op.device_numbers is None else call.op.device_numbers(call, known)


# -- words ------------------------------------------------------------------------------------------------
def _words(key: Any, stream: Any, first: int, count: int, device: torch.device) -> Iterator[tuple[int, torch.Tensor]]:
    from burn_kernels import random

    at, end = first, first + count
    while at < end:
        size = min(philox_torch.CHUNK - at % philox_torch.CHUNK, end - at)
        yield at, random.bits(key, stream, at, 4 * size, device)
        at += size


def _has_triton() -> bool:
    from burn_kernels import AVAILABLE

    return AVAILABLE


def _words_on(device: torch.device) -> Any:
    return _words if device.type == "cuda" and _has_triton() else None


philox_torch.SOURCES.append(_words_on)
