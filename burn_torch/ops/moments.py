"""Shared parts of the rows of normalisation: the type of statistics, checks, and the steps that compose them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.op import Call, Candidate, PerCall
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Sample, sample, uniform
from burn_torch.ops.selection import cast
from burn_torch.ops.shapes import reshape
from burn_torch.ops.signature import Number
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = [
    "EPS",
    "HALF",
    "affine_samples",
    "alive",
    "channels_of",
    "check_affine",
    "check_statistics",
    "in_float32",
    "like",
    "mean_over",
    "numpy_mean",
    "scaled_by",
    "statistics_dtype",
    "statistics_of",
    "wide_array",
    "widened",
]

HALF: Final = (DType.F16, DType.BF16)
EPS: Final = 1e-5


def numpy_mean(x: np.ndarray[Any, Any], axis: int | tuple[int, ...]) -> np.ndarray[Any, Any]:
    """numpy's mean with the axes kept; of nothing NaN, without numpy's warning."""
    if x.size:
        return np.asarray(np.mean(x, axis=axis, keepdims=True))
    return np.asarray(np.sum(x, axis=axis, keepdims=True) * math.nan)


# -- rules -------------------------------------------------------------------------------------------
def statistics_dtype(x: TensorSpec) -> DType:
    """The type in which means and variances of x are taken and kept."""
    return DType.F32 if x.dtype in HALF else x.dtype


def statistics_of(x: TensorSpec, shape: Shape) -> TensorSpec:
    """The spec of a mean or a variance of x."""
    return TensorSpec.of(shape, statistics_dtype(x), x.place)


def check_affine(x: TensorSpec, size: int, eps: Number | None, **parameters: TensorSpec | None) -> None:
    """Raises faults unless the parameters are (size,) of the type of x, and eps is a number."""
    same_dtype(x.require(FLOAT), *parameters.values())
    for name, spec in parameters.items():
        if spec is not None and spec.shape != (size,):
            raise shape_fault(
                f"{name} does not fit the input",
                expected=f"{name} ({size},), one number a feature",
                mend=f"make the layer for {size} features",
            )
    if isinstance(eps, NumberSpec) and eps.kind == "bool":
        raise dtype_fault("eps is a bool", expected="eps, a number such as 1e-5", mend="pass a float")


def check_statistics(x: TensorSpec, shape: Shape, *statistics: TensorSpec) -> None:
    """Raises faults unless these are statistics of x of this shape: inputs of a backward row."""
    expected = statistics_of(x, shape)
    for spec in statistics:
        if spec.shape != shape:
            raise shape_fault(
                f"statistics of shape {spec.shape} are not those of the input",
                expected=f"{shape}, here",
                mend="pass the outputs of the forward row",
            )
        if spec.dtype is not expected.dtype:
            raise dtype_fault(
                f"statistics of type {spec.dtype} beside {x.dtype} values",
                expected=f"{expected.dtype}: statistics of half types are float32",
                mend="pass the outputs of the forward row",
            )


def channels_of(x: TensorSpec) -> int:
    """The size of axis 1.  Raises a fault where there is none."""
    if x.ndim < 2:
        raise shape_fault(
            "the input has no axis of channels",
            expected="x (batch, channels, *s)",
            mend="insert an axis, for example x.unsqueeze_dim(0)",
        )
    return x.shape[1]


def alive(live: tuple[bool, ...], *specs: TensorSpec) -> tuple[TensorSpec | None, ...]:
    """The results of a row whose attribute `live` says which outputs are read."""
    if len(live) != len(specs):
        raise shape_fault(
            f"live has {len(live)} entries", expected=f"{len(specs)}, one an output", mend="leave live out"
        )
    return tuple(spec if used else None for spec, used in zip(specs, live, strict=True))


# -- candidates ----------------------------------------------------------------------------------------
def in_float32(build: Callable[[Call], Candidate], *, everywhere: bool = False) -> PerCall:
    """A candidate that computes half types in float32 on the CPU, or everywhere.

    torch's kernels for the CPU keep the statistics of half inputs in half; most of those for a GPU do not.
    """

    def wrapped(call: Call) -> Candidate:
        run = build(call)
        first = call.tensor(0)
        if first.dtype not in HALF or not (everywhere or first.place == "cpu"):
            return run
        dtypes = [None if spec is None else TO_TORCH[spec.dtype] for spec in call.results]

        def run_wide(*inputs: Primitive) -> Any:
            wide = run(*(x.float() if isinstance(x, torch.Tensor) else x for x in inputs))
            outputs = wide if call.multiple else (wide,)
            narrow = tuple(
                y if y is None or dtype is None else y.to(dtype) for y, dtype in zip(outputs, dtypes, strict=True)
            )
            return narrow if call.multiple else narrow[0]

        return run_wide

    return PerCall(wrapped)


def wide_array(x: object) -> Primitive:
    """A numpy array in float64: numpy rounds every step, so float32 would lose more than torch does.

    The leaf narrows results.
    """
    return None if x is None else np.asarray(x, np.float64)


# -- decompositions --------------------------------------------------------------------------------------
def widened(x: Primitive) -> Primitive:
    """A value in the type of its statistics."""
    return cast(x, dtype=DType.F32) if x.dtype in HALF else x


def like(x: Primitive, y: Primitive) -> Primitive:
    """y in the type of x; None stays None."""
    return y if y is None or y.dtype is x.dtype else cast(y, dtype=x.dtype)


def mean_over(x: Primitive, dims: tuple[int, ...]) -> Primitive:
    """The mean over axes, which stay with size 1; 0 over no elements."""
    return sum(x, dims=dims) * (1.0 / max(math.prod(x.shape[i] for i in dims), 1))


def scaled_by(y: object, gamma: object, beta: object, shape: Shape) -> Primitive:
    """y * gamma + beta, either of which may be None, reshaped to `shape` to stand beside y."""
    if gamma is not None:
        y = y * reshape(widened(gamma), shape=shape)
    return y if beta is None else y + reshape(widened(beta), shape=shape)


# -- samples -----------------------------------------------------------------------------------------------
def affine_samples(*shapes: Shape, features: int = -1, **attrs: object) -> list[Sample]:
    """Samples of (x, gamma, beta, eps): both parameters, gamma alone, none."""
    samples = []
    for shape in shapes:
        size = (shape[features],)
        x = uniform(-2, 2, shape)
        samples += [
            sample(x, uniform(0.5, 1.5, size), uniform(-1, 1, size), EPS, **attrs),
            sample(x, uniform(0.5, 1.5, size), None, EPS, **attrs),
            sample(x, None, None, 0.1, **attrs),
        ]
    return samples
