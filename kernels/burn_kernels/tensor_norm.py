"""The norm of many tensors as of one long vector, and the factor that clips it: two launches for all of them.

    order 2:    norm = sqrt(sum g^2)         order 1: sum |g|         order inf: max |g|, NaN where there is one
    factor = min(1, most / (norm + 1e-6))

Limit: memory, each tensor is read once.  Sums run in float32, in a fixed order: deterministic, no atomics.

Addresses, not arguments: as in `optimizer`, a table on the device has the address and length of each chunk.  Building
it costs a copy to the device, so keep it (`Table`) while the tensors stay where they are.  One program a chunk leaves
its share, a second launch joins the shares.  Norm and factor stay on the device, where an optimizer's `clip` reads it.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.errors import KernelArgumentError, KernelDTypeError
from burn_kernels.launch import Machine, ceil_div, check, describe, launch, runs_kernel, wide_type
from burn_kernels.operators import Operator, leaf
from burn_kernels.optimizer import _TYPES
from burn_kernels.optimizer.kernels import _pointer
from burn_kernels.reduce.kernels import _peak
from burn_kernels.spec import Draw, Problem, Row, register_spec
from burn_kernels.tensor_table import CHUNK, Tensors, recall

__all__ = ["Config", "Table", "candidates", "clip_factor", "default", "norm", "reference", "table"]

ORDERS = (1.0, 2.0, math.inf)


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(tensors: Tensors, *_: object, backward: bool = False, **__: object) -> int:
    """Each tensor read."""
    return sum(x.numel() * x.element_size() for x in tensors)


def flops(tensors: Tensors, *_: object, **__: object) -> int:
    """A product and a sum an element."""
    return 2 * sum(x.numel() for x in tensors)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`block` elements of a chunk at once, `warps` of 32 threads."""

    block: int
    warps: int


def default(machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(machine)[0]


def candidates(machine: Machine) -> list[Config]:
    """The configs that a tuner may try, the default first."""
    return [Config(4096, 8), Config(2048, 4), Config(8192, 8), Config(4096, 4)]


# -- kernels -----------------------------------------------------------------------------------------
# A chunk's length is read from the table, so the compiler does not know what divides it.  The body, whole groups of
# _GROUP elements, is written so that it does, and moves in 16-byte accesses; the few elements after it go on their own.
_GROUP = tl.constexpr(8)


@triton.jit
def _take(total, x_ptr, at, inside, ORDER: tl.constexpr):
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if ORDER == 2:
        total += x * x
    elif ORDER == 1:
        total += tl.abs(x)
    else:
        total = tl.maximum(total, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    return total


@triton.jit
def _share(total, ORDER: tl.constexpr):
    if ORDER == 0:
        share = _peak(total, 0)
    else:
        share = tl.sum(total, 0)
    return share


@triton.jit
def _shares(table_ptr, share_ptr, TYPE: tl.constexpr, ORDER: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    chunk = tl.program_id(0)
    table_ptr += chunk * 2
    count = tl.load(table_ptr).to(tl.int32)
    x_ptr = _pointer(table_ptr, 1, TYPE, ALIGNED)
    body = count // _GROUP * _GROUP
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, body, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total = _take(total, x_ptr, at, at < body, ORDER)
    rest = body + tl.arange(0, _GROUP)
    tail = _take(tl.zeros((_GROUP,), tl.float32), x_ptr, rest, rest < count, ORDER)
    whole, end = _share(total, ORDER), _share(tail, ORDER)
    if ORDER == 0:
        whole = tl.maximum(whole, end, propagate_nan=tl.PropagateNan.ALL)
    else:
        whole += end
    tl.store(share_ptr + chunk, whole)


@triton.jit
def _finish(share_ptr, norm_ptr, factor_ptr, shares, most, ORDER: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, shares, BLOCK):
        at = start + tl.arange(0, BLOCK)
        share = tl.load(share_ptr + at, mask=at < shares, other=0.0)
        if ORDER == 0:
            total = tl.maximum(total, share, propagate_nan=tl.PropagateNan.ALL)
        else:
            total += share
    norm = _share(total, ORDER)
    if ORDER == 2:
        norm = tl.sqrt_rn(norm)
    tl.store(norm_ptr, norm)
    if factor_ptr is not None:
        tl.store(factor_ptr, tl.minimum(most / (norm + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL))


# -- launchers ---------------------------------------------------------------------------------------
# The launcher of other families compares single tensors with a table of shapes.  A norm takes lists of tensors by a
# table of their addresses, so `table` and `_run` do what the launcher does elsewhere.
@dataclass(frozen=True)
class Table:
    """The place of each chunk of each tensor, a part for each element type; valid while no tensor in it moves."""

    tensors: list[torch.Tensor]
    parts: list[tuple[torch.dtype, torch.Tensor, bool]]
    """Element type, rows of (length, address), and whether all addresses are multiples of 16."""


def table(tensors: Tensors) -> Table:
    """Collects the tensors: any shapes, any float types, on one device.

    Raises: KernelDTypeError, KernelDeviceError, and KernelArgumentError for a tensor that does not lie in order.
    """
    listed = list(tensors)
    named = {f"tensors[{i}]": x for i, x in enumerate(listed)}
    wrong = {name: x for name, x in named.items() if not x.is_floating_point()}
    if wrong:
        raise KernelDTypeError(
            "tensor_norm: the element types do not fit",
            given=describe(wrong),
            expected="floats",
            mend="leave these tensors out",
        )
    loose = [f"{name} with strides {x.stride()}" for name, x in named.items() if not x.is_contiguous()]
    if loose:
        raise KernelArgumentError(
            "tensor_norm: tensors that do not lie in order",
            given=", ".join(loose),
            expected="contiguous tensors: the kernel goes by addresses",
            mend="call norm, which copies them, or keep them as x.contiguous() makes them",
        )
    if named:
        check("tensor_norm", named, {}, alike=[])
    parts = []
    for dtype in dict.fromkeys(x.dtype for x in listed):
        mine = [x for x in listed if x.dtype == dtype]
        rows = [
            [min(CHUNK, x.numel() - start), x.data_ptr() + start * x.element_size()]
            for x in mine
            for start in range(0, x.numel(), CHUNK)
        ]
        aligned = all(row[1] % 16 == 0 for row in rows)
        parts.append((dtype, torch.tensor(rows, dtype=torch.int64).reshape(-1, 2).to(mine[0].device), aligned))
    return Table(listed, parts)


def norm(tensors: Tensors | Table, *, order: float = 2.0, config: Config | None = None) -> torch.Tensor:
    """The norm of all elements: () float32 on the device of the tensors; of float64, on the CPU, float64.

    `order` is 1, 2 or math.inf.  Of no elements 0.
    """
    return _run("norm", tensors, order, None, config)[0]


def clip_factor(
    tensors: Tensors | Table, most: float, *, order: float = 2.0, config: Config | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm, and by what the tensors are to be multiplied so that it is at most `most`: both () on the device.

    As torch.nn.utils.clip_grad_norm_ has it; hand the factor to an optimizer as `clip`.

    >>> clip_factor([torch.tensor([3.0, 4.0])], 2.5)
    (tensor(5.), tensor(0.5000))
    """
    size, factor = _run("clip_factor", tensors, order, most, config)
    assert factor is not None
    return size, factor


def _run(
    op: str, tensors: Tensors | Table, order: float, most: float | None, config: Config | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if order not in ORDERS or (most is not None and not most > 0.0):
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=f"order {order}" + ("" if most is None else f", most {most}"),
            expected="order 1, 2 or inf" + ("" if most is None else "; most above 0"),
            mend="choose one of these",
        )
    places = tensors if isinstance(tensors, Table) else table([x.contiguous() for x in tensors])
    count = sum(part[1].shape[0] for part in places.parts)
    if not count or not runs_kernel(op, *places.tensors):
        size = reference(places.tensors, order=order)
        return size, None if most is None else (most / (size + 1e-6)).clamp(max=1.0)
    first = places.tensors[0]
    shares = torch.empty(count, dtype=torch.float32, device=first.device)
    size = torch.empty((), dtype=torch.float32, device=first.device)
    factor = None if most is None else torch.empty_like(size)
    kind = 0 if order == math.inf else int(order)
    begin = 0
    for dtype, chunks, aligned in places.parts:
        if chunks.shape[0]:
            _launch(first, dtype, chunks, aligned, shares[begin:], kind, config)
            begin += chunks.shape[0]
    launch(_finish, (1,), first, shares, size, factor, count, most or 0.0, warps=8, ORDER=kind, BLOCK=2048)
    return size, factor


def _launch(
    first: torch.Tensor,
    dtype: torch.dtype,
    chunks: torch.Tensor,
    aligned: bool,
    shares: torch.Tensor,
    kind: int,
    config: Config | None,
) -> None:
    flags = {"TYPE": _TYPES[dtype](), "ORDER": kind, "ALIGNED": aligned}

    def run(config: Config) -> None:
        launch(_shares, (chunks.shape[0],), first, chunks, shares, warps=config.warps, **flags, BLOCK=config.block)

    CHOICE.run(first, config, (dtype, chunks.shape[0], aligned, kind), run)


# -- reference ---------------------------------------------------------------------------------------
def reference(tensors: Sequence[torch.Tensor], *, order: float = 2.0) -> torch.Tensor:
    """The norm in plain torch."""
    flat = [x.flatten().to(wide_type(x.dtype)) for x in tensors if x.numel()]
    if not flat:
        device = tensors[0].device if tensors else torch.device("cpu")
        return torch.zeros((), dtype=torch.float32, device=device)
    norms: torch.Tensor = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(x, order) for x in flat]), order
    )
    return norms


# -- selection ---------------------------------------------------------------------------------------
def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    chunks, size = facts.free[0], facts.dtype.itemsize
    useful = CHUNK / (ceil_div(CHUNK, config.block) * config.block)
    count = chunks * CHUNK
    return Work(chunks, config.warps, config.block, size, count * size, 2 * count, useful, 2.0)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    lead, size = 0 if facts.align == 16 else 1, facts.free[0] * CHUNK - 5
    order = {"1": 1.0, "2": 2.0, "0": math.inf}[facts.flags.removeprefix("order=")]
    group = [inputs.normal(lead + size, dtype=facts.dtype)[lead:]]
    group_table = table(group)
    return Trial(
        (group,),
        lambda groups, config: norm(groups[0], order=order, config=config),
        lambda groups: reference(groups[0], order=order),
        timed=lambda groups, config: norm(group_table, order=order, config=config),
    )


CHOICE = register_tunable(
    name="tensor_norm",
    config=Config,
    facts=lambda dtype, chunks, aligned, kind: Facts(
        (chunks,), (CHUNK,), dtype, 16 if aligned else 1, flags=f"order={kind}"
    ),
    free=("chunks",),
    exact=("chunk",),
    candidates=lambda facts, machine: candidates(machine),
    supports=lambda config, facts: config.block >= 8,
    work=_work,
    trial=_trial,
    kernels=(_shares, _finish),
    problems=lambda rows, cols, dtype: [Facts((ceil_div(rows * cols, CHUNK),), (CHUNK,), dtype, flags="order=2")],
    shapes=((121_500, 1024),),  # GPT-2 with 124 million parameters
    dtype=torch.float32,
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    shapes = ((3, 5), (7,), (), (0, 4), (2, 3, 4), (8_193,), (16,))
    for order in ORDERS:
        yield Problem(([draw.normal(*shape) for shape in shapes],), {"order": order})
    yield Problem(([draw.normal(5, 4).T, draw.normal(40)[1:38]],))  # out of order, at odd addresses
    yield Problem(([draw.normal(0)],))


def _twin(tensors: Tensors, *, order: float = 2.0) -> torch.Tensor:
    # torch refuses the largest of no elements
    return torch.nn.utils.get_total_norm([x for x in tensors if x.numel()], order)


# -- operators ---------------------------------------------------------------------------------------
_PARTS: OrderedDict[tuple[Any, ...], Any] = OrderedDict()


def _recall_table(tensors: list[torch.Tensor]) -> Table:
    """The table of the tensors; their addresses are on the device already if they lay there lately.

    Only addresses are kept, not tensors: gradients that are set to None give their memory back.
    """
    ordered = [x.contiguous() for x in tensors]
    key = tuple((x.data_ptr(), x.numel(), x.dtype, x.get_device()) for x in ordered)
    return Table(ordered, recall(_PARTS, key, lambda: table(ordered).parts))


def _plain_factor(tensors: Tensors, most: float, order: float) -> tuple[torch.Tensor, torch.Tensor]:
    size = reference(tensors, order=order)
    return size, (most / (size + 1e-6)).clamp(max=1.0)


def _empty(tensors: Tensors) -> torch.Tensor:
    """Memory for the norm."""
    first = next((x for x in tensors if x.numel()), None)
    device = tensors[0].device if tensors else torch.device("cpu")
    return torch.empty((), dtype=torch.float32 if first is None else wide_type(first.dtype), device=device)


def _gradient(saved: Any, dy: torch.Tensor) -> tuple[list[torch.Tensor]]:
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [leaf(x) for x in saved["tensors"]]
        # of norms: with an order that is a float they have derivatives at 0 too
        norms = [torch.linalg.vector_norm(x.to(dy.dtype), saved["order"]) for x in leaves if x.numel()]
        if not norms:
            return ([torch.zeros_like(x) for x in leaves],)
        size = torch.linalg.vector_norm(torch.stack(norms), saved["order"])
        return (list(torch.autograd.grad(size, leaves, dy, create_graph=again, allow_unused=True)),)


def _plain_clip(grads: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm and the factor that clips to 1, as users of PyTorch write them."""
    size = torch.nn.utils.get_total_norm(grads)
    return size, (1.0 / (size + 1e-6)).clamp(max=1.0)


NORM = Operator(
    schema="tensor_norm(Tensor[] tensors, float order) -> Tensor",
    inputs="tensors",
    forward=lambda tensors, order: norm(_recall_table(tensors), order=order),
    fake=lambda tensors, *_: _empty(tensors),
    gradients="tensors",
    saved="tensors order",
    rule=_gradient,
)
CLIP_FACTOR = Operator(
    schema="clip_factor(Tensor[] tensors, float most, float order) -> (Tensor, Tensor)",
    inputs="tensors",
    forward=lambda tensors, most, order: clip_factor(_recall_table(tensors), most, order=order),
    reference=_plain_factor,
    fake=lambda tensors, *_: (_empty(tensors), _empty(tensors)),
    results="norm factor",
)


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    tensors = [draw.normal(draw.integer(1, 9), draw.width()) for _ in range(draw.integer(1, 6))]
    if draw.one_in(3):
        tensors.append(draw.normal(7, 5).T)
    return tensors, ORDERS[draw.integer(0, 3)]


SPEC = register_spec(
    name="tensor_norm",
    forward=norm,
    reference=reference,
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    draw_call=_draw_call,
    large=lambda draw: [Problem(([draw.normal(100, 331), draw.normal(7)],))],
    rows=(
        Row(
            tag="124M",
            inputs=lambda draw: (draw.gpt2(1e-2),),
            ours=lambda grads: functools.partial(clip_factor, table(grads), 1.0),
            eager=_plain_clip,
            jax=("norm_and_factor", 1),
        ),
    ),
    operators=(NORM, CLIP_FACTOR),
)
