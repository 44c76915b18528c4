"""Numbers at the edges of each type, and what element-wise rows and their gradients make of them beside the leaves."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from burn_torch.backend import LibTorch, NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion.planning.bodies import Role, role_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import REGISTRY, Op
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.checking import TOLERANCE, in_float64
from tests.fusion.programs import tensor, traced

__all__ = ["Run", "check_gradients", "check_rows", "element_wise_calls", "extremes"]

Run = Callable[[Graph], Callable[..., Sequence[torch.Tensor]]]
"""Makes a function of a graph's inputs, tensors of the host and numbers, that gives tensors of the host."""

A_KERNEL, GRADIENTS = 8, 5
"""Rows, and gradients, that one kernel computes: compilers take their time, and a kernel takes so many tensors."""

CANCEL = (
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("gelu_backward", "gelu_approximate_backward", "mish_backward", "silu_backward"),
)
"""Rows whose terms nearly cancel at some pairs: what is left has few digits in every implementation."""

LEFT_OUT = ("cast", "clone")

UNSIGNED = ("maximum", "minimum", "binary_cross_entropy", "gelu_backward", "mish_backward", "softplus")
"""Rows of which the libraries leave the sign of zero open, or make 0 of a sum of terms or a division by -inf."""

UNSIGNED_ON_CUDA = ("clamp", "clamp_min", "clamp_max", "relu")
"""Rows for which a GPU's minimum and maximum (-0.0 is less than 0.0) leave another zero than a comparison."""

NUMBERS = [(0.375, 0.75), (-0.7, 0.3), (0.0, float("inf")), (1e-40, float("nan"))]
if os.environ.get("BURN_TORCH_SLOW") == "1":
    NUMBERS += [(-2.0, -1.0), (1e-3, 5.0), (0.0, 0.0), (1e30, 1e30), (float("inf"), 1.0)]
    NUMBERS += [(-float("inf"), float("inf")), (float("nan"), 1.0), (1.0, 1e-40)]


def extremes(dtype: DType) -> list[Any]:
    """Zeros of both signs, infinities, NaN, the least and the largest numbers, ties of rounding, widths of shifts."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        info = torch.finfo(TO_TORCH[dtype])
        sizes = [0.0, float("inf"), 1.0, 0.5, 1.5, 2.5, 7.0, 20.0, 50.0, 80.0, 95.0, 100.0, 1 / 3, 0.999]
        sizes += [info.tiny, info.tiny * 7 * info.eps, info.max, info.max / 2, info.max**0.5, info.eps]
        return [float("nan"), *sizes, *(-size for size in sizes)]
    whole = torch.iinfo(TO_TORCH[dtype])
    sizes = [0, 1, 2, 3, 7, 31, 32, 63, 64, whole.max, whole.max - 1, whole.min, whole.min + 1]
    return sorted({*sizes, *([-1, -2, -7] if whole.min else [200, 255])})


class Case(NamedTuple):
    """A function of a row, and inputs that it is called with: the same tensors, one set of numbers after the other."""

    name: str
    function: Callable[..., Any]
    specs: list[Spec]
    calls: list[list[Any]]


def check_rows(dtype: DType, run: Run, place: str = "cpu") -> int:
    """Compares kernels of each row at all pairs of extremes with the leaves; how many rows there are.

    On a GPU what is computed in float32 takes denormal numbers for zeros in some functions, on the way too.
    """
    return _check_cases(list(_cases(dtype)), run, place, A_KERNEL)


def check_gradients(dtype: DType, run: Run, place: str = "cpu") -> int:
    """Compares kernels of each row's gradient, upstream gradients extreme too; how many there are."""
    return _check_cases(list(_gradients(dtype)), run, place, GRADIENTS)


def _check_cases(cases: Sequence[Case], run: Run, place: str, together: int) -> int:
    on_cuda, wrong = place.startswith("cuda"), list[str]()
    for begin in range(0, len(cases), together):
        some = cases[begin : begin + together]
        specs = [
            tensor(*spec.shape, dtype=spec.dtype, place=place) if isinstance(spec, TensorSpec) else spec
            for case in some
            for spec in case.specs
        ]
        counts: list[int] = []

        def compute(*xs: Any, some: Any = tuple(some), counts: Any = counts) -> Any:
            waiting = iter(xs)
            outputs: list[Any] = []
            for case in some:
                ys = case.function(*[next(waiting) for _ in case.specs])
                outputs += ys if isinstance(ys, tuple) else [ys]
                counts.append(len(outputs))
            return tuple(outputs)

        kernel = run(traced(compute, specs))
        alone = [traced(case.function, case.specs) for case in some]
        for nth in range(max(len(case.calls) for case in some)):
            calls = [case.calls[nth % len(case.calls)] for case in some]
            results = kernel(*[x for call in calls for x in call])
            for case, graph, call, end, start in zip(some, alone, calls, counts, [0, *counts], strict=False):
                if nth < len(case.calls):
                    references = _references(graph, call)
                    if on_cuda and _in_float32(call):
                        torch.set_flush_denormal(True)
                        references.append(interpret(graph, LibTorch(), call))
                        torch.set_flush_denormal(False)
                    wrong += _wrong(case.name, results[start:end], references, call, on_cuda)
    assert not wrong, "\n".join(wrong)
    return len(cases)


# -- cases -----------------------------------------------------------------------------------------
def element_wise_calls(dtype: DType) -> Iterator[Case]:
    """Each element-wise row of a type at its extremes, those that no kernel computes too."""
    for op, kinds in _rows():
        specs, calls = _inputs(op, kinds, dtype, kinds)
        if _is_traced(op, specs):
            yield Case(op.name, op, specs, calls)


def _cases(dtype: DType) -> Iterator[Case]:
    for op, kinds in _rows():
        specs, calls = _inputs(op, kinds, dtype, kinds)
        if not dtype.is_float and op.name in ("div", "remainder", "fmod", "pow"):  # which no kernel computes
            continue
        if _is_traced(op, specs) and _is_computed(op, specs):
            yield Case(op.name, op, specs, calls)


def _gradients(dtype: DType) -> Iterator[Case]:
    for op, kinds in _rows():
        rule: Any = op.gradient_rule
        if rule is None:
            continue
        specs, calls = _inputs(op, kinds, dtype, ("tensor", *kinds))

        def gradient(g: Any, *xs: Any, op: Any = op, rule: Any = rule) -> Any:
            parts = rule(g, op(*xs), *xs)
            return tuple(p for p in (parts if isinstance(parts, tuple) else (parts,)) if hasattr(p, "spec"))

        if _is_traced(gradient, specs) and _is_computed(gradient, specs):
            yield Case(f"gradient of {op.name}", gradient, specs, calls)


def _rows() -> Iterator[tuple[Op, tuple[str, ...]]]:
    """Element-wise rows and kinds of their inputs, with a number in the place of each operand that may be one."""
    for name, op in REGISTRY.items():
        if op.pointwise is None or name in LEFT_OUT or "::" in name:  # rows of other tests
            continue
        kinds = tuple(kind for _, kind in op.signature.inputs)
        yield op, kinds
        for position in [n for n, kind in enumerate(kinds) if kind == "operand"]:
            yield op, (*kinds[:position], "number", *kinds[position + 1 :])


def _inputs(op: Op, of: Sequence[str], dtype: DType, kinds: Sequence[str]) -> tuple[list[Spec], list[list[Any]]]:
    columns = list(zip(*itertools.product(extremes(dtype), repeat=2), strict=True))
    size = len(columns[0])
    columns += [tuple(reversed(columns[0][: size // 2] * 3))[:size], tuple(columns[1][3:] + columns[1][:3])]
    waiting = iter(columns)
    number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER
    specs: list[Spec] = [number if kind == "number" else tensor(size, dtype=dtype) for kind in kinds]
    tensors = [None if kind == "number" else torch.tensor(next(waiting), dtype=TO_TORCH[dtype]) for kind in kinds]
    if op.name == "mask_where":  # whose input has no gradient
        mask = len(kinds) - len(of) + 1
        specs[mask], tensors[mask] = tensor(size, dtype=DType.BOOL), tensors[mask] > 0
    calls: list[list[Any]] = []
    for one, other in _numbers(dtype):
        numbers = iter([one, other] * 2)
        calls.append([next(numbers) if x is None else x for x in tensors])
    return specs, calls if "number" in kinds else calls[:1]


def _numbers(dtype: DType) -> list[tuple[Any, Any]]:
    """Pairs of numbers, as the type holds them: of a remainder another last digit changes everything."""
    if not dtype.is_float:
        return [(3, 5)]
    held = [tuple(torch.tensor(pair, dtype=TO_TORCH[dtype]).tolist()) for pair in NUMBERS]
    return [(a, b) for (a, b), pair in zip(held, NUMBERS, strict=True) if np.isinf(a) == np.isinf(pair[0])]


def _is_computed(function: Callable[..., Any], specs: list[Spec]) -> bool:
    """Asks whether one kernel can compute all of it."""
    return all(role_of(node.call)[0] == Role.COMPUTES for node in traced(function, specs).nodes)


def _is_traced(function: Callable[..., Any], specs: list[Spec]) -> bool:
    """Asks whether the row takes this type, and its results are no inputs."""
    try:
        graph = traced(function, specs)
    except BurnTorchError:
        return False
    return bool(graph.outputs) and not set(graph.outputs) & {i for i, _ in graph.inputs}


# -- comparing --------------------------------------------------------------------------------------
def _references(graph: Graph, inputs: list[Any]) -> list[Sequence[torch.Tensor]]:
    """Returns the results of the leaves and of float64: they differ where a result overflows on the way."""
    with np.errstate(all="ignore"):
        references = [interpret(graph, LibTorch(), inputs), in_float64(graph, inputs)]
        if not any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in inputs):  # numpy has none
            arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in inputs]
            references.append([torch.from_numpy(np.asarray(y)) for y in interpret(graph, NdArray(), arrays)])
    return references


def _in_float32(inputs: list[Any]) -> bool:
    """Asks whether a kernel computes these in float32."""
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() and x.itemsize < 8 for x in inputs)


def _denormal(inputs: list[Any], length: int) -> torch.Tensor:
    """Returns the mask of elements where an input is a denormal number of float32."""
    tiny, where = torch.finfo(torch.float32).tiny, torch.zeros(length, dtype=torch.bool)
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            where |= (x.float().abs() < tiny) & (x != 0)
        elif isinstance(x, float):
            where |= torch.tensor(0 < abs(x) < tiny)
    return where


def _wrong(
    name: str,
    results: Sequence[torch.Tensor],
    references: Sequence[Sequence[torch.Tensor]],
    inputs: list[Any],
    on_cuda: bool,
) -> Iterator[str]:
    """In words, which results are as none of the references."""
    for nth, y in enumerate(results):
        wanted = [reference[nth] for reference in references]
        right = _right(name, y, wanted, inputs, on_cuda)
        if on_cuda and _in_float32(inputs):
            right |= _denormal(inputs, len(right))
        wrong = (~right).nonzero().flatten().tolist()
        if wrong:
            at = [tuple(x[n].item() if isinstance(x, torch.Tensor) else x for x in inputs) for n in wrong[:3]]
            values = [[z[n].item() for z in (y, *wanted)] for n in wrong[:3]]
            yield f"{name}: {len(wrong)} of {y.dtype}, at {at}: it, the leaf, float64, numpy: {values}"


def _right(
    name: str, y: torch.Tensor, references: Sequence[torch.Tensor], inputs: list[Any], on_cuda: bool
) -> torch.Tensor:
    right = torch.zeros(y.shape, dtype=torch.bool)
    if not y.is_floating_point():
        for z in references:
            right |= y == z
        return right
    dtype = next(ours for ours, theirs in TO_TORCH.items() if theirs is y.dtype)
    cancels = name in CANCEL or name.startswith("gradient")
    tiny = torch.finfo(y.dtype).tiny
    for z in references:
        exact = z.to(y.dtype).double()
        size = exact.abs()
        if cancels:
            tensors = [x.double().abs() for x in inputs if isinstance(x, torch.Tensor)]
            size = sum((x.nan_to_num(0.0, posinf=0.0) for x in tensors), size + 1.0)
        near = (y.double() - exact).abs() <= TOLERANCE[dtype] * size + 2 * tiny
        right |= near | (y.double() == exact) | (y.isnan() & exact.isnan())
        if name.startswith("gradient"):  # of a product that overflows on the way the rest is infinite or NaN
            right |= ~y.isfinite() & ~exact.isfinite()
    if not cancels and name not in (*UNSIGNED, *(UNSIGNED_ON_CUDA if on_cuda else ())):
        for negative in (False, True):
            agreed = torch.stack([(z == 0) & (z.signbit() == negative) for z in references]).all(0)
            right &= ~agreed | (y != 0) | (y.signbit() == negative)
    return right
