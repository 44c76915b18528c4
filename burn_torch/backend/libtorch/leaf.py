"""LibTorch: computes on torch tensors (CPU, CUDA, MPS).  It never uses torch's autograd."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, Final, final

import numpy as np
import torch

from burn_torch.backend.base import Backend, run_decomposed
from burn_torch.backend.capabilities import Program
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.backend.libtorch.plain import plan_of_candidate, row_candidate
from burn_torch.backend.libtorch.tensors.adoption import adopted
from burn_torch.backend.libtorch.tensors.allocator import fault_in
from burn_torch.backend.libtorch.tensors.modes import in_inference, outside, refuse_tracers, refused, unreadable
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.source import straight_line
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_types import FROM_TORCH, TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["LibTorch"]


@final
class LibTorch(Backend):
    """The leaf over torch.  `LibTorch()` is always the same object."""

    _instance: ClassVar[LibTorch | None] = None
    name: Final = "LibTorch"

    def __new__(cls) -> LibTorch:
        """The one leaf: equal stacks are one object."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.capabilities = TorchCapabilities(cls._instance)
        return cls._instance

    capabilities: TorchCapabilities

    version_expression: Final = "{}._version"
    """How generated code reads `version` of a tensor without a call."""

    # -- computing -----------------------------------------------------------------
    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Primitive]:
        """Computes with the row's torch candidate, or with its decomposition."""
        plan = call.plans.get(LibTorch) or self.plan(call)
        try:
            if in_inference():
                outputs = outside(plan, inputs)
                return outputs if call.multiple else (outputs,)
            return plan(*inputs) if call.multiple else (plan(*inputs),)
        except (OverflowError, RuntimeError, MemoryError, AssertionError) as err:
            raise refused(err, call, inputs) or err from None

    def plan(self, call: Call) -> Candidate:
        """The function that computes a Call: a value for one output, a sequence for several."""
        plan = call.plans.get(LibTorch)
        if plan is None:
            plan = call.plans[LibTorch] = plan_of_candidate(call, self.candidate(call))
        return plan

    def candidate(self, call: Call) -> Callable[..., object]:
        """Returns the function that computes a Call; a TorchCode if its source is known: a program writes it."""
        candidate: Candidate | None = call.memo.get(LibTorch)
        if candidate is None:
            candidate = _kernel_of(call) or row_candidate(call) or run_decomposed(self.compile, call)
            call.memo[LibTorch] = candidate
        return candidate

    def compile(self, graph: Graph, donate: Collection[int] = ()) -> Callable[..., Sequence[Primitive]]:
        """Straight-line Python over the plans of the graph's Calls: quick to make, for rules and small graphs."""

        def emit(node: Node, inputs: Sequence[str], name: Callable[[object], str]) -> str:
            return f"{name(self.plan(node.call))}({', '.join(inputs)})"

        return straight_line(graph, emit, unless=(in_inference, outside))

    def program(self, graph: Graph, donate: Collection[int] = (), *, title: str = "") -> Program:
        """Readable Python over torch's own functions, in place where that is legal; see `programs/program.py`."""
        return self.capabilities.program(graph, donate, title=title)

    # -- data ------------------------------------------------------------------------
    def from_data(self, data: TensorData, place: str) -> torch.Tensor:
        """Copies host data to `place`."""
        self.capabilities.check_place(place)
        refuse_tracers("from_data")
        if in_inference():
            return outside(self.from_data, (data, place))
        if data.array.nbytes >= _LARGE and (tensor := _copy_array(data, place)) is not None:
            return tensor
        # seen as its own type again: numpy has two equal ones of 64 bits, of which torch knows one
        array = np.array(data.array, order="C", copy=True).view(data.dtype.numpy)
        tensor = self.share(TensorData(array, data.dtype))
        return tensor if place == "cpu" else tensor.to(place)

    def share(self, data: TensorData) -> torch.Tensor:
        """Host data as a tensor on the same memory, which must be writable and nobody else's."""
        if data.dtype.is_of_numpy:
            return torch.from_numpy(data.array)
        bits = data.array.view(_BITS[data.dtype.itemsize])
        return torch.from_numpy(bits).view(TO_TORCH[data.dtype]).reshape(data.shape)

    def widened(self, data: TensorData, dtype: DType, place: str) -> torch.Tensor:
        """A copy of host data in a wider float type, which holds each value: torch takes one pass, numpy three."""
        self.capabilities.check_place(place)
        if in_inference():
            return outside(self.widened, (data, dtype, place))
        if data.array.nbytes >= _LARGE and (tensor := _copy_array(data, place, TO_TORCH[dtype])) is not None:
            return tensor
        return self.from_data(data.convert(dtype), place)

    def into_data(self, primitive: torch.Tensor) -> TensorData:
        """Copies a tensor to the host; waits for its device."""
        dtype = FROM_TORCH[primitive.dtype]
        try:
            host = primitive.detach().cpu()
            if not dtype.is_of_numpy:
                bits = host.contiguous().view(_WORDS[dtype.itemsize]).numpy()
                return TensorData(bits.view(dtype.numpy).copy(), dtype)
            array = host.numpy()
        except (RuntimeError, AssertionError) as err:
            raise unreadable("into_data", (primitive,)) or err from None
        return TensorData(array.copy() if primitive.device.type == "cpu" else array, dtype)

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A torch tensor as a primitive: shares its memory.  Raises: what `adoption.py` refuses."""
        return adopted(tensor)

    def spec(self, primitive: torch.Tensor) -> TensorSpec:
        """Reads shape, element type and place off a tensor (0.3 us)."""
        return TensorSpec.of(tuple(primitive.shape), FROM_TORCH[primitive.dtype], place_of(primitive.device))

    def sync(self, place: str) -> None:
        """Waits for the device's queue; a CPU has none."""
        if place.startswith("cuda"):
            torch.cuda.synchronize(place)
        elif place == "mps":
            torch.mps.synchronize()

    def copy(self, primitive: torch.Tensor) -> torch.Tensor:
        """A clone in its own layout."""
        return outside(torch.clone, (primitive,)) if in_inference() else primitive.clone()

    def version(self, primitive: object) -> int:
        """torch's own count of writes in place."""
        return primitive._version if isinstance(primitive, torch.Tensor) else 0


def _kernel_of(call: Call) -> Candidate | None:
    """The kernel of a Call, of a table that is imported for GPUs and for generated kernels alone."""
    if call.op.name.startswith("fusion::") or any(place.startswith("cuda") for place in _places(call)):
        from burn_torch.backend.libtorch.attached.table import attached

        return attached(call)
    return None


def _places(call: Call) -> set[str]:
    return {spec.place for spec in call.results if isinstance(spec, TensorSpec)}


def place_of(device: torch.device) -> str:
    """A torch device as a place string: "cpu", "cuda:0", "mps"."""
    if device.type == "cuda":
        return f"cuda:{device.index if device.index is not None else torch.cuda.current_device()}"
    return device.type


assert set(TO_TORCH) >= set(FROM_TORCH.values())


_LARGE: Final = 1 << 20
"""Bytes from which torch copies: numpy asks the system for huge pages, whose zeros cost twice the copy."""
_BITS: Final = {1: np.uint8, 2: np.int16}
"""Types of numpy that torch knows, for the bits of floats that numpy lacks."""
_WORDS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _copy_array(data: TensorData, place: str, dtype: torch.dtype | None = None) -> torch.Tensor | None:
    """A copy of a contiguous array or of the transpose of one, in another type if one is given; None for others."""
    turned = data.array.ndim == 2 and not data.array.flags.c_contiguous
    array = data.array.T if turned else data.array
    if not array.flags.c_contiguous:
        return None
    # torch.from_numpy warns of memory that is read-only, as that of a mapped file is; this one is read alone
    memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)
    words = torch.frombuffer(memory, dtype=_WORDS[data.dtype.itemsize]).view(array.shape)
    if turned:  # torch turns a matrix on one thread, and would meet its pages one by one
        copy = torch.empty(array.shape[::-1], dtype=words.dtype, device="cpu")
        fault_in(copy.data_ptr(), copy.nbytes)
        words = copy.copy_(words.t())
    values = words.view(TO_TORCH[data.dtype])
    if dtype is not None and dtype != values.dtype:
        return values.to(dtype).to(place)
    return values.clone() if place == "cpu" and not turned else values.to(place)
