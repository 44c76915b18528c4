"""The knowledge of `check` about each operator: its arguments, and its twin in plain torch."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels import dropout
from burn_kernels.cross_entropy.references import Options
from burn_kernels.operators import Operator
from burn_kernels.spec import REGISTRY, Draw, KernelSpec, Problem
from burn_kernels.verification import cast, verify

__all__ = ["ADAPTERS", "DRAWN", "OPTIMIZERS", "SEEDS", "Adapter", "Call", "Far", "cast_call"]


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
    """The facts about an operator."""

    names: tuple[str, ...]
    """The names of its arguments."""
    graded: tuple[int, ...]
    """The places of the arguments that carry gradients."""
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


# -- floors --------------------------------------------------------------------------------------------
_NAMES = ("weight", "reduction", "smoothing", "ignore_index", "z_loss")


def _options(values: Sequence[object]) -> dict[str, Any]:
    return dict(zip(_NAMES, values, strict=True))


def _share(dy: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, options: Options) -> float:
    """The factor of a probability in the gradient of a logit, which is a difference of two probabilities."""
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
    """A norm of one column is flat: its gradients are what is left of numbers of this size."""
    x, *vectors = (a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
    if x.shape[-1] != 1 or not dy.numel():
        return 0.0
    eps = next(a for a in args if isinstance(a, float))
    scales = [float(v.abs().max()) for v in vectors if v.dim() == 1]
    return float(dy.abs().max()) * max(1.0, *scales, 0.0) / math.sqrt(eps)


def _far_from_its_middle(args: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of a layer norm, its largest distance from zero in deviations, and 1 / the deviation.

    Far off, as where the two columns of a row are nearly alike, its mean is rounded by a large part of what is left
    after it; chance decides which of two right results comes nearer.
    """
    x, *rest = args
    if len(rest) > 3:  # residual, w, b, eps, prob, seed
        residual, _, _, _, prob, seed = rest
        if prob and seed is not None:
            key, stream = seed.tolist()
            x = x * dropout.mask(prob, key, stream, like=x)
        x = x + residual
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


def _floor_attention(args: Sequence[Any], dy: torch.Tensor) -> float:
    """The size of the terms of a score's gradient: products of dy and values, and of these with q and k."""
    sizes = [float(x.abs().max()) if x.numel() else 0.0 for x in (dy, *args[:3])]
    return sizes[0] * sizes[3] * max(1.0, sizes[1], sizes[2])


FLOORS: dict[str, Callable[[Sequence[Any], torch.Tensor], float]] = {
    "attention": _floor_attention,
    "attention_packed": _floor_attention,
    "cross_entropy": _floor_cross_entropy,
    "layer_norm": _floor_layer_norm,
    "linear_cross_entropy": _floor_linear,
    "residual_layer_norm": _floor_layer_norm,
    "residual_rms_norm": _floor_norm,
    "rms_norm": _floor_norm,
}


# -- rows that lie far apart ---------------------------------------------------------------------------
def _far_rows(names: Sequence[str], rows: Sequence[str], args: Sequence[Any], room: Any) -> Far:
    """The arguments in `rows` with rows that lie far apart; vectors of weights are as long as these."""

    def fitted(name: str, value: Any) -> Any:
        if name in rows:
            return room.rows()
        if isinstance(value, torch.Tensor) and value.dim() == 1 and value.is_floating_point():
            return torch.linspace(0.5, 1.5, room.cols, dtype=value.dtype).to(value.device)
        return value

    return Far(tuple(fitted(*pair) for pair in zip(names, args, strict=True)), room.rows())


def _far_cross_entropy(args: Sequence[Any], room: Any) -> Far:
    # the forward alone: the gradient is written with the strides of x, and a wrapped offset would write anywhere
    targets = torch.arange(3, device=args[1].device)
    return Far((room.rows(), targets, None, "none", *args[4:]), None)


def _far_reduction(args: Sequence[Any], room: Any) -> Far:
    y = torch.linspace(-1.0, 1.0, 3, dtype=args[0].dtype, device=args[0].device)
    graded = not isinstance(args[1], int) and args[1] is not None
    return Far((room.rows(), [-1] if graded else -1, False, *args[3:]), y if graded else None)


def _far_layer(args: Sequence[Any], room: Any) -> Far:
    x, w = room.rows(), torch.linspace(-1.0, 1.0, room.cols * room.cols).view(room.cols, room.cols)
    return Far((x, w.to(x), None, None, *args[4:]), room.rows())


def _far_attention(args: Sequence[object], room: Any) -> Far:
    q, k, v, dy = (room.rows()[None, None] for _ in range(4))
    return Far((q, k, v, None, None, None, *args[6:]), dy)


FAR: dict[str, Callable[[Sequence[Any], Any], Far]] = {
    "attention": _far_attention,
    "cross_entropy": _far_cross_entropy,
    "linear": _far_layer,
    **dict.fromkeys(("sum", "mean", "var", "logsumexp", "amax", "amin", "argmax", "argmin"), _far_reduction),
}


# -- the tables ----------------------------------------------------------------------------------------
BY_SPEC = ("attention", "attention_packed")
"""Operators whose second gradients take the reference, so that the twin of the spec is the independent one."""


def _call(op: Operator, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls a function of the spec with an operator's arguments."""
    inputs, _, options = op.call_of(dict(zip(op.arguments(), args, strict=True)))
    if op.name in BY_SPEC:
        options.pop("deterministic", None)  # of the backward
    return function(*inputs, **options)


def _size(op: Operator, spec: KernelSpec, args: Sequence[Any]) -> float:
    if op.name in ("layer_norm", "residual_layer_norm"):
        return _size_layer_norm(args)
    inputs, _, options = op.call_of(dict(zip(op.arguments(), args, strict=True)))
    return spec.size(*inputs, **options)


def _label(op: Operator, args: Sequence[object]) -> str:
    """The operation's name: of specs that share the operator, the one whose arguments these are."""
    values = dict(zip(op.arguments(), args, strict=True))
    for spec in REGISTRY.values():
        shares = any(one.name == op.name for one in spec.operators)
        if shares and all(values[name] == value for name, value in spec.bound.items()):
            return str(spec.name)
    return op.name


def _verify(spec: KernelSpec, names: Sequence[str], args: Sequence[Any]) -> list[str]:
    """The faults of a call of lists of tensors, by `burn_kernels.verify`."""
    known = inspect.signature(spec.forward).parameters
    inputs = tuple(args[:-1]) if isinstance(args[-1], dict) else (list(args[0]),)
    options = args[-1] if isinstance(args[-1], dict) else dict(zip(names[1:], args[1:], strict=True))
    flat = [x for group in inputs if group is not None for x in group]
    kind, device = (flat[0].dtype, flat[0].device) if flat else (torch.float32, torch.device("cpu"))
    problem = Problem(inputs, {name: value for name, value in options.items() if name in known})
    return verify(spec, problem, dtype=kind, device=device)


def _adapter(op: Operator, spec: KernelSpec) -> Adapter:
    kinds = op.arguments()
    names = ["images", *list(kinds)[1:]] if op.images else list(kinds)
    of_lists = "Tensor[]" in kinds.values()
    twin = spec.twin if op.name in BY_SPEC or op.twin is None else op.twin
    far = functools.partial(_far_rows, names, op.far.split()) if op.far else FAR.get(op.name)
    return Adapter(
        names=tuple(names),
        graded=() if of_lists else tuple(list(kinds).index(name) for name in op.gradients.split()),
        twin=lambda *args: _call(op, twin, args),
        label=functools.partial(_label, op),
        floor=FLOORS.get(op.name, lambda args, dy: 0.0),
        size=functools.partial(_size, op, spec),
        far=far,
        outputs=lambda args: op.carried(*args),
        run=lambda args: _call(op, op.forward or spec.forward, args) if of_lists else None,
        verify=functools.partial(_verify, spec, names) if of_lists else None,
    )


def _step_adapter(spec: KernelSpec) -> Adapter:
    """The adapter of an optimizer's step, which takes lists of tensors and options."""
    parameters = inspect.signature(spec.forward).parameters.values()
    return Adapter(
        names=(*(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD), "options"),
        graded=(),
        twin=spec.twin,
        label=lambda args: spec.name,
        run=lambda args: spec.forward(*args[:-1], **args[-1]),
        verify=functools.partial(_verify, spec, ()),
    )


OPTIMIZERS = tuple(sorted(spec.name for spec in REGISTRY.values() if spec.draw_call is not None and not spec.operators))
ADAPTERS: dict[str, Adapter] = {name: _step_adapter(REGISTRY[name]) for name in OPTIMIZERS}
for _spec in REGISTRY.values():
    for _op in _spec.operators:
        if not _op.name.endswith("_backward"):
            ADAPTERS.setdefault(_op.name, _adapter(_op, _spec))


def _draw(spec: KernelSpec, draw: Draw) -> Call:
    assert spec.draw_call is not None
    return Call(spec.operators[0].name if spec.operators else spec.name, spec.draw_call(draw))


DRAWN: dict[str, Callable[[Draw], Call]] = {
    spec.name: functools.partial(_draw, spec) for spec in REGISTRY.values() if spec.draw_call is not None
}
"""For each operation what draws a call of it, in float64."""
SEEDS = {name: adapter.names.index("seed") for name, adapter in ADAPTERS.items() if "seed" in adapter.names}
"""The place of the argument that is a seed: it stays on the CPU, as reading it from a device would wait for that."""


def cast_call(call: Call, dtype: torch.dtype, device: torch.device) -> Call:
    """The same call with its floats in `dtype`, on `device`; what steers it stays where it is."""
    if call.op in OPTIMIZERS:
        *groups, options = call.args
        wide = torch.float32 if dtype != torch.float64 else dtype
        return Call(call.op, (*cast(groups, dtype, device), cast(options, wide, device)))
    steering = SEEDS.get(call.op)
    args = [a if at == steering else cast(a, dtype, device) for at, a in enumerate(call.args)]
    return Call(call.op, tuple(args), call.where)
