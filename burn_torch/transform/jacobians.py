"""jacrev, jacfwd and hessian: whole matrices of derivatives, all rows or all columns at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, final

from burn_torch import ops
from burn_torch.backend import Autodiff, Backend
from burn_torch.backend.autodiff.cuts import Cut, passing, walk_back
from burn_torch.backend.autodiff.forward import Forward
from burn_torch.backend.autodiff.laid import laid
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, AutodiffError
from burn_torch.module.tree import Tree
from burn_torch.tensor import Tensor
from burn_torch.tensor.compound import Compound
from burn_torch.transform.arguments import Lifted, below, differentiated, lowered, mapped
from burn_torch.transform.differentiation import grad, named, number_of
from burn_torch.transform.flatten import opened
from burn_torch.transform.linearization import tangent_of, with_aux
from burn_torch.transform.per_sample import tell_of_loops
from burn_torch.transform.structure import Argument, Function
from burn_torch.transform.tapes import base_of, constant_under, gradient_of, is_of_leaves, root_on
from burn_torch.transform.vectorisation import Samples

__all__ = ["hessian", "jacfwd", "jacrev"]

Argnums = int | Sequence[int]


@checked
def jacrev(fn: Function, argnums: Argnums = 0, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """A function that gives the Jacobian of `fn`, row by row: one backward for all elements of its result at once.

        J = jacrev(fn)(x)                # (*y.shape, *x.shape): the derivative of each element of y by each of x

    argnums     which positional arguments are differentiated; a tuple of positions gives a tuple of Jacobians
    has_aux     fn returns (outputs, more), and the result is (Jacobian, more)
    chunk_size  how many rows are computed at once; None for all.  Fewer need less memory

    Results have the structure of the outputs; in the place of each tensor stands what `grad` gives for the arguments,
    with the axes of the output in front, zeros where fn does not read them, None for outputs that are no floats.
    For fewer outputs than inputs; `jacfwd` is for fewer inputs.  fn runs once.

    Raises: AutodiffError for a function without float results, or with complex or sparse ones; DTypeError for integers
        that are differentiated.
    PyTorch: torch.func.jacrev.  JAX: jax.jacrev.
    """
    return _jacobian("jacrev", _rows, fn, argnums, has_aux, chunk_size)


@checked
def jacfwd(fn: Function, argnums: Argnums = 0, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """A function that gives the Jacobian of `fn`, column by column: tangents of all elements of its arguments at once.

        J = jacfwd(fn)(x)                # (*y.shape, *x.shape)

    Forward mode, see `jvp`: no tape is kept.  All else is as in `jacrev`, but that fn runs once for each chunk of
    columns, with draws of its own.

    PyTorch: torch.func.jacfwd.  JAX: jax.jacfwd.
    """
    return _jacobian("jacfwd", _columns, fn, argnums, has_aux, chunk_size)


@checked
def hessian(fn: Function, argnums: Argnums = 0) -> Function:
    """A function that gives the Hessian of `fn`, which returns one number: jacfwd(grad(fn)).

        H = hessian(loss_fn)(x)          # (*x.shape, *x.shape)

    With a tuple of argnums, a tuple of tuples: entry [i][j] is the derivative by argument i, then by argument j.
    `hvp` gives products with it without making it; jacfwd(jacrev(fn)) is the same for functions of many results.

    Raises: AutodiffError unless fn gives one float; DTypeError for integers that are differentiated.
    PyTorch: torch.func.hessian.  JAX: jax.hessian.
    """

    @functools.wraps(fn)
    def checked_fn(*args: object, **kwargs: object) -> Tensor:
        return number_of(named("hessian", fn), fn(*args, **kwargs), False)

    return jacfwd(grad(checked_fn, argnums), argnums)


# -- both ways ---------------------------------------------------------------------------------------------------
@final
class _Call:
    """One call of a function whose Jacobian is made, with many cotangents or tangents at once.

    base         where the function is computed
    is_constant  whether leaves of the device's tape are differentiated: then nothing is recorded there
    """

    def __init__(self, what: str, fn: Function, args: Sequence[Argument], kwargs: Argument, argnums: Argnums) -> None:
        self.what: Final = what
        self.fn: Final = fn
        self.args: Final = args
        self.kwargs: Final = kwargs
        self.chosen: Final = differentiated(what, argnums, len(args))
        base, is_enclosing = base_of(what, fn, [*args, *kwargs.values()])
        self.base: Final[Argument] = base
        held = [args[i] for i in self.chosen]
        self.is_constant: Final = base.is_autodiff and not is_enclosing and is_of_leaves(held)
        self.samples: Final = Samples(base, 1)

    def under(self, tape: Autodiff, x: Tensor) -> Tensor:
        """The value of x under a tape over the samples."""
        value = constant_under(tape, x)
        return Tensor(tape.inner, self.base.unwrapped(value.primitive), x.spec) if self.is_constant else value

    def whole(self, x: Tensor | None, like: Tensor, count: int) -> Tensor:
        """All samples of a derivative, on the base; zeros for None, of the shape of `like`."""
        y = _zeros(self.base, like, count)
        if x is not None and count:
            y = Samples(self.base, count).all_of(self.what, x, 0, "a derivative")
        return y.inner() if self.is_constant else y

    def beside(self, more: Argument) -> Argument:
        """Results that are not differentiated, without the samples."""
        return mapped(more, lambda x, path: self.samples.shared(x) if isinstance(x, Tensor) else x, "more")

    def result(
        self, outputs: Argument, blocks: dict[int, list[Tensor]], lifted: Lifted, tape: Autodiff, cuts: Sequence[Cut],
        one: bool,
    ) -> Argument:  # fmt: skip
        """The structure of the outputs with derivatives: `blocks` has one a slot, by the identity of the output."""
        lost = lifted.losses(not self.is_constant, cuts)

        def entry(y: object, path: str) -> object:
            if not isinstance(y, Tensor) or not y.dtype.is_float:
                return None
            entries = lifted.derivatives(tape, False, blocks[id(y)], lost)
            return entries[0] if one else tuple(entries)

        return mapped(outputs, entry, "outputs")


Route = Callable[[_Call, bool, int | None, bool], tuple[Argument, Argument]]


def _jacobian(
    name: str, route: Route, fn: Function, argnums: Argnums, has_aux: bool, chunk_size: int | None
) -> Function:
    what = named(name, fn)
    if chunk_size is not None and chunk_size < 1:
        raise ArgumentError(
            f"{what}: a chunk has one row or more",
            given=f"chunk_size {chunk_size}",
            expected="1 or more, or None for all at once",
            mend="leave chunk_size out, or give fewer where memory is short",
        )

    @functools.wraps(fn)
    def jacobian(*args: object, **kwargs: object) -> Argument:
        call = _Call(what, fn, args, kwargs, argnums)
        result, more = route(call, has_aux, chunk_size, isinstance(argnums, int))
        return (result, more) if has_aux else result

    return jacobian


def _float_results(what: str, outputs: Argument) -> list[Tensor]:
    tensors: list[Tensor] = []
    _refuse_compound(what, outputs, "outputs")

    def note(y: Argument, path: str) -> object:
        if isinstance(y, Tensor) and y.dtype.is_float:
            tensors.append(y)
        return y

    mapped(outputs, note, "outputs")
    if tensors:
        return tensors
    raise AutodiffError(
        f"{what}: the function returned no float tensor",
        given=f"{type(outputs).__name__}",
        expected="a float tensor, or a container of them",
        mend="return what is to be differentiated; return (outputs, more) with has_aux=True",
    )


def _refuse_compound(what: str, outputs: Argument, path: str) -> None:
    """Raises: AutodiffError for a complex or a sparse result: with derivatives for its parts it would be none."""
    if isinstance(outputs, Compound):
        raise AutodiffError(
            f"{what}: a result that is made of several tensors has a derivative for each of them",
            given=f"a {type(outputs).__name__} at {path}",
            expected="tensors",
            mend="return what it is made of, (z.real, z.imag) of complex numbers",
        )
    parts = None if isinstance(outputs, Tensor | Tree) else opened(outputs)
    for name, item in zip(*parts, strict=True) if parts is not None else ():
        _refuse_compound(what, item, below(path, outputs, name))


def _identity(base: Backend, like: Tensor, first: int, end: int) -> Tensor:
    """Rows `first` to `end` of the identity matrix of the elements of a tensor, each with its shape."""
    numbers = {"length": end - first, "dtype": DType.I64, "place": like.place}
    at = ops.arange.run(base, Tensor, (first, 1), numbers)
    rows: Tensor = ops.one_hot(at, 1.0, 0.0, num_classes=like.spec.numel, axis=1, dtype=like.dtype)
    return rows.reshape((end - first, *like.shape))


def _zeros(base: Backend, like: Tensor, count: int) -> Tensor:
    return Tensor(base, None, like.spec).new_full((count, *like.shape), 0.0)


def _rows(call: _Call, has_aux: bool, chunk_size: int | None, one: bool) -> tuple[Argument, Argument]:
    batched = call.samples.batched
    tape = Autodiff.above(batched)
    since = next_id()

    def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        value = call.under(tape, x)
        return value, Tensor(tape, tape.track(value.primitive, x.spec), x.spec)

    lifted = Lifted(call.what, call.args, call.chosen, leaf)
    with laid(tape, since):
        outputs, more = with_aux(call.what, call.fn(*lifted.args, **call.kwargs), has_aux)
    blocks: dict[int, list[Tensor]] = {}
    cuts: list[Cut] = []
    for y in _float_results(call.what, outputs):
        root, total = root_on(tape, y), y.spec.numel
        parts: list[list[Tensor]] = [[] for _ in lifted.slots]
        for first, end in _chunks(total, chunk_size):
            by_node: dict[int, object] = {}
            if root is not None and end > first:
                g = batched.wrap(_identity(call.base, y, first, end).primitive)
                with batched.samples(end - first, "same") as looped:
                    by_node, passed = walk_back(tape, [(root, g)], retain_graph=True, since=since)
                    names = list(looped)
                tell_of_loops(call.what, names)
                cuts += passed
            for slot, part in zip(lifted.slots, parts, strict=True):
                part.append(call.whole(gradient_of(slot.leaf, by_node), slot.value, end - first))
        blocks[id(y)] = [
            Tensor.cat(part, 0).reshape((*y.shape, *slot.value.shape))
            for slot, part in zip(lifted.slots, parts, strict=True)
        ]
    result = call.result(outputs, blocks, lifted, tape, cuts, one)
    return result, call.beside(lowered(more, [tape], own=True))


def _columns(call: _Call, has_aux: bool, chunk_size: int | None, one: bool) -> tuple[Argument, Argument]:
    batched = call.samples.batched
    tape = Forward.above(batched)
    since = next_id()

    def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        value = call.under(tape, x)
        return value, Tensor(tape, tape.track(value.primitive, x.spec), x.spec)

    columns: dict[int, list[Tensor]] = {}
    total = sum(slot.value.spec.numel for slot in Lifted(call.what, call.args, call.chosen, leaf).slots)
    for first, end in _chunks(total, chunk_size):
        lifted = Lifted(call.what, call.args, call.chosen, leaf)
        _set_tangents(call, tape, lifted, first, end)
        with laid(tape, since), passing() as cuts, batched.samples(max(end - first, 1), "same") as looped:
            outputs, more = with_aux(call.what, call.fn(*lifted.args, **call.kwargs), has_aux)
            names = list(looped)
        tell_of_loops(call.what, names)
        results = _float_results(call.what, outputs)
        for number, y in enumerate(results):
            columns.setdefault(number, []).append(call.whole(tangent_of(tape, y), y, end - first))
    blocks: dict[int, list[Tensor]] = {}
    for number, y in enumerate(results):
        whole = Tensor.cat(columns[number], 0)
        blocks[id(y)], at = [], 0
        for slot in lifted.slots:
            block = whole.narrow(0, at, slot.value.spec.numel)
            at += slot.value.spec.numel
            blocks[id(y)].append(block.permute((*range(1, block.ndim), 0)).reshape((*y.shape, *slot.value.shape)))
    result = call.result(outputs, blocks, lifted, tape, cuts, one)
    return result, call.beside(lowered(more, [tape], own=True))


def _chunks(total: int, size: int | None) -> Sequence[tuple[int, int]]:
    size = min(size or total, total) or 1
    return [(first, min(first + size, total)) for first in range(0, total, size)] or [(0, 0)]


def _set_tangents(call: _Call, tape: Forward, lifted: Lifted, first: int, end: int) -> None:
    """Gives each slot its part of the rows `first` to `end` of the identity matrix of all elements."""
    at = 0
    for slot in lifted.slots:
        x, size = slot.value, slot.value.spec.numel
        low, high = max(first, at), min(end, at + size)
        if low < high:
            rows = [
                _zeros(call.base, x, low - first),
                _identity(call.base, x, low - at, high - at),
                _zeros(call.base, x, end - high),
            ]
            tangent = tape.inner.wrap(Tensor.cat(rows, 0).primitive)
            slot.leaf.primitive.node = tape.track(x.primitive, x.spec, tangent).node
        at += size
