"""Tensors that a tape takes for constants though they depend on its leaves: gradients, and what is computed of them.

    grads = loss_of(w).backward()               # torch: torch.autograd.grad(loss, w), without create_graph
    penalty = w.grad(grads).square().sum()      # a CutTensor, as is each result of one
    (loss_of(w) + penalty).backward()           # a ConstantGradientsWarning: the penalty adds nothing to w's gradient

The class goes from operand to result by itself (`apply.unary` and its kin make what their operand is), so nothing is
asked where no gradient takes part.  Where such a tensor meets one of a tape, a `Cut` stands on that tape, see
`backend/autodiff/cuts.py`.  What is logged, clipped, summed up or taken by an optimizer comes to no
backward, so nothing is said.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from burn_torch.backend.autodiff.cuts import Cut, behind_cut
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.core.dtype import DType
from burn_torch.core.errors import explain
from burn_torch.core.frames import user_level, user_line
from burn_torch.core.spellings import Named
from burn_torch.ops.op import Op
from burn_torch.ops.value import Attrs, Executor
from burn_torch.tensor.gradients import ConstantGradientsWarning
from burn_torch.tensor.tensor import Tensor

__all__ = ["CutTensor", "cut", "cut_from", "cut_kind", "cut_off", "uncut", "warn_of_cuts"]

_GENERATIONS: Final = 8


class CutTensor(Tensor):  # type: ignore[misc]  # final for users
    """A Tensor whose derivatives by leaves of a tape are lost."""

    __slots__ = ()

    generation: int
    """Says which leaves these can be: those before `_until[generation]`."""

    @staticmethod
    def _mixed(op: Op, backend: Executor, inputs: Sequence[object], attrs: Attrs) -> Any:
        """Returns what a row gives of inputs of which some are cut: results behind cuts on their tapes, or cut off
        too.
        """
        results = op.run(backend, Tensor, inputs, attrs)
        generations = [x.generation for x in inputs if isinstance(x, CutTensor) and x.dtype.is_float]
        if not generations or (op.nondifferentiable and not op.barrier):
            return results
        kind = _KINDS[max(generations, key=_until.__getitem__)]
        return tuple(cut(y, kind) for y in results) if isinstance(results, tuple) else cut(results, kind)

    # -- constants of every derivative ---------------------------------------------------------------
    def detach(self) -> Tensor:
        """The same value, as a constant that is meant."""
        return uncut(self)

    def no_grad(self) -> Tensor:
        """The same value under the device's tape, as a constant that is meant."""
        return uncut(self).no_grad()

    def cast(self, dtype: DType | str) -> Any:
        """The same numbers in another type; integers and bools have no derivative that could be lost."""
        return super().cast(dtype) if self.spec.dtype.is_float else uncut(self).cast(dtype)

    def inner(self) -> Tensor:
        """The value under the device's tape, cut off as before."""
        return self.__class__(self.backend.inner, uncut(self).inner().primitive, self.spec)

    def __reduce__(self) -> tuple[object, ...]:
        return uncut(self).__reduce__()


def _flat(name: str) -> Callable[..., object]:
    """A method whose result has no derivative by this tensor."""
    method = getattr(Tensor, name)

    def flat(self: CutTensor, *args: object, **kwargs: object) -> Any:
        return method(uncut(self), *args, **kwargs)

    flat.__name__, flat.__doc__ = name, method.__doc__
    return flat


for _name in ("sign", "round", "floor", "ceil", "trunc", "new_full", "random_like", "categorical"):
    setattr(CutTensor, _name, _flat(_name))

_KINDS: Final[Sequence[Any]] = [  # of types
    Named("Tensor", (CutTensor,), {"__slots__": (), "__module__": Tensor.__module__, "generation": i})
    for i in range(_GENERATIONS)
]
_until: Final = [0] * _GENERATIONS
_newest = 0


def cut_kind(leaf: int | None) -> type[CutTensor]:
    """The class of tensors that are handed out now: of a new generation where `leaf`, one that they depend on, is new.

    With the leaves of the next training step begins another generation, so a number kept from the step before is a
    constant to it without a notice.  Classes come again after eight; at worst a notice comes that need not.
    """
    global _newest
    at = _newest
    if leaf is None or leaf > _until[at]:
        _newest = at = (at + 1) % _GENERATIONS
    _until[at] = next_id()
    kind: type[CutTensor] = _KINDS[at]
    return kind


def cut_off(x: Tensor, kind: type[CutTensor]) -> Tensor:
    """A value under a tape that has lost what it depends on there; as it is on a tape beneath that tracks it."""
    stack: Any = x.backend
    return x if _is_on_tape(x) or not x.spec.dtype.is_float else kind(stack, x.primitive, x.spec)


def cut(x: Any, kind: type[CutTensor]) -> Any:
    """A value of which a part is cut off: behind cuts on the tapes that track it, and of class `kind` on others."""
    if x is None or not x.spec.dtype.is_float:
        return x
    if not _is_on_tape(x):
        return kind(x.backend, x.primitive, x.spec)
    return cut_from(x, _until[kind.generation].__gt__)


def cut_from(x: Tensor, depends: Callable[[int], bool]) -> Tensor:
    """A value behind cuts on the tapes that track it: a part of it is constant that can depend on some leaves."""
    line = user_line() or "an unknown line"
    return Tensor(x.backend, behind_cut(x.backend, x.primitive, x.spec, line, depends), x.spec)


def uncut(x: Tensor) -> Tensor:
    """The same value, as a constant that is meant."""
    return x if x.__class__ is Tensor else Tensor(x.backend, x.primitive, x.spec)


def _is_on_tape(x: Tensor) -> bool:
    stack: Any = x.backend
    primitive = x.primitive
    while stack.is_autodiff:
        if stack.is_tracked(primitive):
            return True
        stack = stack.inner
    return False


def warn_of_cuts(cuts: Iterable[Cut], leaves: Collection[int]) -> None:
    """Warns of a backward to `leaves` that passed cuts, unless what was cut off there depends on none of them."""
    lines = dict.fromkeys(one.line for one in cuts if any(map(one.depends, leaves)))
    if lines:
        first, *others = lines
        warnings.warn(
            explain(
                "backward: gradients in this loss are constants",
                given=f"gradients, or values beside them, of an earlier backward or transform, in {first}"
                + (f", and {len(others)} other line{'s' * (len(others) > 1)}" if others else ""),
                expected="a gradient that stays connected, as by create_graph=True in PyTorch, or one that is detached",
                mend="write the whole loss as a function and differentiate that: value_and_grad(loss_fn)(model), with"
                " grad(...) inside of it; for a constant, gradient.detach()",
            ),
            ConstantGradientsWarning,
            stacklevel=user_level(),
        )
