"""Tensor: a value with the user's API."""

from __future__ import annotations

import builtins
import warnings
from typing import Any, final

import torch

from burn_torch import ops
from burn_torch.backend import Autodiff, Backend
from burn_torch.backend.autodiff.cuts import walk_back
from burn_torch.backend.autodiff.laid import is_recorded
from burn_torch.backend.decorator import detached
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, AutodiffError, explain
from burn_torch.core.frames import told, user_level
from burn_torch.core.misfits import word_methods
from burn_torch.core.spellings import Named, attach_spellings
from burn_torch.core.spellings.tensors import TENSOR
from burn_torch.ops.value import Value
from burn_torch.tensor._operators import Operators
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.gradients import ConstantGradientsWarning, Gradients

__all__ = ["Tensor"]


@final
class Tensor(Operators, metaclass=Named):
    """An immutable array on a device.  Every operation gives a new tensor.

        x = Tensor.from_data([[1.0, 2.0], [3.0, 4.0]], Device.cpu())
        y = (x @ x.transpose()).exp().sum_dim(1)

    Its methods stand in the files of this folder, a family each, one class above the other: shapes, indices, numbers,
    order, floats, data, constructors, operators; here stand gradients and the names that hide Python's own.
    """

    __slots__ = ()

    backend: Backend

    def __dir__(self) -> list[str]:
        return dir(type(self))

    # -- gradients ---------------------------------------------------------------------------
    def backward(self, retain_graph: builtins.bool = False) -> Gradients:
        """Gradients of the sum of this tensor for every tensor under it that asked with `require_grad`.

        Changes no tensor.  Consumes the tape unless `retain_graph`.  A ConstantGradientsWarning says so where a running
        transform differentiates this tensor: to that these gradients are constants; and where gradients that were
        computed before stand in this tensor: they are constants to it.
        Raises: AutodiffError without a tape, through a used one, or over a value written to since.
        """
        backend: Any = self.backend
        if not backend.is_autodiff or not backend.is_tracked(self.primitive):
            raise _no_tape("backward", self)
        if is_recorded(backend, self.primitive):
            _warn_of_constants(self)
        inner = backend.inner
        spec = self.spec
        attrs = {"shape": spec.shape, "dtype": spec.dtype, "place": spec.place}
        one = ops.full.run(inner, Tensor, (1.0,), attrs).primitive
        leaves, cuts = walk_back(backend, [(self.primitive, one)], retain_graph)
        if cuts:
            warn_of_cuts(cuts, leaves)
        return Gradients(inner, leaves, cut_kind(max(leaves, default=0)))

    def grad(self, gradients: Gradients) -> Tensor | None:
        """This tensor's gradient, on the inner device; None if none reached it."""
        return _gradients(gradients).get(self)

    def grad_remove(self, gradients: Gradients) -> Tensor | None:
        """Takes this tensor's gradient out of the gradients; None if there is none."""
        return _gradients(gradients).remove(self)

    def grad_replace(self, gradients: Gradients, gradient: Tensor) -> None:
        """Puts another gradient, of the inner device, in the place of this tensor's."""
        require_tensor(gradient, "gradient")
        _gradients(gradients).replace(self, gradient)

    def require_grad(self) -> Tensor:
        """This value as a leaf of this device's tape, to which gradients are asked; it stays on the tapes under that.

        Raises: AutodiffError for what was computed from such leaves, whose gradients would end here; on devices without
            gradients; and for integers.
        """
        backend: Any = self.backend
        if not backend.is_autodiff:
            raise _no_tape("require_grad", self)
        if backend.is_tracked(self.primitive):
            if backend.is_leaf(self.primitive):
                return self
            raise _is_computed(self)
        if not self.spec.dtype.is_float:
            raise AutodiffError(
                "require_grad: only floats have gradients",
                given=str(self.spec),
                expected="a float type: f64, f32, f16, bf16",
                mend="cast it first with .float()",
            )
        return Tensor(backend, backend.track(backend.unwrapped(self.primitive), self.spec), self.spec)

    def is_require_grad(self) -> builtins.bool:
        """Returns whether gradients were asked for this very tensor.  PyTorch: requires_grad and is_leaf."""
        backend: Any = self.backend
        return builtins.bool(backend.is_autodiff and backend.is_leaf(self.primitive))

    def set_require_grad(self, require_grad: builtins.bool) -> Tensor:
        """`require_grad()` if true, else `detach()`."""
        if not isinstance(require_grad, builtins.bool):
            raise told(
                ArgumentError,
                "require_grad is True or False",
                given=f"{require_grad!r:.60}",
                expected="a bool",
                mend="x.require_grad(), or x.detach()",
            )
        return self.require_grad() if require_grad else self.detach()

    def detach(self) -> Tensor:
        """The same value on the same device, a constant of every derivative: of tapes under this one and of transforms
        around too.  JAX: stop_gradient.
        """
        backend = self.backend
        primitive = detached(backend, self.primitive)
        return self if primitive is self.primitive else Tensor(backend, primitive, self.spec)

    def no_grad(self) -> Tensor:
        """`detach()` on the inner device; the tensor itself where there are no gradients."""
        return self.detach().inner() if self.backend.is_autodiff else self

    def inner(self) -> Tensor:
        """The value on the inner device: without this device's tape, and still on the tapes under it, if there are any.

        Raises: AutodiffError where there are no gradients.
        """
        backend: Any = self.backend
        if not backend.is_autodiff:
            raise _no_tape("inner", self)
        return Tensor(backend.inner, backend.unwrapped(self.primitive), self.spec)

    @staticmethod
    def from_inner(inner: Tensor) -> Tensor:
        """The value on a device with gradients, as a constant."""
        require_tensor(inner, "inner")
        return inner.__class__(Autodiff(inner.backend), inner.primitive, inner.spec)

    # -- element types, last: inside a class these names would hide Python's own in annotations --------------
    def float(self) -> Tensor:
        """As f32."""
        return self.cast(DType.F32)

    def int(self) -> Tensor:
        """As i64; floats are cut toward zero."""
        return self.cast(DType.I64)

    def bool(self) -> Tensor:
        """Returns whether each element is not zero."""
        return self.cast(DType.BOOL)


for _home in Tensor.__mro__[:-1]:
    if _home is not Value:
        word_methods(Tensor, _home)
attach_spellings(Tensor, TENSOR, twin=torch.Tensor)


from burn_torch.tensor.cut import cut_kind, warn_of_cuts  # noqa: E402  # its class stands on this one


def _warn_of_constants(x: Tensor) -> None:
    warnings.warn(
        explain(
            "backward: its gradients are constants to the transform around it",
            given=f"{x.spec}, which a running grad, vjp, jvp or hvp differentiates",
            expected="a gradient that this transform differentiates on, or one that is detached on purpose",
            mend="call grad, or value_and_grad, here; for constants detach what it gives",
        ),
        ConstantGradientsWarning,
        stacklevel=user_level(),
    )


def _gradients(gradients: Gradients) -> Gradients:
    if not isinstance(gradients, Gradients):
        raise told(
            ArgumentError,
            "these are no gradients",
            given=f"a {type(gradients).__name__}",
            expected="the Gradients that backward returned",
            mend="gradients = loss.backward(); x.grad(gradients)",
        )
    return gradients


def _is_computed(x: Tensor) -> AutodiffError:
    return AutodiffError(
        "require_grad: this tensor was computed from others that ask for gradients, which would end here",
        given=f"{x.spec} on {x.backend.name}, the result of an operation on its tape",
        expected="a leaf: a tensor that nothing on the tape was computed into",
        mend="for a new leaf write x.detach().require_grad(); for the gradient by it,"
        " grad(rest_of_the_program)(x), which leaves it where it is",
    )


def _no_tape(method: str, x: Tensor) -> AutodiffError:
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
