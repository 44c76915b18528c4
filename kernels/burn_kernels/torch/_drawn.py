"""Calls of each operation, drawn: sizes, layouts and options as models may have them; fills `_problems.DRAWN`."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from burn_kernels import matmul
from burn_kernels.activation import TWINS
from burn_kernels.reduce import references as reduce_parts
from burn_kernels.rope import references as rope_parts
from burn_kernels.spec import Draw
from burn_kernels.torch._problems import DRAWN, GATED, OPTIMIZERS, Call
from burn_kernels.verification import cast

__all__ = ["cast_call"]


def _integer(draw: Draw, low: int, high: int) -> int:
    return int(draw.integers(low, high, 1))


def _size(draw: Draw) -> int:
    """A width: mostly small and ragged, sometimes past a thousand."""
    most = 2100 if _integer(draw, 0, 12) == 0 else 300
    return max(1, round(math.exp(float(torch.rand(1, generator=draw.generator)) * math.log(most))))


def _rows(draw: Draw, cols: int, std: float = 2.0) -> torch.Tensor:
    """Rows in one of the layouts that a model may have: in order, strided, transposed, part of a wider tensor."""
    rows = _integer(draw, 1, 9)
    layout = _integer(draw, 0, 6)
    if layout == 0:
        return draw.normal(2 * rows, cols, std=std)[::2]
    if layout == 1:
        return draw.normal(cols, rows, std=std).T
    if layout == 2:
        before = _integer(draw, 0, 9)
        return draw.normal(rows, cols + before + 3, std=std)[:, before : before + cols]
    if layout == 3:
        return draw.normal(2, rows, cols, std=std)
    return draw.normal(rows, cols, std=std)


def _targets(draw: Draw, rows: int, classes: int) -> torch.Tensor:
    targets = draw.integers(0, classes, rows)
    return torch.where(torch.rand(rows, generator=draw.generator) < 0.3, -100, targets)


def _draw_row(op: str, draw: Draw) -> Call:
    return Call(op, (_rows(draw, _size(draw)),))


def _draw_norm(op: str, draw: Draw) -> Call:
    cols = _size(draw)
    count = 2 if op == "layer_norm" else 1
    vectors = [None if _integer(draw, 0, 5) == 0 else draw.normal(cols, mean=0.7) for _ in range(count)]
    return Call(op, (_rows(draw, cols), *vectors, 1e-5))


def _draw_options(draw: Draw, classes: int) -> tuple[object, ...]:
    """Weight, reduction, smoothing, ignored target, z_loss."""
    weight = None if _integer(draw, 0, 2) else draw.normal(classes).abs() + 0.1
    return (
        weight,
        ("mean", "sum", "none")[_integer(draw, 0, 3)],
        (0.0, 0.1)[_integer(draw, 0, 2)],
        -100,
        ((0.0, 0.01)[_integer(draw, 0, 2)]),
    )


def _draw_cross_entropy(draw: Draw) -> Call:
    x = _rows(draw, _size(draw) + 1).flatten(0, -2)
    targets = _targets(draw, x.shape[0], x.shape[1])
    return Call("cross_entropy", (x, targets, *_draw_options(draw, x.shape[1])))


def _draw_linear(draw: Draw) -> Call:
    features, classes = _integer(draw, 1, 40), _size(draw) + 1
    x, w = _rows(draw, features, 1.0).flatten(0, -2), draw.normal(classes, features)
    bias = draw.normal(classes) if _integer(draw, 0, 2) else None
    targets, options = _targets(draw, x.shape[0], classes), _draw_options(draw, classes)
    return Call("linear_cross_entropy", (x, w, bias, targets, *options, options[1] != "none", ""))


def _draw_layer(draw: Draw) -> Call:
    features, out = _integer(draw, 1, 40), _size(draw)
    x = _rows(draw, features, 1.0)
    w = draw.normal(features, out).T if _integer(draw, 0, 2) else draw.normal(out, features)
    bias = draw.normal(out) if _integer(draw, 0, 2) else None
    residual = draw.normal(*x.shape[:-1], out) if _integer(draw, 0, 3) == 0 else None
    return Call("linear", (x, w, bias, residual, matmul.KINDS[_integer(draw, 0, len(matmul.KINDS))], True))


def _draw_glu(kind: str, draw: Draw) -> Call:
    gate = _rows(draw, _size(draw))
    if gate.shape[-1] % 2 == 0 and _integer(draw, 0, 2):
        return Call("glu", (*gate.chunk(2, -1), kind))
    return Call("glu", (gate, draw.normal(*gate.shape), kind))


def _draw_dropout(draw: Draw) -> Call:
    prob = (0.0, 0.1, 0.5, 0.9)[_integer(draw, 0, 4)]
    return Call("dropout", (_rows(draw, _size(draw)), prob, draw.integers(-(2**62), 2**62, 2)))


def _draw_activation(kind: str, draw: Draw) -> Call:
    return Call("activation", (_rows(draw, _size(draw)), kind))


def _draw_residual(op: str, draw: Draw) -> Call:
    cols = _size(draw)
    x = _rows(draw, cols)
    count = 2 if op == "residual_layer_norm" else 1
    vectors = [None if _integer(draw, 0, 5) == 0 else draw.normal(cols, mean=0.7) for _ in range(count)]
    prob = (0.0, 0.3)[_integer(draw, 0, 2)]
    seed = draw.integers(-(2**62), 2**62, 2) if prob else None
    return Call(op, (x, draw.normal(*x.shape), *vectors, 1e-5, prob, seed))


def _draw_rope(draw: Draw, *, computed: bool = False) -> Call:
    batch, seq, heads, pairs = (_integer(draw, 1, most) for most in (4, 20, 6, 20))
    width, far = 2 * pairs + _integer(draw, 0, 4), _integer(draw, 0, 3) == 0
    shapes = [(batch, seq, count, width) for count in (heads, _integer(draw, 1, heads + 1))]
    if far:  # as attention has it: heads before tokens
        q, k = (draw.normal(b, h, s, d).transpose(1, 2) for b, s, h, d in shapes)
    else:
        q, k = (draw.normal(*shape) for shape in shapes)
    offset = _integer(draw, 0, 3)
    positions = draw.integers(0, 30, batch, seq) if _integer(draw, 0, 3) == 0 else None
    rest = (positions, offset, bool(_integer(draw, 0, 2)), bool(_integer(draw, 0, 2)))
    other = None if _integer(draw, 0, 4) == 0 else k
    if computed:
        return Call("rope_computed", (q, other, rope_parts.turns(2 * pairs, 500.0), *rest))
    angle = torch.arange(40, dtype=torch.float64)[:, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    return Call("rope", (q, other, angle.cos(), angle.sin(), *rest))


def _draw_embedding(draw: Draw) -> Call:
    rows, cols = _integer(draw, 1, 50), _size(draw)
    indices = draw.integers(0, rows, *((_integer(draw, 1, 90),) if _integer(draw, 0, 2) else (3, 7)))
    padding = _integer(draw, 0, rows) if _integer(draw, 0, 3) == 0 else -1
    return Call("embedding", (indices, draw.normal(rows, cols), padding, bool(_integer(draw, 0, 2))))


def _draw_reduction(kind: str, draw: Draw) -> Call:
    x = _rows(draw, _size(draw) + 1)
    choices: list[Any] = [*range(-x.dim(), x.dim()), None]
    if not kind.startswith("arg"):
        choices = [None if dim is None else [dim] for dim in choices] + [list(range(x.dim())), [0, -1]]
    dim = choices[_integer(draw, 0, len(choices))]
    if kind == "var" and x.dim() == 2 and x.shape[0] == 1 and isinstance(dim, list) and -1 not in dim:
        dim = [-1]  # of one number there is no variance
    more = (float(_integer(draw, 0, 2)),) if kind == "var" else ()
    return Call(kind, (x, dim, bool(_integer(draw, 0, 2)), *more))


def _draw_norm_of_many(draw: Draw) -> Call:
    tensors = [draw.normal(_integer(draw, 1, 9), _size(draw)) for _ in range(_integer(draw, 1, 6))]
    if _integer(draw, 0, 3) == 0:
        tensors.append(draw.normal(7, 5).T)
    return Call("tensor_norm", (tensors, (1.0, 2.0, math.inf)[_integer(draw, 0, 3)]))


def _draw_optimizer(name: str, draw: Draw) -> Call:
    shapes = [(_integer(draw, 1, 9), _size(draw)) for _ in range(_integer(draw, 1, 5))]
    groups = [[draw.normal(*shape) for shape in shapes] for _ in range(4)]
    options: dict[str, Any] = {"lr": 0.1, "decay": 0.1 * _integer(draw, 0, 2)}
    if _integer(draw, 0, 2):
        options["clip"] = torch.tensor(0.3, dtype=torch.float64)
    if name == "lion":
        return Call(name, (*groups[:3], options))
    if name in ("adamw", "adam"):
        squares = [x * x for x in groups[3]]
        return Call(name, (*groups[:3], squares, options | {"step": _integer(draw, 1, 100)}))
    moving = bool(_integer(draw, 0, 2))
    more = {"momentum": 0.9, "nesterov": bool(_integer(draw, 0, 2))} if moving else {}
    return Call(name, (groups[0], groups[1], groups[2] if moving else None, options | more))


DRAWN |= {
    **{name: functools.partial(_draw_row, name) for name in ("softmax", "log_softmax")},
    **{name: functools.partial(_draw_norm, name) for name in ("layer_norm", "rms_norm")},
    "cross_entropy": _draw_cross_entropy,
    "linear": _draw_layer,
    "linear_cross_entropy": _draw_linear,
    **{name: functools.partial(_draw_glu, kind) for kind, name in GATED.items()},
    **{kind: functools.partial(_draw_activation, kind) for kind in TWINS},
    "dropout": _draw_dropout,
    **{name: functools.partial(_draw_residual, name) for name in ("residual_layer_norm", "residual_rms_norm")},
    "rope": _draw_rope,
    "rope_computed": functools.partial(_draw_rope, computed=True),
    "embedding_backward": _draw_embedding,
    **{kind: functools.partial(_draw_reduction, kind) for kind in reduce_parts.KINDS},
    "tensor_norm": _draw_norm_of_many,
    **{name: functools.partial(_draw_optimizer, name) for name in OPTIMIZERS},
}


SEEDS = {
    "dropout": 2,
    "residual_layer_norm": 6,
    "residual_rms_norm": 5,
    "convolution": 11,
    "attention": 5,
    "attention_packed": 7,
}
"""Which argument is a seed: it stays on the CPU, as reading it from a device would wait for that."""


def cast_call(call: Call, dtype: torch.dtype, device: torch.device) -> Call:
    """The same call with its floats in `dtype`, on `device`; what steers it stays where it is."""
    if call.op in OPTIMIZERS:
        *groups, options = call.args
        wide = torch.float32 if dtype != torch.float64 else dtype
        return Call(call.op, (*cast(groups, dtype, device), cast(options, wide, device)))
    steering = SEEDS.get(call.op)
    args = [a if at == steering else cast(a, dtype, device) for at, a in enumerate(call.args)]
    return Call(call.op, tuple(args), call.where)
