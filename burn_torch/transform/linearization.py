"""vjp, jvp, linearize and hvp: a function together with its derivative in chosen directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from burn_torch.backend import Autodiff
from burn_torch.backend.autodiff.cuts import Cut, passing, walk_back
from burn_torch.backend.autodiff.forward import Forward, is_forward
from burn_torch.backend.autodiff.laid import laid
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.core.checking import checked
from burn_torch.core.errors import AutodiffError
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import Lifted, fits, lowered, mapped, paired, zeros_like
from burn_torch.transform.differentiation import named, number_of
from burn_torch.transform.structure import Argument, Function
from burn_torch.transform.tapes import (
    back_on,
    base_of,
    constant_under,
    gradient_of,
    gradients_from,
    is_beside,
    is_of_leaves,
    leaf_on,
    onward_to,
    own_leaf,
    root_on,
    settled,
    tape_for,
)

__all__ = ["carries_tangent", "hvp", "jvp", "linearize", "tangent_of", "vjp", "with_aux"]


@checked
def vjp(fn: Callable[..., object], *primals: object, has_aux: bool = False) -> Any:
    """Returns what fn gives at `primals`, and its pullback: (outputs, pullback), or (outputs, pullback, more) with aux.

        y, pullback = vjp(fn, x, w)
        dx, dw = pullback(dy)            # dy J: the gradient of sum(dy * y)

    The pullback takes cotangents of the structure, shapes and types of the outputs, None for zeros, and gives a tuple
    with one derivative a primal, of the structures that `grad` gives.  It may be called again and again; it holds what
    the forward kept.  Outputs that are no floats take None.

    Raises: ArgumentError, ShapeError for cotangents that do not fit; AutodiffError for cotangents of a tape that is
    above the function's: call vjp inside the function that differentiates the pullback.
    PyTorch: torch.func.vjp.  JAX: jax.vjp.
    """
    what = named("vjp", fn)
    tape, own = tape_for(what, fn, primals, primals)
    since = next_id()
    lifted = Lifted(what, primals, range(len(primals)), partial(own_leaf, tape))
    with laid(tape, since, own=own):
        result = fn(*lifted.args)
    outputs, more = with_aux(what, result, has_aux)

    def pullback(cotangents: object) -> tuple[Any, ...]:
        pairs = [
            (path, y, g)
            for path, y, g in paired(outputs, cotangents, "outputs", f"{what}: the cotangents")
            if isinstance(y, Tensor) or g is not None
        ]
        _require_floats(what, "cotangents", pairs)
        fits(what, "cotangents", pairs)
        roots = [
            (root, _on_level(what, tape, back_on(tape, y, g)).primitive)
            for _, y, g in pairs
            if g is not None and (root := root_on(tape, y)) is not None
        ]
        by_node, cuts = walk_back(tape, roots, retain_graph=True, since=since)
        gradients = [gradient_of(slot.leaf, by_node) for slot in lifted.slots]
        if any(g is not None for _, _, g in pairs):
            lifted.tell_of_unread(gradients)
        lost = lifted.losses(own, cuts, [g for _, _, g in pairs])
        return tuple(lifted.derivatives(tape, own, gradients, lost))

    lost = lifted.losses(own, ())
    results = lowered(outputs, [tape], own=own, lost=lost), pullback
    return (*results, lowered(more, [tape], own=own, lost=lost)) if has_aux else results


@checked
def jvp(fn: Function, primals: Sequence[Argument], tangents: Sequence[Argument], has_aux: bool = False) -> Argument:
    """Returns what fn gives at `primals`, and how it changes along `tangents`: (outputs, tangents of the outputs).

        y, dy = jvp(fn, (x,), (v,))      # dy = J v

    Tangents have the structures that `grad` gives: a tensor for a tensor, a GradientsParams for a module, None for
    zeros.  Computed forward: each operation computes its tangent beside its value, and no tape is kept, so the memory
    is that of two calls of fn however deep it is.  Outputs that are no floats have None for their tangent.

    Raises: ArgumentError, ShapeError for tangents that do not fit; AutodiffError for a `backward` inside of fn.
    PyTorch: torch.func.jvp.  JAX: jax.jvp.
    """
    what = named("jvp", fn)
    base: Argument
    base, is_enclosing = base_of(what, fn, primals)
    own = not base.is_autodiff or is_enclosing or not is_of_leaves(primals)
    tape = Forward.above(base)
    since = next_id()

    def under(x: Tensor) -> Tensor:
        value = constant_under(tape, x)
        return value if own else Tensor(base, base.unwrapped(value.primitive), x.spec)

    def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        value = under(x)
        return value, Tensor(tape, tape.track(value.primitive, x.spec), x.spec)

    lifted = Lifted(what, primals, range(len(primals)), leaf)
    directions = lifted.beside(tangents, "tangents")
    for number, (slot, direction) in enumerate(zip(lifted.slots, directions, strict=True)):
        change = None if direction is None else under(_on_level(what, tape, direction))
        primitive = tape.track(slot.value.primitive, None, None if change is None else change.primitive, 1 << number)
        slot.leaf.primitive.node = primitive.node  # it is in the arguments already
    with laid(tape, since), passing() as cuts:
        result = fn(*lifted.args)
    outputs, more = with_aux(what, result, has_aux)
    bits = 0

    def note(y: Argument, path: str) -> object:
        nonlocal bits
        if isinstance(y, Tensor) and carries_tangent(tape, y):
            bits |= y.primitive.node.version
        return y

    mapped(outputs, note, "outputs")
    lifted.tell_of_unread([slot.value if bits >> i & 1 else None for i, slot in enumerate(lifted.slots)])
    lost = lifted.losses(own, cuts, directions)
    tapes = [tape] if own else [tape, base]
    results = lowered(outputs, tapes, own=own, lost=lost)

    def tangent(y: object, path: str) -> object:
        if not isinstance(y, Tensor) or not y.dtype.is_float:
            return None
        change = tangent_of(tape, y)
        change = settled(tape, change) if own else change.inner()
        return change if lost is None else lost(change)

    both = results, mapped(outputs, tangent, "outputs")
    return (*both, lowered(more, tapes, own=own, lost=lost)) if has_aux else both


@checked
def linearize(fn: Function, *primals: Argument) -> tuple[Argument, Function]:
    """Returns what fn gives at `primals`, and its derivative there as a linear function: (outputs, pushforward).

        y, pushforward = linearize(fn, x)
        dy = pushforward(v)              # J v, again and again: fn is not called any more

    `pushforward` takes one tangent a primal and gives what `jvp` gives for the tangents of the outputs; constant in
    its tangents.  It holds what two backwards keep: u J is linear in u, and the gradient of (u J) v by u is J v.

    Raises: ArgumentError, ShapeError for tangents that do not fit.
    PyTorch: torch.func.linearize.  JAX: jax.linearize.
    """
    what = named("linearize", fn)
    tape, own = tape_for(what, fn, primals, primals)
    upper = Autodiff.above(tape)
    since = next_id()

    def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        value = constant_under(tape, x)
        return value, leaf_on(upper, Tensor(tape, value.primitive, value.spec))

    lifted = Lifted(what, primals, range(len(primals)), leaf)
    with laid(upper, since):
        outputs = fn(*lifted.args)
    reached: list[tuple[Tensor, object, Tensor]] = []

    def cotangent(y: Argument, path: str) -> object:
        """A variable u beside an output, in which u J will be differentiated."""
        root = root_on(upper, y) if isinstance(y, Tensor) else None
        if root is not None:
            u = leaf_on(tape, zeros_like(Tensor(tape.inner, None, y.spec)))
            reached.append((y, root, u))
        return y

    mapped(outputs, cotangent, "outputs")
    pulled, cuts = walk_back(upper, [(root, u.primitive) for _, root, u in reached], since=since)
    rows = [gradient_of(slot.leaf, pulled) for slot in lifted.slots]
    lifted.tell_of_unread(rows)

    def pushforward(*tangents: Argument) -> Argument:
        directions = lifted.beside(tangents, "tangents")
        by_node, more_cuts = _walk_along(what, tape, rows, directions, since, retain=True)
        changes = {id(y): gradient_of(u, by_node) for y, _, u in reached}
        lost = lifted.losses(own, [*cuts, *more_cuts], directions)

        def tangent(y: object, path: str) -> object:
            if not isinstance(y, Tensor) or not y.dtype.is_float:
                return None
            change = changes.get(id(y))
            change = zeros_like(Tensor(tape.inner, None, y.spec)) if change is None else onward_to(upper, y, change)
            change = settled(tape, change) if own else change
            return change if lost is None else lost(change)

        return mapped(outputs, tangent, "outputs")

    return lowered(outputs, [upper, tape], own=own, lost=lifted.losses(own, cuts)), pushforward


@checked
def hvp(fn: Callable[..., object], primals: Sequence[object], tangents: Sequence[object]) -> tuple[Any, ...]:
    """The Hessian of fn, which returns one number, at `primals` times `tangents`: a tuple with one entry a primal.

        (hv,) = hvp(loss_fn, (model,), (v,))

    Entries and tangents have the structures that `grad` gives.  With several primals the Hessian is that of all of
    them together, mixed derivatives included.  Computed by a backward of a backward: about twice the cost of `grad`,
    and the Hessian is never made.  A parameter has an entry if fn reads it; zeros where its second derivative is zero.

    Raises: AutodiffError unless fn gives one float; ArgumentError, ShapeError for tangents that do not fit.
    """
    what = named("hvp", fn)
    tape, own = tape_for(what, fn, primals, primals)
    upper = Autodiff.above(tape)
    since = next_id()
    lower: dict[int, Tensor] = {}

    def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
        value = constant_under(tape, x)
        below = leaf_on(tape, value)
        above = leaf_on(upper, below)
        lower[id(above)] = below
        return value, above

    lifted = Lifted(what, primals, range(len(primals)), leaf)
    directions = lifted.beside(tangents, "tangents")
    with laid(upper, since):
        number = number_of(what, fn(*lifted.args), False)
    first, cuts = gradients_from(upper, number, since)
    rows = [gradient_of(slot.leaf, first) for slot in lifted.slots]
    second, more_cuts = _walk_along(what, tape, rows, directions, since)
    products: list[Tensor | None] = []
    for slot, row in zip(lifted.slots, rows, strict=True):
        change = gradient_of(lower[id(slot.leaf)], second)
        products.append(zeros_like(slot.value) if change is None and row is not None else change)
    lifted.tell_of_unread(products)
    return tuple(lifted.derivatives(tape, own, products, lifted.losses(own, [*cuts, *more_cuts], directions)))


def carries_tangent(tape: Forward, y: Tensor) -> bool:
    """Returns whether a result has a tangent on a tape, or on its counterpart where it has moved."""
    stack: Argument = y.backend
    return bool((stack is tape or (is_forward(stack) and is_beside(tape, stack))) and stack.is_tracked(y.primitive))


def tangent_of(tape: Forward, y: Tensor) -> Tensor:
    """The tangent of a result, on the backend under its tape."""
    stack: Argument = y.backend if carries_tangent(tape, y) else tape
    change = stack.tangent(y.primitive)
    bare = Tensor(stack.inner, change, y.spec)
    return zeros_like(bare) if change is None else bare


def with_aux(what: str, result: object, has_aux: bool) -> tuple[object, object]:
    """Outputs and what a function returns beside them.  Raises: AutodiffError where it is no pair."""
    if not has_aux:
        return result, None
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise AutodiffError(
        f"{what}: has_aux=True, but the function did not return a pair",
        given=type(result).__name__,
        expected="(outputs, more)",
        mend="return (outputs, more), or leave has_aux out",
    )


def _require_floats(what: str, given: str, pairs: Sequence[tuple[str, object, object]]) -> None:
    wrong = [(path, y) for path, y, g in pairs if g is not None and not (isinstance(y, Tensor) and y.dtype.is_float)]
    if wrong:
        shown = ", ".join(f"{path} {y.spec if isinstance(y, Tensor) else type(y).__name__}" for path, y in wrong)
        raise AutodiffError(
            f"{what}: {given} for outputs that have no derivative",
            given=shown,
            expected="None beside outputs that are no float tensors",
            mend="give None there",
        )


def _walk_along(
    what: str,
    tape: Autodiff,
    rows: Sequence[Tensor | None],
    directions: Sequence[Tensor | None],
    since: int,
    *,
    retain: bool = False,
) -> tuple[dict[int, Any], Sequence[Cut]]:
    """A backward from gradients along directions, as far as there are both."""
    roots = [
        (row.primitive, _on_level(what, tape, direction).primitive)
        for row, direction in zip(rows, directions, strict=True)
        if row is not None and direction is not None and tape.is_tracked(row.primitive)
    ]
    return walk_back(tape, roots, retain, since=since)


def _on_level(what: str, tape: Autodiff, x: Tensor) -> Tensor:
    """A direction on the backend under the tape."""
    tracked = x.backend is tape and tape.is_tracked(x.primitive)
    if tracked or (x.backend.depth > tape.inner.depth and x.backend is not tape):
        raise AutodiffError(
            f"{what}: a direction hangs on a tape of its own, to which no gradient would flow",
            given=f"{x.spec} on {x.backend.name}, the function was recorded over {tape.inner.name}",
            expected="directions that are constant",
            mend=f"pass x.detach(), or call {what.split('(')[0]} inside the function that differentiates by it",
        )
    return constant_under(tape, x)
