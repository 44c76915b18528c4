"""vmap: a function of one sample as a function of many."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from burn_torch.backend import Backend
from burn_torch.backend.batched import Batched
from burn_torch.backend.samples import Randomness
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.module import Param, RunningState
from burn_torch.module.tree import Tree, rebuild
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import SampleCount, below, describe, mapped
from burn_torch.transform.differentiation import named
from burn_torch.transform.draws import DrawPlayer, DrawRecorder
from burn_torch.transform.flatten import opened
from burn_torch.transform.per_sample import tell_of_loops
from burn_torch.transform.structure import Argument, Function, rebuilder
from burn_torch.transform.tapes import base_of

__all__ = ["Dims", "Samples", "vmap"]

Dims: TypeAlias = Argument
"""The axis of the samples: a number, None for none, or containers of them as they stand in the arguments."""


@checked
def vmap(
    fn: Function,
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: Randomness = "error",
    chunk_size: int | None = None,
) -> Function:
    """A function of many samples, from `fn`, which takes and returns one.

        distances = vmap(lambda x, y: (x - y).square().sum().sqrt(), in_dims=(0, None))(points, centre)

    in_dims     the axis of the samples in each positional argument: one number for all of them, or a tuple with an
                entry for each; an entry is a number, None for what all samples share, or a container of entries.  One
                number passes over what holds no tensor; the tensors of a module are mapped too (an ensemble)
    out_dims    where the samples' axis stands in the results, likewise; None for a result that is equal for all samples
    randomness  "error" refuses random operations, "different" draws for each sample, "same" once for all samples

    chunk_size  how many samples are computed together, for less memory at a time; None for all.  `fn` runs for each
                chunk of them, and "same" draws once for all chunks

    `fn` runs once, with tensors that lack the samples' axis; every row of the table computes all samples together, on
    every backend.  Named arguments are shared.  It nests, inside of `grad` and `compile` and around them:
    vmap(grad(loss_fn), in_dims=(None, 0)) is the gradient of each sample.  A row of your own without `batched`,
    element-wise form or decomposition is computed sample by sample, and a PerSampleLoopWarning names it.

    Raises: ArgumentError for dims that do not fit arguments or results, a chunk_size below 1, and running states that a
        sample updates; ShapeError where the arguments have no common number of samples; TraceError where a value is
        read, or a shape depends on values.
    PyTorch: torch.func.vmap.  JAX: jax.vmap.
    """
    what = named("vmap", fn)
    if chunk_size is not None and chunk_size < 1:
        raise ArgumentError(
            f"{what}: chunk_size is no number of samples",
            given=f"chunk_size {chunk_size}",
            expected="1 or more, or None for all samples at once",
            mend="leave chunk_size out",
        )

    @functools.wraps(fn)
    def of_many(*args: object, **kwargs: object) -> Argument:
        dims = _dims_of_arguments(what, in_dims, len(args))
        count = _count_samples(what, args, dims, strict=not isinstance(in_dims, int))
        if chunk_size is None or count <= chunk_size:
            return compute(count, dims, args, kwargs)
        recorder = DrawRecorder()
        results = []
        for start in range(0, count, chunk_size):
            size = min(chunk_size, count - start)
            chunk = [
                _along(arg, dim, f"argument {i}", functools.partial(_narrow, start, size))
                for i, (arg, dim) in enumerate(zip(args, dims, strict=True))
            ]
            again = DrawPlayer(recorder.draws, recorder.share) if start else recorder
            with again if randomness == "same" else contextlib.nullcontext():
                results.append(compute(size, dims, chunk, kwargs))
        return _join(results, out_dims, f"{what}: out_dims")

    def compute(count: int, dims: Sequence[Dims], args: Sequence[Argument], kwargs: dict[str, object]) -> Argument:
        samples = Samples(base_of(what, fn, [*args, *kwargs.values()])[0], count)
        arguments = [
            _along(arg, dim, f"argument {i}", samples.one) for i, (arg, dim) in enumerate(zip(args, dims, strict=True))
        ]
        with samples.batched.samples(count, randomness) as looped:
            result = fn(*arguments, **kwargs)
            names = list(looped)
        tell_of_loops(what, names)
        return _along(result, out_dims, "the result", functools.partial(samples.all_of, what), f"{what}: out_dims")

    return of_many


# -- dims ------------------------------------------------------------------------------------------------------
Change: TypeAlias = Callable[[Tensor, int | None, str], Tensor]
"""Changes a tensor, given the axis of its samples and its path."""


def _dims_of_arguments(what: str, in_dims: Dims, count: int) -> Sequence[Dims]:
    if in_dims is None or isinstance(in_dims, int):
        return [in_dims] * count
    if isinstance(in_dims, tuple | list) and len(in_dims) == count:
        return in_dims
    raise ArgumentError(
        f"{what}: in_dims does not fit the arguments",
        given=f"in_dims {in_dims!r} for {count} positional arguments",
        expected="a number for all arguments, or a tuple with one entry for each",
        mend="vmap(fn, in_dims=(0, None)) takes two arguments, of which the second is shared",
    )


def _along(value: Argument, dims: Dims, path: str, change: Change, owner: str = "vmap: in_dims") -> Argument:
    """The same containers with `change(tensor, dim, path)` for each tensor, of modules too."""
    if dims is not None and (isinstance(dims, bool) or not isinstance(dims, int)):
        return _along_each(value, dims, path, change, owner)

    def leaf(x: object, path: str) -> object:
        if isinstance(x, Tensor):
            return change(x, dims, path)
        if isinstance(x, Tree):
            return rebuild(x, lambda held: leaf(held, path))
        if isinstance(x, Param) and x.is_initialized():
            value = change(x.val(), dims, f"{path}, parameter {x.id}")
            return x if value is x.val() else Param(value, x.id, require_grad=x.require_grad, mapper=x.mapper)
        if isinstance(x, RunningState):
            return x.with_value(change(x.value(), dims, f"{path}, running state {x.id}"))
        return x

    return mapped(value, leaf, path)


def _along_each(value: Argument, dims: Dims, path: str, change: Change, owner: str) -> Argument:
    parts, entries = opened(value), opened(dims)
    same = parts is not None and entries is not None and tuple(parts[0]) == tuple(entries[0])
    if not same or isinstance(value, Tensor | Tree):
        raise ArgumentError(
            f"{owner} does not have the structure of what it belongs to",
            given=f"at {path} {dims!r:.60} for {describe(value)}",
            expected="a number, None, or the same container with an entry for each part",
            mend="write one number for the whole container, or an entry for each part",
        )
    assert parts is not None
    assert entries is not None
    names, items = parts
    changed = [
        _along(item, dim, below(path, value, name), change, owner)
        for name, item, dim in zip(names, items, entries[1], strict=True)
    ]
    return rebuilder(type(value))(names, changed)


def _count_samples(what: str, args: Sequence[Argument], dims: Sequence[Dims], *, strict: bool) -> int:
    """How many samples the arguments hold; `strict` refuses an axis for an argument without tensors."""
    count = SampleCount()
    for i, (arg, dim) in enumerate(zip(args, dims, strict=True)):
        before = len(count.sizes)
        _along(arg, dim, f"argument {i}", count.note, f"{what}: in_dims")
        if strict and isinstance(dim, int) and len(count.sizes) == before:
            raise ArgumentError(
                f"{what}: in_dims names an axis of an argument that has no tensor",
                given=f"in_dims {dim} for argument {i}, {describe(arg)}",
                expected="None for arguments that all samples share",
                mend="write None in its place",
            )
    return count.common(what, "in_dims")


# -- chunks ----------------------------------------------------------------------------------------------------
def _narrow(start: int, size: int, x: Tensor, dim: int | None, path: str) -> Tensor:
    """Some of a tensor's samples."""
    return x if dim is None else x.narrow(dim, start, size)


def _join(results: Sequence[Argument], out_dims: Dims, owner: str) -> Argument:
    """The samples of all results, in one of their structure."""
    parts: list[list[Tensor]] = [[] for _ in results[1:]]
    for some, result in zip(parts, results[1:], strict=True):

        def note(x: Tensor, dim: int | None, path: str, some: list[Tensor] = some) -> Tensor:
            some.append(x)
            return x

        _along(result, out_dims, "the result", note, owner)
    later = zip(*parts, strict=True)

    def join(x: Tensor, dim: int | None, path: str) -> Tensor:
        others = next(later)
        return x if dim is None else x.cat([x, *others], dim=dim % x.ndim)

    return _along(results[0], out_dims, "the result", join, owner)


# -- samples -----------------------------------------------------------------------------------------------------
@final
class Samples:
    """How tensors become one sample of them, and values of one sample tensors of all.

    base   where the samples are computed
    count  how many there are
    """

    def __init__(self, base: Backend, count: int) -> None:
        self.base: Final = base
        self.count: Final = count
        self.batched: Final = Batched(base)

    def one(self, x: Tensor, dim: int | None, path: str) -> Tensor:
        """A sample of a tensor, which holds them along an axis; the tensor itself without one."""
        if dim is None:
            return x
        dim %= x.ndim
        value = self.shared(x)
        if dim:
            value = value.permute((dim, *(i for i in range(x.ndim) if i != dim)))
        shape = tuple(size for i, size in enumerate(x.shape) if i != dim)
        return x.__class__(self.batched, self.batched.wrap(value.primitive), x.spec.with_shape(shape))

    def all_of(self, what: str, x: Tensor, dim: int | None, path: str) -> Tensor:
        """All samples of a tensor of one.  Raises: ArgumentError for an axis that there is not."""
        is_many = x.backend is self.batched and self.batched.is_many(x.primitive)
        if (dim is None and is_many) or (dim is not None and not -x.ndim - 1 <= dim <= x.ndim):
            raise ArgumentError(
                f"{what}: out_dims does not fit the results",
                given=f"out_dims {dim} for {path}, a tensor {x.spec} of each sample",
                expected=f"an axis from {-x.ndim - 1} to {x.ndim}, since the result differs from sample to sample"
                if is_many
                else f"None, or an axis from {-x.ndim - 1} to {x.ndim}",
                mend="leave out_dims out: the samples then stand on the first axis",
            )
        if is_many:
            whole = x.__class__(self.base, x.primitive.primitive, x.spec.with_shape((self.count, *x.shape)))
        else:
            x = self.shared(x)
            if dim is None:
                return x
            whole = x.reshape((1, *x.shape)).expand((self.count, *x.shape))
        axis = 0 if dim is None else dim % (x.ndim + 1)
        return whole.permute((*range(1, axis + 1), 0, *range(axis + 1, x.ndim + 1))) if axis else whole

    def shared(self, x: Tensor) -> Tensor:
        """A value that all samples share, on the base."""
        if x.backend is self.base:
            return x
        if x.backend is self.batched:
            return x.__class__(self.base, x.primitive, x.spec)
        return x.__class__(self.base, self.base.lift(x.primitive, x.backend), x.spec)
