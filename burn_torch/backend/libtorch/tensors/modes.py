"""torch's modes of the calling thread that must not reach what the leaf computes: left while it does, or refused.

Under autocast a product would have another element type than its spec says; what inference mode makes has no count of
writes, so no tape could check it and no optimizer write to it.  The leaf looks at both before it computes, and leaves
them while it does.

Transforms of torch.func and tracers put other tensors in the place of those that the leaf asks for: wrapped ones, ones
without numbers, ones whose operations are recorded.  They would lose what the leaf computes in kernels or reads on the
host, so values do not enter there; what comes of values that were made before is told when torch refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._C import _functorch

from burn_torch.core.errors import ArgumentError, BurnTorchError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call
from burn_torch.ops.refusals import refusal
from burn_torch.ops.value import Primitive

__all__ = [
    "in_autocast", "in_inference", "is_cast_by_autocast", "outside", "refuse_tracers", "refused", "tracer_fault",
    "unreadable", "without_autocast",
]  # fmt: skip

in_inference: Final[Callable[[], bool]] = torch.is_inference_mode_enabled  # 35 ns
in_autocast: Final[Callable[[], bool]] = torch._C._is_any_autocast_enabled  # 160 ns


def is_cast_by_autocast(call: Call) -> bool:
    """Asks whether autocast may change the results of a Call: not an element-wise one, or a view, of float32."""
    if any(isinstance(spec, TensorSpec) and spec.dtype.is_float and spec.dtype.itemsize == 2 for spec in call.specs):
        return True
    return call.op.pointwise is None and not call.op.view


def without_autocast(function: Callable[..., object]) -> Callable[..., object]:
    """The same function, out of autocast's reach."""

    def run(*inputs: object) -> Primitive:
        return outside(function, inputs) if in_autocast() else function(*inputs)

    return run


def outside(function: Callable[..., object], inputs: Sequence[object]) -> Any:
    """`function(*inputs)` outside of both modes."""
    with torch.inference_mode(False), _autocast_off():
        return function(*inputs)


@contextmanager
def _autocast_off() -> Iterator[None]:
    enabled = [kind for kind in _KINDS if torch.is_autocast_enabled(kind)]
    for kind in enabled:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in enabled:
            torch.set_autocast_enabled(kind, True)


_KINDS: Final = ("cpu", "cuda", "mps")


# -- transforms and tracers of torch -------------------------------------------------------------------------
def refuse_tracers(what: str) -> None:
    """Raises: ArgumentError inside of a transform or a tracer of torch.  0.1 us where there is none."""
    fault = tracer_fault(what)
    if fault is not None:
        raise fault


def tracer_fault(what: str) -> ArgumentError | None:
    """The error of what is done inside of a transform or a tracer of torch; None outside of them."""
    mode = _tracer()
    if mode is None:
        return None
    return ArgumentError(
        f"{what}: burn_torch computes nothing inside of {mode}",
        given=f"a call inside of {mode}, which does not see what burn_torch computes",
        expected="a call outside of torch's transforms and tracers",
        mend="compute it before, and use what x.into_torch() gives; grad, vjp, jvp, hvp, per_sample_grad, compile"
        " and onnx.export of burn_torch transform and trace functions of burn_torch",
    )


def refused(fault: BaseException, call: Call, inputs: Sequence[object]) -> BurnTorchError | None:
    """The error of ours for what torch raised while it computed a Call; None where it is no refusal."""
    return refusal(fault, call, inputs) or unreadable(call.op.name, inputs)


def unreadable(what: str, inputs: Sequence[object]) -> ArgumentError | None:
    """The error of what torch refuses inside of a transform or a tracer, or for a tensor that was made in one."""
    fault = tracer_fault(what)
    kind = next((type(x) for x in inputs if isinstance(x, torch.Tensor) and type(x) is not torch.Tensor), None)
    if fault is not None or kind is None:
        return fault
    return ArgumentError(
        f"{what}: this tensor holds no numbers",
        given=f"a tensor over a {kind.__module__}.{kind.__qualname__}, made inside of its mode",
        expected="a tensor that was made outside of torch's transforms and tracers",
        mend="make it again, outside of FakeTensorMode and the like",
    )


def _tracer() -> str | None:
    if _functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch._C._len_torch_dispatch_stack():
        modes = (torch._C._get_dispatch_mode(kind) for kind in _TRACERS)
        return next((type(mode).__name__ for mode in modes if mode is not None), None)
    return None


_TRACERS: Final = (
    torch._C._TorchDispatchModeKey.FAKE,
    torch._C._TorchDispatchModeKey.PROXY,
    torch._C._TorchDispatchModeKey.FUNCTIONAL,
)
"""FakeTensorMode, make_fx and torch.export; other modes, as those that count or log, see what torch computes here."""
