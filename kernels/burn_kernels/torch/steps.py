"""The steps of optimizers as operators: their names end in `_`, and their schemas say what they write."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from burn_kernels import lion, optimizer
from burn_kernels.torch.defining import define, or_reference

__all__: list[str] = []

Tensors = list[torch.Tensor]

_TABLES: OrderedDict[tuple[Any, ...], tuple[torch.Tensor, bool]] = OrderedDict()
_MOST_TABLES = 32


def _table(params: Tensors, grads: Tensors, states: list[Tensors], copies: Tensors) -> optimizer.Table:
    """The table of these tensors; their addresses are on the device already if they lay there lately.

    Only addresses are kept, not tensors: gradients that are set to None give their memory back.
    """
    groups = [params, grads, *states, *([copies] if copies else [])]
    key = tuple(tuple((x.data_ptr(), x.numel(), x.dtype, x.get_device()) for x in group) for group in groups)
    found = _TABLES.get(key)
    if found is None:
        made = optimizer.table(params, grads, *states, copies=copies or None, in_place=True)
        _TABLES[key] = made.chunks, made.aligned
        if len(_TABLES) > _MOST_TABLES:
            _TABLES.popitem(last=False)
        return made
    _TABLES.move_to_end(key)
    chunks, aligned = found
    return optimizer.Table((params, grads, *states), (params, *states), copies or None, chunks, aligned)


def _adamw_(
    params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, copies: Tensors, clip: torch.Tensor | None,
    lr: float, step: int, beta1: float, beta2: float, eps: float, decay: float, coupled: bool,
) -> None:  # fmt: skip
    options: dict[str, Any] = {"lr": lr, "step": step, "betas": (beta1, beta2), "eps": eps, "decay": decay}
    options["coupled"] = coupled

    def kernel() -> None:
        optimizer.adamw_(_table(params, grads, [means, squares], copies), clip=clip, **options)

    def plain() -> None:
        new = optimizer.adamw_reference(params, grads, means, squares, clip=clip, **options)
        _write([params, means, squares], list(new), copies)

    or_reference("adamw_", kernel, plain)()


def _sgd_(
    params: Tensors, grads: Tensors, velocities: Tensors, copies: Tensors, clip: torch.Tensor | None,
    lr: float, momentum: float, share: float, decay: float, nesterov: bool,
) -> None:  # fmt: skip
    moving = velocities or None
    options: dict[str, Any] = {"lr": lr, "momentum": momentum, "share": share, "decay": decay, "nesterov": nesterov}

    def kernel() -> None:
        optimizer.sgd_(_table(params, grads, [velocities] if velocities else [], copies), clip=clip, **options)

    def plain() -> None:
        new = optimizer.sgd_reference(params, grads, moving, clip=clip, **options)
        _write([params, velocities], list(new), copies)

    or_reference("sgd_", kernel, plain)()


def _lion_(
    params: Tensors, grads: Tensors, means: Tensors, copies: Tensors, clip: torch.Tensor | None,
    lr: float, beta1: float, beta2: float, decay: float,
) -> None:  # fmt: skip
    options: dict[str, Any] = {"lr": lr, "betas": (beta1, beta2), "decay": decay}

    def kernel() -> None:
        lion.lion_(_table(params, grads, [means], copies), clip=clip, **options)

    def plain() -> None:
        _write([params, means], list(lion.lion_reference(params, grads, means, clip=clip, **options)), copies)

    or_reference("lion_", kernel, plain)()


def _write(groups: list[Tensors], new: list[Tensors], copies: Tensors) -> None:
    for olds, values in zip(groups, new, strict=True):
        for old, value in zip(olds, values, strict=True):
            old.copy_(value)
    for copy, value in zip(copies, new[0], strict=bool(copies)):
        copy.copy_(value)


define(
    "adamw_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] means, Tensor(c!)[] squares, Tensor(d!)[] copies,"
    " Tensor? clip, float lr, int step, float beta1, float beta2, float eps, float decay, bool coupled)"
    " -> ()",
    _adamw_,
    lambda *_: None,
)
define(
    "sgd_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] velocities, Tensor(c!)[] copies, Tensor? clip, float lr,"
    " float momentum, float share, float decay, bool nesterov) -> ()",
    _sgd_,
    lambda *_: None,
)
define(
    "lion_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] means, Tensor(c!)[] copies, Tensor? clip, float lr,"
    " float beta1, float beta2, float decay) -> ()",
    _lion_,
    lambda *_: None,
)
