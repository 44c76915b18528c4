"""The references of an optimizer's step: in plain torch, and torch.optim, with problems to compare on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels.launch import wide_type
from burn_kernels.spec import Draw, Problem
from burn_kernels.tensor_table import Tensors


# -- reference ---------------------------------------------------------------------------------------
def adamw_reference(
    params: Tensors,
    grads: Tensors,
    means: Tensors,
    squares: Tensors,
    *,
    lr: float,
    step: int,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.01,
    coupled: bool = False,
    clip: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """One step of AdamW, or Adam if `coupled`, in plain torch."""
    new: tuple[list[torch.Tensor], ...] = ([], [], [])
    for old in zip(params, grads, means, squares, strict=True):
        p, g, m, v = (x.to(wide_type(x.dtype)) for x in old)
        if clip is not None:
            g = g * clip
        if coupled:
            g = g + decay * p
        m = m + (1 - betas[0]) * (g - m)
        v = betas[1] * v + (1 - betas[1]) * g * g
        size = torch.sqrt(v) / math.sqrt(1 - betas[1] ** step) + eps
        p = p * (1 if coupled else 1 - lr * decay) - lr / (1 - betas[0] ** step) * m / size
        for group, value, like in zip(new, (p, m, v), (old[0], *old[2:]), strict=True):
            group.append(value.to(like.dtype))
    return new[0], new[1], new[2]


def sgd_reference(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    share: float = 1.0,
    decay: float = 0.0,
    nesterov: bool = False,
    clip: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One step of SGD in plain torch."""
    new: list[torch.Tensor] = []
    moved: list[torch.Tensor] = []
    for index, (old_p, old_g) in enumerate(zip(params, grads, strict=True)):
        p, g = (x.to(wide_type(x.dtype)) for x in (old_p, old_g))
        if clip is not None:
            g = g * clip
        g = g + decay * p
        if velocities is not None:
            old = velocities[index]
            v = momentum * old.to(wide_type(old.dtype)) + share * g
            moved.append(v.to(old.dtype))
            g = g + momentum * v if nesterov else v
        new.append((p - lr * g).to(old_p.dtype))
    return new, moved


# -- problems ----------------------------------------------------------------------------------------
_SHAPES = ((3, 5), (7,), (), (0, 4), (2, 3, 4), (8_193,), (16,))


def adamw_problems(draw: Draw) -> Iterator[Problem]:
    """Tensors of many sizes, one of which takes a second chunk; options; a layout that is copied; nothing at all."""

    def group(mean: float = 0.0) -> list[torch.Tensor]:
        return [draw.normal(*shape, mean=mean) for shape in _SHAPES]

    squares = [x * x for x in group()]
    yield Problem((group(), group(), group(), squares), {"lr": 0.1, "step": 1})
    options = {"lr": 0.01, "step": 1000, "betas": (0.8, 0.95), "eps": 1e-3, "decay": 0.3}
    yield Problem((group(), group(), group(), squares), options | {"clip": torch.tensor(0.37, dtype=torch.float64)})
    loose = [draw.normal(5, 4).T]
    yield Problem((loose, loose, loose, [x * x for x in loose]), {"lr": 0.1, "step": 3})
    yield Problem(([], [], [], []), {"lr": 0.1, "step": 3})


def sgd_problems(draw: Draw) -> Iterator[Problem]:
    """Without momentum, with, and with Nesterov's."""

    def group() -> list[torch.Tensor]:
        return [draw.normal(*shape) for shape in _SHAPES]

    yield Problem((group(), group(), None), {"lr": 0.1, "decay": 0.2})
    yield Problem((group(), group(), group()), {"lr": 0.1, "momentum": 0.9, "share": 0.7, "decay": 0.1})
    options = {"lr": 0.2, "momentum": 0.8, "nesterov": True, "clip": torch.tensor(2.5, dtype=torch.float64)}
    yield Problem((group(), group(), group()), options)


def twin_adamw(params: Tensors, grads: Tensors, means: Tensors, squares: Tensors, **options: Any) -> list[torch.Tensor]:
    """The parameters after a step of torch.optim.AdamW, its state set to what is given."""
    clip = options.get("clip")
    leaves = [torch.nn.Parameter(p.clone(memory_format=torch.contiguous_format)) for p in params]
    if not leaves:
        return []
    maker = torch.optim.Adam if options.get("coupled") else torch.optim.AdamW
    optimizer = maker(
        leaves,
        lr=options["lr"],
        betas=options.get("betas", (0.9, 0.999)),
        eps=options.get("eps", 1e-8),
        weight_decay=options.get("decay", 0.01),
    )
    for leaf, g, m, v in zip(leaves, grads, means, squares, strict=True):
        leaf.grad = (g if clip is None else g * clip).clone(memory_format=torch.contiguous_format).to(leaf.dtype)
        state = {
            "exp_avg": m.clone(memory_format=torch.contiguous_format),
            "exp_avg_sq": v.clone(memory_format=torch.contiguous_format),
        }
        optimizer.state[leaf] = {"step": torch.tensor(options["step"] - 1.0)} | state
    optimizer.step()
    return [leaf.detach() for leaf in leaves]


def twin_sgd(params: Tensors, grads: Tensors, velocities: Tensors | None, **options: Any) -> list[torch.Tensor]:
    """The parameters after a step of torch.optim.SGD, its state set to what is given."""
    clip = options.get("clip")
    leaves = [torch.nn.Parameter(p.clone()) for p in params]
    optimizer = torch.optim.SGD(
        leaves,
        lr=options["lr"],
        momentum=options.get("momentum", 0.0),
        dampening=1.0 - options.get("share", 1.0),
        weight_decay=options.get("decay", 0.0),
        nesterov=options.get("nesterov", False),
    )
    for index, (leaf, g) in enumerate(zip(leaves, grads, strict=True)):
        leaf.grad = (g if clip is None else g * clip).to(leaf.dtype)
        if velocities is not None:
            optimizer.state[leaf] = {"momentum_buffer": velocities[index].clone()}
    optimizer.step()
    return [leaf.detach() for leaf in leaves]


# -- drawn calls ---------------------------------------------------------------------------------------
def draw_step(states: int, draw: Draw) -> tuple[Any, ...]:
    """Parameters, gradients and states of a step, each a list, and its options."""
    shapes = [(draw.integer(1, 9), draw.width()) for _ in range(draw.integer(1, 5))]
    groups = [[draw.normal(*shape) for shape in shapes] for _ in range(2 + states)]
    options: dict[str, Any] = {"lr": 0.1, "decay": 0.1 * draw.integer(0, 2)}
    if draw.integer(0, 2):
        options["clip"] = torch.tensor(0.3, dtype=torch.float64)
    return *groups, options


def draw_adamw(draw: Draw) -> tuple[Any, ...]:
    """A step of Adam or AdamW."""
    *groups, squares, options = draw_step(2, draw)
    return *groups, [x * x for x in squares], options | {"step": draw.integer(1, 100)}


def draw_sgd(draw: Draw) -> tuple[Any, ...]:
    """A step of SGD, with momentum or without."""
    params, grads, velocities, options = draw_step(1, draw)
    if draw.integer(0, 2):
        return params, grads, velocities, options | {"momentum": 0.9, "nesterov": bool(draw.integer(0, 2))}
    return params, grads, None, options


def large_adamw(draw: Draw) -> list[Problem]:
    """A step large enough that errors average."""
    *groups, squares = ([draw.normal(100, 331)] for _ in range(4))
    return [Problem((*groups, [x * x for x in squares]), {"lr": 1e-2, "step": 7})]


def large_sgd(draw: Draw) -> list[Problem]:
    """A step large enough that errors average."""
    return [Problem(tuple([draw.normal(100, 331)] for _ in range(3)), {"lr": 1e-2, "momentum": 0.9})]
