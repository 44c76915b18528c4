"""Collectives: values that several processes compute together, through torch.distributed.

Every process runs the same rows in the same order; what else they compute may differ.  `world` is how many processes
there are: a static attribute, since shapes depend on it.  In a world of 1 the rows are the identity, with no process
group.  A gradient is that of the sum of all processes' losses: what one process that did all the work would have.

`mean_start` and `mean_wait` are two halves of one collective.  The first is launched as soon as its inputs exist
(`collective="starts"`, see the pass `launch_early`), so that gradients travel while the backward still computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from burn_torch.core.dtype import FLOAT, NUMERIC, STORED, DType
from burn_torch.core.errors import DistributedError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.op import REGISTRY, Call, Candidate, Op, PerCall, op
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.signature import Operand
from burn_torch.ops.slicing import narrow
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value

_REDUCTIONS: Final = ("sum", "max", "min")


# -- the process group ---------------------------------------------------------------------------------
def _group(world: int) -> Any:
    """torch.distributed, or its stand-in within `rehearsal`.

    Raises: DistributedError where the process group is absent or has another size.
    """
    import torch.distributed as dist

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
    if size != world:
        raise DistributedError(
            "a collective was computed in a world of another size",
            given=f"a collective of {world} processes, and {f'{size} processes' if size else 'no process group'}",
            expected="the process group that it was made for",
            mend="call burn_torch.distributed.init() in each process first, and start them with torchrun",
        )
    return _Rehearsal() if _rehearsing.get() else dist


_rehearsing: Final = ContextVar("rehearsing", default=False)


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """Within it nothing is sent: each collective takes this process's value for that of every other one.

    A program warms up in it: others may have theirs already, as their batches have other sizes, and would not answer.
    """
    token = _rehearsing.set(True)
    try:
        yield
    finally:
        _rehearsing.reset(token)


class _Rehearsal:
    """The part of torch.distributed that the rows use, for a process that is alone with its copies."""

    def __getattr__(self, name: str) -> Any:
        import torch.distributed as dist

        return getattr(dist, name)  # ranks, names and reductions are the true ones

    def all_reduce(self, x: torch.Tensor, op: object = None, async_op: bool = False) -> Any:
        return _Done() if async_op else None

    def broadcast(self, x: torch.Tensor, src: int) -> None:
        pass

    def all_gather_into_tensor(self, y: torch.Tensor, x: torch.Tensor) -> None:
        y.view(-1, x.numel()).copy_(x)

    def reduce_scatter_tensor(self, y: torch.Tensor, x: torch.Tensor) -> None:
        y.copy_(x[: y.numel()])

    all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor


class _Done:
    def wait(self) -> None:
        pass


def gather_into(y: torch.Tensor, x: torch.Tensor) -> None:
    """Puts x of all processes into y, one behind the other; both are flat."""
    import torch.distributed as dist

    _gather_by(dist, y, x)


def _gather_by(dist: Any, y: torch.Tensor, x: torch.Tensor) -> None:
    newer = getattr(dist, "all_gather_single", None)  # torch 2.13 calls it so
    (newer or dist.all_gather_into_tensor)(y, x)


def _as_bytes(x: torch.Tensor) -> torch.Tensor:
    """The same bytes in a type that every transport knows."""
    return x.view(torch.uint8) if x.dtype in (torch.bool, torch.uint16, torch.uint32, torch.uint64) else x


def _torch(compute: Callable[..., object], alone: Callable[..., object] = torch.clone) -> PerCall:
    """A candidate: `compute(dist, x, **attrs)` on a contiguous copy of x; `alone(x)` in a world of 1."""

    def build(call: Call) -> Candidate:
        attrs = call.attrs
        if attrs["world"] == 1:
            return alone
        return lambda x: compute(_group(attrs["world"]), x.clone(memory_format=torch.contiguous_format), **attrs)

    return PerCall(build)


def _numpy(compute: Candidate, alone: Candidate = np.copy) -> PerCall:
    """The same on arrays, by way of torch on the CPU."""

    def build(call: Call) -> Candidate:
        attrs = call.attrs
        if attrs["world"] == 1:
            return alone

        def run(x: Primitive) -> Primitive:
            y = compute(_group(attrs["world"]), torch.from_numpy(np.array(x, order="C")), **attrs)
            return y.numpy()

        return run

    return PerCall(build)


def _check(world: int, **ranks: int) -> None:
    if world < 1:
        raise shape_fault(f"a world of {world}", expected="1 process or more", mend="pass distributed.world_size()")
    for name, rank in ranks.items():
        if not 0 <= rank < world:
            raise shape_fault(
                f"{name} {rank} is no process of a world of {world}", expected=f"0 to {world - 1}", mend="name a rank"
            )


# -- rows ----------------------------------------------------------------------------------------------
def _reduce(dist: Primitive, x: Primitive, *, reduction: Primitive, world: Primitive) -> Primitive:
    dist.all_reduce(x, op=getattr(dist.ReduceOp, reduction.upper()))
    return x


@op(
    torch=_torch(_reduce),
    numpy=_numpy(_reduce),
    collective="blocks",
    samples=[sample(uniform(-2, 2, (3, 4)), reduction=word, world=1) for word in _REDUCTIONS],
)
def all_reduce(x: TensorSpec, *, reduction: str = "sum", world: int) -> TensorSpec:
    """The sum, the largest or the smallest of all processes' values, element by element.

    The gradient of a largest or smallest value goes to the process that has it, in equal parts where several have.

    Shapes: x (*s) -> (*s), the same on all processes.  Dtypes: numbers.
    PyTorch: torch.distributed.all_reduce.
    """
    _check(world)
    if reduction not in _REDUCTIONS:
        raise shape_fault(f"reduction {reduction!r}", expected=", ".join(_REDUCTIONS), mend="take one of them")
    return x.require(NUMERIC)


@all_reduce.gradient
def _(g, y, x, *, reduction, world):
    total = all_reduce(g, reduction="sum", world=world)
    if reduction == "sum":
        return total
    row = REGISTRY
    hit = row["cast"](row["equal"](x, y), dtype=x.dtype)
    return total * hit / all_reduce(hit, reduction="sum", world=world)


def _gather(dist: Primitive, x: Primitive, *, world: Primitive) -> Primitive:
    y = x.new_empty((world, *x.shape))
    _gather_by(dist, _as_bytes(y).reshape(-1), _as_bytes(x).reshape(-1))
    return y


@op(
    torch=_torch(_gather, lambda x: x[None].clone()),
    numpy=_numpy(_gather, lambda x: x[None].copy()),
    collective="blocks",
    samples=[sample(uniform(-2, 2, (3, 4)), world=1), sample(uniform(-2, 2, ()), world=1)],
)
def all_gather(x: TensorSpec, *, world: int) -> TensorSpec:
    """All processes' values, on a new first axis, in the order of their ranks.

    Shapes: x (*s), the same on all processes -> (world, *s).  Dtypes: any.
    PyTorch: torch.distributed.all_gather_into_tensor.
    """
    _check(world)
    return x.require(STORED).with_shape((world, *x.shape))


@all_gather.gradient
def _(g, y, x, *, world):
    return reduce_scatter(g, world=world)


def _scatter(dist: Primitive, x: Primitive, *, world: Primitive) -> Primitive:
    y = x.new_empty(x.shape[1:])
    if dist.get_backend() == "gloo" or x.device.type == "cpu":  # gloo has it in new versions of torch only
        dist.all_reduce(x)
        return y.copy_(x[dist.get_rank()])
    newer = getattr(dist, "reduce_scatter_single", None)
    (newer or dist.reduce_scatter_tensor)(y.reshape(-1), x.reshape(-1))
    return y


@op(
    torch=_torch(_scatter, lambda x: x[0].clone()),
    numpy=_numpy(_scatter, lambda x: x[0].copy()),
    collective="blocks",
    samples=[sample(uniform(-2, 2, (1, 3, 4)), world=1), sample(uniform(-2, 2, (1,)), world=1)],
)
def reduce_scatter(x: TensorSpec, *, world: int) -> TensorSpec:
    """The sum of all processes' values, of which each process gets one part: x[rank] of the sum.

    Shapes: x (world, *s) -> (*s).  Dtypes: numbers.
    PyTorch: torch.distributed.reduce_scatter_tensor.
    """
    _check(world)
    if not x.shape or x.shape[0] != world:
        raise shape_fault(
            f"x has not one part for each of {world} processes",
            expected=f"a first axis of {world}",
            mend="reshape it to (world, *rest)",
        )
    return x.require(NUMERIC).with_shape(x.shape[1:])


@reduce_scatter.gradient
def _(g, y, x, *, world):
    return all_gather(g, world=world)


def _broadcast(dist: Primitive, x: Primitive, *, source: Primitive, world: Primitive) -> Primitive:
    dist.broadcast(_as_bytes(x), src=source)
    return x


@op(
    torch=_torch(_broadcast),
    numpy=_numpy(_broadcast),
    collective="blocks",
    samples=[sample(uniform(-2, 2, (3, 4)), source=0, world=1)],
)
def broadcast(x: TensorSpec, *, source: int = 0, world: int) -> TensorSpec:
    """The value of the process `source`, on all of them.

    Shapes: x (*s), the same on all processes -> (*s).  Dtypes: any.
    PyTorch: torch.distributed.broadcast.
    """
    _check(world, source=source)
    return x.require(STORED)


@broadcast.gradient
def _(g, y, x, *, source, world):
    return reduce_to(g, target=source, world=world)


def _reduced_to(dist: Primitive, x: Primitive, *, target: Primitive, world: Primitive) -> Primitive:
    dist.all_reduce(x)  # a reduce would leave on other ranks whatever its algorithm had there
    return x if dist.get_rank() == target else x.zero_()


@op(
    torch=_torch(_reduced_to),
    numpy=_numpy(_reduced_to),
    collective="blocks",
    samples=[sample(uniform(-2, 2, (3, 4)), target=0, world=1)],
)
def reduce_to(x: TensorSpec, *, target: int, world: int) -> TensorSpec:
    """The sum of all processes' values on the process `target`, zeros on the others: the transpose of `broadcast`.

    Shapes: x (*s), the same on all processes -> (*s).  Dtypes: numbers.
    """
    _check(world, target=target)
    return x.require(NUMERIC)


@reduce_to.gradient
def _(g, y, x, *, target, world):
    return broadcast(g, source=target, world=world)


# -- the mean over all processes' items, in two halves -----------------------------------------------------
_works: Final[Any] = WeakTensorKeyDictionary()
"""Works under way, by the tensor that their result will be in."""


def _packed_type(specs: Iterable[TensorSpec]) -> DType:
    # counts and sums need more than a half type
    return DType.F64 if any(spec.dtype is DType.F64 for spec in specs) else DType.F32


def _start(call: Call) -> Candidate:
    packed, sent = packing(call), sending(call)
    return lambda weight, *xs: sent(packed(weight, *xs))


def packing(call: Call) -> Candidate:
    """The first part of `mean_start`: `packed(weight, *xs)`, the row of numbers that is to be summed."""
    kind, device, count = TO_TORCH[call.result.dtype], torch.device(call.result.place), call.result.shape[0]

    def packed(weight: float | torch.Tensor, *xs: torch.Tensor) -> torch.Tensor:
        flat = torch.empty(count, dtype=kind, device=device)
        _pack(flat, xs, weight)
        flat[-1:].copy_(weight.reshape(1)) if isinstance(weight, torch.Tensor) else flat[-1:].fill_(weight)
        return flat

    return packed


def sending(call: Call) -> Candidate:
    """The second part of `mean_start`: `sent(flat)`, which is flat itself, and is being summed from now on."""
    world = call.attrs["world"]

    def sent(flat: torch.Tensor) -> torch.Tensor:
        if world > 1:
            _works[flat] = _group(world).all_reduce(flat, async_op=True)
        return flat

    return sent


def _pack(flat: torch.Tensor, xs: Sequence[torch.Tensor], weight: Primitive) -> None:
    """Puts tensors times the weight into a row of numbers, one behind the other.

    Those without gaps are copied by one launch for each type, which casts as well, and multiplied by one launch for
    all; those with gaps, whose copy is the slow part, are multiplied as they are copied.
    """
    alike: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    bare: list[torch.Tensor] = []
    at = 0
    for x in xs:
        place = flat[at : at + x.numel()].view(x.shape)
        at += x.numel()
        if x.is_contiguous():
            places, values = alike.setdefault(x.dtype, ([], []))
            places.append(place)
            values.append(x)
        elif x.dtype is flat.dtype:
            torch.mul(x, weight, out=place)
            continue
        else:
            place.copy_(x)
        bare.append(place)
    for places, values in alike.values():
        torch._foreach_copy_(places, values)
    if bare:
        factor = weight.reshape(()).to(flat.dtype) if isinstance(weight, torch.Tensor) else weight
        torch._foreach_mul_(bare, factor)


def _start_numpy(call: Call) -> Candidate:
    run = _start(call)

    def on_arrays(weight: Primitive, *xs: Array) -> Array:
        weight = torch.from_numpy(np.array(weight)) if isinstance(weight, np.ndarray) else weight
        started = run(weight, *[torch.from_numpy(np.array(x)) for x in xs])
        work = _works.pop(started, None)
        if work is not None:
            work.wait()
        return started.numpy()

    return on_arrays


@op(
    torch=PerCall(_start),
    numpy=PerCall(_start_numpy),
    collective="starts",
    samples=[
        sample(3.0, uniform(-2, 2, (3, 4)), uniform(-2, 2, (2,)), world=1),
        sample(uniform(1, 4, (1,)), uniform(-2, 2, (3, 4)), world=1),
    ],
)
def mean_start(weight: Operand, *xs: TensorSpec, world: int) -> TensorSpec:
    """Begins the mean of tensors over all processes, each of which counts `weight` times; `mean_wait` ends it.

        y = [xs, 1] * weight, in one row of numbers, which is being summed over the processes

    Shapes: xs any; weight a number or (1) -> (elements + 1).
    Dtypes: xs floats, f64 with nothing else -> f64 for f64, else f32.
    """
    _check(world)
    if not xs or len({spec.dtype is DType.F64 for spec in xs}) > 1:
        raise dtype_fault(
            "xs are none, or f64 and narrower floats together",
            expected="floats that are packed in one type",
            mend="send f64 alone",
        )
    if isinstance(weight, TensorSpec) and weight.shape != (1,):
        raise shape_fault(f"weight has the shape {weight.shape}", expected="(1,) or a number", mend="reshape it")
    count = sum(spec.require(FLOAT).numel for spec in xs)
    return TensorSpec.of((count + 1,), _packed_type(xs), xs[0].place)


@mean_start.decomposes
def _(weight, *xs, world):
    row, kind = REGISTRY, _packed_type(x.spec for x in xs)
    wide = [row["reshape"](row["cast"](x, dtype=kind), shape=(x.spec.numel,)) for x in xs]
    tensor = isinstance(weight, Value) and isinstance(weight.spec, TensorSpec)
    factor = row["cast"](weight, dtype=kind) if tensor else wide[0].new_full((1,), weight)
    return all_reduce(row["cat"](*(x * factor for x in wide), factor, dim=0), world=world)


def _wait(call: Call) -> Candidate:
    arrived = arriving(call)
    return lambda flat: mean_of(arrived(flat))


def arriving(call: Call) -> Candidate:
    """The first part of `mean_wait`: `arrived(flat)`, which is flat itself, once it holds the sum."""
    world = call.attrs["world"]

    def arrived(flat: torch.Tensor) -> torch.Tensor:
        if world > 1:
            work = _works.pop(flat, None)
            if work is None:
                raise DistributedError(
                    "mean_wait: nothing is under way in this tensor",
                    given=f"a tensor of {flat.numel()} elements",
                    expected="the very result of mean_start, once",
                    mend="hand the result of mean_start on as it is",
                )
            work.wait()
        return flat

    return arrived


def mean_of(flat: torch.Tensor) -> torch.Tensor:
    """The second part of `mean_wait`: the sum by the sum of the weights.

    By a function of lists: it reads four numbers at once, where a division by a tensor of one element reads one.
    """
    [mean] = torch._foreach_div([flat[:-1]], flat[-1].clamp_min(_LEAST))
    return mean


_LEAST: Final = 1e-30
"""A batch of nothing but padding has gradients of zero, not of 0 / 0."""


@op(
    torch=PerCall(_wait),
    numpy=lambda flat, *, world: flat[:-1] / np.maximum(flat[-1:], flat.dtype.type(_LEAST)),
    collective="blocks",
    samples=[sample(uniform(1, 2, (7,)), world=1)],
)
def mean_wait(flat: TensorSpec, *, world: int) -> TensorSpec:
    """The mean that `mean_start` began: the sum over all processes, by the sum of their weights.

    Shapes: flat (elements + 1) -> (elements).  Dtypes: f32 or f64.
    """
    _check(world)
    flat.require(FLOAT)
    if flat.ndim != 1 or flat.shape[0] < 2:
        raise shape_fault("this is no result of mean_start", expected="(elements + 1)", mend="pass what it returned")
    return flat.with_shape((flat.shape[0] - 1,))


@mean_wait.decomposes
def _(flat, *, world):
    elements = flat.shape[0] - 1
    weight = narrow(flat, 0, elements, elements + 1)
    return narrow(flat, 0, 0, elements) / REGISTRY["maximum"](weight, _LEAST)


# -- many samples at once ------------------------------------------------------------------------------------
def _as_one(row: Op) -> Candidate:
    return lambda n, many, x, **attrs: row(x, **attrs)


def _second_axis_first(x: Primitive) -> Primitive:
    return REGISTRY["permute"](x, axes=(1, 0, *range(2, x.ndim)))


for _row in (all_reduce, broadcast, reduce_to):
    _row.batched(_as_one(_row))  # an element-wise sum does not care what the axes mean


@all_gather.batched
def _(n, many, x, *, world):
    return _second_axis_first(all_gather(x, world=world))


@reduce_scatter.batched
def _(n, many, x, *, world):
    return reduce_scatter(_second_axis_first(x), world=world)
