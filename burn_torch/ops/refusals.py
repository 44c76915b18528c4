"""Refusals of a leaf's library at run time, in our words: numbers that a type cannot hold, and want of memory."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.core.errors import BurnTorchError, OutOfMemoryError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.held_numbers import too_large
from burn_torch.ops.op import Call

__all__ = ["refusal"]


def refusal(fault: BaseException, call: Call, inputs: Sequence[object]) -> BurnTorchError | None:
    """The error of ours for what torch or numpy raised while it computed a Call; None where it is no refusal."""
    if isinstance(fault, OverflowError):  # a number of more than 64 bits
        return too_large(call, inputs)
    text = str(fault) if isinstance(fault, RuntimeError) else ""
    if "cannot be converted to type" in text:
        return too_large(call, inputs)
    if isinstance(fault, MemoryError) or "DefaultCPUAllocator" in text:
        return _out_of_memory(call)
    return None


def _out_of_memory(call: Call) -> OutOfMemoryError:
    results = [spec for spec in call.results if isinstance(spec, TensorSpec)]
    wanted = sum(spec.numel * spec.dtype.itemsize for spec in results)
    return OutOfMemoryError(
        f"{call.op.name}: the host has no memory for the result",
        given=call.op.signature.describe(call.specs, call.attrs),
        expected=f"room for {', '.join(map(str, results)) or 'the result'}: {wanted / 2**30:.3g} GiB",
        mend="compute it in parts, in a smaller element type, or check how the sizes are worked out",
    )
