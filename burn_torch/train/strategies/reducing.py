"""Gradients of one process to those of all: weighted by items, in buckets, sent while the backward still computes.

Each process's gradients are of a mean over its own items, so they count as many times as it has items; running
statistics are averaged with the same weights.  Small tensors travel together, those that are there first before the
others: a compiled step knows in which order its backward makes them, otherwise it is taken to be from the last layer to
the first.  Each bucket is one `mean_start`, which the pass `launch_early` moves in between the operations of the
backward, and one `mean_wait`, which it moves to where the mean is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.share import Share
from burn_torch.distributed import world_size
from burn_torch.graph import Slot
from burn_torch.module import RunningState
from burn_torch.module.tree import walk
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Tensor
from burn_torch.train.step import AnyModel

__all__ = ["BUCKET_BYTES", "mean_over_processes", "reduced"]

BUCKET_BYTES: Final = 25 << 20
"""Holds what torch's DDP sends at once: less pays the latency of a transfer too often, more leaves too much for the
end.
"""


def mean_over_processes(xs: Sequence[Tensor], weight: Tensor | float, bucket_bytes: int = BUCKET_BYTES) -> list[Tensor]:
    """The means of tensors over all processes, each of which counts `weight` times.

    The tensor that is there first is sent first; if that is unknown, the last one.
    """
    world = world_size()
    groups = list(_buckets(xs, bucket_bytes))
    flats = [ops.mean_start(weight, *(xs[i] for i in group), world=world) for group in groups]
    means: list[Any] = [None] * len(xs)
    for group, flat in zip(groups, flats, strict=True):
        mean = cast(Tensor, ops.mean_wait(flat, world=world))
        at = 0
        for i in group:
            size = xs[i].spec.numel
            means[i] = mean.narrow(0, at, size).reshape(xs[i].shape).cast(xs[i].dtype)
            at += size
    return means


def _buckets(xs: Sequence[Tensor], limit: int) -> Iterable[list[int]]:
    """Positions of tensors of one type that travel together, in the order in which they are sent."""
    open_ones: dict[DType, tuple[list[int], int]] = {}
    for i in sorted(range(len(xs)), key=lambda i: (_creation_of(xs[i]), -i)):
        if not xs[i].spec.numel:
            continue
        members, size = open_ones.get(xs[i].dtype, ([], 0))
        members.append(i)
        size += xs[i].spec.numel * xs[i].dtype.itemsize
        if size >= limit:
            yield members
            members, size = [], 0
        open_ones[xs[i].dtype] = (members, size)
    yield from (members for members, _ in open_ones.values() if members)


def _creation_of(x: Tensor) -> int:
    """When a traced value is made, among those of its trace; 0 for one that is there already."""
    return x.primitive.index if isinstance(x.primitive, Slot) else 0


def reduced(
    model: AnyModel,
    grads: GradientsParams,
    items: Tensor | float,
    share: Share | None,
    bucket_bytes: int = BUCKET_BYTES,
) -> tuple[Any, GradientsParams]:
    """The model with the running statistics of all processes, and their gradients.

    A process whose share is empty computed with a stand-in: it counts 0 times.
    """
    if world_size() == 1:
        return model, grads
    weight = 0.0 if share is not None and not share.count else items
    idents = [ident for ident, _ in grads.items()]
    states = {leaf.id: leaf.value() for _, leaf in walk(model) if isinstance(leaf, RunningState)}
    means = {ident: _bare(value) for ident, value in states.items() if value.dtype.is_float}
    xs = [gradient for _, gradient in grads.items()]
    averages = mean_over_processes([*means.values(), *xs], weight, bucket_bytes)
    fresh = {
        ident: Tensor(states[ident].backend, mean.primitive, mean.spec)
        for ident, mean in zip(means, averages, strict=False)
    }
    return model.with_states(fresh), GradientsParams(dict(zip(idents, averages[len(means) :], strict=True)))


def _bare(value: Tensor) -> Tensor:
    return value.no_grad()
