"""Batch norm of (batch, channels, *space), with an activation in the same kernels.

    n = (x - mean) * rstd      y = act(n * w + b)      rstd = 1 / sqrt(var + eps), mean and biased var over batch, space
    running = (1 - momentum) * running + momentum * (mean, count / (count - 1) * var), as torch; `evaluate` reads these

    g  = dy * act'(n * w + b)                    dw = sum of g * n                       db = sum of g
    dx = rstd * w * (g - sum(g) / count - n * sum(g * n) / count)          (`evaluate` without the last two terms)

Limit: memory.  Forward moves 3 * numel elements (x in, x in again, y out), `evaluate` 2; backward 5 (dy and x in twice,
dx out).  The second reading goes over the tiles in the opposite order, so that it finds in the L2 cache what was read
last; a tensor that fits there is read from memory once.  The activation's slope is computed again from x.
Layout: channels before space, in order, or channels last: both are read in place; others are copied first.
Accumulates in float32; mean and rstd are float32, of float32 tensors float64: their rounding would be an error of each
result.  Deterministic: sums over parts in a fixed order, no atomics.

One launch where channels fill the machine, otherwise three (parts, join, output).  The kernels are in
`channel_norm.kernels`, the backward in `batch_norm.launch_backward`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.batch_norm.launch_backward import backward, evaluate_backward
from burn_kernels.batch_norm.references import (
    SHAPES,
    Gradients,
    Outputs,
    check_given,
    evaluate_reference,
    evaluate_reference_backward,
    facts,
    problems_with,
    reference,
    reference_backward,
    strides_of,
    tiling_of,
    tiling_of_facts,
)
from burn_kernels.channel_norm.configs import Config, grid, sizes_of
from burn_kernels.channel_norm.configs import candidates as tiles_alone
from burn_kernels.channel_norm.kernels import forward_whole, join_moments, moments_of_parts, normalize
from burn_kernels.channel_norm.kernels_held import candidates, default, forward_held, held, whole_tile
from burn_kernels.channel_norm.launching import launch_training
from burn_kernels.channel_norm.layout import (
    ACTIVATIONS,
    PLAIN,
    alike,
    check_count,
    check_norm,
    large_images,
    ordered,
    room_like,
    scaled,
    statistics_type,
    unfolded,
    words,
)
from burn_kernels.channel_norm.selection import activation_of, draw_weights, supports, work_of
from burn_kernels.launch import Machine, ceil_div, contiguous, fill, launch, machine_of, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, like, nothing
from burn_kernels.spec import Draw, Problem, register_spec

__all__ = [
    "ACTIVATIONS",
    "Config",
    "backward",
    "candidates",
    "default",
    "evaluate",
    "evaluate_backward",
    "evaluate_reference",
    "evaluate_reference_backward",
    "forward",
    "forward_",
    "reference",
    "reference_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *others: object, backward: bool = False, given: bool = False, **_: object) -> int:
    """x read twice and y written; backward x and dy read twice, dx written.  Vectors are small beside them.

    With statistics that are `given`, x is read once forward.
    """
    return (5 if backward else 2 if given else 3) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """Per element some 10 operations forward, 24 backward."""
    return (24 if backward else 10) * x.numel()


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str = "none",
    config: Config | None = None,
) -> Outputs:
    """Batch norm in training: y, mean, rstd, and the running statistics moved on by `momentum`, as new tensors.

    Shapes: x (batch, channels, *space), the others (channels,) or None -> y as x, the rest (channels,).
    Dtypes: float32, float16, bfloat16; vectors in the type of x or float32; mean and rstd float32, of float32
    float64.  On the CPU float64.
    Without elements the running statistics stay.  Raises: KernelShapeError where a channel has one element.
    """
    new = [None if r is None else torch.empty(r.shape, dtype=r.dtype, device=r.device)
           for r in (running_mean, running_var)]  # fmt: skip
    options: Any = {"momentum": momentum, "eps": eps, "activation": activation, "config": config}
    return _train(x, w, b, running_mean, running_var, new, **options)


def forward_(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    activation: str = "none",
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `forward`, but the running statistics are moved on where they lie: y, mean, rstd."""
    running = (running_mean, running_var)
    new = [r if r is None or r.is_contiguous() else torch.empty_like(r) for r in running]
    options: Any = {"momentum": momentum, "eps": eps, "activation": activation, "config": config}
    y, mean, rstd, *now = _train(x, w, b, running_mean, running_var, new, **options)
    for old, moved in zip(running, now, strict=True):
        if old is not None and moved is not None and moved is not old:
            old.copy_(moved)
    return y, mean, rstd


@launcher(
    "batch_norm_eval",
    "x (batch, channels, *space); w (channels), b (channels), mean (channels), var (channels)",
    reference=evaluate_reference,
    options=check_given,
)
def evaluate(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    *,
    eps: float = 1e-5,
    activation: str = "none",
    config: Config | None = None,
) -> torch.Tensor:
    """Batch norm with given statistics, the running ones; shapes and types as `forward`."""
    if not x.numel():
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    flat, last = ordered(x)
    y, tiling = alike(flat, last), tiling_of(flat, last)
    vectors = contiguous(w, b)
    statistics, machine = (mean.contiguous(), var.contiguous()), machine_of(x)

    def run(config: Config) -> None:
        blocks, parts, steps = grid(tiling, config, machine)
        strides = (strides_of(flat, last), strides_of(y, last))
        arguments = (flat, *vectors, y, *statistics, *strides, sizes_of(tiling, config), steps, eps)
        launch(normalize, (blocks, parts), x, *arguments, warps=config.warps,
               VARIANCE=True, PLACE="kept", KIND=activation, TILE=config.tile)  # fmt: skip

    flags = words(activation, last, w=w is not None, b=b is not None, given=True)
    FORWARD.run(x, config, _call(flat, last, flags), run)
    return unfolded(y, x.shape)


def _check_training(
    op: str, x: torch.Tensor, w: Any, b: Any, running_mean: Any, running_var: Any, *_: Any, activation: str,
    **__: object,
) -> None:  # fmt: skip
    check_norm(op, x, {"w": w, "b": b, "running_mean": running_mean, "running_var": running_var}, activation)
    check_count(op, x)


@launcher(
    "batch_norm",
    "x (batch, channels, *space); w (channels), b (channels), running_mean (channels), running_var (channels)",
    reference=lambda *tensors, **options: reference(*tensors[:5], **options),
    options=_check_training,
)
def _train(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    new: Sequence[torch.Tensor | None],
    *,
    momentum: float,
    eps: float,
    activation: str,
    config: Config | None,
) -> Outputs:
    new_mean, new_var = new
    kept = statistics_type(x.dtype)
    mean, rstd = (torch.empty(x.shape[1], dtype=kept, device=x.device) for _ in range(2))
    if not x.numel():
        old = [r if r is n or n is None or r is None else n.copy_(r)
               for r, n in ((running_mean, new_mean), (running_var, new_var))]  # fmt: skip
        fill(math.nan, mean, rstd)
        return x.clone(), mean, rstd, old[0], old[1]
    flat, last = ordered(x)
    y, tiling = alike(flat, last), tiling_of(flat, last)
    vectors = contiguous(w, b)
    before = contiguous(running_mean, running_var)
    tensors, statistics, numbers = (flat, *vectors, y), (mean, rstd, *before, new_mean, new_var), (momentum, eps)
    strides = (strides_of(flat, last), strides_of(y, last))

    def run(config: Config) -> None:
        if held(tiling, config, *strides):
            near = (*strides[0][1:], *strides[1][1:], tiling.kept, tiling.rows, tiling.cols, float(tiling.elements))
            launch(forward_held, (ceil_div(tiling.kept, config.kept),), x, *tensors, *statistics, *near, *numbers,
                   warps=config.warps, KIND=activation, **whole_tile(config))  # fmt: skip
            return
        width = 32 if tiling.kept > 1024 else 8
        launch_training(
            tensors, statistics, strides, numbers, tiling, config, activation=activation, place="kept", width=width
        )

    flags = words(activation, last, w=w is not None, b=b is not None)
    FORWARD.run(x, config, _call(flat, last, flags), run)
    return unfolded(y, x.shape), mean, rstd, new_mean, new_var


# -- selection ---------------------------------------------------------------------------------------
def _call(flat: torch.Tensor, last: bool, flags: str) -> tuple[object, ...]:
    tiling = tiling_of(flat, last)
    return (flat.dtype, tiling.kept, tiling.rows, tiling.cols, strides_of(flat, last)[1:], flat.data_ptr() & 15, flags)


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    passes = 1 if "given" in facts.flags.split() else 2
    return work_of(tiling_of_facts(facts), config, facts, machine, passes=passes)


def _candidates(facts: Facts, machine: Machine) -> list[Config]:
    # given statistics, each tile is by itself
    some = tiles_alone if "given" in facts.flags.split() else candidates
    return some(tiling_of_facts(facts), facts.dtype.itemsize, machine)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    tiling, activation = tiling_of_facts(facts), activation_of(facts)
    x = inputs.normal(tiling.rows, tiling.kept, tiling.cols, dtype=facts.dtype)
    w, b = draw_weights(facts, inputs, tiling.kept)
    if "given" in facts.flags.split():
        mean, var = inputs.normal(tiling.kept, dtype=torch.float32), torch.ones_like(x[0, :, 0], dtype=torch.float32)
        return Trial.of(evaluate, x, w, b, mean, var, activation=activation)
    return Trial(
        (x, w, b),
        lambda tensors, config: forward(*tensors, activation=activation, config=config)[:3],
        lambda tensors: reference(*tensors, activation=activation)[:3],
    )


FORWARD = register_tunable(
    name="batch_norm",
    config=Config,
    facts=facts,
    free=("rows",),
    exact=("channels", "cols"),
    candidates=_candidates,
    supports=supports,
    work=_work,
    trial=_trial,
    kernels=(forward_whole, forward_held, moments_of_parts, join_moments, normalize),
    problems=problems_with("relu w b", "w b", "relu w b given"),
    shapes=SHAPES,
)


# -- registration ------------------------------------------------------------------------------------
_SHAPES = ((5, 7), (3, 4, 9), (4, 1, 33), (2, 70, 3, 3), (6, 2, 40, 31), (0, 3, 2))


def _inputs(draw: Draw) -> Iterator[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, dict[str, object]]]:
    for number, shape in enumerate(_SHAPES):
        w, b = draw.normal(shape[1], mean=1.0, std=0.3), draw.normal(shape[1])
        yield draw.normal(*shape, mean=0.5), w, b, {"activation": ACTIVATIONS[number % 3]}
    w, b = draw.normal(5, mean=1.0, std=0.3), draw.normal(5)
    yield draw.normal(3, 6, 7, 5, mean=0.5).permute(0, 3, 1, 2), w, b, {"activation": "relu"}  # channels last
    yield draw.normal(3, 9, 4, 5, mean=0.5)[:, 2:7], w, None, {"eps": 1e-3}
    yield draw.normal(7, 5, 6, mean=0.5).permute(2, 1, 0), None, b, {}
    yield draw.normal(4, 5, 6, 8, mean=0.5)[..., ::2], None, None, {}
    yield draw.normal(900, 5, mean=0.5), w, b, {"activation": "relu"}
    yield draw.normal(2, 2, 3000, mean=3.0), w[:2], b[:2], {"activation": "none"}


def _problems(draw: Draw) -> Iterator[Problem]:
    for number, (x, w, b, options) in enumerate(_inputs(draw)):
        size = x.shape[1]
        running = {"running_mean": draw.normal(size), "running_var": draw.normal(size).square()}
        yield Problem((x, w, b), {**options, **running, "momentum": (0.1, 0.7)[number % 2]})


def _given_problems(draw: Draw) -> Iterator[Problem]:
    for x, w, b, options in _inputs(draw):
        size = x.shape[1]
        yield Problem((x, w, b), {**options, "mean": draw.normal(size), "var": draw.normal(size).square() + 0.1})


def _twin(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, *, running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None, momentum: float = 0.1, eps: float = 1e-5, activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    mean, var = (None if r is None else r.clone() for r in (running_mean, running_var))
    y = torch.nn.functional.batch_norm(x, mean, var, _wide(x, scaled(w, b)), _wide(x, b), True, momentum, eps)
    return PLAIN[activation](y)


def _given_twin(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, *, mean: torch.Tensor, var: torch.Tensor,
    eps: float = 1e-5, activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    y = torch.nn.functional.batch_norm(x, mean, var, _wide(x, scaled(w, b)), _wide(x, b), False, 0.0, eps)
    return PLAIN[activation](y)


def _wide(x: torch.Tensor, v: torch.Tensor | None) -> torch.Tensor | None:
    # the running statistics are float32 here, and torch takes no weights of another type than theirs
    return None if v is None else v.to(wide_type(x.dtype))


def _gradient(back: Any, dy: Any, inputs: Any, outputs: Any, *, activation: str = "none", **_: object) -> Gradients:
    return back(dy, *inputs, *outputs[1:3], activation=activation)  # type: ignore[no-any-return]  # `back` is untyped


def _run_given(
    run: Callable[..., object], x: object, w: object, b: object, *, mean: object, var: object, **options: object
) -> Any:
    return run(x, w, b, mean, var, **options)


def _given_gradient(run: Callable[..., Any], dy: Any, inputs: Any, outputs: object, **options: Any) -> Any:
    return run(dy, *inputs, options.pop("mean"), options.pop("var"), **options)


def _large(mean: str, var: str, draw: Draw) -> Iterator[Problem]:
    for x, w, b in large_images(draw):
        moments = {mean: draw.normal(x.shape[1]), var: draw.normal(x.shape[1]).square() + 0.1}
        yield Problem((x, w, b), {**moments, "activation": "silu"})


def _operator_twin(
    trained: bool, x: Any, w: Any, b: Any, *, mean: Any = None, var: Any = None, eps: float, activation: str,
    **_: object,
) -> torch.Tensor:  # fmt: skip
    y = torch.nn.functional.batch_norm(x, mean, var, scaled(w, b), b, trained, 0.0, eps)
    return PLAIN[activation](y)


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    channels = draw.integer(4, 20)
    x = draw.normal(draw.integer(4, 40), channels) if draw.one_in(4) else draw.images(channels)
    running = (draw.normal(channels), draw.normal(channels).square()) if draw.integer(0, 2) else (None, None)
    return x, *draw.vectors(channels, 2), *running, 0.1, 1e-5, ACTIVATIONS[draw.integer(0, 3)]


def _draw_given_call(draw: Draw) -> tuple[Any, ...]:
    channels = draw.integer(4, 20)
    statistics = draw.normal(channels), draw.normal(channels).square() + 0.1
    (w,) = draw.vectors(channels, 1)
    # with a bias: where there is none a half x may equal the mean, and a ReLU has no slope there
    tensors = (draw.images(channels), w, draw.normal(channels), *statistics)
    return *tensors, 1e-5, ACTIVATIONS[draw.integer(0, 3)]


def _statistics(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[1], dtype=statistics_type(x.dtype), device=x.device)


SPEC = register_spec(
    name="batch_norm",
    forward=forward,
    gradient=functools.partial(_gradient, backward),
    reference=reference,
    reference_gradient=functools.partial(_gradient, reference_backward),
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    large=functools.partial(_large, "running_mean", "running_var"),
    draw_call=_draw_call,
    operators=(
        Operator(
            schema="batch_norm(Tensor x, Tensor? w, Tensor? b, Tensor? running_mean, Tensor? running_var,"
            " float momentum, float eps, str activation) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
            inputs="x w b",
            fake=lambda x, w, b, *running: (
                room_like(x),
                *(_statistics(x) for _ in range(2)),
                *(nothing(x) if v is None else like(v) for v in running[:2]),
            ),
            results="y mean rstd new_mean new_var",
            gradients="x w b",
            saved="x w b mean rstd eps activation",
            twin=functools.partial(_operator_twin, True),
            room=room_like,
            laid="x",
            images=True,
        ),
    ),
)

EVALUATE = register_spec(
    name="batch_norm_eval",
    forward=functools.partial(_run_given, evaluate),
    gradient=functools.partial(_given_gradient, evaluate_backward),
    reference=functools.partial(_run_given, evaluate_reference),
    reference_gradient=functools.partial(_given_gradient, evaluate_reference_backward),
    twin=_given_twin,
    bytes_moved=functools.partial(bytes_moved, given=True),
    flops=flops,
    problems=_given_problems,
    large=functools.partial(_large, "mean", "var"),
    draw_call=_draw_given_call,
    operators=(
        Operator(
            schema="batch_norm_eval(Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor var, float eps,"
            " str activation) -> Tensor",
            inputs="x w b",
            fake=lambda x, *_: room_like(x),
            gradients="x w b",
            saved="x w b mean var eps activation",
            twin=functools.partial(_operator_twin, False),
            room=room_like,
            laid="x",
            images=True,
        ),
    ),
)
