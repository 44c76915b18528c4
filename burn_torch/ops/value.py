"""Values: what gradient rules, decompositions and users compute with.

A `Value` is (backend, primitive, spec) with operators.  `Tensor` is a Value with the user's API.  A number that is
known only at run time (a traced learning rate) is a Value too, with a NumberSpec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, Self, TypeAlias

from burn_torch.core.errors import ArgumentError, TraceError
from burn_torch.core.frames import user_line
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.core.wording import described

if TYPE_CHECKING:
    from burn_torch.core.dtype import DType
    from burn_torch.ops.op import Call

__all__ = ["Attrs", "Executor", "Number", "Primitive", "Value"]

Primitive: TypeAlias = Any
"""The leaf's own value: a tensor of torch, an array of numpy, an id of a trace.  Only the leaf looks inside."""

Attrs: TypeAlias = Mapping[str, Any]
"""The attributes of a Call by name.  The signature of its row says what they are."""


class Executor(Protocol):
    """The part of a backend that a value needs; `burn_torch.backend.Backend` is the whole of it."""

    @property
    def name(self) -> str:
        """How the stack is written: "Autodiff(LibTorch)"."""

    @property
    def depth(self) -> int:
        """How many decorators stand on the leaf."""

    def execute(self, call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
        """Computes a Call: one primitive an output."""

    def lift(self, primitive: Primitive, source: Executor) -> Any:
        """A primitive of an inner stack as a constant of this one.  Raises: DeviceError for any other stack."""

    def spec(self, primitive: Primitive) -> TensorSpec:
        """The spec of a primitive whose shape depends on data."""


def _rows() -> Any:
    # Operators call rows, and rows are written with operators: the one cycle of the table, closed at first use.
    global _rows_module
    if _rows_module is None:
        import burn_torch.ops as rows

        _rows_module = rows
    return _rows_module


_rows_module: Any = None


_DATA = frozenset({int, float, bool, str, bytes, list, tuple, dict, type(None)})
"""Classes of what users hand to constructors of tensors elsewhere."""


class Value:
    """A tensor on some backend, or a run-time number, with operators.  Immutable."""

    __slots__ = ("__weakref__", "backend", "primitive", "spec")

    backend: Executor
    primitive: Primitive
    spec: TensorSpec

    _mixed: ClassVar[Callable[..., Any] | None] = None
    """`_mixed(op, backend, inputs, attrs)` computes a row of which some inputs are of this class; None: as ever."""

    def __init__(
        self, backend: Any = None, primitive: Primitive = None, spec: Any = _DATA,
        data: Any = None, shape: Any = None, dtype: Any = None, device: Any = None, requires_grad: Any = None,
    ) -> None:  # fmt: skip  # what others' constructors take, by name: `**named` costs 0.02 us, `*` before them 0.07
        if spec.__class__ is not TensorSpec and (spec is _DATA or backend.__class__ in _DATA):
            named = {"data": data, "shape": shape, "dtype": dtype, "device": device, "requires_grad": requires_grad}
            values = [x for x in (backend, primitive, spec) if x is not None and x is not _DATA]
            raise _no_value(type(self).__name__, values, {n: x for n, x in named.items() if x is not None})
        self.backend = backend
        self.primitive = primitive
        self.spec = spec

    # -- what is known without the data ---------------------------------------
    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.spec.ndim

    @property
    def place(self) -> str:
        """The place of the data: "cpu", "cuda:0"."""
        return self.spec.place

    @property
    def is_number(self) -> bool:
        """Tells if this is a number that is known only at run time, not a tensor."""
        return self.spec.__class__ is not TensorSpec

    # -- arithmetic --------------------------------------------------------------
    def __add__(self, other: object) -> Self:
        return _rows().add(self, other)

    def __radd__(self, other: object) -> Self:
        return _rows().add(self, other)

    def __sub__(self, other: object) -> Self:
        return _rows().sub(self, other)

    def __rsub__(self, other: object) -> Self:
        return _rows().sub(other, self)

    def __mul__(self, other: object) -> Self:
        return _rows().mul(self, other)

    def __rmul__(self, other: object) -> Self:
        return _rows().mul(self, other)

    def __truediv__(self, other: object) -> Self:
        return _rows().div(self, other)

    def __rtruediv__(self, other: object) -> Self:
        return _rows().div(other, self)

    def __mod__(self, other: object) -> Self:
        return _rows().remainder(self, other)

    def __rmod__(self, other: object) -> Self:
        return _rows().remainder(other, self)

    def __pow__(self, other: object) -> Self:
        return _rows().pow(self, other)

    def __rpow__(self, other: object) -> Self:
        return _rows().pow(other, self)

    def __neg__(self) -> Self:
        return _rows().neg(self)

    def __abs__(self) -> Self:
        return _rows().abs(self)

    def __matmul__(self, other: object) -> Self:
        return _rows().matmul(self, other)

    # -- comparison: element-wise, so that a rule can select by it; identity is `is` ----------------
    def __lt__(self, other: object) -> Self:
        return _rows().lower(self, other)

    def __le__(self, other: object) -> Self:
        return _rows().lower_equal(self, other)

    def __gt__(self, other: object) -> Self:
        return _rows().greater(self, other)

    def __ge__(self, other: object) -> Self:
        return _rows().greater_equal(self, other)

    # -- numbers that are not known yet -------------------------------------------------
    def __eq__(self, other: object) -> Any:  # of two numbers: what Python's own would say is known at run time only
        return _rows().equal(self, other) if self.is_number and isinstance(other, Number) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _rows().not_equal(self, other) if self.is_number and isinstance(other, Number) else NotImplemented

    def __hash__(self) -> int:
        if self.is_number:
            self._not_known("a key")
        return object.__hash__(self)

    def __pos__(self) -> Self:
        return self

    def __floordiv__(self, other: object) -> Any:
        return self._only_static("//")

    def __lshift__(self, other: object) -> Any:
        return self._only_static("<<")

    def __rshift__(self, other: object) -> Any:
        return self._only_static(">>")

    def __and__(self, other: object) -> Any:
        return self._only_static("&")

    def __or__(self, other: object) -> Any:
        return self._only_static("|")

    def __xor__(self, other: object) -> Any:
        return self._only_static("^")

    def __divmod__(self, other: object) -> Any:
        return self._only_static("divmod")

    __rfloordiv__, __rdivmod__, __rlshift__, __rrshift__ = __floordiv__, __divmod__, __lshift__, __rshift__
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __round__(self, digits: int | None = None) -> Any:
        if self._only_static("round") is NotImplemented:
            raise TypeError(f"{type(self).__name__} has no round(); write x.round()")

    def __format__(self, format_spec: str) -> str:
        if self.is_number:
            self._not_known("text")
        return format(str(self), format_spec)

    def _only_static(self, operation: str) -> Any:
        return self._not_known(f"an operand of {operation}") if self.is_number else NotImplemented

    def __bool__(self) -> bool:
        self._not_known("bool")

    def __float__(self) -> float:
        self._not_known("float")

    def __int__(self) -> int:
        self._not_known("int")

    def __index__(self) -> int:
        self._not_known("an index")

    def _not_known(self, what: str) -> NoReturn:
        raise TraceError(
            f"a traced value was read as {what}",
            given=f"{self.spec} at {user_line(3) or 'an unknown line'}",
            expected="operations on values; their data does not exist while a function is traced",
            mend="choose by value with mask_where, or compile the number in: compile(fn, static=('n',)) with its"
            " argument's name, or a bool",
        )

    @staticmethod
    def _fold(key: object, number: object) -> Any:
        """`core.philox.fold` where one of the two is traced."""
        return _rows().fold_key(key, number)

    # -- constants beside this value ------------------------------------------------------
    def new_full(self, shape: Shape, number: Number) -> Self:
        """A constant of this value's element type, place and backend.

        Rules write constants this way: `zeros_like(x)` would keep x alive.
        """
        spec = self.spec
        return _rows().full.run(
            self.backend, type(self), (number,), {"shape": shape, "dtype": spec.dtype, "place": spec.place}
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec}, {self.backend.name})"


Number = int | float | bool | Value


def _no_value(kind: str, given: Sequence[object], named: Mapping[str, object]) -> ArgumentError:
    written = [*map(described, given), *(f"{name}={described(value)}" for name, value in named.items())]
    return ArgumentError(
        f"{kind}: its constructors have names",
        given=f"{kind}({', '.join(written)})",
        expected=f"{kind}.from_data, {kind}.zeros, {kind}.random, ...",
        mend=f"{kind}.from_data(values, device) of numbers, {kind}.zeros(shape, device) of sizes,"
        f" {kind}.from_torch(tensor) of a tensor of torch",
    )
