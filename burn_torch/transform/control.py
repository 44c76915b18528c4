"""cond, while_loop, scan and associative_scan: control flow that traces, maps and differentiates.

Where a predicate can be read, Python decides: one branch runs, a loop runs as often as it must.  Under `compile`, and
where samples of `vmap` differ, it cannot be read: then both sides are computed and chosen by value.  What is computed
in vain may be infinite or NaN; its derivative is kept from the operands, so 0 times infinity reaches no gradient.
Loops are unrolled, unless what is traced is written to a file that has loops of its own; see `rolling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, final

from burn_torch import ops
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError, TraceError
from burn_torch.module.scope import StepScope, current_scope
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import describe, mapped, paired
from burn_torch.transform.differentiation import named
from burn_torch.transform.rolling import roller_of
from burn_torch.transform.structure import Argument, Function

__all__ = ["associative_scan", "cond", "scan", "while_loop"]


@checked
def cond(pred: bool | Tensor, true_fn: Function, false_fn: Function, *operands: object) -> Argument:
    """Returns what `true_fn(*operands)` gives if `pred` holds, else what `false_fn(*operands)` gives.

        y = cond((x.sum() > 0.0), lambda x: x.sqrt(), lambda x: x * 0.0, x)

    `pred` is a bool, or a tensor of one bool.  Where it can be read, one branch runs.  Under `compile`, and where it
    differs between samples of `vmap`, both run and each result is chosen by value; a branch that is not chosen gives no
    NaN to the gradients of the operands.  What branches read besides tensors among their operands (modules, what they
    close over) has that protection not: pass it as an operand.

    Raises: ArgumentError, ShapeError, DTypeError where both run and their results differ in structure, shape or type;
        TraceError where both run and one draws random numbers or updates a running state.
    PyTorch: torch.cond(pred, true_fn, false_fn, operands).  JAX: jax.lax.cond.
    """
    known = _read("cond", pred)
    if known is not None:
        return (true_fn if known else false_fn)(*operands)
    holds = truth_of("cond", pred)
    roller = roller_of(holds, *operands)
    with _Pure("cond: both branches run, and one"):
        if roller is not None:
            return roller.cond(holds, true_fn, false_fn, operands)
        chosen = true_fn(*_gate(operands, holds))
        other = false_fn(*_gate(operands, holds.bool_not()))
    return _choose("cond: the results of the branches", holds, chosen, other)


@checked
def while_loop(cond_fn: Function, body_fn: Function, init: object, max_steps: int | None = None) -> Argument:
    """The state after `state = body_fn(state)` as long as `cond_fn(state)` holds, from `init` on.

        root = while_loop(lambda s: (s * s - x).abs().max() > 1e-6, lambda s: (s + x / s) * 0.5, x)

    max_steps  ends the loop after so many steps at the latest

    The state keeps its structure, shapes and types.  Where the condition can be read the loop runs as often as it
    must; its derivative is that of the steps that ran.  Where samples of `vmap` differ it runs until all are done, and
    those that are done keep their state.  Under `compile` a condition that depends on data cannot be read: there
    `max_steps` steps are computed, each chosen by value.

    Raises: TraceError under `compile` for such a condition without max_steps; ArgumentError, ShapeError, DTypeError
        where the state changes its structure.
    PyTorch: torch.while_loop.  JAX: jax.lax.while_loop.
    """
    state, steps = init, 0
    alive: Tensor | None = None
    while max_steps is None or steps < max_steps:
        pred = cond_fn(state)
        known = _read("while_loop", pred) if alive is None else None
        if known is False:
            break
        if known:
            after = body_fn(state)
            require_alike("while_loop: the state", state, after)
        else:
            now = truth_of("while_loop", pred)
            roller = roller_of(now, state) if alive is None else None
            if roller is not None:
                with _Pure("while_loop: the loop stays one, and its body"):
                    return roller.while_loop(cond_fn, body_fn, state, None if max_steps is None else max_steps - steps)
            alive = now if alive is None else alive.bool_and(now)
            going = _any(alive)
            if going is False:
                break
            if going is None and max_steps is None:
                raise _endless()
            with _Pure("while_loop: steps are chosen by value, and one"):
                after = body_fn(_gate(state, alive))
            after = _choose("while_loop: the state", alive, after, state)
        state, steps = after, steps + 1
    return state


@checked
def scan(
    fn: Function, init: object, xs: object, dim: int = 0, length: int | None = None, reverse: bool = False
) -> tuple[Argument, Argument]:
    """Carries a state along an axis: `carry, y = fn(carry, x)` for each x; gives (the last carry, all y).

        total, sums = scan(lambda c, x: (c + x, c + x), Tensor.zeros((3,), device), xs)

    xs       tensors, or containers of them, of one size along `dim`; fn gets them without that axis.  None beside
             `length`
    dim      the axis of xs, and of the results
    reverse  begins at the end; y stands where its x stands

    The carry keeps its structure, shapes and types.  The steps are unrolled: they are traced, mapped and differentiated
    like the same lines in a loop of Python.

    Raises: ShapeError where sizes differ or there is no step; ArgumentError, DTypeError where the carry changes.
    PyTorch: torch._higher_order_ops.scan.  JAX: jax.lax.scan.
    """
    what = named("scan", fn)
    count = _length(what, xs, dim, length)
    roller = roller_of(init, xs)
    if roller is not None and roller.takes(xs):
        return roller.scan(fn, init, xs, dim, count, reverse)
    parts = _unstack(xs, dim)
    carry, ys = init, []
    for i in reversed(range(count)) if reverse else range(count):
        pair = fn(carry, parts(i))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(
                f"{what}: the function did not return a pair",
                given=describe(pair),
                expected="(carry, y); y may be None",
                mend="return carry, None where nothing is collected",
            )
        require_alike(f"{what}: the carry", carry, pair[0])
        carry = pair[0]
        ys.append(pair[1])
    return carry, _join_all(what, ys[::-1] if reverse else ys, lambda items: Tensor.stack(items, dim))


@checked
def associative_scan(fn: Function, xs: object, dim: int = 0, reverse: bool = False) -> Argument:
    """All prefixes of `xs` along an axis, joined by an associative function, in about 2 log2(n) calls of it.

        sums = associative_scan(lambda a, b: a + b, xs)

    `fn(a, b)` takes two containers like xs, whose axis `dim` has some size, and joins them element by element along it.
    It must be associative: that is not checked.  With `reverse` all suffixes: a is then what stands behind b.

    Raises: ShapeError where sizes differ; ArgumentError, DTypeError where fn changes the structure.
    PyTorch: torch._higher_order_ops.associative_scan.  JAX: jax.lax.associative_scan.
    """
    what = named("associative_scan", fn)
    count = _length(what, xs, dim, None)
    turned = _flip(xs, dim) if reverse else xs
    result = _prefixes(what, fn, turned, dim, count)
    return _flip(result, dim) if reverse else result


# -- predicates ------------------------------------------------------------------------------------------------
def _read(what: str, pred: object) -> bool | None:
    """The value of a predicate; None where it cannot be read."""
    if isinstance(pred, bool):
        return pred
    if not isinstance(pred, Tensor) or pred.spec.numel != 1 or pred.dtype.is_float:
        raise ArgumentError(
            f"{what}: the predicate is no truth value",
            given=describe(pred),
            expected="a bool, or a tensor of one bool",
            mend="compare and reduce it: (x > 0.0).all()",
        )
    stack: Argument = pred.backend
    primitive = pred.primitive
    while stack.inner is not None:
        if stack.is_batched and stack.is_many(primitive):
            return None
        stack, primitive = stack.inner, stack.unwrapped(primitive)
    return None if stack.session is not None else bool(pred.into_scalar())


def truth_of(what: str, pred: object) -> Tensor:
    """A predicate as a tensor of one bool.  Raises: ArgumentError for a bool of Python."""
    if isinstance(pred, Tensor):
        return pred.bool().reshape((1,))
    raise ArgumentError(
        f"{what}: the predicate became a bool of Python",
        given=describe(pred),
        expected="a tensor of one bool at every step, as at the first",
        mend="compute it of the state",
    )


def _any(alive: Tensor) -> bool | None:
    """Returns whether some sample goes on; None where that cannot be read."""
    stack: Argument = alive.backend
    primitive = alive.primitive
    while stack.inner is not None:
        is_many = stack.is_batched and stack.is_many(primitive)
        primitive = primitive.primitive if is_many else stack.unwrapped(primitive)
        stack = stack.inner
    return None if stack.session is not None else bool(stack.into_data(primitive).values.any())


def _endless() -> TraceError:
    return TraceError(
        "while_loop: how many steps there are depends on data",
        given="a condition of tensors in a function that is traced, without max_steps",
        expected="a bound: a program has a fixed number of steps",
        mend="while_loop(cond_fn, body_fn, init, max_steps=100) computes 100, each chosen by value; scan has a"
        " fixed number; or leave this loop uncompiled",
    )


# -- both sides ---------------------------------------------------------------------------------------------------
@final
class _Pure(StepScope):
    """A scope that refuses draws and new running states: what a branch does in vain would be seen."""

    def __init__(self, what: str) -> None:
        super().__init__(None)
        self._what: Final = what
        self._around: Final = current_scope()

    def draw(self, layer: object) -> NoReturn:
        """Refuses.  Raises: TraceError."""
        self._refuse("draws random numbers")

    def hand_in(self, state: object, value: object) -> NoReturn:
        """Refuses.  Raises: TraceError."""
        self._refuse("updates a running state")

    def pending(self, state: Argument, otherwise: object) -> Argument:
        """The value of the scope around."""
        return otherwise if self._around is None else self._around.pending(state, otherwise)

    def _refuse(self, effect: str) -> NoReturn:
        raise TraceError(
            f"{self._what} {effect}",
            given="a predicate that cannot be read: under compile, or of samples of vmap",
            expected="functions of their operands alone",
            mend="draw before, and pass the numbers as an operand; use model.valid()",
        )


def _spread(bit: Tensor, x: Tensor) -> Tensor:
    return bit.reshape((1,) * x.ndim).expand(x.shape)


def _gate(operands: Argument, holds: Tensor) -> Argument:
    """The same values, whose derivatives are zero, not NaN, where the side is not chosen."""

    def gate(x: object, path: str) -> object:
        if not isinstance(x, Tensor) or not x.dtype.is_float:
            return x
        return x.mask_where(_spread(holds.bool_not(), x), x.detach())

    return mapped(operands, gate, "operands")


def _choose(what: str, holds: Tensor, chosen: Argument, other: Argument) -> Argument:
    require_alike(what, other, chosen, numbers=True)
    left = iter([y for _, _, y in paired(chosen, other, "results", what)])

    def choose(x: object, path: str) -> object:
        y = next(left)
        if not isinstance(x, Tensor):
            return x
        return x.mask_where(_spread(holds.bool_not(), x), y)

    return mapped(chosen, choose, "results")


def require_alike(what: str, before: object, after: object, *, numbers: bool = False) -> None:
    """Raises: ArgumentError, ShapeError, DTypeError unless both have one structure and their tensors one spec."""
    for path, x, y in paired(before, after, "value", what):
        if isinstance(x, Tensor) != isinstance(y, Tensor) or (
            numbers and not isinstance(x, Tensor) and x is not y and bool(x != y)
        ):
            raise ArgumentError(
                f"{what} do not have one structure",
                given=f"at {path} {describe(x)} {'' if isinstance(x, Tensor) else repr(x)[:40]} and {describe(y)}"
                f" {'' if isinstance(y, Tensor) else repr(y)[:40]}",
                expected="tensors in the same places, and beside them equal values",
                mend="make a tensor of what changes: Tensor.full((1,), number, device)",
            )
        if isinstance(x, Tensor) and (x.shape, x.dtype) != (y.shape, y.dtype):
            raise (ShapeError if x.shape != y.shape else DTypeError)(
                f"{what} do not keep shapes and types",
                given=f"at {path} {x.spec} and {y.spec}",
                expected="the same shape and element type",
                mend="reshape or cast one of them",
            )


# -- along an axis ---------------------------------------------------------------------------------------------------
def _length(what: str, xs: Argument, dim: int, length: int | None) -> int:
    sizes: dict[str, int | None] = {} if length is None else {f"length {length}": length}

    def note(x: object, path: str) -> object:
        if isinstance(x, Tensor):
            sizes[f"{path} {x.spec}"] = x.shape[dim] if -x.ndim <= dim < x.ndim else None
        return x

    mapped(xs, note, "xs")
    known = set(sizes.values())
    if len(known) == 1 and None not in known and 0 not in known:
        return int(next(iter(sizes.values())) or 0)
    raise ShapeError(
        f"{what}: there is no common number of steps",
        given="; ".join(sizes) or "no tensor and no length",
        expected=f"tensors of one size along axis {dim}, at least 1, or a length",
        mend="name the axis with dim, or pass xs=None and length=n",
    )


def _unstack(xs: Argument, dim: int) -> Callable[[int], Argument]:
    """A function that gives the i-th part of all tensors, without the axis."""
    columns: dict[int, Sequence[Tensor]] = {}

    def split(x: object, path: str) -> object:
        if isinstance(x, Tensor):
            columns[id(x)] = x.split(1, dim)
        return x

    mapped(xs, split, "xs")

    def part(i: int) -> Argument:
        def one(x: object, path: str) -> object:
            return columns[id(x)][i].squeeze_dim(dim) if isinstance(x, Tensor) else x

        return mapped(xs, one, "xs")

    return part


def _join_all(what: str, values: Sequence[Argument], join: Callable[[list[Tensor]], Tensor]) -> Argument:
    """One container of joined tensors from many; what is no tensor comes from the first."""
    for value in values[1:]:
        require_alike(f"{what}: the results of steps", values[0], value, numbers=True)
    columns = [iter([y for _, _, y in paired(values[0], value, "y", what)]) for value in values]

    def column(x: object, path: str) -> object:
        items = [next(one) for one in columns]
        return join(items) if isinstance(x, Tensor) else x

    return mapped(values[0], column, "y")


def _flip(xs: Argument, dim: int) -> Argument:
    return mapped(xs, lambda x, path: x.flip([dim]) if isinstance(x, Tensor) else x, "xs")


def _slice(xs: Argument, dim: int, start: int, end: int, step: int = 1) -> Argument:
    def cut(x: object, path: str) -> object:
        if not isinstance(x, Tensor):
            return x
        at = dim % x.ndim
        return ops.slice(x, ranges=tuple((start, end, step) if i == at else (0, n, 1) for i, n in enumerate(x.shape)))

    return mapped(xs, cut, "xs")


def _prefixes(what: str, join: Function, xs: Argument, dim: int, n: int) -> Argument:
    if n < 2:
        return xs

    def merge(a: Argument, b: Argument) -> Argument:
        result = join(a, b)
        require_alike(f"{what}: what the function joins", a, result)
        return result

    half = n // 2
    pairs = merge(_slice(xs, dim, 0, 2 * half - 1, 2), _slice(xs, dim, 1, n, 2))
    odd = _prefixes(what, join, pairs, dim, half)
    first = _slice(xs, dim, 0, 1)
    if n == 2:
        return _join_all(what, [first, odd], lambda items: Tensor.cat(items, dim))
    behind = merge(odd if n % 2 else _slice(odd, dim, 0, half - 1), _slice(xs, dim, 2, n, 2))
    both = iter([y for _, _, y in paired(behind, odd, "xs", what)])
    heads = iter([y for _, _, y in paired(behind, first, "xs", what)])

    def interleave(x: object, path: str) -> object:
        y, head = next(both), next(heads)
        if not isinstance(x, Tensor):
            return x
        at = dim % x.ndim
        x = Tensor.cat([head, x], at)
        pairs_of_two = Tensor.stack([x.narrow(at, 0, half), y], at + 1)
        shape = (*y.shape[:at], 2 * half, *y.shape[at + 1 :])
        mixed = pairs_of_two.reshape(shape)
        return Tensor.cat([mixed, x.narrow(at, half, 1)], at) if n % 2 else mixed

    return mapped(behind, interleave, "xs")
