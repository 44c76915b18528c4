"""Bounds the calls of Python functions on hot paths, which a busy machine does not disturb as it does times.

The bounds are the counts of commit 1ee56791, with which `overhead.py`, `fusion_host.py` and `loop.py` are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from burn_torch import Device, Tensor, compile
from burn_torch.backend import Fusion


def calls_of(run: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
    """Counts the calls of Python functions in a warm run, after `before`; that of `run` itself does not count."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(4):
        before()
        run()
    before()
    profiler = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(profiler)
    return count - 1


def matrix(device: Device) -> Tensor:
    return Tensor.from_data(np.ones((4, 8), np.float32), device)


def chain(x: Tensor, length: int = 5) -> Tensor:
    for _ in range(length):
        x = x.relu()
    return x


def test_an_operation_without_gradients_is_a_few_calls() -> None:
    x = matrix(Device.cpu(fused=False))
    assert calls_of(x.relu) <= 2  # and itself
    assert calls_of(lambda: x * 2.0) <= 4


@pytest.mark.parametrize("length", [5, 40])
def test_the_flush_of_a_known_plan_is_five_calls_however_long_it_is(length: int) -> None:
    x = matrix(Device.cpu(fused=True))
    backend = x.backend
    assert isinstance(backend, Fusion)
    stream = backend.stream("cpu")
    results: list[Tensor] = []

    def record() -> None:
        results[:] = [chain(x, length)]

    record()
    stream.flush()
    outputs = (results[0].into_torch(),)
    stream.history[-1]._run = lambda *inputs: outputs  # the launch is a stub: what is counted is the host's own work
    assert calls_of(stream.flush, before=record) <= 4  # and itself


def test_a_call_of_a_compiled_function_is_thirty_calls() -> None:
    x = matrix(Device.cpu(fused=False))
    compiled = compile(chain)
    assert calls_of(lambda: compiled(x)) <= 30
