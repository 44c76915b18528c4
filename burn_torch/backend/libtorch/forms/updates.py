"""Optimizer rows whose learning rate and step count lie on the device; all write over parameters and states.

torch's fused kernels take them there.  Updates that these cannot compute (double precision, cautious decay, a share
that changes) are written with multi-tensor functions and 0-d tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from burn_torch.backend.libtorch.forms.numbers import RUN_TIME, DeviceForm, Form, run_time_numbers
from burn_torch.core.dtype import DType
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.updates import sign_of_mean
from burn_torch.ops.value import Primitive

Tensors = Sequence[torch.Tensor]
Known = Sequence[Primitive]


def _groups(xs: Tensors, kinds: int) -> list[list[torch.Tensor]]:
    n = len(xs) // kinds
    return [list(xs[i * n : (i + 1) * n]) for i in range(kinds)]


def _types(call: Call) -> set[DType]:
    return {spec.dtype for spec in call.results}


def _slot(call: Call) -> DType:
    return DType.F64 if DType.F64 in _types(call) else DType.F32


def writing(
    call: Call, known: Known, groups: int, dtypes: Sequence[DType], pack: Candidate, step: Any, *, narrow: bool = False
) -> DeviceForm:
    """A form that writes: `step(slots, groups of tensors)`; the gradients are group 1, all others are written over.

    The tensors that `step` gets lie in order; gradients are of their parameters' type unless it takes `narrow` ones.
    """
    n = sum(1 for value in known if value is None) // groups
    tensors = len(dtypes) + len(known) - len(run_time_numbers(known)) - groups * n
    over = tuple(tensors + group * n + i for group in range(groups) if group != 1 for i in range(n))

    def compute(*inputs: Primitive) -> Sequence[torch.Tensor]:
        # kernels go by addresses: a transposed gradient would be a wrong one
        dense = [*inputs[:tensors], *(x.contiguous() for x in inputs[tensors:])]
        grouped = _groups(dense[tensors:], groups)
        if not narrow:
            grouped[1] = [g if g.dtype == p.dtype else g.to(p.dtype) for p, g in zip(*grouped[:2], strict=True)]
        step(dense[: len(dtypes)], grouped)
        written = [inputs[i] for i in over]
        for i, x in zip(over, written, strict=True):
            if dense[i] is not x:
                x.copy_(dense[i])
        return written

    return DeviceForm(tuple(dtypes), pack, compute, over)


# -- stochastic gradient descent ------------------------------------------------------------------------------
def _sgd(call: Call, known: Known) -> DeviceForm | None:
    if known[0] is not RUN_TIME or known[1] is RUN_TIME:
        return None
    penalty, slot = known[1], _slot(call)

    def fused(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
        torch._fused_sgd_(
            groups[0], groups[1], [], weight_decay=penalty, momentum=0.0, lr=slots[0], dampening=0.0, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip

    def plain(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
        params, grads = groups
        if penalty:
            grads = list(torch._foreach_add(grads, params, alpha=penalty))
        torch._foreach_sub_(params, torch._foreach_mul(grads, slots[0]))

    return writing(call, known, 2, (slot,), lambda lr: (lr,), fused if _fusable(call) else plain)


def _fusable(call: Call) -> bool:
    # one type for all; in double the fused kernels would round the learning rate to float32
    types = _types(call)
    return len(types) == 1 and DType.F64 not in types


def _momentum(call: Call, known: Known) -> DeviceForm | None:
    lr, penalty, momentum, share = known[:4]
    if RUN_TIME in (penalty, momentum):
        return None
    slot, nesterov = _slot(call), call.attrs["nesterov"]

    def pack(*numbers: float) -> Sequence[float]:
        changing = iter(numbers)
        return [next(changing) if value is RUN_TIME else value for value in (lr, share)]

    def step(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
        params, grads, velocities = groups
        if penalty:
            grads = list(torch._foreach_add(grads, params, alpha=penalty))
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, torch._foreach_mul(grads, slots[1]))
        steps = torch._foreach_add(grads, velocities, alpha=momentum) if nesterov else velocities
        torch._foreach_sub_(params, torch._foreach_mul(steps, slots[0]))

    return writing(call, known, 3, (slot, slot), pack, step)


# -- Lion ---------------------------------------------------------------------------------------------------------
def _lion(call: Call, known: Known) -> DeviceForm | None:
    _, beta_1, beta_2, decay = known[:4]
    if known[0] is not RUN_TIME or RUN_TIME in (beta_1, beta_2, decay) or len(_types(call)) > 1:
        return None
    slot = _slot(call)

    def step(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
        params, grads, means = groups
        directions = sign_of_mean(beta_1, grads, means)
        torch._foreach_mul_(params, slots[1])
        torch._foreach_sub_(params, torch._foreach_mul(directions, slots[0]))
        torch._foreach_mul_(means, beta_2)
        torch._foreach_add_(means, grads, alpha=1 - beta_2)

    return writing(call, known, 3, (slot, slot), lambda lr: (lr, 1 - lr * decay), step)


# -- Adam ---------------------------------------------------------------------------------------------------------
def _adam(call: Call, known: Known) -> DeviceForm | None:
    lr, beta_1, beta_2, epsilon, penalty, decay, time = known[:7]
    if RUN_TIME in (beta_1, beta_2, epsilon, penalty, decay):
        return None
    cautious, amsgrad = call.attrs["cautious"], call.attrs["amsgrad"]
    kinds = 5 if amsgrad else 4

    def numbers_of(given: Sequence[float]) -> tuple[float, float]:
        values = iter(given)
        return (next(values) if lr is RUN_TIME else lr), (next(values) if time is RUN_TIME else time)

    if _fusable(call) and not (penalty and decay) and not (cautious and decay):
        kernel = torch._fused_adamw_ if decay else torch._fused_adam_

        def fused(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
            params, grads, means, squares, *largest = groups
            kernel(
                params, grads, means, squares, largest[0] if largest else [], [slots[1]] * len(params), lr=slots[0],
                beta1=beta_1, beta2=beta_2, weight_decay=decay or penalty, eps=epsilon, amsgrad=amsgrad,
                maximize=False,
            )  # fmt: skip

        return writing(call, known, kinds, (DType.F32, DType.F32), lambda *given: numbers_of(given), fused)

    def pack(*given: float) -> Sequence[float]:
        rate, count = numbers_of(given)
        return rate / (1 - beta_1**count), math.sqrt(1 - beta_2**count), rate * decay

    def step(slots: Tensors, groups: list[list[torch.Tensor]]) -> None:
        rate, root, shrink = slots
        params, grads, means, squares, *largest = groups
        if penalty:
            grads = list(torch._foreach_add(grads, params, alpha=penalty))
        torch._foreach_mul_(means, beta_1)
        torch._foreach_add_(means, grads, alpha=1 - beta_1)
        torch._foreach_mul_(squares, beta_2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta_2)
        if amsgrad:
            torch._foreach_maximum_(largest[0], squares)
        size = torch._foreach_sqrt(largest[0] if amsgrad else squares)
        torch._foreach_div_(size, root)
        torch._foreach_add_(size, epsilon)
        moves = torch._foreach_mul(torch._foreach_div(means, size), rate)
        if decay:
            shrunk = [p * (p * m > 0) for p, m in zip(params, means, strict=True)] if cautious else params
            torch._foreach_add_(moves, torch._foreach_mul(shrunk, shrink))
        torch._foreach_sub_(params, moves)

    return writing(call, known, kinds, (_slot(call),) * 3, pack, step)


UPDATES: Final[Mapping[str, Form]] = {
    "adam_update": _adam,
    "lion_update": _lion,
    "momentum_update": _momentum,
    "sgd_update": _sgd,
}
"""By the row's name."""
