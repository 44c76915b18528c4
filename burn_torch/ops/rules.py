"""Shared parts of rules of shape and type, and of gradient rules."""

from __future__ import annotations

from burn_torch.core.dtype import BOOL, FLOAT, NUMERIC, DTypeClass
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.signature import Operand
from burn_torch.ops.value import Primitive, Value

__all__ = [
    "alike",
    "axes",
    "axis",
    "broadcast_shapes",
    "elementwise",
    "front_axes",
    "front_axis",
    "same_dtype",
    "sum_to",
]


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape: axes are aligned from the last, and a size of 1 fits any.  Raises a shape fault."""
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size != 1:
                if result[i] not in (1, size):
                    raise shape_fault(
                        "the shapes do not broadcast",
                        expected="sizes that are equal or 1, axis by axis from the last; "
                        f"axis {i - ndim} has {result[i]} and {size}",
                        mend="insert axes with unsqueeze_dim, or expand one side",
                    )
                result[i] = size
    return tuple(result)


def same_dtype(*operands: Operand | None) -> None:
    """Raises a type fault unless all tensors have one element type."""
    dtypes = {spec.dtype for spec in operands if isinstance(spec, TensorSpec)}
    if len(dtypes) > 1:
        raise dtype_fault(
            "the element types differ",
            expected="one element type; nothing is converted in silence",
            mend="cast one side, for example with .cast(DType.F32)",
        )


def alike(*tensors: TensorSpec, dtypes: DTypeClass = FLOAT) -> TensorSpec:
    """The one spec that all tensors have; backward rows ask for it.  Raises faults: shapes or types that differ."""
    first = tensors[0]
    for spec in tensors:
        spec.require(dtypes)
    same_dtype(*tensors)
    if any(spec.shape != first.shape for spec in tensors):
        raise shape_fault("the shapes differ", expected="one shape", mend="expand the smaller inputs first")
    return first


def elementwise(*operands: Operand, dtypes: DTypeClass = NUMERIC) -> TensorSpec:
    """The spec of an element-wise result: broadcast shape, one element type.  A number takes the tensors' type.

    Raises faults: shapes that do not broadcast, types that differ, a fractional number beside integers.
    """
    tensors = [spec for spec in operands if isinstance(spec, TensorSpec)]
    first = tensors[0]
    for spec in tensors:
        spec.require(dtypes)
    same_dtype(*tensors)
    for number in operands:
        if isinstance(number, NumberSpec) and not _fits(number, first):
            raise dtype_fault(
                f"a {number.kind} number beside {first.dtype} values",
                expected=f"a number that {first.dtype} can hold",
                mend="convert the tensor first: .float() for fractions, .int() for whole numbers",
            )
    shape = tensors[0].shape
    for spec in tensors[1:]:
        if spec.shape != shape:
            shape = broadcast_shapes(shape, spec.shape)
    return first.with_shape(shape)


def _fits(number: NumberSpec, spec: TensorSpec) -> bool:
    if spec.dtype in FLOAT:
        return number.kind != "bool"
    if spec.dtype in BOOL:
        return number.kind == "bool"
    return number.kind == "int"


def axis(dim: int, ndim: int, name: str = "dim") -> int:
    """`dim` counted from the front.  Raises a shape fault outside [-ndim, ndim)."""
    if not -ndim <= dim < ndim:
        raise shape_fault(
            f"{name} {dim} is out of range",
            expected=f"an axis of {ndim}: {-ndim} to {ndim - 1}" if ndim else "a tensor with at least one axis",
            mend="count axes from 0, or from the end with -1",
        )
    return dim % ndim


def axes(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted.  Raises a shape fault for one out of range or named twice."""
    result = tuple(sorted(axis(dim, ndim) for dim in dims))
    if len(set(result)) < len(result):
        raise shape_fault(f"dims {dims} name an axis twice", expected="distinct axes", mend="name each axis once")
    return result


def front_axis(dim: int, ndim: int) -> int:
    """`dim`, which rows take counted from the front.  Raises a shape fault outside [0, ndim)."""
    if not 0 <= dim < ndim:
        raise shape_fault(
            f"dim {dim} is out of range",
            expected=f"an axis counted from the front: 0 to {ndim - 1}" if ndim else "a tensor with at least one axis",
            mend="Tensor methods count negative axes from the end; rows of the table do not"
            if dim < 0
            else "count axes from 0",
        )
    return dim


def front_axes(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted.  Raises a shape fault for one outside [0, ndim) or named twice."""
    return axes(tuple(front_axis(dim, ndim) for dim in dims), ndim)


# -- gradient rules -----------------------------------------------------------------------------------
def sum_to(g: Primitive, like: Primitive) -> Primitive:
    """Undoes broadcasting: sums g to the shape of an input.  None where the input is a number.

    The transpose of `expand`: Griewank and Walther 2008, section 3.
    """
    if not isinstance(like, Value) or like.is_number:
        return None
    if g.shape == like.shape:
        return g
    from burn_torch.ops.reductions import sum_to_shape

    return sum_to_shape(g, shape=like.shape)
