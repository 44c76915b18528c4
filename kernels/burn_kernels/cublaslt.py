"""cuBLASLt's products with work in their ending, which torch has no operator for.

    y, z = product(x, w, bias, ending="gelu_kept")        z = x w + bias, y = gelu_tanh(z): one kernel writes both
    dz = product(dy, w.T, ending="gelu_slope", kept=z)    dz = (dy w^T) * gelu_tanh'(z): no kernel of its own

The library is the one that torch has loaded, called through its C interface; a handle for each device.  Operands are
matrices with neighbours in memory along one of their two axes, all of one type; results are packed rows.  Sums, and
what the ending computes, are float32: z is rounded once, y comes from the z that is not.

cuBLASLt proposes several algorithms for a problem, the best first as its model says; `rank` takes another one.
How many there are depends on the version: a rank beyond the last one is the last one.
Limit: arithmetic; an ending adds what it reads and writes, overlapped with the products of other tiles.
Source: Nvidia, cuBLAS 13, the C interface of cublasLtMatmul; numbers of its enumerations from cublasLt.h.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor

from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelLimitError, KernelShapeError
from burn_kernels.launch import describe

__all__ = [
    "ENDINGS",
    "Layout",
    "Library",
    "Problem",
    "available",
    "layout_of",
    "library",
    "problem_of",
    "product",
    "proposals",
]

ENDINGS: Final[dict[str, int]] = {
    "none": 1,
    "bias": 4,
    "gelu_kept": 32 | 128,
    "gelu_slope": 64 | 128,
    "gelu_slope_and_sums": 64 | 128 | 16,
    "sums": 256,
}
"""The number of an ending; `gelu_kept` with a bias is 4 more.  Those with sums also give the sum of each column."""

WORKSPACE_BYTES: Final = 32 << 20
"""The workspace that an algorithm may take: the size that cuBLAS itself has on a Hopper."""

_SOMEWHERE: Final = 1 << 20
"""An address that nobody reads."""
_TYPES: Final = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
_SUMS_FLOAT32, _SUMS_TF32 = 68, 77
_KEPT = ("gelu_kept", "gelu_slope", "gelu_slope_and_sums")
_SUMMED = ("gelu_slope_and_sums", "sums")


# -- numbers of the C interface ------------------------------------------------------------------------
class _Of:
    """Attributes of the description of a product."""

    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LD = 3, 4, 7, 8, 11, 12


class _Search:
    """Attributes of a search for algorithms."""

    WORKSPACE_BYTES, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm, opaque, and what it takes."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


# -- problems --------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class Layout:
    """A matrix as cuBLASLt sees it: columns of `rows` neighbours, `step` elements apart."""

    rows: int
    cols: int
    step: int


@final
@dataclass(frozen=True)
class Problem:
    """The product for which algorithms are chosen.

    The library's matrices lie column by column, so the result of ours, row by row, is the transpose of its own: its
    first operand is our second.  `turned` says of each of its operands whether it is read across.
    """

    first: Layout
    second: Layout
    result: Layout
    turned: tuple[bool, bool]
    dtype: torch.dtype
    result_dtype: torch.dtype
    ending: str = "none"
    bias: bool = False
    adds: bool = False
    tf32: bool = False

    @property
    def epilogue(self) -> int:
        """The library's number of the ending."""
        return ENDINGS[self.ending] | (4 if self.bias and self.ending == "gelu_kept" else 0)


def layout_of(x: Tensor) -> tuple[Layout, bool]:
    """A matrix of ours as the library sees it, and whether that is its transpose (rows that are packed) or itself.

    Raises: KernelLimitError where neighbours in memory lie along neither axis.
    """
    rows, cols = x.shape
    if x.stride(1) == 1 or cols == 1:
        return Layout(cols, rows, max(x.stride(0) if rows > 1 else cols, cols, 1)), True
    if x.stride(0) == 1 or rows == 1:
        return Layout(rows, cols, max(x.stride(1), rows, 1)), False
    raise KernelLimitError(
        "cublaslt: a matrix whose elements are all apart",
        given=f"shape {tuple(x.shape)}, strides {x.stride()}",
        expected="neighbours in memory along one of the axes",
        mend="x.contiguous()",
    )


def problem_of(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    ending: str = "none",
    kept: Tensor | None = None,
    out: Tensor | None = None,
    adds: bool = False,
) -> Problem:
    """The problem x w with an ending, checked.  Arguments as of `product`.

    Raises: KernelShapeError, KernelDTypeError, KernelArgumentError, KernelLimitError, each with all that was given.
    """
    there = {"x": x, "w": w, "bias": bias, "kept": kept, "out": out}
    _check(x, w, bias, ending, kept, out, there, adds=adds)
    rows, cols = x.shape[0], w.shape[1]
    (first, w_turned), (second, x_turned) = layout_of(w), layout_of(x)
    result = Layout(cols, rows, cols if out is None else layout_of(out)[0].step)
    kind = x.dtype if out is None else out.dtype
    from burn_kernels.matmul import in_tf32

    tf32 = in_tf32(x)
    turned = (not w_turned, not x_turned)
    return Problem(first, second, result, turned, x.dtype, kind, ending, bias is not None, adds, tf32)


def _check(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    ending: str,
    kept: Tensor | None,
    out: Tensor | None,
    there: dict[str, Tensor | None],
    *,
    adds: bool,
) -> None:
    if ending not in ENDINGS:
        raise KernelArgumentError(
            "cublaslt: no such ending", given=repr(ending), expected=", ".join(ENDINGS), mend="take one of these"
        )
    faults = []
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[0] or 0 in (*x.shape, *w.shape):
        faults.append("x (rows, inner) and w (inner, cols) with elements")
    else:
        result = (x.shape[0], w.shape[1])
        if bias is not None and tuple(bias.shape) != result[1:]:
            faults.append(f"bias {result[1:]}")
        if kept is not None and (tuple(kept.shape) != result or not kept.is_contiguous()):
            faults.append(f"kept {result}, packed")
        if out is not None and (tuple(out.shape) != result or out.stride(1) != 1):
            faults.append(f"out {result}, packed along its rows")
    if faults:
        raise KernelShapeError(
            "cublaslt: the sizes do not fit",
            given=describe(there),
            expected="; ".join(faults),
            mend="pass matrices that belong together",
        )
    wanted = []
    if (bias is not None) != (ending == "bias") and ending != "gelu_kept":
        wanted.append("a bias with the ending bias, may be with gelu_kept, with no other")
    if (kept is not None) != ending.startswith("gelu_slope"):
        wanted.append("`kept` with the endings gelu_slope, with no other")
    if adds and out is None:
        wanted.append("`out` where something is added to it")
    if wanted:
        raise KernelArgumentError(
            f"cublaslt: arguments that the ending {ending} does not take",
            given=", ".join(name for name, t in there.items() if t is not None) + (", adds" if adds else ""),
            expected="; ".join(wanted),
            mend="see the table of ENDINGS",
        )
    kinds = {t.dtype for t in (x, w, bias, kept) if t is not None}
    results = {x.dtype} if out is None else {x.dtype, torch.float32}
    if len(kinds) > 1 or x.dtype not in _TYPES or (out is not None and out.dtype not in results):
        raise KernelDTypeError(
            "cublaslt: the element types do not fit",
            given=describe(there),
            expected="float32, float16 or bfloat16, all the same; out may be float32",
            mend="cast with x.to(dtype)",
        )


# -- the library -----------------------------------------------------------------------------------------
def available() -> bool:
    """Tells if the library is there: torch for CUDA, with a GPU."""
    return torch.version.cuda is not None and torch.cuda.is_available() and library() is not None


@functools.lru_cache(maxsize=1)
def library() -> Library | None:
    """The library of torch's version of CUDA, which torch has loaded; None where there is none."""
    if torch.version.cuda is None:
        return None
    try:
        return Library(ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}"))
    except OSError:
        return None


@final
class Library:
    """The functions that this file calls; each raises KernelLimitError where the library says no."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._found: Final = loaded
        loaded.cublasLtMatmul.argtypes = [*[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p]

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function that returns a status.  Raises: KernelLimitError for any but success."""
        status = getattr(self._found, name)(*arguments)
        if status != 0:
            raise KernelLimitError(
                f"cublaslt: {name} failed",
                given=f"status {status}, {_STATUS.get(status, 'of no name known here')}",
                expected="0, success",
                mend="compute the product and what follows it one after the other",
            )

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """The object that a function of the library has made."""
        address = ctypes.c_void_p()
        self.call(name, ctypes.byref(address), *arguments)
        return address

    def set(self, name: str, what: ctypes.c_void_p, number: int, value: Any) -> None:
        """Sets an attribute of something."""
        self.call(name, what, ctypes.c_int(number), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def described(self, problem: Problem) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        """The library's descriptions of a problem: of the product, and of both operands and the result."""
        sums = _SUMS_TF32 if problem.tf32 else _SUMS_FLOAT32
        descriptor = self.made("cublasLtMatmulDescCreate", ctypes.c_int(sums), ctypes.c_int(_TYPES[torch.float32]))
        of = functools.partial(self.set, "cublasLtMatmulDescSetAttribute", descriptor)
        of(_Of.TRANSA, ctypes.c_int32(problem.turned[0]))
        of(_Of.TRANSB, ctypes.c_int32(problem.turned[1]))
        of(_Of.EPILOGUE, ctypes.c_uint32(problem.epilogue))
        somewhere = ctypes.c_void_p(_SOMEWHERE)  # the search looks whether there is an address, and how it is aligned
        if problem.bias or problem.ending in _SUMMED:
            of(_Of.BIAS_POINTER, somewhere)
        if problem.ending in _KEPT:
            of(_Of.AUX_LD, ctypes.c_int64(problem.result.rows))
            of(_Of.AUX_POINTER, somewhere)
        kinds = (problem.dtype, problem.dtype, problem.result_dtype)
        layouts = [
            self.made(
                "cublasLtMatrixLayoutCreate",
                ctypes.c_int(_TYPES[kind]),
                ctypes.c_uint64(layout.rows),
                ctypes.c_uint64(layout.cols),
                ctypes.c_int64(layout.step),
            )
            for kind, layout in zip(kinds, (problem.first, problem.second, problem.result), strict=True)
        ]
        return descriptor, layouts


_STATUS: Final = {1: "not initialized", 3: "no memory", 7: "invalid value", 8: "wrong architecture",
                  13: "execution failed", 14: "internal error", 15: "not supported"}  # fmt: skip


# -- products --------------------------------------------------------------------------------------------
Made = tuple[Tensor, Tensor | None]


def product(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    ending: str = "none",
    kept: Tensor | None = None,
    out: Tensor | None = None,
    adds: bool = False,
    rank: int = 0,
) -> Made:
    """x w with an ending, and the second result of those that have one, else None.

        none                 x w                          | bias          x w + bias
        gelu_kept            gelu(z), z = x w (+ bias)    | sums          x w, the sum of each column of w
        gelu_slope           (x w) * gelu'(kept)          | gelu_slope_and_sums     the same, the sums of its columns

    Shapes: x (rows, inner), w (inner, cols), bias (cols,), kept, out (rows, cols).  GELU in the form of tanh.
    Dtypes: float32 (in tf32 where torch's products are), float16, bfloat16, all alike; `out` may be float32.
    adds  adds the product to what is in `out`.
    rank  which of the library's proposals computes, from 0.
    Raises: the errors of `problem_of`; KernelLimitError where the library does not compute this.
    """
    problem = problem_of(x, w, bias, ending=ending, kept=kept, out=out, adds=adds)
    plan = _plan(problem, _alignment(x, w, bias, kept, out), x.get_device())
    rows, cols = x.shape[0], w.shape[1]
    y = torch.empty(rows, cols, dtype=problem.result_dtype, device=x.device) if out is None else out
    other: Tensor | None = None
    if ending == "gelu_kept":
        other = torch.empty_like(y)
    elif ending in _SUMMED:
        other = torch.empty(cols, dtype=y.dtype, device=x.device)
    beside = bias if bias is not None else other if ending in _SUMMED else None
    aux = other if ending == "gelu_kept" else kept
    plan.run(x, w, y, beside, aux, rank)
    return y, other


def proposals(problem: Problem, index: int) -> int:
    """How many algorithms the library proposes for a problem on the GPU with this number; none where it refuses."""
    try:
        return len(_plan(problem, 16, index).proposals)
    except KernelLimitError:
        return 0


MOST_PROPOSALS: Final = 16


@final
class _Plan:
    """A problem on one device: its descriptions, and what the library proposes."""

    def __init__(self, problem: Problem, alignment: int, index: int) -> None:
        handle = library()
        if handle is None:
            raise KernelLimitError(
                "cublaslt: the library is not there",
                given=f"torch for {torch.version.cuda or 'no CUDA'}",
                expected="torch for CUDA, with its libraries",
                mend="compute the product and what follows it one after the other",
            )
        self.library: Final = handle
        self.problem: Final = problem
        self.index: Final = index
        self.guard: Final = threading.Lock()
        with torch.cuda.device(index):
            self.handle: Final = _handle(index)
            self.description, self.layouts = handle.described(problem)
            self.proposals: Final = self._propose(alignment)
        self.alpha, self.beta = ctypes.c_float(1.0), ctypes.c_float(float(problem.adds))

    def _propose(self, alignment: int) -> list[_Proposal]:
        handle = self.library
        search = handle.made("cublasLtMatmulPreferenceCreate")
        of = functools.partial(handle.set, "cublasLtMatmulPreferenceSetAttribute", search)
        of(_Search.WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES))
        of(_Search.REDUCTIONS, ctypes.c_uint32(_reductions(self.problem.dtype)))
        for number in _Search.ALIGNMENTS:
            of(number, ctypes.c_uint32(alignment))
        results, count = (_Proposal * MOST_PROPOSALS)(), ctypes.c_int()
        first, second, result = self.layouts
        try:
            handle.call(
                "cublasLtMatmulAlgoGetHeuristic",
                self.handle,
                self.description,
                first,
                second,
                result,
                result,
                search,
                ctypes.c_int(MOST_PROPOSALS),
                results,
                ctypes.byref(count),
            )
        finally:
            handle.call("cublasLtMatmulPreferenceDestroy", search)
        return [p for p in results[: count.value] if p.state == 0]

    def run(self, x: Tensor, w: Tensor, y: Tensor, beside: Tensor | None, aux: Tensor | None, rank: int) -> None:
        """Launches the product on the current stream."""
        if not self.proposals:
            raise KernelLimitError(
                "cublaslt: no algorithm computes this",
                given=str(self.problem),
                expected="at least one proposal",
                mend="compute the product and what follows it one after the other",
            )
        chosen = self.proposals[min(rank, len(self.proposals) - 1)]
        size = chosen.workspace_bytes
        space = torch.empty(size, dtype=torch.uint8, device=y.device) if size else None
        first, second, result = self.layouts
        with self.guard, torch.cuda.device(self.index):  # descriptions hold addresses until the launch has read them
            for number, tensor in ((_Of.BIAS_POINTER, beside), (_Of.AUX_POINTER, aux)):
                if tensor is not None:
                    at = ctypes.c_void_p(tensor.data_ptr())
                    self.library.set("cublasLtMatmulDescSetAttribute", self.description, number, at)
            self.library.call(
                "cublasLtMatmul",
                self.handle,
                self.description,
                ctypes.addressof(self.alpha),
                w.data_ptr(),
                first,
                x.data_ptr(),
                second,
                ctypes.addressof(self.beta),
                y.data_ptr(),
                result,
                y.data_ptr(),
                result,
                ctypes.addressof(chosen.algorithm),
                None if space is None else space.data_ptr(),
                size,
                torch.cuda.current_stream(self.index).cuda_stream,
            )


@functools.lru_cache(maxsize=512)
def _plan(problem: Problem, alignment: int, index: int) -> _Plan:
    return _Plan(problem, alignment, index)


@functools.lru_cache(maxsize=64)
def _handle(index: int) -> ctypes.c_void_p:
    """A handle of the device, which is the current one; it lasts as long as the process."""
    handle = library()
    assert handle is not None
    return handle.made("cublasLtCreate")


def _alignment(*tensors: Tensor | None) -> int:
    """The largest power of two up to 16 that divides all addresses."""
    bits = functools.reduce(lambda b, t: b | (0 if t is None else t.data_ptr()), tensors, 16)
    return bits & -bits


def _reductions(dtype: torch.dtype) -> int:
    """How parts of a sum may be added: as they are summed, or, where torch allows it, in the type of the result."""
    settings = torch.backends.cuda.matmul
    short = {
        torch.float16: settings.allow_fp16_reduced_precision_reduction,
        torch.bfloat16: settings.allow_bf16_reduced_precision_reduction,
    }
    return 2 | (4 if short.get(dtype, False) else 0)
