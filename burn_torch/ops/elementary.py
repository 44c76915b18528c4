"""The functions that `pointwise` templates may call: how each kernel writes them, and what numpy gives.

    "rsqrt": Elementary(
        triton=Forms(single="(1.0 / tl.sqrt_rn({0}))", half="tl.rsqrt({0})", double="(1.0 / tl.sqrt({0}))"),
        c=Forms(single="(1.0f / __builtin_sqrtf({0}))", double="(1.0 / __builtin_sqrt({0}))"),
        numpy=lambda x: 1.0 / np.sqrt(x),
    )

This is the only place that lists them.  The writers of Triton and of C put the texts of the operands into a form; a
function that stands in a form without `tl.` or `__builtin_` is the library's own, and a kernel takes it along.  A
function that no language has can be written once for all, in steps: see `erfinv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.ops import special

__all__ = ["ELEMENTARY", "Elementary", "Forms"]


@final
@dataclass(frozen=True)
class Forms:
    """One function in one language, by the type that a kernel computes in; None where that language has no such form.

    single    on float32
    half      on float32, where the result is rounded to float16: fewer digits are needed; `single` where left out
    bfloat    on float32, where it is rounded to bfloat16; `half` where left out
    double    on float64
    integral  on integers and booleans
    """

    single: str | None = None
    half: str | None = None
    bfloat: str | None = None
    double: str | None = None
    integral: str | None = None

    def of(self, kind: DType, rounded: DType | None = None) -> str | None:
        """The form for values computed in `kind`, float32 or wider, whose result is rounded to a half type, or not."""
        if kind is DType.F64:
            return self.double
        if kind is not DType.F32:
            return self.integral
        if rounded is None:
            return self.single
        return (self.bfloat if rounded is DType.BF16 else None) or self.half or self.single

    def __iter__(self) -> Iterator[str]:
        every = (self.single, self.half, self.bfloat, self.double, self.integral)
        return (form for form in every if form is not None)


@final
@dataclass(frozen=True)
class Elementary:
    """One function of templates.

    numpy   what it is on arrays: all else is tested against it, in float64
    triton  its forms in Triton; a name without `tl.` is a function of `burn_kernels.prims`, or of the module before it
    c       its forms in C; a name that ends with `_` is a function of `fusion/c/prims.py`
    steps   how it is computed on float32 where a language has no form: templates, one a line of the kernel; they take
            the operands and after these the results of the steps before, and the last one is the function
    costly  whether it takes longer than the test whether a program needs it at all
    jumps   whether the last digit of an operand may decide the result
    """

    numpy: Callable[..., Any]
    triton: Forms = Forms()
    c: Forms = Forms()
    steps: tuple[str, ...] = ()
    costly: bool = False
    jumps: bool = False

    @property
    def operands(self) -> int:
        """How many it takes."""
        forms = [*self.c] or self.steps[:1]
        return max(form.count(f"{{{i}}}") and i + 1 for form in forms for i in range(3))


def _everywhere(form: str) -> Forms:
    """One form for all types."""
    return Forms(single=form, double=form, integral=form)


def _triton(name: str) -> Forms:
    """A function that Triton has for both types of floats."""
    return Forms(single=f"tl.{name}({{0}})", double=f"tl.{name}({{0}})")


def _builtin(name: str, *, own: bool = False) -> Forms:
    """A function that C compilers bring; `own`: on floats the library has one that they make vectors of."""
    return Forms(single=f"{name}_({{0}})" if own else f"__builtin_{name}f({{0}})", double=f"__builtin_{name}({{0}})")


def _extremum(name: str, sign: str) -> Elementary:
    """The larger or the smaller of two; NaN where either is."""
    quiet = f"tl.{name}({{0}}, {{1}}, propagate_nan=tl.PropagateNan.ALL)"
    kept = f"(({{0}} {sign} {{1}}) | ({{0}} != {{0}}) ? {{0}} : {{1}})"
    return Elementary(
        triton=Forms(single=quiet, double=quiet, integral=f"tl.{name}({{0}}, {{1}})"),
        c=Forms(single=kept, double=kept, integral=f"({{0}} {sign} {{1}} ? {{0}} : {{1}})"),
        numpy=getattr(np, name),
    )


def _remainder(name: str, numpy: Callable[..., Any]) -> Elementary:
    form = f"{name}({{0}}, {{1}})"
    return Elementary(
        triton=Forms(single=form, double=form),
        c=Forms(single=f"{name}_({{0}}, {{1}})", double=f"{name}64_({{0}}, {{1}})"),
        numpy=numpy,
        costly=True,
        jumps=True,
    )


def _polynomial(x: str, *coefficients: float) -> str:
    """A template of the polynomial of x with these coefficients, the constant first."""
    text = repr(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        text = f"({text} * {x} + {coefficient!r})"
    return text


ELEMENTARY: Final[Mapping[str, Elementary]] = {
    "abs": Elementary(
        triton=_everywhere("tl.abs({0})"),
        c=Forms(single="__builtin_fabsf({0})", double="__builtin_fabs({0})", integral="({0} < 0 ? -{0} : {0})"),
        numpy=np.abs,
    ),
    "ceil": Elementary(triton=_triton("ceil"), c=_builtin("ceil"), numpy=np.ceil, jumps=True),
    "cos": Elementary(triton=_triton("cos"), c=_builtin("cos"), numpy=np.cos, costly=True),
    "erf": Elementary(
        triton=Forms(single="prims_apart.erf({0})", bfloat="prims_apart.erf_short({0})", double="tl.erf({0})"),
        c=_builtin("erf", own=True),
        numpy=special.erf,
        costly=True,
    ),
    "erfinv": Elementary(
        # x p(w), w = -log(1 - x^2), as Giles has it ("Approximating the erfinv function", 2010); minimax polynomials
        # of w - 2.5 and of sqrt(w) - 3, fitted for relative error: 5.6e-9 and 9.4e-9 in exact arithmetic
        steps=(
            "-log((1.0 - {0}) * (1.0 + {0}))",
            "{1} - 2.5",
            "sqrt({1}) - 3.0",
            _polynomial(
                "{2}",
                *(1.5014094114303589, 0.24664027988910675, -0.004177386872470379, -0.0012527419021353126),
                *(0.00021834444487467408, -4.963345418218523e-06, -3.462704398771166e-06, 4.661701211716718e-07),
                *(2.3232622936675353e-08, -8.791017691578418e-09),
            ),
            _polynomial(
                "{3}",
                *(2.832976818084717, 1.001675009727478, 0.009445329196751118, -0.00763745279982686),
                *(0.005686590448021889, -0.0035966241266578436, 0.001486129709519446, -5.826071719639003e-05),
                *(-0.0003104254719801247, 0.00011671287938952446),
            ),
            "where(abs({0}) == 1.0, {0} * float('inf'), {0} * where({1} < 5.0, {4}, {5}))",
        ),
        numpy=special.erfinv,
        costly=True,
    ),
    "exp": Elementary(
        triton=Forms(single="prims_apart.exp({0})", half="exp_fast({0})", double="tl.exp({0})"),
        c=_builtin("exp", own=True),
        numpy=np.exp,
        costly=True,
    ),
    "expm1": Elementary(
        triton=Forms(single="prims_apart.expm1_odd({0})"), c=_builtin("expm1", own=True), numpy=np.expm1, costly=True
    ),
    "floor": Elementary(triton=_triton("floor"), c=_builtin("floor"), numpy=np.floor, jumps=True),
    "fmod": _remainder("fmod", np.fmod),
    "log": Elementary(triton=_triton("log"), c=_builtin("log", own=True), numpy=np.log, costly=True),
    "log1p": Elementary(triton=Forms(single="log1p({0})"), c=_builtin("log1p", own=True), numpy=np.log1p, costly=True),
    "maximum": _extremum("maximum", ">"),
    "minimum": _extremum("minimum", "<"),
    "remainder": _remainder("remainder", np.remainder),
    "rint": Elementary(triton=Forms(single="rint({0})"), c=_builtin("rint"), numpy=np.rint, jumps=True),
    "rsqrt": Elementary(
        triton=Forms(single="(1.0 / tl.sqrt_rn({0}))", half="tl.rsqrt({0})", double="(1.0 / tl.sqrt({0}))"),
        c=Forms(single="(1.0f / __builtin_sqrtf({0}))", double="(1.0 / __builtin_sqrt({0}))"),
        numpy=lambda x: 1.0 / np.sqrt(x),
    ),
    "sigmoid": Elementary(
        triton=Forms(
            single="prims_apart.sigmoid_tail({0})",
            half="sigmoid_tail_fast({0})",
            bfloat="sigmoid_tail_short({0})",
            double="prims_apart.sigmoid_tail({0})",
        ),
        c=Forms(single="sigmoid_({0})", double="sigmoid64_({0})"),
        numpy=lambda x: np.exp(-np.logaddexp(0.0, -x)),
        costly=True,
    ),
    "sin": Elementary(triton=_triton("sin"), c=_builtin("sin"), numpy=np.sin, costly=True),
    "sqrt": Elementary(
        triton=Forms(single="tl.sqrt_rn({0})", half="tl.sqrt({0})", double="tl.sqrt({0})"),
        c=_builtin("sqrt"),
        numpy=np.sqrt,
    ),
    "tanh": Elementary(
        triton=Forms(single="prims_apart.tanh_odd({0})", bfloat="tanh_odd_short({0})"),
        c=_builtin("tanh", own=True),
        numpy=np.tanh,
        costly=True,
    ),
    "trunc": Elementary(triton=Forms(single="trunc({0})"), c=_builtin("trunc"), numpy=np.trunc, jumps=True),
    "where": Elementary(
        triton=_everywhere("tl.where({0}, {1}, {2})"), c=_everywhere("({0} ? {1} : {2})"), numpy=np.where
    ),
}
