"""NdArray: computes on numpy arrays, on the host.

Arrays are never written after they are made.  bfloat16 and floats of 8 bits, which numpy lacks, are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.backend.base import Backend, run_decomposed
from burn_torch.backend.capabilities import Capabilities
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.held_numbers import bind_candidate, refuse_long_numbers
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.refusals import refusal
from burn_torch.ops.value import Primitive

__all__ = ["NdArray"]

Array = NDArray[Any]

_NAMES: Final = {DType.BF16: "bfloat16", DType.F8_E4M3: "float8", DType.F8_E5M2: "float8"}


@final
class ArrayCapabilities(Capabilities):
    """Those of NdArray: arrays on the host, none of them bfloat16."""

    def supports(self, dtype: DType, place: str) -> bool:
        """All types that numpy has: not bfloat16, and no float of 8 bits."""
        return dtype.is_of_numpy

    def as_array(self, primitive: Array) -> Array:
        """A view of the array."""
        return primitive.view()


@final
class NdArray(Backend):
    """The leaf over numpy.  `NdArray()` is always the same object."""

    _instance: ClassVar[NdArray | None] = None
    name: Final = "NdArray"

    def __new__(cls) -> NdArray:
        """The one leaf: equal stacks are one object."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.capabilities = ArrayCapabilities(cls._instance)
        return cls._instance

    capabilities: ArrayCapabilities

    def execute(self, call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
        """Computes with the row's numpy candidate, or with its decomposition."""
        plan = call.plans.get(NdArray)
        if plan is None:
            plan = call.plans[NdArray] = self._plan(call)
        try:
            with np.errstate(all="ignore"):  # infinities and NaN are values here, as on every other leaf
                outputs = plan(*inputs)
                if not call.multiple:
                    outputs = (outputs,)
                return [_as_array(x, spec) for x, spec in zip(outputs, call.results, strict=True)]
        except (OverflowError, MemoryError) as err:
            raise refusal(err, call, inputs) or err from None

    def _plan(self, call: Call) -> Candidate:
        for spec in (*call.specs, *call.results):
            if isinstance(spec, TensorSpec) and not spec.dtype.is_of_numpy:
                raise DTypeError(
                    f"{call.op.name}: numpy has no {_NAMES[spec.dtype]}",
                    given=repr(call),
                    expected="f64, f32, f16, integers or bool on NdArray",
                    mend="cast to f32, or use Device.cpu(), whose leaf is torch",
                )
        candidate = call.op.numpy
        if candidate is None:
            return run_decomposed(self.compile, call)
        return refuse_long_numbers(call, bind_candidate(call, candidate))

    def from_data(self, data: TensorData, place: str) -> Array:
        """Copies host data."""
        self.capabilities.check_place(place)
        if not data.dtype.is_of_numpy:
            data = self._refuse_type(data)
        return np.array(data.array, order="C", copy=True)

    def _refuse_type(self, data: TensorData) -> TensorData:
        raise DTypeError(
            f"from_data: numpy has no {_NAMES[data.dtype]}",
            given=f"data {data.shape} {data.dtype}",
            expected="f64, f32, f16, integers or bool on NdArray",
            mend="data.convert(DType.F32), or use Device.cpu(), whose leaf is torch",
        )

    def into_data(self, primitive: Array) -> TensorData:
        """Copies an array."""
        return TensorData(np.array(primitive, order="C", copy=True), DType.from_numpy(primitive.dtype))

    def spec(self, primitive: Array) -> TensorSpec:
        """Reads shape and element type off an array."""
        return TensorSpec.of(tuple(primitive.shape), DType.from_numpy(primitive.dtype), "cpu")

    def sync(self, place: str) -> None:
        """Returns at once: numpy computes before it returns."""

    def copy(self, primitive: Primitive) -> Primitive:
        """A copy."""
        return np.array(primitive, copy=True)


def _as_array(x: object, spec: TensorSpec | None) -> Array | None:
    # numpy gives scalars for shapes without axes, and widens some integer results
    if x is None:
        return None
    array = np.asarray(x)
    if spec is not None:
        assert array.shape == spec.shape, f"numpy gave {array.shape}, the rule says {spec.shape}"
        if array.dtype != spec.dtype.numpy:
            array = array.astype(spec.dtype.numpy)
    return array
