"""What `check` knows of each operator: its arguments, and its twin in plain torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels import dropout, lion, matmul, optimizer, tensor_norm
from burn_kernels.activation import TWINS
from burn_kernels.cross_entropy.references import Options, twin
from burn_kernels.reduce import references as reduce_parts
from burn_kernels.rope import references as rope_parts
from burn_kernels.spec import REGISTRY, Draw, Problem
from burn_kernels.verification import verify

__all__ = ["ADAPTERS", "DRAWN", "OPTIMIZERS", "Adapter", "Call", "Far"]


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
    twin: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    """(*args) -> the first output, or a tuple of the first, by torch's own operators."""
    label: Callable[[Sequence[Any]], str]
    """The operation's name as users know it."""
    floor: Callable[[Sequence[Any], torch.Tensor], float] = lambda args, dy: 0.0
    """(args, dy) -> the size of the numbers whose difference a gradient is; see `verify.compare`."""
    size: Callable[[Sequence[Any]], float] = lambda args: 0.0
    """(args) -> the same of the output."""
    far: Callable[[Sequence[Any], Any], Far] | None = None
    """(args, room) -> the same call with rows that lie far apart."""
    outputs: Callable[[Sequence[Any]], int] = lambda args: 1
    """(args) -> how many of its results are outputs that the twin gives too."""
    run: Callable[[Any], Any] = lambda args: None
    """For what takes lists of tensors: the launcher out of place."""
    verify: Callable[[Sequence[Any]], list[str]] | None = None
    """For what takes lists of tensors, which carry no gradient: what is wrong, by `burn_kernels.verify`."""


# -- twins ---------------------------------------------------------------------------------------------
def _layer_norm(x: Any, w: Any, b: Any, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def _rms_norm(x: Any, w: Any, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _cross_entropy(x: Any, targets: Any, *options: Any) -> torch.Tensor:
    return twin(x, targets, **_options(options))


def _linear_cross_entropy(x: Any, w: Any, b: Any, targets: Any, *rest: Any) -> torch.Tensor:
    return _cross_entropy(F.linear(x, w, b), targets, *rest[:5])


GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}


_NAMES = ("weight", "reduction", "smoothing", "ignore_index", "z_loss")


def _options(values: Sequence[object]) -> dict[str, Any]:
    return dict(zip(_NAMES, values, strict=True))


def _dropout(x: Any, prob: float, seed: Any) -> torch.Tensor:
    return dropout.reference(x, prob, *seed.tolist())


def _residual_sum(x: Any, residual: Any, prob: float, seed: Any) -> Any:
    if prob and seed is not None:
        key, stream = seed.tolist()
        x = x * dropout.mask(prob, key, stream, like=x)
    return x + residual


def _residual_norm(norm: Callable[..., torch.Tensor], x: Any, residual: Any, *rest: Any) -> Any:
    *weights, eps, prob, seed = rest
    s = _residual_sum(x, residual, prob, seed)
    return norm(s, s.shape[-1:], *weights, eps), s


def _rope(q: Any, k: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
    *angles, positions, offset, interleaved, inverse = rest
    options = {"positions": positions, "offset": offset, "interleaved": interleaved}
    given = (q, q) if k is None else (q, k)
    if len(angles) == 2:
        cos, sin = angles
        found = rope_parts.twin(*given, cos=cos, sin=-sin if inverse else sin, **options)
    else:
        found = rope_parts.twin_computed(*given, turns=-angles[0] if inverse else angles[0], **options)
    return found[: 1 if k is None else 2]


def _embedding(indices: Any, weight: Any, padding: int, scaled: bool) -> torch.Tensor:
    return F.embedding(indices, weight, padding if padding >= 0 else None, scale_grad_by_freq=scaled)


def _named(name: str, args: Sequence[object]) -> str:
    return name


def _reduction(kind: str, x: Any, dim: Any, keepdim: bool, *correction: float) -> torch.Tensor:
    more = {"correction": correction[0]} if correction else {}
    return reduce_parts.twin(kind, x, tuple(dim) if isinstance(dim, list) else dim, keepdim, **more)


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


def _floor_norm(args: Sequence[object], dy: torch.Tensor) -> float:
    """Of one column a norm is flat: its gradients are what is left of numbers of this size."""
    x, *vectors = (a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
    if x.shape[-1] != 1 or not dy.numel():
        return 0.0
    eps = next(a for a in args if isinstance(a, float))
    scales = [float(v.abs().max()) for v in vectors if v.dim() == 1]
    return float(dy.abs().max()) * max(1.0, *scales, 0.0) / math.sqrt(eps)


def _far_from_its_middle(args: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row of a layer norm how many deviations off zero its numbers are, at most, and 1 / the deviation.

    Far off, as where the two columns of a row are nearly alike, its mean is rounded by a large part of what is left
    after it; chance decides which of two right results comes nearer.
    """
    x, *rest = args
    if len(rest) > 3:  # residual, w, b, eps, prob, seed
        x = _residual_sum(x, rest[0], *rest[4:])
    eps = next(a for a in args if isinstance(a, float))
    x = x.to("cpu", torch.float64)
    rstd = (x.var(-1, correction=0) + eps).rsqrt()
    return x.abs().amax(-1) * rstd, rstd


def _scale_of(args: Sequence[Any]) -> torch.Tensor | float:
    w = args[2 if len(args) > 4 else 1]  # after the residual, where there is one
    return 1.0 if w is None else w.to("cpu", torch.float64).abs()


def _size_layer_norm(args: Sequence[Any]) -> float:
    if args[0].shape[-1] == 1 or not args[0].numel():
        return 0.0
    far, _ = _far_from_its_middle(args)
    return float((far[..., None] * _scale_of(args)).max())


def _floor_layer_norm(args: Sequence[Any], dy: torch.Tensor) -> float:
    if args[0].shape[-1] == 1 or not dy.numel():
        return _floor_norm(args, dy)
    far, rstd = _far_from_its_middle(args)
    largest = (dy.to("cpu", torch.float64).abs() * _scale_of(args)).amax(-1)
    # normal numbers stay under eight: theirs are held to the size of the gradient itself
    return float(torch.where(far > 8.0, far * rstd * largest, 0.0).max())


def _size(kind: str, args: Sequence[Any]) -> float:
    x, dim, *_ = args
    return reduce_parts.usual_size(kind, x, dim)


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


def _far_reduction(args: Sequence[Any], room: Any) -> Far:
    y = torch.linspace(-1.0, 1.0, 3, dtype=args[0].dtype, device=args[0].device)
    graded = not isinstance(args[1], int) and args[1] is not None
    return Far((room.rows(), [-1] if graded else -1, False, *args[3:]), y if graded else None)


def _far_residual(args: Sequence[Any], room: Any) -> Far:
    *_, eps, prob, seed = args
    like = args[0]
    count = len(args) - 5
    fitted = [torch.linspace(0.5, 1.5, room.cols, dtype=like.dtype, device=like.device) for _ in range(count)]
    return Far((room.rows(), room.rows(), *fitted, eps, prob, seed), room.rows())


def _far_layer(args: Sequence[Any], room: Any) -> Far:
    x, w = room.rows(), torch.linspace(-1.0, 1.0, room.cols * room.cols).view(room.cols, room.cols)
    return Far((x, w.to(x), None, None, *args[4:]), room.rows())


def _far_glu(args: Sequence[Any], room: Any) -> Far:
    return Far((room.rows(), room.rows(), args[2]), room.rows())


# -- optimizers ----------------------------------------------------------------------------------------
def _verify(name: str, args: Sequence[Any]) -> list[str]:
    *inputs, options = args
    flat = [x for group in inputs if group is not None for x in group]
    kind, device = (flat[0].dtype, flat[0].device) if flat else (torch.float32, torch.device("cpu"))
    return verify(REGISTRY[name], Problem(tuple(inputs), options), dtype=kind, device=device)


def _verify_norm(args: Sequence[Any]) -> list[str]:
    tensors, order = args
    kind, device = (tensors[0].dtype, tensors[0].device) if tensors else (torch.float32, torch.device("cpu"))
    return verify(
        REGISTRY["tensor_norm"], Problem((list(tensors),), {"order": float(order)}), dtype=kind, device=device
    )


def _optimizer(name: str, names: tuple[str, ...], run: Callable[..., object]) -> Adapter:
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
        floor=_floor_layer_norm,
        size=_size_layer_norm,
        far=_far_norm,
    ),
    "rms_norm": Adapter(
        names=("x", "w", "eps"),
        graded=(0, 1),
        twin=_rms_norm,
        label=lambda args: "rms_norm",
        floor=_floor_norm,
        far=_far_norm,
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
    "linear": Adapter(
        names=("x", "w", "b", "residual", "kind", "gradients"),
        graded=(0, 1, 2, 3),
        twin=lambda x, w, b, residual, kind, _: matmul.SPEC.twin(x, w, b, residual, kind=kind),
        label=lambda args: "linear",
        far=_far_layer,
    ),
    "glu": Adapter(
        names=("gate", "up", "kind"),
        graded=(0, 1),
        twin=lambda gate, up, kind: TWINS[kind](gate) * up,
        label=lambda args: GATED[args[2]],
        far=_far_glu,
    ),
    "activation": Adapter(
        names=("x", "kind"),
        graded=(0,),
        twin=lambda x, kind: TWINS[kind](x),
        label=lambda args: str(args[1]),
        far=_far_row,
    ),
    "dropout": Adapter(names=("x", "prob", "seed"), graded=(0,), twin=_dropout, label=lambda args: "dropout"),
    "residual_layer_norm": Adapter(
        names=("x", "residual", "w", "b", "eps", "prob", "seed"),
        graded=(0, 1, 2, 3),
        twin=functools.partial(_residual_norm, F.layer_norm),
        label=lambda args: "residual_layer_norm",
        outputs=lambda args: 2,
        floor=_floor_layer_norm,
        size=_size_layer_norm,
        far=_far_residual,
    ),
    "residual_rms_norm": Adapter(
        names=("x", "residual", "w", "eps", "prob", "seed"),
        graded=(0, 1, 2),
        twin=functools.partial(_residual_norm, F.rms_norm),
        label=lambda args: "residual_rms_norm",
        outputs=lambda args: 2,
        floor=_floor_norm,
        far=_far_residual,
    ),
    "rope": Adapter(
        names=("q", "k", "cos", "sin", "positions", "offset", "interleaved", "inverse"),
        graded=(0, 1),
        twin=_rope,
        label=lambda args: "rope",
        outputs=lambda args: 1 if args[1] is None else 2,
    ),
    "rope_computed": Adapter(
        names=("q", "k", "turns", "positions", "offset", "interleaved", "inverse"),
        graded=(0, 1),
        twin=_rope,
        label=lambda args: "rope_computed",
        outputs=lambda args: 1 if args[1] is None else 2,
    ),
    "embedding": Adapter(
        names=("indices", "weight", "padding_idx", "scale_by_frequency"),
        graded=(1,),
        twin=_embedding,
        label=lambda args: "embedding_backward",
    ),
    **{
        kind: Adapter(
            names=("x", "dim", "keepdim", *(("correction",) if kind == "var" else ())),
            graded=() if kind.startswith("arg") else (0,),
            twin=functools.partial(_reduction, kind),
            label=functools.partial(_named, kind),
            size=functools.partial(_size, kind),
            far=_far_reduction,
        )
        for kind in reduce_parts.KINDS
    },
    "tensor_norm": Adapter(
        names=("tensors", "order"),
        graded=(),
        twin=torch.nn.utils.get_total_norm,
        label=lambda args: "tensor_norm",
        run=lambda args: tensor_norm.norm(args[0], order=args[1]),
        verify=_verify_norm,
    ),
    "clip_factor": Adapter(
        names=("tensors", "most", "order"),
        graded=(),
        twin=lambda tensors, most, order: torch.nn.utils.get_total_norm(tensors, order),
        label=lambda args: "tensor_norm",
        run=lambda args: tensor_norm.clip_factor(args[0], args[1], order=args[2]),
        verify=lambda args: _verify_norm((args[0], args[2])),
    ),
    "adamw": _optimizer("adamw", ("params", "grads", "means", "squares", "options"), optimizer.adamw),
    "adam": _optimizer(
        "adam", ("params", "grads", "means", "squares", "options"), functools.partial(optimizer.adamw, coupled=True)
    ),
    "sgd": _optimizer("sgd", ("params", "grads", "velocities", "options"), optimizer.sgd),
    "lion": _optimizer("lion", ("params", "grads", "means", "options"), lion.lion),
}
DRAWN: dict[str, Callable[[Draw], Call]] = {}
"""For each operation what draws a call of it, in float64; `_drawn` fills it."""
OPTIMIZERS = ("adam", "adamw", "lion", "sgd")
