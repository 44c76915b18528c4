"""A prepared launch tells the driver what Triton's own does, and says where it cannot."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import REGISTRY  # after the check for triton
from burn_kernels import launch as launching
from burn_kernels import prepared as prepared_module
from burn_kernels._triton import INTERPRETED, tl, triton
from burn_kernels.ahead import compile_launch
from burn_kernels.autotune.compiling import fingerprint
from burn_kernels.launch import H200, Launch, _launch_here, recording
from burn_kernels.prepared import prepared
from burn_kernels.spec import Draw
from burn_kernels.verification import cast
from tests.kernels.launch_record import flat
from tests.kernels.stub_cuda import STREAM, StubCuda, standing_in

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")


@triton.jit(do_not_specialize=["scale", "key"])  # type: ignore[untyped-decorator]  # Triton has no types
def _mixed(x, y, out, scale, key: tl.int64, rows, none, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # nor has a kernel
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < rows, other=0).to(tl.float32) * scale + tl.load(y + at, mask=at < rows, other=0)
    tl.store(out + at, value + key.to(tl.float32), mask=at < rows)


class _Sizes(NamedTuple):
    rows: int
    step: int
    gap: int


class _Mixed(NamedTuple):
    rows: int
    scale: float


class _Flags(NamedTuple):
    twice: bool
    ending: str


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types
def _scale_rows(x, sizes, y, FLAGS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # nor has a kernel
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * sizes.step, mask=at < sizes.rows, other=0.0) + sizes.gap
    if FLAGS.twice and FLAGS.ending == "none":
        value *= 2.0
    tl.store(y + at, value, mask=at < sizes.rows)


SIZES = [8, 8, 8, 4, 8, 4]
"""Bytes of the arguments: three pointers, a float32, and integers of 64 and 32 bits."""


@pytest.fixture(scope="module")
def driver() -> Iterator[StubCuda]:
    with standing_in() as stub:
        yield stub


@pytest.fixture
def stub(driver: StubCuda) -> StubCuda:
    """Notes no argument before it is told how many there are."""
    driver.expect(0)
    return driver


def arguments(key: int) -> tuple[Any, ...]:
    x, y, out = torch.ones(1000, dtype=torch.bfloat16), torch.ones(1000), torch.ones(1000)
    return x, y, out, 0.3, key, 1000, None


def launched_by_triton(given: tuple[Any, ...]) -> Any:
    return _mixed[(4,)](*given, BLOCK=256, num_warps=2, num_stages=1)


@pytest.mark.parametrize("key", [5, -1, 2**63 - 1])
def test_the_driver_gets_the_same(stub: StubCuda, key: int) -> None:
    inputs = arguments(key)
    stub.expect(6)
    ready = prepared(launched_by_triton(inputs), 0)
    launched = stub.last(SIZES)
    assert launched.shape == (4, 1, 1, 64, 0)
    assert launched.words[:3] == tuple(x.data_ptr() for x in inputs[:3])
    assert launched.words[4] == key % 2**64
    assert ready is not None
    assert not ready.watched()
    for pointers in (inputs[:3], [x.data_ptr() for x in inputs[:3]]):
        stub.expect(6)
        calls = stub.calls
        ready.submit(4, 1, 1, STREAM, *ready.head, *pointers, *inputs[3:], 256)
        assert stub.calls == calls + 1
        assert stub.last(SIZES) == launched


def test_another_triton_is_asked_in_the_way_that_all_know(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = arguments(9)
    stub.expect(6)
    compiled = launched_by_triton(inputs)
    launched = stub.last(SIZES)
    monkeypatch.setattr(triton, "__version__", "3.9.0")
    ready = prepared(compiled, 0)
    assert ready is not None
    assert ready.submit is compiled.run
    stub.expect(6)
    ready.submit(4, 1, 1, STREAM, *ready.head, *inputs, 256)
    assert stub.last(SIZES) == launched


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


# -- launches by their kind ----------------------------------------------------------------------------
LETTERS = {"*": 8, "i64": 8, "u64": 8, "fp64": 8, "i32": 4, "u32": 4, "fp32": 4, "i1": 1, "u1": 1}


def sizes_of(compiled: Any) -> list[int]:
    """Bytes of the arguments that the driver is given."""
    kinds = [kind for kind in flat(compiled.src.signature.values()) if kind != "constexpr"]
    return [LETTERS["*" if kind.startswith("*") else kind] for kind in kinds]


def launches_of(name: str) -> list[Launch]:
    """Returns the launches of an operation for its first problems, on tensors that are there."""
    spec, recorded = REGISTRY[name], list[Launch]()
    for problem in itertools.islice(spec.problems(Draw(1)), 3):
        with recording(H200) as launches:
            inputs, options = cast((problem.inputs, problem.options), torch.float32, "cpu")
            spec.forward(*inputs, **options)
        recorded += launches
    return recorded


def by_triton(launch: Launch) -> Any:
    return launch.kernel[launch.grid](
        *launch.arguments, num_warps=launch.warps, num_stages=launch.stages, **launch.constants
    )


def again(launch: Launch) -> Any:
    return _launch_here(
        launch.kernel, launch.grid, 0, launch.arguments, launch.warps, launch.stages, dict(launch.constants)
    )


QUICK = ("softmax", "dropout", "layer_norm")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(REGISTRY)]
)
def test_known_launches_tell_the_driver_the_same(name: str, stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_stream_at", lambda index: STREAM)
    monkeypatch.setattr(prepared_module, "_known", {})
    for launch in launches_of(name):
        stub.expect(0)
        compiled = by_triton(launch)
        sizes = sizes_of(compiled)
        stub.expect(len(sizes))
        by_triton(launch)
        launched = stub.last(sizes)
        for _ in range(3):
            stub.expect(len(sizes))
            assert again(launch) is compiled
            assert stub.last(sizes) == launched
    assert prepared_module._known


def test_other_kinds_are_other_kernels(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_stream_at", lambda index: STREAM)
    monkeypatch.setattr(prepared_module, "_known", {})
    first = arguments(5)

    def run(*given: Any) -> Any:
        return _launch_here(_mixed, (4,), 0, given, 2, 1, {"BLOCK": 256})

    compiled = run(*first)
    assert run(*arguments(7)) is compiled  # a key is in no kind
    x, y, out, scale, key, _, none = first
    assert run(x.float(), y, out, scale, key, 1000, none) is not compiled
    assert run(x, y, out, scale, key, 16, none) is not compiled
    assert run(x, y, out, scale, key, 1, none) is not compiled
    assert run(x, y, out, scale, 2**40, 1000, none) is compiled  # it is declared as 64 bits
    count = len(prepared_module._known)
    assert run(x[1:], y, out, scale, key, 999, none) is not compiled  # an odd address: Triton's own business
    assert len(prepared_module._known) == count


def test_kinds_are_forgotten_before_they_are_many(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_stream_at", lambda index: STREAM)
    monkeypatch.setattr(prepared_module, "_known", {})
    monkeypatch.setattr(prepared_module, "MOST_KNOWN", 2)
    x, y, out, scale, key, _, none = arguments(5)
    for rows in (1000, 992, 976, 960):
        _launch_here(_mixed, (4,), 0, (x, y, out, scale, key, rows, none), 2, 1, {"BLOCK": 256})
        assert len(prepared_module._known) <= 2


def test_a_tuple_of_integers_is_its_own_kind(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_stream_at", lambda index: STREAM)
    monkeypatch.setattr(prepared_module, "_known", {})
    x, y = torch.ones(4096), torch.ones(1000)

    def run(sizes: object) -> Any:
        constants = {"FLAGS": _Flags(twice=True, ending="none"), "BLOCK": 256}
        return _launch_here(_scale_rows, (4,), 0, (x, sizes, y), 2, 1, constants)

    compiled = run(_Sizes(1000, 3, 7))
    assert compiled.src.signature["sizes"] == ("i32", "i32", "i32")
    stub.expect(5)
    run(_Sizes(992, 3, 2**40))
    expected = stub.last([8, 4, 4, 8, 8])
    assert expected.words[1:4] == (992, 3, 2**40)
    count = len(prepared_module._known)
    for _ in range(2):
        stub.expect(5)
        run(_Sizes(992, 3, 2**40))
        assert stub.last([8, 4, 4, 8, 8]) == expected
    assert len(prepared_module._known) == count == 2
    assert run(_Sizes(1000, 1, 7)) is not compiled  # a step of 1 is written into the code
    assert run(_Sizes(1000, 3, 7)) is compiled
    count = len(prepared_module._known)
    assert run((1000, 3, 7)) is not None  # members of any type: Triton looks at each
    assert len(prepared_module._known) == count


def test_only_named_tuples_of_integers_are_their_own_kind() -> None:
    assert prepared_module.holds_integers(_Sizes)
    untold = namedtuple("untold", "rows scale")  # members of any type
    unknown = namedtuple("unknown", "rows")
    unknown.__annotations__ = {"rows": "NoSuchType"}
    for kind in (_Mixed, tuple, int, untold, unknown):
        assert not prepared_module.holds_integers(kind), kind


def test_what_is_compiled_ahead_for_a_tuple_is_what_triton_launches(stub: StubCuda) -> None:
    constants = {"FLAGS": _Flags(twice=True, ending="none"), "BLOCK": 256}
    for sizes in (_Sizes(1000, 1, 32), _Sizes(1, 2**40, 3)):
        launch = Launch(_scale_rows, (4,), (torch.ones(4096), sizes, torch.ones(1000)), constants, 2, 1)
        compiled, launched = compile_launch(launch, H200), by_triton(launch)
        assert compiled.src.signature == launched.src.signature
        assert compiled.asm["ptx"] == launched.asm["ptx"]
    fingerprints = {
        fingerprint(Launch(_scale_rows, (4,), (torch.ones(4), sizes, torch.ones(4)), constants, 2, 1))
        for sizes in (_Sizes(1000, 1, 32), _Sizes(1001, 1, 48), _Sizes(1000, 3, 32), _Sizes(1000, 1, 2**40))
    }
    assert len(fingerprints) == 3  # the first two are one kernel
