"""How fast a device copies memory and multiplies matrices, measured: the ends of a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, final

from burn_torch.backend import Backend
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.errors import DTypeError
from burn_torch.ops.op import REGISTRY

__all__ = ["ThroughputKey", "measure_throughput"]

_RUNS: Final = 5


@final
@checked
@dataclass(frozen=True)
class ThroughputKey:
    """A thing to measure: `ThroughputKey.Memory`, or matrix products of a float type, `ThroughputKey(DType.F32)`.

    Raises: DTypeError for a type that is no float.
    """

    dtype: DType | None = None

    Memory: ClassVar[ThroughputKey]

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in FLOAT:
            raise DTypeError(
                "ThroughputKey: matrix products are measured in floats",
                given=repr(self.dtype),
                expected="f64, f32, f16 or bf16",
                mend="write ThroughputKey(DType.F32), or ThroughputKey.Memory",
            )


ThroughputKey.Memory = ThroughputKey()


def measure_throughput(backend: Backend, place: str, key: ThroughputKey) -> float:
    """Bytes read and written in a second by a copy, or operations in a second of a product: the best of five runs."""
    on_host = place == "cpu"
    if key.dtype is None:
        count = 1 << (23 if on_host else 26)
        x = _ones(backend, place, (count,), DType.F32)
        return 8 * count / _shortest_run(backend, place, lambda: backend.copy(x))
    size = 512 if on_host else 4096
    x = _ones(backend, place, (size, size), key.dtype)
    call = REGISTRY["matmul"].bind((backend.spec(x),) * 2, {})
    return 2 * size**3 / _shortest_run(backend, place, lambda: backend.execute(call, (x, x)))


def _ones(backend: Backend, place: str, shape: tuple[int, ...], dtype: DType) -> object:
    return backend.from_data(TensorData.ones(shape, dtype), place)


def _shortest_run(backend: Backend, place: str, run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_RUNS + 1):  # the first loads what it needs
        backend.sync(place)
        start = time.perf_counter()
        run()
        backend.sync(place)
        seconds.append(time.perf_counter() - start)
    return max(min(seconds), 1e-9)
