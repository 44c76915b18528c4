"""Reductions over any axes: sum, mean, var, logsumexp, amax, amin, argmax, argmin.

    sum = sum_i x_i             mean = sum / n              var = sum_i (x_i - mean)^2 / (n - correction)
    logsumexp = m + log(sum_i exp(x_i - m)), m = max_i x_i
    amax, amin: NaN where there is one                      argmax, argmin: the first of equals; the first NaN wins

    dsum = dy        dmean = dy / n        dvar = dy * 2 (x - mean) / (n - correction)
    dlogsumexp = dy * exp(x - lse)         damax, damin = dy / ties where x = y: equals share alike

Limit: memory.  Forward reads x once; backward reads x and writes dx, of sum and mean nothing: dx is a view of dy.
Layout: any strides; axes that are neighbours in memory are joined, what is left of kept and of reduced axes may be two
each, beyond that a copy is made first.  Accumulates in float32, index arithmetic in int64.  Deterministic.

logsumexp gives lse in a wider type beside the result: a rounded one would be off by half of its last place, and all of
its gradient by as many parts.

The kernels are in `reduce.kernels`.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.launch import Machine, ceil_div, check, fill, launch, machine_of, next_power
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.operators import Operator
from burn_kernels.reduce.configs import Config, Form, candidates, default, grid
from burn_kernels.reduce.kernels import (
    Cut,
    join_parts,
    join_places,
    place_columns,
    place_once,
    reduce_once,
    spread_back,
)
from burn_kernels.reduce.references import (
    FEW,
    KINDS,
    Axes,
    Plan,
    axes_of,
    check_axes,
    check_saved,
    count_of,
    draw_call,
    kept_type,
    plain,
    plain_back,
    plan_of,
    problems,
    reduced,
    reference,
    shape_of,
    twin,
    usual_size,
)
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

__all__ = [
    "KINDS",
    "Config",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "candidates",
    "default",
    "extreme_backward",
    "logsumexp",
    "logsumexp_backward",
    "mean",
    "mean_backward",
    "reference",
    "sum",
    "sum_backward",
    "var",
    "var_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: Tensor, *_: object, backward: bool = False, **__: object) -> int:
    """x read; backward x read and dx written."""
    return (2 if backward else 1) * x.numel() * x.element_size()


def flops(x: Tensor, *_: object, backward: bool = False, **__: object) -> int:
    """Per element some 4 operations."""
    return 4 * x.numel()


# -- launchers ---------------------------------------------------------------------------------------
@launcher("sum", "x", reference=functools.partial(plain, "sum"), options=check_axes)
def sum(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The sum over the axes `dim`, all if None, in the type of x.

    Shapes: x (*s) -> s without these axes, or with 1 in their place.
    Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    return _run("sum", x, dim, keepdim, 0.0, config)[0]


@launcher("mean", "x", reference=functools.partial(plain, "mean"), options=check_axes)
def mean(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The mean over the axes `dim`; shapes and types as `sum`.  Of no elements NaN."""
    return _run("mean", x, dim, keepdim, 0.0, config)[0]


@launcher("var", "x", reference=functools.partial(plain, "var"), options=check_axes)
def var(
    x: Tensor, dim: Axes = None, *, correction: float = 1.0, keepdim: bool = False, config: Config | None = None
) -> tuple[Tensor, Tensor]:
    """The variance over the axes `dim`, and the mean in float32; shapes and types as `sum`.

    The squares are divided by n - correction; NaN where that is not above 0.
    """
    y, middle = _run("var", x, dim, keepdim, correction, config)
    assert middle is not None
    return y, middle


@launcher("logsumexp", "x", reference=functools.partial(plain, "logsumexp"), options=check_axes)
def logsumexp(
    x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None
) -> tuple[Tensor, Tensor]:
    """The logarithm of the sum of exponentials over the axes `dim`, and the same before it was rounded.

    Shapes as `sum`.  Dtypes: the first as x; the second, which the gradient takes, float64 of float32 and float64,
    float32 of half types.
    """
    y, exact = _run("logsumexp", x, dim, keepdim, 0.0, config)
    assert exact is not None
    return y, exact


@launcher("amax", "x", reference=functools.partial(plain, "amax"), options=check_axes)
def amax(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The largest element over the axes `dim`, NaN if there is one; shapes and types as `sum`."""
    return _run("amax", x, dim, keepdim, 0.0, config)[0]


@launcher("amin", "x", reference=functools.partial(plain, "amin"), options=check_axes)
def amin(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The smallest element over the axes `dim`, NaN if there is one; shapes and types as `sum`."""
    return _run("amin", x, dim, keepdim, 0.0, config)[0]


@launcher("argmax", "x", reference=functools.partial(plain, "argmax"), options=check_axes)
def argmax(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The place of the largest element along `dim`, or in x read in order if None: int64, the first of equals."""
    return _run("argmax", x, dim, keepdim, 0.0, config)[0]


@launcher("argmin", "x", reference=functools.partial(plain, "argmin"), options=check_axes)
def argmin(x: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> Tensor:
    """The place of the smallest element, as `argmax`."""
    return _run("argmin", x, dim, keepdim, 0.0, config)[0]


def sum_backward(dy: Tensor, x: Tensor, dim: Axes = None, *, keepdim: bool = False) -> Tensor:
    """The gradient of x: dy, shown at each element (a view)."""
    return _with_ones("sum backward", dy, x, dim, keepdim).expand(x.shape)


def mean_backward(dy: Tensor, x: Tensor, dim: Axes = None, *, keepdim: bool = False) -> Tensor:
    """The gradient of x: dy / n, shown at each element (a view)."""
    wide = _with_ones("mean backward", dy, x, dim, keepdim)
    return (wide / count_of(x, axes_of("mean backward", x, dim))).expand(x.shape)


@launcher("var backward", "x", reference=functools.partial(plain_back, "var"), options=check_saved)
def var_backward(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    dim: Axes = None,
    *,
    correction: float = 1.0,
    keepdim: bool = False,
    config: Config | None = None,
) -> Tensor:
    """The gradient of x from that of the variance; `mean` as `var` gave it."""
    return _run_back("var", dy, x, mean, axes_of("var", x, dim), correction, config)


@launcher("logsumexp backward", "x", reference=functools.partial(plain_back, "logsumexp"), options=check_saved)
def logsumexp_backward(
    dy: Tensor, x: Tensor, y: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None
) -> Tensor:
    """The gradient of x from that of `logsumexp`; y is either of its results, the second leaves less."""
    return _run_back("logsumexp", dy, x, y, axes_of("logsumexp", x, dim), 0.0, config)


@launcher("extreme backward", "x", reference=functools.partial(plain_back, "extreme"), options=check_saved)
def extreme_backward(
    dy: Tensor, x: Tensor, y: Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None
) -> Tensor:
    """The gradient of x from that of `amax`'s or `amin`'s result y: elements that equal y share it alike."""
    return _run_back("extreme", dy, x, y, axes_of("extreme", x, dim), 0.0, config)


def _with_ones(op: str, y: Tensor, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    """y with the reduced axes, of size 1."""
    axes = axes_of(op, x, dim)
    check(op, {"dy": y, "x": x}, {"dy": shape_of(x, axes, keepdim)}, alike=["dy", "x"])
    return y.reshape(shape_of(x, axes, True))


def _run(
    kind: str, x: Tensor, dim: Axes, keepdim: bool, correction: float, config: Config | None
) -> tuple[Tensor, Tensor | None]:
    axes = axes_of(kind, x, dim)
    shape, count = shape_of(x, axes, keepdim), count_of(x, axes)
    places = kind in ("argmax", "argmin")
    y = torch.empty(shape, dtype=torch.int64 if places else x.dtype, device=x.device)
    middle = None
    if kind in ("var", "logsumexp"):
        middle = torch.empty(shape, dtype=kept_type(kind, x.dtype), device=x.device)
    if not y.numel():
        return y, middle
    if not count:
        fill({"sum": 0.0, "logsumexp": -math.inf}.get(kind, math.nan), y, middle)
        return y, middle
    divisor = {"mean": float(count), "var": builtins.max(count - correction, 0.0)}.get(kind, 1.0)
    _forward(kind, x, axes, None, y, middle, divisor, config)
    return y, middle


def _forward(
    kind: str,
    x: Tensor,
    axes: tuple[int, ...],
    like: Tensor | None,
    y: Tensor,
    middle: Tensor | None,
    divisor: float,
    config: Config | None,
) -> None:
    plan, machine = plan_of(x, axes, ordered=kind.startswith("arg")), machine_of(x)
    kept = plan.outer * plan.inner

    def cut_for(config: Config) -> tuple[Cut, int, bool, dict[str, Any]]:
        cut, spread = _cut(plan, config, machine)
        parts = plan.far * cut.chunks
        how = {"warps": config.warps, "registers": config.registers, "KIND": kind, "WHOLE": parts == 1}
        return cut, parts, spread, how | {"KEPT": config.kept, "BLOCK": config.block, "AHEAD": config.ahead}

    def run(config: Config) -> None:
        cut, parts, spread, how = cut_for(config)
        a = b = None
        if parts > 1:
            a = torch.empty(parts, kept, dtype=torch.float32, device=x.device)
            b = torch.empty_like(a) if kind in ("var", "logsumexp") else None
        tensors = (plan.x, like, a, b, y, middle)
        launch(reduce_once, (cut.blocks * parts,), x, *tensors, cut, divisor, **how, SPREAD=spread)
        if parts > 1:
            width = builtins.min(next_power(kept), 64)
            # a second sum of so many spills on sm_80
            across = builtins.min(next_power(parts), (2048 if b is None else 1024) // width)
            rest = (a, b, y, middle, kept, parts, cut.length, cut.chunks, cut.chunk, divisor)
            launch(join_parts, (ceil_div(kept, width),), x, *rest, warps=4, KIND=kind, PARTS=across, KEPT=width)

    def find(config: Config) -> None:
        cut, parts, spread, how = cut_for(config)
        a = torch.empty(parts, kept, dtype=torch.int64, device=x.device) if parts > 1 else None
        programs, columns = (cut.blocks * parts,), plan.inner >= FEW and not _along(plan)
        if columns:
            launch(place_columns, programs, x, plan.x, a, y, cut, **how, STAGES=config.stages)
        else:
            launch(place_once, programs, x, plan.x, a, y, cut, **how, SPREAD=spread)
        if parts > 1:
            inner = plan.inner if columns else kept  # who reads x again goes by its axes
            width = builtins.min(next_power(inner), 16)
            across = builtins.min(next_power(parts), 1024 // width)
            tile = {"AHEAD": config.ahead if columns else 1, "PARTS": across, "KEPT": width}
            rest = (plan.x, a, y, kept, inner, *cut[2:6], parts, cut.chunk)
            launch(join_places, (kept // inner * ceil_div(inner, width),), x, *rest, warps=4, KIND=kind, **tile)

    # counting equals leaves one number a lane, as a sum does
    FORWARD.run(x, config, _call(plan, "sum" if kind == "ties" else kind), find if kind.startswith("arg") else run)


def _run_back(
    kind: str, dy: Tensor, x: Tensor, like: Tensor, axes: tuple[int, ...], correction: float, config: Config | None
) -> Tensor:
    dx = torch.empty_like(x)
    if not x.numel():
        return dx
    if dx.stride() != x.stride():  # the same offsets serve both
        x = x.contiguous()
        dx = torch.empty_like(x)
    dy, like, machine = dy.contiguous(), like.contiguous(), machine_of(x)
    ties = None
    if kind == "extreme":
        ties = torch.empty(dy.shape, dtype=torch.float32, device=x.device)
        _forward("ties", x, axes, like, ties, None, 1.0, config)
    plan = plan_of(x, axes, ordered=False)
    out = dx
    if plan.x is not x:  # a copy in another order of axes
        out = torch.empty_like(plan.x)
    divisor = builtins.max(count_of(x, axes) - correction, 0.0) if kind == "var" else 1.0

    def run(config: Config) -> None:
        cut, spread = _cut(plan, config, machine)
        how: dict[str, Any] = {"KIND": kind, "SPREAD": spread, "KEPT": config.kept, "BLOCK": config.block}
        tensors = (dy, plan.x, like, ties, out)
        launch(spread_back, (cut.blocks * plan.far * cut.chunks,), x, *tensors, cut, divisor, warps=config.warps, **how)

    BACKWARD.run(x, config, _call(plan, kind), run)
    if out is dx:
        return dx
    order = [axis for axis in range(x.dim()) if axis not in axes] + list(axes)
    return dx.copy_(out.permute([order.index(axis) for axis in range(x.dim())]))


def _cut(plan: Plan, config: Config, machine: Machine) -> tuple[Cut, bool]:
    """How a launch is cut, and whether a tile spans several outers."""
    blocks, spread, chunks, chunk = grid(plan.outer, plan.inner, plan.far, plan.length, config, machine)
    kept = plan.outer * plan.inner
    return Cut(kept, *plan[2:5], plan.length, plan.stride, chunks, chunk, plan.far_stride, blocks), spread


# -- selection ---------------------------------------------------------------------------------------
def _facts(
    dtype: torch.dtype, outer: int, inner: int, far: int, length: int, span: int, address: int, along: bool, kind: str
) -> Facts:
    align = alignment(address, span * dtype.itemsize, (length if along else inner) * dtype.itemsize)
    return Facts((outer, inner, far * length), (), dtype, align, flags=f"{kind} {'along' if along else 'across'}")


def _along(plan: Plan) -> bool:
    return plan.stride == 1 or plan.inner_stride != 1


def _call(plan: Plan, kind: str) -> tuple[object, ...]:
    """The arguments of `_facts` for a call."""
    along = _along(plan)
    span = plan.outer_stride | plan.far_stride | (plan.inner_stride if along else plan.stride)
    sizes = (plan.outer, plan.inner, plan.far, plan.length)
    return (plan.x.dtype, *sizes, span, plan.x.data_ptr() & 15, along, kind)


def _choices(facts: Facts, machine: Machine, *, back: bool) -> list[Config]:
    outer, inner, length = facts.free
    spread = outer > 1 and inner < FEW
    along = spread or facts.flags.endswith("along")  # with few results side by side, their width is no use
    kept, kind = outer * inner if spread else inner, facts.flags.split()[0]
    form: Form = "places" if kind.startswith("arg") else _FORMS.get(kind, "sums")
    if back:
        form = "back"
    return candidates(kept, length, facts.dtype.itemsize, machine, along=along, form=form, align=facts.align)


_FORMS: dict[str, Form] = {"var": "moments", "amax": "peaks", "amin": "peaks", "logsumexp": "exponentials"}


_FORWARDS: dict[str, Launcher[..., Any]] = dict(
    zip(KINDS, (sum, mean, var, logsumexp, amax, amin, argmax, argmin), strict=True)
)
_BACKWARDS: dict[str, Launcher[..., Any]] = {
    "var": var_backward, "logsumexp": logsumexp_backward, "extreme": extreme_backward,
}  # fmt: skip


def _tunable(name: str, *, back: bool) -> Tunable:
    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (outer, inner, length), size = facts.free, facts.dtype.itemsize
        blocks, _, chunks, chunk = grid(outer, inner, 1, length, config, machine)
        count, held = outer * inner * length, config.kept * config.block
        useful = count / (blocks * chunks * config.kept * ceil_div(chunk, config.block) * config.block)
        moved = (2 if back else 1) * count * size
        return Work(blocks * chunks, config.warps, held, size, moved, 4 * count, useful, 3.0)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        (outer, inner, length), (kind, way) = facts.free, facts.flags.split()
        if way == "along":
            x = inputs.rows(facts, outer * inner, length).unflatten(0, (outer, inner))
        else:
            x = inputs.rows(facts, outer * length, inner).unflatten(0, (outer, length))
        dim = 2 if way == "along" else 1
        if back:
            y, middle = reduced({"extreme": "amax"}.get(kind, kind), x, (dim,), False, 1.0)
            dy = inputs.normal(*y.shape, dtype=facts.dtype)
            return Trial.of(_BACKWARDS[kind], dy, x, y if middle is None else middle, dim)
        return Trial.of(_FORWARDS[kind], x, dim)

    def problems_of(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
        align, kinds = alignment(cols * dtype.itemsize), ("var", "logsumexp", "extreme") if back else KINDS
        shapes = {"along": (1, rows, cols), "across": (1, cols, rows)}
        return [
            Facts(sizes, (), dtype, align, flags=f"{kind} {way}") for kind in kinds for way, sizes in shapes.items()
        ]

    return register_tunable(
        name=name,
        config=Config,
        facts=_facts,
        free=("outer", "inner", "length"),
        exact=(),
        candidates=functools.partial(_choices, back=back),
        supports=lambda config, facts: config.kept * config.block <= 65_536,
        work=work,
        trial=trial,
        kernels=(reduce_once, join_parts, spread_back) if back else _KERNELS,
        problems=problems_of,
        shapes=((16_384, 16_384), (1, 1 << 28)),
    )


_KERNELS = (reduce_once, join_parts, place_once, place_columns, join_places)
FORWARD = _tunable("reduce", back=False)
BACKWARD = _tunable("reduce backward", back=True)


# -- registration ------------------------------------------------------------------------------------
def _fake(kind: str, x: Tensor, dim: Axes, keepdim: bool, *_: object) -> Any:
    shape = shape_of(x, axes_of(kind, x, dim), keepdim)
    y = torch.empty(shape, dtype=torch.int64 if kind.startswith("arg") else x.dtype, device=x.device)
    if kind not in ("var", "logsumexp"):
        return y
    return y, torch.empty(shape, dtype=kept_type(kind, x.dtype), device=x.device)


def _shape_before(x: Tensor, dim: Axes, keepdim: bool) -> tuple[Any, ...]:
    """The facts of an input that the gradient of a sum or mean needs: its shape, that with kept axes, the length."""
    axes = axes_of("sum", x, dim)
    return x.shape, shape_of(x, axes, True), count_of(x, axes)


def _spread(kind: str, saved: Any, dy: Tensor) -> tuple[Tensor]:
    shape, kept, count = saved["facts"]
    dy = dy.reshape(kept)
    return ((dy / count if kind == "mean" else dy).expand(shape),)


def _operator(kind: str) -> Operator:
    axes = "int? dim" if kind.startswith("arg") else "int[]? dim"
    more = ", float correction" if kind == "var" else ""
    results = {"var": "y saved", "logsumexp": "y saved", "amax": "saved", "amin": "saved"}.get(kind, "y")
    outputs = "(Tensor, Tensor)" if " " in results else "Tensor"
    parts: dict[str, Any] = {}
    if kind in ("sum", "mean"):  # views of the upstream gradient: no kernel runs
        parts = {"rule": functools.partial(_spread, kind), "facts": _shape_before}
    elif results != "y":
        parts = {"saved": f"x saved dim keepdim{' correction' if more else ''}"}
    if kind in ("amax", "amin"):  # a choice of elements: linear in dy, flat in x
        parts |= {"backward": "extreme_backward", "by_reference": True}
    return Operator(
        schema=f"{kind}(Tensor x, {axes}, bool keepdim{more}) -> {outputs}",
        inputs="x",
        fake=functools.partial(_fake, kind),
        results=results,
        gradients="" if kind.startswith("arg") else "x",
        autocast=("cuda",) if kind in ("sum", "logsumexp") else (),
        **parts,
    )


def _large(kind: str, draw: Draw, x: Tensor) -> Iterator[Problem]:
    # torch's own variance of a million float64 is off by more than a reference may be
    yield from (Problem((x,), {"dim": dim}) for dim in ((0, 1) if kind == "var" else (0, 1, None)))


def _gradient_of_view(back: Any, dy: Any, inputs: Any, outputs: Any, dim: Axes = None, **options: Any) -> Any:
    return (back(dy, *inputs, dim, **options),)


def _gradient(back: Any, dy: Any, inputs: Any, outputs: Any, dim: Axes = None, **options: Any) -> Any:
    return (back(dy, *inputs, outputs[-1], dim, **options),)


for _kind, _run_kind in _FORWARDS.items():
    _views = {"sum": sum_backward, "mean": mean_backward}
    register_kernel(
        _run_kind,
        _views.get(_kind) or _BACKWARDS.get("extreme" if _kind in ("amax", "amin") else _kind),
        gradient=_gradient_of_view if _kind in _views else _gradient,
        twin=functools.partial(twin, _kind),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=functools.partial(problems, kind=_kind),
        large=large_rows(functools.partial(_large, _kind)),
        size=functools.partial(usual_size, _kind),
        draw_call=functools.partial(draw_call, _kind),
        operators=[_operator(_kind)],
    )
