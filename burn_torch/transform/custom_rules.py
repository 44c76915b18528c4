"""custom_vjp and custom_jvp: functions with a derivative of their own.

A call goes down the stack of its arguments, level by level.  A tape that records takes one node; a tape with tangents
the tangent; samples are given to all three functions by vmap; the rest computes.  Either rule serves both directions:
each is linear, and the derivative of a linear function is its transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from burn_torch.backend import Autodiff, Backend
from burn_torch.backend.autodiff.forward import Forward, is_forward
from burn_torch.backend.autodiff.tape import FunctionEntry, Node
from burn_torch.backend.samples import computing_below
from burn_torch.core.errors import ArgumentError, AutodiffError
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import describe, fits, mapped, paired, zeros_like
from burn_torch.transform.differentiation import named
from burn_torch.transform.flatten import leaves_in
from burn_torch.transform.linearization import vjp
from burn_torch.transform.structure import Argument, Function
from burn_torch.transform.vectorisation import Samples, vmap

__all__ = ["custom_jvp", "custom_vjp"]

Tensors = list[Tensor | None]


@final
class custom_vjp:  # noqa: N801  # a decorator, named as in JAX
    """A function with a pullback of its own.

        @custom_vjp
        def clipped(x): return x
        clipped.defvjp(lambda x: (x, None), lambda kept, g: (g.clamp(-1.0, 1.0),))

    nondiff_argnums  positions of arguments that are no part of the derivative: numbers, texts, functions, constants

    `defvjp(forward, backward)`: `forward(*args)` gives (outputs, kept), and `backward(*nondiff, kept, g)` a tuple with
    one derivative for each other argument, of its structure, None for zeros; g has the structure of the outputs.
    Arguments are tensors and containers of them.  Both are differentiated for second order, traced by `compile`, mapped
    by `vmap`, and transposed by `jvp`, which takes `backward` as linear in g.

    Raises: AutodiffError for a function without a rule, and one that closes over what is differentiated; ArgumentError,
        ShapeError for derivatives that do not fit.
    PyTorch: torch.autograd.Function.  JAX: jax.custom_vjp.
    """

    def __init__(self, fn: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        self._fn: Final = fn
        self._nondiff: Final = tuple(nondiff_argnums)
        self._rules: tuple[Function, Function] | None = None
        functools.update_wrapper(self, fn)

    def defvjp(self, forward: Function, backward: Function) -> None:
        """Says how it is differentiated; see the class."""
        self._rules = (forward, backward)

    def __call__(self, *args: object) -> Argument:
        """Returns what the function gives.  Raises: AutodiffError without a rule."""
        if self._rules is None:
            raise _no_rule("custom_vjp", self._fn, "defvjp(forward, backward)")
        forward, backward = self._rules
        split = _Split(named("custom_vjp", self._fn), self._nondiff, args)
        return _call(
            split.what,
            _Rule(
                split.with_nondiff(self._fn),
                split.with_nondiff(forward),
                functools.partial(backward, *split.nondiff),
                None,
            ),
            split.args,
        )


@final
class custom_jvp:  # noqa: N801  # a decorator, named as in JAX
    """A function with a pushforward of its own.

        @custom_jvp
        def sine(x): return x.sin()
        sine.defjvp(lambda primals, tangents: (sine(*primals), tangents[0] * primals[0].cos()))

    nondiff_argnums  positions of arguments that are no part of the derivative: numbers, texts, functions, constants

    `defjvp(rule)`: `rule(*nondiff, primals, tangents)` gives (outputs, tangents of the outputs), linear in the
    tangents, which have the structure of the primals, zeros where there are none and None for integers.  Backwards it
    is transposed.  All else is as in `custom_vjp`.

    PyTorch: torch.autograd.Function with jvp.  JAX: jax.custom_jvp.
    """

    def __init__(self, fn: Function, nondiff_argnums: Sequence[int] = ()) -> None:
        self._fn: Final = fn
        self._nondiff: Final = tuple(nondiff_argnums)
        self._rule: Function | None = None
        functools.update_wrapper(self, fn)

    def defjvp(self, rule: Function) -> None:
        """Says how it is differentiated; see the class."""
        self._rule = rule

    def __call__(self, *args: object) -> Argument:
        """Returns what the function gives.  Raises: AutodiffError without a rule."""
        if self._rule is None:
            raise _no_rule("custom_jvp", self._fn, "defjvp(rule)")
        split = _Split(named("custom_jvp", self._fn), self._nondiff, args)
        rule = _Rule(split.with_nondiff(self._fn), None, None, functools.partial(self._rule, *split.nondiff))
        return _call(split.what, rule, split.args)


def _no_rule(kind: str, fn: Function, define: str) -> AutodiffError:
    return AutodiffError(
        f"{named(kind, fn)}: it has no rule",
        given="a call before the rule was defined",
        expected=f"{define} once, before the first call",
        mend=f"{getattr(fn, '__name__', 'fn')}.{define}",
    )


# -- arguments ---------------------------------------------------------------------------------------------------
@final
class _Split:
    """The arguments of a call, those that are differentiated apart from the others."""

    def __init__(self, what: str, nondiff: Sequence[int], args: Sequence[object]) -> None:
        wrong = [i for i in nondiff if not 0 <= i < len(args)]
        if wrong:
            raise ArgumentError(
                f"{what}: nondiff_argnums does not name arguments of this call",
                given=f"nondiff_argnums {tuple(nondiff)}, {len(args)} positional arguments",
                expected="positions of arguments, from 0 on",
                mend="pass all arguments by position",
            )
        self.what: Final = what
        self._at: Final = tuple(nondiff)
        self.nondiff: Final = [args[i] for i in nondiff]
        self.args: Final = [x for i, x in enumerate(args) if i not in nondiff]
        if any(isinstance(x, Tree) for x in self.args):
            raise ArgumentError(
                f"{what}: a module is no argument with a derivative",
                given=", ".join(type(x).__name__ for x in self.args),
                expected="tensors and containers of them",
                mend="pass param.val() of the parameters that the rule reads",
            )
        if any(_is_differentiated(x) for x in leaves_in(self.nondiff)):
            raise AutodiffError(
                f"{what}: an argument among nondiff_argnums is differentiated, or differs between samples of vmap",
                given=f"nondiff_argnums {tuple(nondiff)}",
                expected="constants there",
                mend="take it out of nondiff_argnums and give None as its derivative, or pass x.detach()",
            )

    def with_nondiff(self, fn: Function) -> Function:
        """The function of the differentiated arguments alone."""

        def of_rest(*rest: object) -> Argument:
            args = list(rest)
            for i, value in sorted(zip(self._at, self.nondiff, strict=True), key=lambda pair: pair[0]):
                args.insert(i, value)
            return fn(*args)

        return of_rest


def _is_differentiated(x: object) -> bool:
    if not isinstance(x, Tensor):
        return False
    stack: Argument = x.backend
    primitive = x.primitive
    while stack is not None and (stack.is_autodiff or stack.is_batched):
        if stack.is_many(primitive) if stack.is_batched else stack.is_tracked(primitive):
            return True
        stack = stack.inner
    return False


def _tensors(value: Argument) -> list[Tensor]:
    return [x for x in leaves_in([value]) if isinstance(x, Tensor)]


def _replace(value: Argument, tensors: Sequence[object]) -> Argument:
    """The same containers with other tensors, in order."""
    left = iter(tensors)
    return mapped(value, lambda x, path: next(left) if isinstance(x, Tensor) else x, "")


# -- levels ------------------------------------------------------------------------------------------------------
class _Rule(NamedTuple):
    """A function of the differentiated arguments, and how it is differentiated: by a pullback or by a pushforward."""

    fn: Function
    forward: Function | None
    backward: Function | None
    push: Function | None

    def kept(self, args: Sequence[Argument]) -> tuple[Argument, Argument]:
        """Outputs, and what the pullback needs."""
        assert self.forward is not None
        pair = self.forward(*args)
        if isinstance(pair, tuple) and len(pair) == 2:
            return pair
        raise ArgumentError(
            "custom_vjp: the forward rule did not return a pair",
            given=describe(pair),
            expected="(outputs, kept)",
            mend="return outputs, None where the backward needs nothing",
        )


def _call(what: str, rule: _Rule, args: Sequence[Argument]) -> Argument:
    stack = _highest(args)
    if stack is None or not (stack.is_autodiff or stack.is_batched):
        return rule.fn(*args)
    if stack.is_batched:
        if any(stack.is_many(x.primitive) for x in _tensors(args)):
            return _call_mapped(what, rule, args, stack)
    elif any(stack.is_tracked(x.primitive) for x in _tensors(args)):
        lower = _replace(args, [_under(x, stack.inner) for x in _tensors(args)])
        push = _push if is_forward(stack) else _record
        return push(what, rule, args, lower, stack)
    lower = _replace(args, [_under(x, stack.inner) for x in _tensors(args)])
    outputs = _call(what, rule, lower)
    return _replace(outputs, [_onto(stack, x) for x in _tensors(outputs)])


def _highest(args: Argument) -> Argument:
    """The stack of most levels among tensors; None where there is none."""
    return max((x.backend for x in _tensors(args)), key=lambda backend: backend.depth, default=None)


def _under(x: Tensor, target: Backend) -> Tensor:
    """The value of x on a stack of a level below."""
    stack: Argument = x.backend
    primitive = x.primitive
    while stack.depth > target.depth:
        primitive, stack = stack.unwrapped(primitive), stack.inner
    return Tensor(target, primitive if stack is target else target.lift(primitive, stack), x.spec)


def _settle(what: str, value: Argument, target: Backend) -> Argument:
    """Results of a rule on the level that it was called on.  Raises: AutodiffError where one hangs above."""

    def down(x: Tensor) -> Tensor:
        stack: Argument = x.backend
        primitive = x.primitive
        while stack.depth > target.depth:
            if stack.is_many(primitive) if stack.is_batched else stack.is_tracked(primitive):
                raise AutodiffError(
                    f"{what}: the function closes over a tensor that is differentiated, or differs between samples",
                    given=f"a result {x.spec} that was computed from it",
                    expected="a function of its arguments, for which alone its rule gives derivatives",
                    mend="pass it as an argument, or x.detach()",
                )
            primitive, stack = stack.unwrapped(primitive), stack.inner
        return Tensor(target, primitive if stack is target else target.lift(primitive, stack), x.spec)

    return _replace(value, [down(x) for x in _tensors(value)])


def _onto(stack: Backend, x: Tensor) -> Tensor:
    return x if x.backend.depth >= stack.depth else Tensor(stack, stack.lift(x.primitive, x.backend), x.spec)


def _floats(value: Argument) -> list[Tensor]:
    return [x for x in _tensors(value) if x.dtype.is_float]


def _pullback(what: str, rule: _Rule, lower: Sequence[Argument], kept: Argument, outputs: Argument) -> Function:
    """A function from gradients of the float outputs to gradients of all tensors among the arguments."""
    if rule.backward is None:
        return functools.partial(_transpose_push, what, rule, lower, outputs)

    def pull(gradients: Sequence[Tensor]) -> Tensors:
        left = iter(gradients)
        g = mapped(outputs, lambda y, path: next(left) if isinstance(y, Tensor) and y.dtype.is_float else None, "")
        assert rule.backward is not None
        entries = rule.backward(kept, g)
        if not isinstance(entries, tuple) or len(entries) != len(lower):
            raise ArgumentError(
                f"{what}: the backward rule did not return one derivative for each argument",
                given=f"{len(entries)} entries" if isinstance(entries, tuple) else describe(entries),
                expected=f"a tuple of {len(lower)}, None for zeros",
                mend="return (dx,) for one argument",
            )
        pairs = [
            (path, x, d)
            for i, (arg, entry) in enumerate(zip(lower, entries, strict=True))
            for path, x, d in paired(arg, entry, f"argument {i}", f"{what}: the derivatives")
            if isinstance(x, Tensor)
        ]
        fits(what, "derivatives", pairs)
        return [d for _, _, d in pairs]

    return pull


def _transpose_push(
    what: str, rule: _Rule, lower: Sequence[Argument], outputs: Argument, gradients: Sequence[Tensor]
) -> Tensors:
    def along(tangents: Sequence[Tensor]) -> Sequence[Tensor]:
        return tuple(_run_push(what, rule, lower, outputs, tangents)[1])

    zeros = tuple(zeros_like(x) for x in _floats(lower))
    (slopes,) = vjp(along, zeros)[1](tuple(gradients))
    left = iter(slopes)
    return [next(left) if x.dtype.is_float else None for x in _tensors(lower)]


def _run_push(
    what: str, rule: _Rule, lower: Sequence[Argument], outputs: Argument, tangents: Sequence[Tensor]
) -> tuple[Argument, list[Tensor]]:
    """Outputs of a pushforward, and the tangents of those that are floats."""
    left = iter(tangents)
    assert rule.push is not None
    along = mapped(tuple(lower), lambda x, path: next(left) if isinstance(x, Tensor) and x.dtype.is_float else None, "")
    pair = rule.push(tuple(lower), along)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArgumentError(
            f"{what}: the rule did not return a pair",
            given=describe(pair),
            expected="(outputs, tangents of the outputs)",
            mend="return fn(*primals), tangent",
        )
    pairs = [
        (path, y, t)
        for path, y, t in paired(pair[0], pair[1], "outputs", f"{what}: the tangents")
        if isinstance(y, Tensor) and y.dtype.is_float
    ]
    fits(what, "tangents", pairs)
    return pair[0], [zeros_like(y) if t is None else t for _, y, t in pairs]


def _push(what: str, rule: _Rule, args: Argument, lower: Sequence[Argument], tape: Forward) -> Argument:
    """The outputs of a call with their tangents."""
    tangents, bits = [], 0
    for x, value in zip(_tensors(args), _tensors(lower), strict=True):
        change = tape.tangent(x.primitive) if x.backend is tape else None
        if x.backend is tape and tape.is_tracked(x.primitive):
            bits |= x.primitive.node.version
        if x.dtype.is_float:
            tangents.append(zeros_like(value) if change is None else Tensor(tape.inner, change, x.spec))
    if rule.push is not None:
        outputs, changes = _run_push(what, rule, lower, None, tangents)
    else:
        outputs, kept = rule.kept(lower)
        pull = _pullback(what, rule, lower, kept, outputs)
        used = [x.dtype.is_float for x in _tensors(lower)]

        def back(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
            rows = zip(pull(gradients), _tensors(lower), used, strict=True)
            return tuple(zeros_like(x) if row is None else row for row, x, is_float in rows if is_float)

        zeros = tuple(zeros_like(y) for y in _floats(outputs))
        changes = list(vjp(back, zeros)[1](tuple(tangents))[0])
    outputs, changes = _settle(what, outputs, tape.inner), _settle(what, changes, tape.inner)
    left = iter(changes)
    entry = _Entry(what, tape, outputs, None)
    return _replace(
        outputs,
        [
            Tensor(tape, tape.carried(y.primitive, entry, next(left).primitive, bits), y.spec)
            if y.dtype.is_float
            else Tensor(tape, y.primitive, y.spec)
            for y in _tensors(outputs)
        ],
    )


def _record(what: str, rule: _Rule, args: Argument, lower: Sequence[Argument], tape: Autodiff) -> Argument:
    """The outputs of a call behind one node."""
    kept: Argument = None
    if rule.forward is None:
        outputs = _call(what, rule, lower)
    else:
        outputs, kept = rule.kept(lower)
    outputs = _settle(what, outputs, tape.inner)
    kept = _settle(what, kept, tape.inner)
    tensors = _tensors(args)
    asking = [i for i, x in enumerate(tensors) if x.backend is tape and tape.is_tracked(x.primitive)]
    edges = tuple((tensors[i].primitive.node, tensors[i].primitive.index) for i in asking)
    pull = _pullback(what, rule, lower, kept, outputs)

    def back(gradients: Sequence[Primitive]) -> Sequence[Primitive]:
        cotangents = [
            zeros_like(Tensor(tape.inner, None, y.spec)) if g is None else Tensor(tape.inner, g, y.spec)
            for g, y in zip(gradients, _floats(outputs), strict=True)
        ]
        slopes = _settle(what, pull(cotangents), tape.inner)
        return [None if slopes[i] is None else slopes[i].primitive for i in asking]

    entry: Argument = _Entry(what, tape, outputs, back)
    held = [x for x in [*_tensors(kept), *_tensors(lower)] if x.backend is tape.inner]
    node = Node(entry, edges, held, entry.version(held))
    numbers = iter(range(len(edges) + len(_tensors(outputs))))
    return _replace(
        outputs,
        [
            Tensor(tape, tape.tracked(y.primitive, node, next(numbers)) if y.dtype.is_float else y.primitive, y.spec)
            for y in _tensors(outputs)
        ],
    )


def _call_mapped(what: str, rule: _Rule, args: Sequence[Argument], stack: Argument) -> Argument:
    """The outputs of a call on many samples: the rule's functions are mapped, one level below."""
    count, randomness = stack.how()
    samples = Samples(stack.inner, count)
    whole = [samples.all_of(what, x, 0, "an argument") for x in _tensors(args)]
    others = [None if part is None else vmap(part, 0, 0, randomness) for part in rule[1:]]
    with computing_below(stack):
        outputs = _call(what, _Rule(vmap(rule.fn, 0, 0, randomness), *others), _replace(args, whole))
    outputs = _settle(what, outputs, stack.inner)
    return _replace(outputs, [samples.one(y, 0, "an output") for y in _tensors(outputs)])


# -- nodes -----------------------------------------------------------------------------------------------------------
@final
class _Entry(FunctionEntry):
    """Stands on the tape for the call of a function with a rule."""

    __slots__ = ("_back",)

    def __init__(self, what: str, tape: Autodiff, outputs: Argument, back: Callable[..., Sequence[Primitive]] | None):
        super().__init__(what, (y.spec for y in _floats(outputs)), tape.inner)
        self._back: Final = back

    def version(self, saved: Sequence[Tensor]) -> int:
        """The sum of the versions of what the rule reads."""
        return sum(self.inner.version(x.primitive) for x in saved)

    def backward(self, present: tuple[bool, ...]) -> Function:
        """A function (gradients of the float outputs, what is kept) -> a gradient for each argument that asks."""
        return lambda gradients, saved: self._back(gradients)  # type: ignore[misc]  # a tape with tangents walks nowhere
