"""Tensor: a value with the user's API."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import torch

from burn_torch import ops
from burn_torch.backend import Autodiff, Backend
from burn_torch.backend.autodiff.cuts import behind_cut, walk_back
from burn_torch.backend.autodiff.laid import is_recorded
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.backend.decorator import detached
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, AutodiffError
from burn_torch.core.frames import told, user_line
from burn_torch.core.imports import named
from burn_torch.core.misfits import word_methods
from burn_torch.core.spellings import Named, attach_spellings
from burn_torch.core.spellings.tensors import TENSOR
from burn_torch.ops.op import Op
from burn_torch.ops.value import Attrs, Executor, Value
from burn_torch.tensor._operators import Operators
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.device_settings import GradientCheckpointingStrategy, defaults_at
from burn_torch.tensor.gradients import (
    Gradients,
    is_computed,
    no_tape,
    require_gradients,
    warn_of_constants,
    warn_of_cuts,
)

if TYPE_CHECKING:
    from burn_torch.core.quantization import QuantScheme
    from burn_torch.tensor.quantization import QuantizationParameters, QuantizedTensor

__all__ = ["CutTensor", "Tensor", "cut", "cut_from", "cut_kind", "cut_off", "uncut"]


@final
class Tensor(Operators, metaclass=Named):
    """An immutable array on a device.  Every operation gives a new tensor.

        x = Tensor.from_data([[1.0, 2.0], [3.0, 4.0]], Device.cpu())
        y = (x @ x.transpose()).exp().sum_dim(1)

    Its methods stand in the files of this folder, a family each, one class above the other: shapes, indices, numbers,
    order, floats, data, constructors, operators; here stand gradients, quantisation and names that hide Python's own.
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
            raise no_tape("backward", self)
        if is_recorded(backend, self.primitive):
            warn_of_constants(self)
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
        return require_gradients(gradients).get(self)

    def grad_remove(self, gradients: Gradients) -> Tensor | None:
        """Takes this tensor's gradient out of the gradients; None if there is none."""
        return require_gradients(gradients).remove(self)

    def grad_replace(self, gradients: Gradients, gradient: Tensor) -> None:
        """Puts another gradient, of the inner device, in the place of this tensor's."""
        require_tensor(gradient, "gradient")
        require_gradients(gradients).replace(self, gradient)

    def require_grad(self) -> Tensor:
        """This value as a leaf of this device's tape, to which gradients are asked; it stays on the tapes under that.

        Raises: AutodiffError for what was computed from such leaves, whose gradients would end here; on devices without
            gradients; and for integers.
        """
        backend: Any = self.backend
        if not backend.is_autodiff:
            raise no_tape("require_grad", self)
        if backend.is_tracked(self.primitive):
            if backend.is_leaf(self.primitive):
                return self
            raise is_computed(self)
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
            raise no_tape("inner", self)
        return Tensor(backend.inner, backend.unwrapped(self.primitive), self.spec)

    def with_gradient_checkpointing_strategy(self, strategy: GradientCheckpointingStrategy | str) -> Tensor:
        """The same value on a tape that keeps what a strategy says; gradients flow back to x."""
        return self.to_device(self.device.gradient_checkpointing(strategy))

    @staticmethod
    def from_inner(inner: Tensor) -> Tensor:
        """The value on a device with gradients, as a constant."""
        require_tensor(inner, "inner")
        return inner.__class__(Autodiff(inner.backend), inner.primitive, inner.spec)

    # -- quantisation ----------------------------------------------------------------------------------
    def quantize(self, scheme: QuantScheme, qparams: QuantizationParameters) -> QuantizedTensor:
        """Codes and scales of a scheme, with these scales; see `burn_torch.tensor.quantization`.

            code = round(x / scale), held within the range of the scheme's value

        Scales are rounded to the type that the scheme stores them in, and codes are made for those.  NaN becomes 0 in
        integers.  The result is a constant of every derivative.
        Raises: DTypeError for integers, ShapeError for scales that are not one for each block.
        """
        q: QuantizedTensor = named("burn_torch.tensor.quantization:quantize")(self, scheme, qparams)
        return q

    def quantize_dynamic(self, scheme: QuantScheme) -> QuantizedTensor:
        """Codes and scales of a scheme, with the scales that the range of each block asks for: its least and largest
        number.
        """
        q: QuantizedTensor = named("burn_torch.tensor.quantization:quantize_dynamic")(self, scheme)
        return q

    def dequantize(self) -> Tensor:
        """The tensor itself: it is not quantised.  `QuantizedTensor.dequantize` gives floats."""
        return self

    # -- element types, last: inside a class these names would hide Python's own in annotations --------------
    def float(self) -> Tensor:
        """As f32, or as the floats that the device is configured for."""
        return self.cast(defaults_at(self.backend, self.spec.place).of(DType.F32))

    def int(self) -> Tensor:
        """As i64, or as the integers that the device is configured for; floats are cut toward zero."""
        return self.cast(defaults_at(self.backend, self.spec.place).of(DType.I64))

    def bool(self) -> Tensor:
        """Returns whether each element is not zero."""
        return self.cast(DType.BOOL)


for _home in Tensor.__mro__[:-1]:
    if _home is not Value:
        word_methods(Tensor, _home)
attach_spellings(Tensor, TENSOR, twin=torch.Tensor)


# -- gradients as constants --------------------------------------------------------------------------
_GENERATIONS: Final = 8


class CutTensor(Tensor):  # type: ignore[misc]  # final for users
    """A Tensor that a tape takes for a constant though it depends on its leaves: a gradient, or a value computed from
    one.

        grads = loss_of(w).backward()               # torch: torch.autograd.grad(loss, w), without create_graph
        penalty = w.grad(grads).square().sum()      # a CutTensor, as is each result of one
        (loss_of(w) + penalty).backward()           # a ConstantGradientsWarning: the penalty adds nothing to it

    The class goes from operand to result by itself (`apply.unary` and its kin make the class of their operand), so
    nothing is asked where no gradient takes part.  If such a tensor meets one of a tape, a `Cut` stands on that tape,
    see `backend/autodiff/cuts.py`.  Values that are logged, clipped, summed up or taken by an optimizer come to no
    backward, so no warning is raised.
    """

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
