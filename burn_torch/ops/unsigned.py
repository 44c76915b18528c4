"""Computes u16, u32 and u64 on torch, which has hardly a kernel for them, on signed integers of the same bits.

Floats of 8 bits, which rows only move, are moved as such too.

A row says by its law `Unsigned` how.  Nothing is widened, so every width is computed alike.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, Spec, TensorSpec
from burn_torch.ops.held_numbers import bind_candidate, refuse_unheld
from burn_torch.ops.laws import Unsigned
from burn_torch.ops.op import Call, Candidate, PerCall
from burn_torch.ops.torch_types import SIGNED, TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["absolute", "power", "quotient", "rest", "right_shift", "signum", "unsigned_candidate", "wrap"]

Bits = torch.Tensor | int
"""An operand: signed integers with the bits of the unsigned ones, or a number as it was given."""


def unsigned_candidate(call: Call) -> Candidate | None:
    """The torch candidate of a row with the law `Unsigned` at a Call on u16, u32 or u64; None for other Calls."""
    law = call.op.law(Unsigned)
    kind = None if law is None or call.is_input else _unsigned_type(call, law.indices)
    if law is None or kind is None:
        return None
    by = law.by if isinstance(law.by, str | PerCall) else law.by(call)
    function = (
        by.build(call) if isinstance(by, PerCall) else bind_candidate(_signed_twin(call, kind, law), call.op.torch)
    )
    enter, leave = _crossing(kind, turned=by == "order", numbers=not isinstance(by, PerCall))
    are_taken = [_is_taken(spec, i, kind, law.indices) for i, spec in enumerate(call.specs)]
    are_unsigned = [spec is None or spec.dtype is kind for spec in call.results]

    def run(*inputs: Primitive) -> Primitive:
        outputs = function(*[enter(x) if is_taken else x for x, is_taken in zip(inputs, are_taken, strict=True)])
        if call.multiple:
            return [leave(y) if is_unsigned else y for y, is_unsigned in zip(outputs, are_unsigned, strict=True)]
        return leave(outputs) if are_unsigned[0] else outputs

    return refuse_unheld(call, run)


def _unsigned_type(call: Call, indices: tuple[int, ...]) -> DType | None:
    specs = [spec for i, spec in enumerate(call.specs) if i not in indices]
    dtypes = [spec.dtype for spec in (*specs, *call.results) if isinstance(spec, TensorSpec)]
    return next((dtype for dtype in dtypes if dtype in SIGNED), None)


def _is_taken(spec: Spec | None, position: int, kind: DType, indices: tuple[int, ...]) -> bool:
    return isinstance(spec, NumberSpec) or (
        isinstance(spec, TensorSpec) and spec.dtype is kind and position not in indices
    )


def _signed_twin(call: Call, kind: DType, law: Unsigned) -> Call:
    """The Call of the same row on signed integers."""
    signed = SIGNED[kind]
    specs = [
        spec.with_dtype(signed) if isinstance(spec, TensorSpec) and _is_taken(spec, i, kind, law.indices) else spec
        for i, spec in enumerate(call.specs)
    ]
    attrs = {name: signed if value is kind else value for name, value in call.attrs.items()}
    return call.op.bind(specs, attrs)


def _crossing(
    kind: DType, *, turned: bool, numbers: bool
) -> tuple[Callable[[Bits], Bits], Callable[[torch.Tensor], torch.Tensor]]:
    """How operands, numbers among them if asked for, become signed integers, and results unsigned ones.

    turned: with the top bit turned over.
    """
    unsigned, signed = TO_TORCH[kind], TO_TORCH[SIGNED[kind]]
    top = 1 << (8 * kind.itemsize - 1)

    def enter(x: Bits) -> Bits:
        if isinstance(x, torch.Tensor):
            return x.view(signed) ^ -top if turned else x.view(signed)
        if not numbers:
            return x
        return x - top if turned else wrap(x, top)  # in order one beyond the type stays beyond it

    def leave(y: torch.Tensor) -> torch.Tensor:
        return (y ^ -top if turned else y).view(unsigned)

    return enter, leave


def wrap(number: int, top: int) -> int:
    """A number modulo 2 top, as a signed one."""
    return (number + top) % (2 * top) - top


# -- rows that neither keep the bits nor the order ------------------------------------------------------------
def _least(x: torch.Tensor) -> int:
    return torch.iinfo(x.dtype).min


def _tensors(x: Bits, y: Bits) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as bits: numbers as tensors without axes."""
    if not isinstance(x, torch.Tensor):
        assert isinstance(y, torch.Tensor), "an operation on numbers alone is no torch operation"
        x = torch.full((), wrap(x, -_least(y)), dtype=y.dtype, device=y.device)
    elif not isinstance(y, torch.Tensor):
        y = torch.full((), wrap(y, -_least(x)), dtype=x.dtype, device=x.device)
    return x, y


def _halve(x: torch.Tensor) -> torch.Tensor:
    """x / 2, which has no sign."""
    return (x >> 1) & ~_least(x)


def absolute(x: torch.Tensor) -> torch.Tensor:
    """|x| = x, in memory of its own."""
    return x.clone()


def signum(x: torch.Tensor) -> torch.Tensor:
    """1, or 0 at 0."""
    return x.ne(0).to(x.dtype)


def right_shift(x: Bits, y: Bits) -> torch.Tensor:
    """x >> y, with zeros from above; a y of the width or more, which may read as a negative number, leaves 0."""
    x, y = _tensors(x, y)
    return torch.where(y == 0, x, _halve(x) >> (y - 1))


def quotient(x: Bits, y: Bits) -> torch.Tensor:
    """x / y rounded down.  Source: Warren 2012, Hacker's Delight, section 9-3."""
    x, y = _tensors(x, y)
    top = _least(x)
    large = y < 0  # a divisor with the top bit goes in once or not at all
    divisor = torch.where(large, 1, y)
    q = torch.div(_halve(x), divisor, rounding_mode="trunc") * 2
    more = ((x - q * divisor) ^ top) >= (divisor ^ top)
    return torch.where(large, ((x ^ top) >= (y ^ top)).to(x.dtype), q + more.to(x.dtype))


def rest(x: Bits, y: Bits) -> torch.Tensor:
    """x - (x / y) y, which is both `remainder` and `fmod`."""
    x, y = _tensors(x, y)
    return x - quotient(x, y) * y


def power(x: Bits, y: Bits) -> torch.Tensor:
    """x to the power y: the root is squared, and multiplied by x for an odd y; for a negative number y only 1 stays."""
    if isinstance(y, int) and y < 0:
        assert isinstance(x, torch.Tensor), "an operation on numbers alone is no torch operation"
        return x.eq(1).to(x.dtype)
    x, y = _tensors(x, y)
    root = torch.pow(x, _halve(y))
    return root * root * torch.where((y & 1).bool(), x, 1)
