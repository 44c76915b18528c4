"""Folding constants without being led to ask for more memory than allowed.

A small file may hold a ConstantOfShape of terabytes.  While constants are worked out, every call's result is measured
by its spec before it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

from burn_torch.backend import LibTorch
from burn_torch.backend.decorator import Decorator
from burn_torch.core.errors import OnnxError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Device

__all__ = ["Measured", "bounded", "host"]

"""All constants that are worked out from others, together."""

_limit: Final[ContextVar[int | None]] = ContextVar("bytes left for constants", default=None)


@contextmanager
def bounded(limit_bytes: int) -> Iterator[None]:
    """No result of a call within may be larger than this."""
    token = _limit.set(limit_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def _measure(call: Call) -> None:
    """Raises OnnxError where the results of a call are larger than allowed here."""
    limit = _limit.get()
    if limit is None:
        return
    size = sum(spec.numel * spec.dtype.itemsize for spec in call.results if isinstance(spec, TensorSpec))
    if size > limit:
        raise OnnxError(
            "a constant of the model would take too much memory",
            given=f"{size} bytes for {call.op.name}",
            expected=f"at most {limit} bytes more",
            mend="if the model is to be trusted, raise memory_limit_bytes",
        )


@final
class Measured(Decorator):
    """A backend with each call measured before it is computed; it has the name of that backend."""

    def _begin(self) -> None:
        self.name = self.inner.name

    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Any]:
        """Measures, then computes.  Raises: OnnxError beyond the limit of the `bounded` block around."""
        _measure(call)
        outputs: Sequence[Any] = self.inner.execute(call, inputs)
        return outputs

    def unwrapped(self, primitive: Primitive) -> Any:
        """The primitive itself."""
        return primitive

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = self.inner.__reduce__()
        return reduced


def host() -> Device:
    """Returns where values that are known on the host are computed."""
    return Device(Measured(LibTorch()), "cpu")
