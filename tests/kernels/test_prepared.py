"""A prepared launch tells the driver what Triton's own does, and says where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels._triton import INTERPRETED, tl, triton  # after the check for triton
from burn_kernels.prepared import prepared
from tests.kernels.stub_cuda import STREAM, StubCuda, standing_in

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")


@triton.jit(do_not_specialize=["scale", "key"])  # type: ignore[untyped-decorator]  # Triton has no types
def _mixed(x, y, out, scale, key: tl.int64, rows, none, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # nor has a kernel
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < rows, other=0).to(tl.float32) * scale + tl.load(y + at, mask=at < rows, other=0)
    tl.store(out + at, value + key.to(tl.float32), mask=at < rows)


SIZES = [8, 8, 8, 4, 8, 4]
"""Bytes of the arguments: three pointers, a float32, and integers of 64 and 32 bits."""


@pytest.fixture(scope="module")
def stub() -> Iterator[StubCuda]:
    with standing_in() as found:
        yield found


def arguments(key: int) -> tuple[Any, ...]:
    x, y, out = torch.ones(1000, dtype=torch.bfloat16), torch.ones(1000), torch.ones(1000)
    return x, y, out, 0.3, key, 1000, None


def launched_by_triton(given: tuple[Any, ...]) -> Any:
    return _mixed[(4,)](*given, BLOCK=256, num_warps=2, num_stages=1)


@pytest.mark.parametrize("key", [5, -1, 2**63 - 1])
def test_the_driver_is_told_the_same(stub: StubCuda, key: int) -> None:
    given = arguments(key)
    stub.expect(6)
    ready = prepared(launched_by_triton(given), 0)
    told = stub.last(SIZES)
    assert told.shape == (4, 1, 1, 64, 0)
    assert told.words[:3] == tuple(x.data_ptr() for x in given[:3])
    assert told.words[4] == key % 2**64
    assert ready is not None
    assert not ready.watched()
    for pointers in (given[:3], [x.data_ptr() for x in given[:3]]):
        stub.expect(6)
        calls = stub.calls
        ready.submit(4, 1, 1, STREAM, *ready.head, *pointers, *given[3:], 256)
        assert stub.calls == calls + 1
        assert stub.last(SIZES) == told


def test_another_triton_is_asked_in_the_way_that_all_know(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(9)
    stub.expect(6)
    compiled = launched_by_triton(given)
    told = stub.last(SIZES)
    monkeypatch.setattr(triton, "__version__", "3.9.0")
    ready = prepared(compiled, 0)
    assert ready is not None
    assert ready.submit is compiled.run
    stub.expect(6)
    ready.submit(4, 1, 1, STREAM, *ready.head, *given, 256)
    assert stub.last(SIZES) == told


def test_a_profiler_is_seen(stub: StubCuda) -> None:
    from triton import knobs

    ready = prepared(launched_by_triton(arguments(1)), 0)
    assert ready is not None
    met: list[Any] = []
    knobs.runtime.launch_enter_hook.add(met.append)
    try:
        assert ready.watched()
    finally:
        knobs.runtime.launch_enter_hook.remove(met.append)
    assert not ready.watched()


def test_what_triton_must_launch_itself(stub: StubCuda) -> None:
    compiled = launched_by_triton(arguments(1))
    assert prepared(None, 0) is None  # the interpreter's
    elsewhere = SimpleNamespace(metadata=SimpleNamespace(target=SimpleNamespace(backend="hip")), function=1)
    assert prepared(elsewhere, 0) is None
    before = compiled.run.global_scratch_size
    compiled.run.global_scratch_size = 16
    try:
        assert prepared(compiled, 0) is None
    finally:
        compiled.run.global_scratch_size = before
