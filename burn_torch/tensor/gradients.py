"""Gradients: what `backward` returns.  Nothing is written on tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from burn_torch.backend.autodiff.cuts import Cut
from burn_torch.core.errors import ArgumentError, AutodiffError
from burn_torch.core.frames import told, warn_user
from burn_torch.ops.value import Executor

if TYPE_CHECKING:
    from burn_torch.tensor.tensor import Tensor

__all__ = [
    "ConstantGradientsWarning",
    "Gradients",
    "is_computed",
    "no_tape",
    "require_gradients",
    "warn_of_constants",
    "warn_of_cuts",
]

_NO_LEAF: Final = -1


class ConstantGradientsWarning(UserWarning):
    """A backward takes gradients for constants that were computed from what it differentiates; or it runs inside of a
    transform that differentiates its loss, and to that its own gradients are constants.
    """


@final
class Gradients:
    """The gradients of one backward: one tensor for each tensor that asked with `require_grad`, on its inner device.

    Read them with `x.grad(gradients)`, or take them out with `x.grad_remove(gradients)`.
    """

    __slots__ = ("_by_leaf", "_inner", "_tensor")

    def __init__(self, inner: Executor, by_leaf: dict[int, object], tensor: type[Tensor]) -> None:
        self._inner = inner
        self._by_leaf = by_leaf
        self._tensor = tensor

    def get(self, x: Tensor) -> Tensor | None:
        """The gradient of a leaf; None if no gradient reached it."""
        primitive = self._by_leaf.get(leaf_id(x))
        return None if primitive is None else self._of(x, primitive)

    def remove(self, x: Tensor) -> Tensor | None:
        """Takes the gradient of a leaf out; None if there is none."""
        primitive = self._by_leaf.pop(leaf_id(x), None)
        return None if primitive is None else self._of(x, primitive)

    def replace(self, x: Tensor, gradient: Tensor) -> None:
        """Puts another gradient in the place of a leaf's.

        Raises: AutodiffError unless x is a leaf, and the gradient has its shape, type and place on the inner device.
        """
        leaf = leaf_id(x)
        if leaf == _NO_LEAF:
            raise AutodiffError(
                "grad_replace: gradients are kept for leaves only",
                given=f"{x.spec}, which did not ask with require_grad()",
                expected="a tensor marked with require_grad()",
                mend="call .require_grad() on it before the forward, or .detach().require_grad()",
            )
        if gradient.spec is not x.spec or gradient.backend is not _under(x):
            raise AutodiffError(
                "grad_replace: the gradient does not fit the tensor",
                given=f"{gradient.spec} on {gradient.backend.name}",
                expected=f"{x.spec} on {_under(x).name}",
                mend="gradients live on the inner device: gradient.inner(), and have the shape of the tensor",
            )
        self._by_leaf[leaf] = gradient.primitive

    def _of(self, x: Tensor, primitive: object) -> Tensor:
        under: Any = _under(x)
        on_tape = under.is_autodiff and under.is_tracked(primitive)  # of the tape beneath: it is differentiated there
        return (x.__class__ if on_tape else self._tensor)(under, primitive, x.spec)

    def has_leaf(self, leaf: int | None) -> bool:
        """Returns whether there is a gradient of the leaf with this number."""
        return leaf in self._by_leaf

    def __reduce__(self) -> NoReturn:
        raise AutodiffError(
            "Gradients cannot leave the process of their tape",
            given=repr(self),
            expected="gradients of single tensors, or GradientsParams, which know their parameters by id",
            mend="send x.grad(gradients), or GradientsParams.from_grads(gradients, model)",
        )

    def __len__(self) -> int:
        return len(self._by_leaf)

    def __repr__(self) -> str:
        return f"Gradients({len(self)} tensors on {self._inner.name})"


def _under(x: Tensor) -> Executor:
    """The backend of a leaf's gradient: where the leaf is, not where the loss was."""
    inner: Executor = x.backend.inner  # an Autodiff: `leaf_id` was asked first
    return inner


def leaf_id(x: Tensor) -> int:
    """The tape's number of a leaf, or -1.  Raises: AutodiffError for a tensor of a device without gradients."""
    backend: Any = x.backend
    if not getattr(backend, "is_autodiff", False):
        raise AutodiffError(
            "grad: this tensor lives on a device without gradients",
            given=f"{x.spec} on {backend.name}",
            expected="a tensor of a device.autodiff(), marked with require_grad()",
            mend="make it on Device.cpu().autodiff() and call .require_grad() before the forward",
        )
    return x.primitive.node.id if backend.is_leaf(x.primitive) else _NO_LEAF


# -- faults ------------------------------------------------------------------------------------------
def warn_of_constants(x: Tensor) -> None:
    """Warns that a running transform takes the gradients of this backward for constants."""
    warn_user(
        ConstantGradientsWarning,
        "backward: its gradients are constants to the transform around it",
        given=f"{x.spec}, which a running grad, vjp, jvp or hvp differentiates",
        expected="a gradient that this transform differentiates on, or one that is detached on purpose",
        mend="call grad, or value_and_grad, here; for constants detach what it gives",
    )


def require_gradients(gradients: Gradients) -> Gradients:
    """The gradients.  Raises: ArgumentError for anything else."""
    if not isinstance(gradients, Gradients):
        raise told(
            ArgumentError,
            "these are no gradients",
            given=f"a {type(gradients).__name__}",
            expected="the Gradients that backward returned",
            mend="gradients = loss.backward(); x.grad(gradients)",
        )
    return gradients


def is_computed(x: Tensor) -> AutodiffError:
    """The error of `require_grad` on a tensor that other leaves were computed into."""
    return AutodiffError(
        "require_grad: this tensor was computed from others that ask for gradients, which would end here",
        given=f"{x.spec} on {x.backend.name}, the result of an operation on its tape",
        expected="a leaf: a tensor that nothing on the tape was computed into",
        mend="for a new leaf write x.detach().require_grad(); for the gradient by it,"
        " grad(rest_of_the_program)(x), which leaves it where it is",
    )


def no_tape(method: str, x: Tensor) -> AutodiffError:
    """The error of a method that needs a tape, on a tensor that has none."""
    tracked = x.backend.is_autodiff
    return AutodiffError(
        f"{method}: there is no tape to walk back"
        if tracked
        else f"{method}: this tensor lives on a device without gradients",
        given=f"{x.spec} on {x.backend.name}",
        expected="a tensor computed from one that asked with require_grad()"
        if tracked
        else "a tensor of a device.autodiff()",
        mend="call .require_grad() on the inputs before the forward; what a compiled function with donate returned"
        " has no tape: call backward inside it"
        if tracked
        else "make the inputs on Device.cpu().autodiff()",
    )


def warn_of_cuts(cuts: Iterable[Cut], leaves: Collection[int]) -> None:
    """Warns of a backward to `leaves` that passed cuts, unless what was cut off there depends on none of them."""
    lines = dict.fromkeys(one.line for one in cuts if any(map(one.depends, leaves)))
    if lines:
        first, *others = lines
        warn_user(
            ConstantGradientsWarning,
            "backward: gradients in this loss are constants",
            given=f"gradients, or values beside them, of an earlier backward or transform, in {first}"
            + (f", and {len(others)} other line{'s' * (len(others) > 1)}" if others else ""),
            expected="a gradient that stays connected, as by create_graph=True in PyTorch, or one that is detached",
            mend="write the whole loss as a function and differentiate that: value_and_grad(loss_fn)(model), with"
            " grad(...) inside of it; for a constant, gradient.detach()",
        )
