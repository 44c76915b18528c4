"""On which tape a transform records.

    by tensors of a plain device                 a tape over that device; layers do not train on it, as without it
    by the parameters of a module that trains    its device's tape, on leaves of the transform's own, as `backward` does
    by tensors of a device with gradients        a tape over that device's: what hangs on that stays there
    inside another transform                     a tape over the enclosing one, so derivatives of derivatives are right

What the function visibly closes over counts as its arguments do: a model on a device with gradients trains.

Results live under the tape.  Those that do not hang on a device's own tape live under that too, as gradients of
`backward` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from burn_torch.backend import Autodiff, Backend
from burn_torch.backend.autodiff.crossing import crossed
from burn_torch.backend.autodiff.cuts import Cut, walk_back
from burn_torch.backend.autodiff.laid import is_recorded, levels, running
from burn_torch.backend.samples import running_samples
from burn_torch.core.errors import ArgumentError
from burn_torch.module import Param
from burn_torch.module.param import is_computed
from burn_torch.tensor import Tensor
from burn_torch.transform.closed_over import visible_in
from burn_torch.transform.flatten import leaves_in

__all__ = [
    "back_on",
    "base_of",
    "constant_under",
    "gradient_of",
    "gradients_from",
    "is_beside",
    "is_differentiated",
    "is_of_leaves",
    "leaf_on",
    "onward_to",
    "own_leaf",
    "root_on",
    "settled",
    "tape_for",
]


def base_of(what: str, fn: Callable[..., object], args: Sequence[object]) -> tuple[Backend, bool]:
    """The highest stack among arguments, what `fn` closes over, and enclosing transforms; whether it is of the last.

    Raises: ArgumentError where the arguments hold no tensor.
    """
    highest = max(_backends_in(args), key=_depth, default=None)
    if highest is None:
        raise ArgumentError(
            f"{what}: no argument holds a tensor",
            given="numbers, texts, or nothing",
            expected="a float tensor, a module with trainable parameters, or a container of them",
            mend="wrap a number: Tensor.from_floats([x], device)",
        )
    leaf = highest.leaf()
    beside = [backend for backend in _backends_in(visible_in(fn)) if backend.leaf() is leaf]
    highest = max([highest, *beside], key=_depth)
    around = [*running_samples(), *(on.tape for on in running())]
    enclosing = max([stack for stack in reversed(around) if stack.leaf() is leaf], key=_depth, default=None)
    if enclosing is not None and highest.depth <= enclosing.depth:
        return enclosing, True
    return highest, False


def _depth(backend: Backend) -> int:
    return backend.depth


def _backends_in(values: Iterable[object]) -> Iterator[Backend]:
    """The stacks of all tensors in values, those of modules too; makes no parameter."""
    for leaf in leaves_in(values):
        if isinstance(leaf, Tensor):
            yield leaf.backend
        elif isinstance(leaf, Param):
            yield leaf.val().backend if leaf.is_initialized() else leaf.device.backend


def tape_for(
    what: str, fn: Callable[..., object], args: Sequence[object], chosen: Sequence[object]
) -> tuple[Autodiff, bool]:
    """The tape for a call of `fn` that is differentiated by the `chosen`, and whether it is the transform's alone."""
    base: Any
    base, is_enclosing = base_of(what, fn, args)
    if base.is_autodiff and not is_enclosing and is_of_leaves(chosen):
        return base, False
    return Autodiff.above(base), True


def is_of_leaves(chosen: Sequence[object]) -> bool:
    """Returns whether parameters are among what is differentiated, all of them leaves: then it is a step of training.

    Its gradients are constants, as those of `backward` are, and what else hangs on the device's tape is constant too.
    """
    params = [leaf for leaf in leaves_in(chosen) if isinstance(leaf, Param)]
    return bool(params) and not any(is_computed(param) for param in params)


def is_differentiated(values: Iterable[object]) -> bool:
    """Returns whether a running transform differentiates what is in some values, or what that was computed from."""
    for leaf in leaves_in(values):
        if isinstance(leaf, Param):
            leaf = leaf.val() if leaf.is_initialized() else None
        if isinstance(leaf, Tensor) and is_recorded(leaf.backend, leaf.primitive):
            return True
    return False


def settled(tape: Autodiff, x: Tensor) -> Tensor:
    """A result under a transform's own tape; off the device's tape too where it does not hang on that."""
    stack, height = x.backend, levels(tape.inner)
    if not height or levels(stack) != height or stack.is_tracked(x.primitive):  # type: ignore[attr-defined]  # of that many tapes
        return x
    return x if any(levels(on.tape) == height for on in running()) else x.__class__(stack.inner, x.primitive, x.spec)


def constant_under(tape: Autodiff, x: Tensor) -> Tensor:
    """The value of x on the backend under the tape.  Raises: DeviceError where it lies above."""
    if x.backend is tape:
        primitive = tape.unwrapped(x.primitive)
    elif x.backend is tape.inner:
        primitive = x.primitive
    else:
        primitive = tape.inner.lift(x.primitive, x.backend)
    return Tensor(tape.inner, primitive, x.spec)


def leaf_on(tape: Autodiff, x: Tensor) -> Tensor:
    """A leaf of its own on the tape, for a value under it."""
    return Tensor(tape, tape.track(x.primitive, x.spec), x.spec)


def own_leaf(tape: Autodiff, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value of x under a tape, and a leaf of its own on it."""
    value = constant_under(tape, x)
    return value, leaf_on(tape, value)


def gradient_of(leaf: Tensor, by_node: dict[int, object]) -> Tensor | None:
    """A leaf's gradient among those of a backward, by the ids of nodes, on the backend under its tape."""
    primitive = by_node.get(leaf.primitive.node.id)
    return None if primitive is None else Tensor(leaf.backend.inner, primitive, leaf.spec)


def gradients_from(tape: Autodiff, number: Tensor, since: int) -> tuple[dict[int, Any], Sequence[Cut]]:
    """A backward from one number: gradients by the ids of nodes, and the cuts that it passed."""
    root = root_on(tape, number)
    if root is None:
        return {}, ()
    one = Tensor(tape.inner, None, number.spec).new_full(number.shape, 1.0)
    return walk_back(tape, [(root, one.primitive)], since=since)


def is_beside(tape: Autodiff, stack: Any) -> bool:
    """Returns whether a stack is what a tape becomes where a value moves to a device of another stack."""
    return stack.is_autodiff and stack is not tape and levels(stack) == levels(tape)


def root_on(tape: Autodiff, y: Any) -> Any:
    """A result of a function as a root of its tape, brought back where it had moved; None if nothing leads there."""
    primitive = y.primitive
    if is_beside(tape, y.backend):
        primitive = crossed(y.backend, primitive, y.spec, tape, y.place)
    elif y.backend is not tape:
        return None
    return primitive if tape.is_tracked(primitive) else None


def back_on(tape: Autodiff, y: Any, g: Tensor) -> Tensor:
    """A cotangent beside an output that had moved, from there to the backend under the tape."""
    if not is_beside(tape, y.backend) or levels(g.backend) > levels(tape.inner):
        return g
    return Tensor(tape.inner, crossed(g.backend, g.primitive, g.spec, tape.inner, g.place), g.spec)


def onward_to(tape: Autodiff, y: Any, x: Tensor) -> Tensor:
    """A value under the tapes beside an output that had moved, to where that is."""
    if not is_beside(tape, y.backend):
        return x
    stack = y.backend
    while levels(stack) > levels(x.backend):
        stack = stack.inner
    return Tensor(stack, crossed(x.backend, x.primitive, x.spec, stack, x.place), x.spec)
