"""Convolution with what follows it as an operator of PyTorch; `defining` says what holds for all.

Results lie in order (batch, channels, height, width).  Where a pool follows, the second result says which elements of
each window gradients pass to; it is empty otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels import convolution, dropout
from burn_kernels.convolution.references import after as what_follows
from burn_kernels.convolution.references import pooled_shape
from burn_kernels.errors import KernelDeviceError
from burn_kernels.launch import describe
from burn_kernels.torch.defining import define, differentiate, like, nothing, or_reference, present, second

__all__ = ["twin"]

_NAMES = ("stride", "padding", "dilation", "groups", "relu", "pool", "window", "prob")
_SCHEMA = (
    "int[] stride, int[] padding, int[] dilation, int groups, bool relu, str pool, int window, float prob, Tensor? seed"
)


def _options(values: Any) -> dict[str, Any]:
    """The options by their names, in the order in which operators take them; key and stream from the seed."""
    *numbers, seed = values
    found = dict(zip(_NAMES, numbers, strict=True))
    if not found["prob"] or seed is None:
        return found | {"prob": 0.0}
    if seed.device.type != "cpu":
        raise KernelDeviceError(
            "convolution: the seed lies on a device, and reading it would wait for that",
            given=describe({"seed": seed}),
            expected="two int64 numbers, key and stream, on the CPU",
            mend="seed.cpu(), once, where it is made",
        )
    key, stream = seed.tolist()
    return found | {"key": key, "stream": stream}


def _convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *options: object) -> Any:
    run = or_reference("convolution", convolution.forward, convolution.reference)
    y, passed = run(x, w, b, **_options(options))
    return y.contiguous(), _nothing(x) if passed is None else passed


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.int16, device=x.device)


def _fake(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *options: Any) -> object:
    stride, padding, dilation, groups, relu, pool, window, prob, _ = options
    made = convolution.geometry("convolution", x, w, b, stride, padding, dilation, groups)
    rest = what_follows("convolution", made, relu, pool, window, prob, 0, 0)
    shape = pooled_shape(made, rest)
    passed = _nothing(x) if rest.window == 1 else torch.empty(shape, dtype=torch.int16, device=x.device)
    return torch.empty(shape, dtype=x.dtype, device=x.device), passed


def _convolution_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    y: torch.Tensor,
    passed: torch.Tensor,
    needs: list[bool],
    *options: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    name = "convolution backward"
    run = or_reference(name, convolution.backward, convolution.reference_backward)
    kept = passed if passed.dim() > 1 else None  # `_nothing` has one axis, also beside images that are none
    found = run(dy, x, w, b, y, kept, needs=tuple(needs), **_options(options))
    given = [t if need else None for t, need in zip((x, w, b), needs, strict=True)]
    dx, dw, db = (present(name, t, g, x) for t, g in zip(given, found, strict=True))
    return dx, dw, db


CONVOLUTION = define(f"convolution(Tensor x, Tensor w, Tensor? b, {_SCHEMA}) -> (Tensor, Tensor)", _convolution, _fake)
_CONVOLUTION_BACKWARD = define(
    f"convolution_backward(Tensor dy, Tensor x, Tensor w, Tensor? b, Tensor y, Tensor passed, bool[] needs, {_SCHEMA})"
    " -> (Tensor, Tensor, Tensor)",
    _convolution_backward,
    lambda dy, x, w, b, y, passed, needs, *_: tuple(
        like(t) if need and t is not None else nothing(x) for t, need in zip((x, w, b), needs, strict=True)
    ),
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, *ctx.options, seed = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, b, *output, seed)


def _gradient(ctx: Any, dy: torch.Tensor | None, _: object) -> Any:
    x, w, b, y, passed, seed = ctx.saved_tensors
    if dy is None:
        return (None,) * 12
    needs = [*ctx.needs_input_grad[:2], b is not None and ctx.needs_input_grad[2]]
    found = _CONVOLUTION_BACKWARD(dy, x, w, b, y, passed, needs, *ctx.options, seed)
    return *(g if need else None for g, need in zip(found, needs, strict=True)), *(None,) * 9


def twin(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *options: object) -> torch.Tensor:
    """The same by torch's own operators."""
    o = _options(options)
    y = F.conv2d(x, w, b, o["stride"], o["padding"], o["dilation"], o["groups"])
    y = y * dropout.mask(o["prob"], o["key"], o["stream"], like=y) if o["prob"] else y
    y = y.relu() if o["relu"] else y
    if o["pool"] == "none":
        return y
    return F.max_pool2d(y, o["window"]) if o["pool"] == "max" else F.avg_pool2d(y, o["window"])


def _setup_backward(ctx: Any, inputs: Any, output: object) -> None:
    dy, x, w, b, _, _, _, *ctx.options, seed = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(dy, x, w, b, seed)


def _second(ctx: Any, *upstream: torch.Tensor | None) -> object:
    dy, x, w, b, seed = ctx.saved_tensors
    options = ctx.options

    def plain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return twin(x, w, b, *options, seed)

    return *second(plain, dy, (x, w, b), upstream), *(None,) * 12


differentiate(CONVOLUTION, _setup, _gradient)
differentiate(_CONVOLUTION_BACKWARD, _setup_backward, _second)
