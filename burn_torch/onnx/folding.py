"""Folding constants without being led to ask for more memory than allowed.

A small file may hold a ConstantOfShape of terabytes.  While constants are worked out, every call's result is measured
by its spec before it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Final, final

from burn_torch.backend import Backend, LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.errors import OnnxError, explain
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call
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
            explain(
                "a constant of the model would take too much memory",
                given=f"{size} bytes for {call.op.name}",
                expected=f"at most {limit} bytes more",
                mend="if the model is to be trusted, raise memory_limit_bytes",
            )
        )


@final
class Measured(Backend):
    """LibTorch on the host, with each call measured before it is computed.  `Measured()` is always the same object."""

    _instance: ClassVar[Measured | None] = None
    name: Final = "LibTorch"

    def __new__(cls) -> Measured:
        """The one object: equal stacks are one."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.inner = LibTorch()
        return cls._instance

    inner: LibTorch

    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Any]:
        """Measures, then computes.  Raises: OnnxError beyond the limit of the `bounded` block around."""
        _measure(call)
        return self.inner.execute(call, inputs)

    def from_data(self, data: TensorData, place: str) -> Any:
        """A tensor of the data."""
        return self.inner.from_data(data, place)

    def into_data(self, primitive: Any) -> TensorData:
        """The data of a tensor."""
        return self.inner.into_data(primitive)

    def spec(self, primitive: Any) -> TensorSpec:
        """The spec of a tensor."""
        return self.inner.spec(primitive)

    def sync(self, place: str) -> None:
        """Returns at once."""

    def leaf(self) -> Backend:
        """Itself: nothing stands on it."""
        return self

    def rebase(self, leaf: object) -> Any:
        """The other leaf."""
        return leaf

    def move(self, primitive: Any, spec: TensorSpec, place: str) -> Any:
        """The same tensor: there is one place."""
        return self.inner.move(primitive, spec, place)

    def copy(self, primitive: Any) -> Any:
        """A copy."""
        return self.inner.copy(primitive)

    def version(self, primitive: Any) -> int:
        """How often the memory was written to."""
        return self.inner.version(primitive)

    def check_place(self, place: str) -> None:
        """Raises DeviceError for any place but "cpu"."""
        self.inner.check_place(place)


def host() -> Device:
    """Returns where values that are known on the host are computed."""
    return Device(Measured(), "cpu")
