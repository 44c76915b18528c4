"""ComplexTensor: complex numbers as two real tensors.

Element types, rows, kernels and transforms know real numbers alone; all that is complex is written here with them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias, final

import numpy as np
import torch
from numpy.typing import DTypeLike

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.errors import DeviceError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.core.wording import described
from burn_torch.ops.samples import Array
from burn_torch.ops.spectra import join_parts
from burn_torch.ops.value import Primitive
from burn_torch.tensor._arguments import integer
from burn_torch.tensor._complex_functions import ComplexFunctions
from burn_torch.tensor.apply import NUMBERS, require_tensor
from burn_torch.tensor.compound import Compound
from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import Gradients
from burn_torch.tensor.printing import block, options_for
from burn_torch.tensor.tensor import Tensor

__all__ = ["ComplexTensor"]

Operand: TypeAlias = "ComplexTensor | Tensor | complex"


def _of_parts(name: str) -> Callable[..., ComplexTensor]:
    """The method of Tensor, of the real and of the imaginary part: one that is linear and takes no other tensor."""
    method = getattr(Tensor, name)

    def apply_to_parts(self: ComplexTensor, *args: object, **kwargs: object) -> ComplexTensor:
        return self.map(lambda part: method(part, *args, **kwargs))

    apply_to_parts.__name__ = name
    apply_to_parts.__qualname__ = f"ComplexTensor.{name}"
    apply_to_parts.__doc__ = f"`Tensor.{name}` of both parts."
    return apply_to_parts


@final
@dataclass(frozen=True, eq=False, repr=False)
class ComplexTensor(ComplexFunctions, Compound):
    """Complex numbers: two real tensors of one shape, element type and device.

        z = ComplexTensor.from_data([1 + 2j, 3 - 1j], Device.cpu())
        y = (z * z.conj()).real                    # |z|^2
        re, im = z                                 # Burn's pair

    It is one value to `compile`, `grad` and the other transforms, and a field of a module.  A real loss has the
    gradient dL/dre + i dL/dim, as in PyTorch: `grad` gives it as a ComplexTensor.
    Raises: ShapeError, DTypeError, DeviceError where the parts differ.
    PyTorch: a tensor of complex64 or complex128.
    """

    def __post_init__(self) -> None:
        require_tensor(self.real, "real")
        require_tensor(self.imag, "imag")
        real, imag = self.real.spec, self.imag.spec
        if real is not imag or real.dtype not in FLOAT.members:
            self._require_pair()

    def _require_pair(self) -> None:
        real, imag = self.real.spec, self.imag.spec
        if real.shape != imag.shape:
            raise told(
                ShapeError,
                "the parts of a complex tensor have different shapes",
                given=f"real {real}, imag {imag}",
                expected="real and imag of one shape",
                mend="expand the smaller one: imag.expand(real.shape)",
            )
        if real.dtype is not imag.dtype or real.dtype not in FLOAT.members:
            raise told(
                DTypeError,
                "the parts of a complex tensor have no float type in common",
                given=f"real {real}, imag {imag}",
                expected="real and imag of one float type: f64, f32, f16 or bf16",
                mend="cast them first, for example with .float()",
            )
        if real.place != imag.place:
            raise told(
                DeviceError,
                "the parts of a complex tensor lie on different devices",
                given=f"real {real}, imag {imag}",
                expected="real and imag on one device",
                mend="move one of them: imag.to_device(real.device)",
            )

    # -- constructors ----------------------------------------------------------------------------------------
    @staticmethod
    def from_data(data: object, options: object, dtype: DType | str | None = None) -> ComplexTensor:
        """From nested sequences of complex numbers, or a numpy array; copies.

        Python's numbers become two f32 unless `dtype`, that of the parts, says otherwise; arrays keep their type.
        """
        values = np.asarray(data)
        if values.dtype.kind not in "biufc":
            raise told(
                DTypeError,
                "the data are no numbers",
                given=described(data),
                expected="complex numbers, or an array of them",
                mend="ComplexTensor(real, imag) joins two tensors",
            )
        if values.dtype.kind not in "fc":
            values = values.astype(np.float64)
        parts: list[object] = [values.real, values.imag]
        if not isinstance(data, np.ndarray | np.generic):  # Python's numbers, of which Tensor makes f32
            parts = [values.real.tolist(), values.imag.tolist()]
        return ComplexTensor(*(Tensor.from_data(part, options, dtype) for part in parts))

    @staticmethod
    def from_torch(tensor: torch.Tensor, device: Device | None = None) -> ComplexTensor:
        """A complex tensor of torch, without a copy; see `Tensor.from_torch`.  Raises: DTypeError for a real one."""
        if not isinstance(tensor, torch.Tensor) or not tensor.is_complex():
            raise told(
                DTypeError,
                "this is no complex tensor of torch",
                given=str(tensor.dtype) if isinstance(tensor, torch.Tensor) else described(tensor),
                expected="torch.complex64, torch.complex128 or torch.complex32",
                mend="Tensor.from_torch takes real ones",
            )
        parts = torch.view_as_real(tensor.resolve_conj())
        return ComplexTensor(*(Tensor.from_torch(part, device) for part in parts.unbind(-1)))

    @staticmethod
    def from_polar(length: Tensor, angle: Tensor) -> ComplexTensor:
        """length * exp(i angle), of tensors of one shape.  PyTorch: torch.polar."""
        require_tensor(length, "length")
        require_tensor(angle, "angle")
        return ComplexTensor(length * angle.cos(), length * angle.sin())

    @staticmethod
    def from_real(real: Tensor) -> ComplexTensor:
        """Real numbers as complex ones."""
        require_tensor(real, "real")
        return ComplexTensor(real, real.zeros_like())

    @staticmethod
    def view_as_complex(x: Tensor) -> ComplexTensor:
        """Takes the last axis, of size 2, for real and imaginary part.  Shapes: x (*s, 2) -> (*s)."""
        require_tensor(x)
        if not x.ndim or x.shape[-1] != 2:
            raise told(
                ShapeError,
                "the last axis does not hold real and imaginary parts",
                given=str(x.spec),
                expected="a last axis of size 2",
                mend="ComplexTensor(real, imag) joins two tensors",
            )
        return ComplexTensor(x[..., 0], x[..., 1])

    @staticmethod
    def cat(tensors: Sequence[ComplexTensor], dim: int) -> ComplexTensor:
        """Joins complex tensors along an axis."""
        return _join_parts(Tensor.cat, tensors, dim)

    @staticmethod
    def stack(tensors: Sequence[ComplexTensor], dim: int = 0) -> ComplexTensor:
        """Joins complex tensors along a new axis."""
        return _join_parts(Tensor.stack, tensors, dim)

    # -- what it is ------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """The shape of each part."""
        return self.real.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.real.ndim

    @property
    def dtype(self) -> DType:
        """The element type of each part: f32 where torch says complex64."""
        return self.real.dtype

    @property
    def device(self) -> Device:
        """The device of both parts."""
        return self.real.device

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.real, self.imag))

    def __format__(self, format_spec: str) -> str:
        options = options_for(format_spec)
        real, imag = (part._ends(options) for part in self)
        return block(self.real.spec, real, self.real.backend.name, options, imag)

    def __repr__(self) -> str:
        known = self.real._has_data() and self.imag._has_data()
        return format(self) if known else f"ComplexTensor(real={self.real!r}, imag={self.imag!r})"

    __str__ = __repr__

    # -- going elsewhere -------------------------------------------------------------------------------------
    def into_torch(self) -> torch.Tensor:
        """A complex tensor of torch; without a copy if a transform or `from_torch` made the parts."""
        if self.dtype is DType.BF16:
            raise told(
                DTypeError,
                "torch has no complex numbers of bf16",
                given=str(self.real.spec),
                expected="f64, f32 or f16",
                mend="z.cast(DType.F32).into_torch()",
            )
        return join_parts(self.real.into_torch(), self.imag.into_torch())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        real, imag = (np.asarray(part) for part in self)
        values = np.empty(real.shape, np.complex128 if self.dtype is DType.F64 else np.complex64)
        values.real, values.imag = real, imag
        return values if dtype is None else values.astype(dtype)

    def tolist(self) -> object:
        """Nested lists of Python's complex numbers."""
        return self.__array__().tolist()

    def into_scalar(self) -> complex:
        """The one complex number of a tensor of one element."""
        return builtins.complex(self.real.into_scalar(), self.imag.into_scalar())

    def view_as_real(self) -> Tensor:
        """Both parts as one tensor.  Shapes: (*s) -> (*s, 2)."""
        return Tensor.stack([self.real, self.imag], self.ndim)

    # -- parts -----------------------------------------------------------------------------------------------
    def map(self, function: Callable[[Tensor], Tensor]) -> ComplexTensor:
        """`function` of each part: right for what is linear over real numbers, such as moves and sums."""
        return ComplexTensor(function(self.real), function(self.imag))

    def __getitem__(self, item: object) -> ComplexTensor:
        return self.map(lambda part: part[item])

    reshape = _of_parts("reshape")
    flatten = _of_parts("flatten")
    permute = _of_parts("permute")
    transpose = _of_parts("transpose")
    swap_dims = _of_parts("swap_dims")
    unsqueeze_dim = _of_parts("unsqueeze_dim")
    squeeze_dim = _of_parts("squeeze_dim")
    expand = _of_parts("expand")
    flip = _of_parts("flip")
    roll = _of_parts("roll")
    narrow = _of_parts("narrow")
    pad = _of_parts("pad")
    sum = _of_parts("sum")
    sum_dim = _of_parts("sum_dim")
    mean = _of_parts("mean")
    mean_dim = _of_parts("mean_dim")
    cumsum = _of_parts("cumsum")
    cast = _of_parts("cast")
    no_grad = _of_parts("no_grad")
    require_grad = _of_parts("require_grad")

    def grad(self, gradients: Gradients) -> ComplexTensor | None:
        """dL/dre + i dL/dim of a real loss L; None if no gradient reached either part."""
        parts = [part.grad(gradients) for part in self]
        there = next((part for part in parts if part is not None), None)
        return None if there is None else ComplexTensor(*(there.zeros_like() if p is None else p for p in parts))

    # -- arithmetic ------------------------------------------------------------------------------------------
    def __add__(self, other: object) -> ComplexTensor:
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        return _broadcast(self.real + real, self.imag if imag is None else self.imag + imag)

    __radd__ = __add__

    def __sub__(self, other: object) -> ComplexTensor:
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        return _broadcast(self.real - real, self.imag if imag is None else self.imag - imag)

    def __rsub__(self, other: object) -> ComplexTensor:
        return -self + other

    def __mul__(self, other: object) -> ComplexTensor:
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        if imag is None:
            return ComplexTensor(self.real * real, self.imag * real)
        return ComplexTensor(self.real * real - self.imag * imag, self.real * imag + self.imag * real)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> ComplexTensor:
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        if imag is None:
            return ComplexTensor(self.real / real, self.imag / real)
        if not isinstance(real, Tensor):
            return self * (1.0 / builtins.complex(real, imag)) if real or imag else self / 0.0
        return _divide(self.real, self.imag, real, imag)

    def __rtruediv__(self, other: object) -> ComplexTensor:
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        zero = self.real.zeros_like()
        return _divide(zero + real, zero if imag is None else zero + imag, self.real, self.imag)

    def __matmul__(self, other: object) -> ComplexTensor:
        return self.matmul(other) if isinstance(other, ComplexTensor | Tensor) else NotImplemented

    def __rmatmul__(self, other: object) -> ComplexTensor:
        if not isinstance(other, Tensor):
            return NotImplemented
        return ComplexTensor(other @ self.real, other @ self.imag)

    def matmul(self, other: ComplexTensor | Tensor) -> ComplexTensor:
        """The product of matrices, without conjugation.  Shapes: as `Tensor.matmul`."""
        if isinstance(other, Tensor):
            return ComplexTensor(self.real @ other, self.imag @ other)
        (a, b), (c, d) = self, other
        return ComplexTensor(a @ c - b @ d, a @ d + b @ c)

    def __pow__(self, exponent: object) -> ComplexTensor:
        return NotImplemented if _split(exponent)[0] is None else self.pow(exponent)  # type: ignore[arg-type]  # asked

    def pow(self, exponent: Operand) -> ComplexTensor:
        """z ** exponent: whole numbers up to 64 by products, other exponents as exp(exponent * log(z))."""
        if isinstance(exponent, ComplexTensor | Tensor):
            return (self.log() * exponent).exp()
        if abs(exponent) > _PRODUCTS or exponent != int(exponent.real):
            if not exponent.real > 1.0:
                return (self.log() * exponent).exp()
            zero, real = self._away_from_zero()  # there the power is 0, and its slope too
            return (replace(self, real=real).log() * exponent).exp().map(lambda part: part.mask_fill(zero, 0.0))
        power, factor, left = None, self, abs(int(exponent.real))
        while left:
            if left & 1:
                power = factor if power is None else power * factor
            left >>= 1
            factor = factor * factor if left else factor
        if power is None:
            return ComplexTensor.from_real(self.real.ones_like())
        return power if exponent.real > 0 else power.recip()

    def __rpow__(self, base: object) -> ComplexTensor:
        real, imag = _split(base)
        if real is None:
            return NotImplemented
        zero = self.real.zeros_like()
        return (self * ComplexTensor(zero + real, zero if imag is None else zero + imag).log()).exp()

    def __bool__(self) -> bool:
        return bool((self.real != 0.0).bool_or(self.imag != 0.0))

    def __neg__(self) -> ComplexTensor:
        return self.map(Tensor.__neg__)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Tensor:
        return self.abs()

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]  # element by element, as of Tensor
        real, imag = _split(other)
        if real is None:
            return NotImplemented
        equal: Tensor = (self.real == real).bool_and(self.imag == (0.0 if imag is None else imag))
        return equal

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]  # element by element, as of Tensor
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else ~equal

    __hash__ = object.__hash__

    def adjoint(self) -> ComplexTensor:
        """The conjugate, with the last two axes swapped.  PyTorch: x.mH."""
        return self.conj().transpose()

    def recip(self) -> ComplexTensor:
        """1 / z."""
        return 1.0 / self

    def square(self) -> ComplexTensor:
        """z * z."""
        return self * self

    def sgn(self) -> ComplexTensor:
        """z / |z|; at 0 it is 0, and so is its gradient.  PyTorch: torch.sgn."""
        zero, real = self._away_from_zero()
        return self.map(lambda part: (part / real.hypot(self.imag)).mask_fill(zero, 0.0))


_PRODUCTS: Final = 64


def _split(other: object) -> tuple[Primitive, Primitive]:
    """Real and imaginary part of an operand; no imaginary part if it is real, (None, None) for no operand."""
    if isinstance(other, ComplexTensor):
        return other.real, other.imag
    if isinstance(other, builtins.complex):
        return (other.real, other.imag) if other.imag else (other.real, None)
    if isinstance(other, np.complexfloating):
        return _split(builtins.complex(other))
    return (other, None) if isinstance(other, (Tensor, *NUMBERS)) else (None, None)


def _broadcast(real: Tensor, imag: Tensor) -> ComplexTensor:
    """A real part in its final shape, and an imaginary part that may have to be expanded to it."""
    return ComplexTensor(real, imag if imag.shape == real.shape else imag.expand(real.shape))


def _join_parts(join: Callable[..., Tensor], tensors: Sequence[ComplexTensor], dim: int) -> ComplexTensor:
    listed, at = list(tensors), integer(dim, "dim")
    return ComplexTensor(join([z.real for z in listed], at), join([z.imag for z in listed], at))


def _divide(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> ComplexTensor:
    """(a + i b) / (c + i d) by the larger of c and d, so that nothing overflows between.

    Source: Smith 1962, Algorithm 116.  By 0 it divides each part by |c|: infinities, and NaN for 0 / 0, as in PyTorch.
    """
    other = d.abs() > c.abs()
    large, small = c.mask_where(other, d), d.mask_where(other, c)
    zero = large == 0.0
    ratio = (small / large.mask_fill(zero, 1.0)).mask_fill(zero, 0.0)
    below = large + small * ratio
    below = below.mask_where(zero, large.abs())
    real = (a + b * ratio).mask_where(other, a * ratio + b)
    imag = (b - a * ratio).mask_where(other, b * ratio - a)
    return ComplexTensor(real / below, imag / below)
