"""What `check` knows of each operator: its arguments, its twin in plain torch, and how to draw a call of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels import dropout, optimizer
from burn_kernels.activation import TWINS
from burn_kernels.cross_entropy_parts import Options, twin
from burn_kernels.spec import REGISTRY, Draw, Problem
from burn_kernels.verify import cast, verify

__all__ = ["ADAPTERS", "DRAWN", "Adapter", "Call", "Far", "cast_call"]


@dataclass(frozen=True)
class Call:
    """One call of an operator of torch.ops.burn_kernels."""

    op: str
    args: tuple[Any, ...]
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Far:
    """A call whose rows lie far apart, and an upstream gradient like it; None where the gradient is not asked for."""

    args: tuple[Any, ...]
    dy: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What is known of an operator."""

    names: tuple[str, ...]
    """Of its arguments."""
    graded: tuple[int, ...]
    """Which arguments carry gradients."""
    twin: Callable[..., torch.Tensor]
    """(*args) -> the first output, by torch's own operators."""
    label: Callable[[Sequence[Any]], str]
    """The operation's name as users know it."""
    floor: Callable[[Sequence[Any], torch.Tensor], float] = lambda args, dy: 0.0
    """(args, dy) -> the size of the numbers whose difference a gradient is; see `verify.compare`."""
    far: Callable[[Sequence[Any], Any], Far] | None = None
    """(args, room) -> the same call with rows that lie far apart."""
    run: Callable[[Any], Any] = lambda args: None
    """For optimizers: the launcher out of place."""
    verify: Callable[[Sequence[Any]], list[str]] | None = None
    """For optimizers, which carry no gradient: what is wrong, by `burn_kernels.verify`."""


# -- twins ---------------------------------------------------------------------------------------------
def _layer_norm(x: Any, w: Any, b: Any, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def _rms_norm(x: Any, w: Any, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _cross_entropy(x: Any, targets: Any, *options: Any) -> torch.Tensor:
    return twin(x, targets, **_options(options))


def _linear_cross_entropy(x: Any, w: Any, b: Any, targets: Any, *rest: Any) -> torch.Tensor:
    return _cross_entropy(F.linear(x, w, b), targets, *rest[:5])


_GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}


_NAMES = ("weight", "reduction", "smoothing", "ignore_index", "z_loss")


def _options(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_NAMES, values, strict=True))


def _dropout(x: Any, prob: float, seed: Any) -> torch.Tensor:
    return dropout.reference(x, prob, *seed.tolist())


# -- floors --------------------------------------------------------------------------------------------
def _share(dy: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, options: Options) -> float:
    """What a probability is multiplied by in the gradient of a logit, which is a difference of two of them."""
    if not dy.numel():
        return 0.0
    share = float(dy.abs().max())
    if options.reduction == "mean":
        divisor = float(options.divisor(targets, x))
        share = share / divisor if divisor > 0.0 else 0.0
    return share if options.weight is None else share * max(1.0, float(options.weight.max()))


def _floor_cross_entropy(args: Sequence[Any], dy: torch.Tensor) -> float:
    x, targets, *options = args
    return _share(dy, x, targets, Options(**_options(options)))


def _floor_linear(args: Sequence[Any], dy: torch.Tensor) -> float:
    x, w, _, targets, *options = args
    if not x.numel():
        return 0.0
    size = max(1.0, float(x.abs().max()), float(w.abs().max()))
    return _share(dy, x, targets, Options(**_options(options[:5]))) * size


# -- rows that lie far apart ---------------------------------------------------------------------------
def _far_row(args: Sequence[Any], room: Any) -> Far:
    return Far((room.rows(), *args[1:]), room.rows())


def _far_norm(args: Sequence[Any], room: Any) -> Far:
    x, *vectors, eps = args
    fitted = [None if v is None else torch.linspace(0.5, 1.5, room.cols, dtype=x.dtype).to(x.device) for v in vectors]
    return Far((room.rows(), *fitted, eps), room.rows())


def _far_cross_entropy(args: Sequence[Any], room: Any) -> Far:
    # the forward alone: the gradient is written with the strides of x, and a wrapped offset would write anywhere
    targets = torch.arange(3, device=args[1].device)
    return Far((room.rows(), targets, None, "none", *args[4:]), None)


def _far_glu(args: Sequence[Any], room: Any) -> Far:
    return Far((room.rows(), room.rows(), args[2]), room.rows())


# -- optimizers ----------------------------------------------------------------------------------------
def _verify(name: str, args: Sequence[Any]) -> list[str]:
    *inputs, options = args
    flat = [x for group in inputs if group is not None for x in group]
    kind, device = (flat[0].dtype, flat[0].device) if flat else (torch.float32, torch.device("cpu"))
    return verify(REGISTRY[name], Problem(tuple(inputs), options), dtype=kind, device=device)


def _optimizer(name: str, names: tuple[str, ...], run: Callable[..., Any]) -> Adapter:
    return Adapter(
        names=names,
        graded=(),
        twin=REGISTRY[name].twin,
        label=lambda args: name,
        run=lambda args: run(*args[:-1], **args[-1]),
        verify=functools.partial(_verify, name),
    )


ADAPTERS: dict[str, Adapter] = {
    "softmax": Adapter(
        names=("x",), graded=(0,), twin=lambda x: torch.softmax(x, -1), label=lambda args: "softmax", far=_far_row
    ),
    "log_softmax": Adapter(
        names=("x",),
        graded=(0,),
        twin=lambda x: torch.log_softmax(x, -1),
        label=lambda args: "log_softmax",
        far=_far_row,
    ),
    "layer_norm": Adapter(
        names=("x", "w", "b", "eps"),
        graded=(0, 1, 2),
        twin=_layer_norm,
        label=lambda args: "layer_norm",
        far=_far_norm,
    ),
    "rms_norm": Adapter(
        names=("x", "w", "eps"), graded=(0, 1), twin=_rms_norm, label=lambda args: "rms_norm", far=_far_norm
    ),
    "cross_entropy": Adapter(
        names=("x", "targets", *_NAMES),
        graded=(0,),
        twin=_cross_entropy,
        label=lambda args: "cross_entropy",
        floor=_floor_cross_entropy,
        far=_far_cross_entropy,
    ),
    "linear_cross_entropy": Adapter(
        names=("x", "w", "b", "targets", *_NAMES, "gradients", "accumulate"),
        graded=(0, 1, 2),
        twin=_linear_cross_entropy,
        label=lambda args: "linear_cross_entropy",
        floor=_floor_linear,
    ),
    "glu": Adapter(
        names=("gate", "up", "kind"),
        graded=(0, 1),
        twin=lambda gate, up, kind: TWINS[kind](gate) * up,
        label=lambda args: _GATED[args[2]],
        far=_far_glu,
    ),
    "dropout": Adapter(names=("x", "prob", "seed"), graded=(0,), twin=_dropout, label=lambda args: "dropout"),
    "adamw": _optimizer("adamw", ("params", "grads", "means", "squares", "options"), optimizer.adamw),
    "sgd": _optimizer("sgd", ("params", "grads", "velocities", "options"), optimizer.sgd),
}


# -- drawn calls ---------------------------------------------------------------------------------------
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


def _draw_options(draw: Draw, classes: int) -> tuple[Any, ...]:
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


def _draw_glu(kind: str, draw: Draw) -> Call:
    gate = _rows(draw, _size(draw))
    if gate.shape[-1] % 2 == 0 and _integer(draw, 0, 2):
        return Call("glu", (*gate.chunk(2, -1), kind))
    return Call("glu", (gate, draw.normal(*gate.shape), kind))


def _draw_dropout(draw: Draw) -> Call:
    prob = (0.0, 0.1, 0.5, 0.9)[_integer(draw, 0, 4)]
    return Call("dropout", (_rows(draw, _size(draw)), prob, draw.integers(-(2**62), 2**62, 2)))


def _draw_optimizer(name: str, draw: Draw) -> Call:
    shapes = [(_integer(draw, 1, 9), _size(draw)) for _ in range(_integer(draw, 1, 5))]
    groups = [[draw.normal(*shape) for shape in shapes] for _ in range(4)]
    options: dict[str, Any] = {"lr": 0.1, "decay": 0.1 * _integer(draw, 0, 2)}
    if _integer(draw, 0, 2):
        options["clip"] = torch.tensor(0.3, dtype=torch.float64)
    if name == "adamw":
        squares = [x * x for x in groups[3]]
        return Call(name, (*groups[:3], squares, options | {"step": _integer(draw, 1, 100)}))
    moving = bool(_integer(draw, 0, 2))
    more = {"momentum": 0.9, "nesterov": bool(_integer(draw, 0, 2))} if moving else {}
    return Call(name, (groups[0], groups[1], groups[2] if moving else None, options | more))


DRAWN: dict[str, Callable[[Draw], Call]] = {
    **{name: functools.partial(_draw_row, name) for name in ("softmax", "log_softmax")},
    **{name: functools.partial(_draw_norm, name) for name in ("layer_norm", "rms_norm")},
    "cross_entropy": _draw_cross_entropy,
    "linear_cross_entropy": _draw_linear,
    **{name: functools.partial(_draw_glu, kind) for kind, name in _GATED.items()},
    "dropout": _draw_dropout,
    **{name: functools.partial(_draw_optimizer, name) for name in ("adamw", "sgd")},
}
"""For each operation what draws a call of it, in float64."""


def cast_call(call: Call, dtype: torch.dtype, device: torch.device) -> Call:
    """The same call with its floats in `dtype`, on `device`; what steers it stays where it is."""
    if call.op in ("adamw", "sgd"):
        *groups, options = call.args
        wide = torch.float32 if dtype != torch.float64 else dtype
        return Call(call.op, (*cast(groups, dtype, device), cast(options, wide, device)))
    steering = {"dropout": (2,), "convolution": (11,)}.get(call.op, ())
    args = [a if at in steering else cast(a, dtype, device) for at, a in enumerate(call.args)]
    return Call(call.op, tuple(args), call.where)
