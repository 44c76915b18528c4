"""The quick way to a generated kernel: it tells the driver what Triton's own way tells, and stands back where asked."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import autotune  # after the check for triton
from burn_kernels._triton import INTERPRETED
from burn_kernels.autotune.key import Device
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import Store
from burn_kernels.autotune.tunable import Tunable
from burn_kernels.launch import H200, observing
from burn_torch.backend.libtorch.generated import kernel_variants
from burn_torch.backend.libtorch.generated import quick_launch as fused_launch
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion.body.reasons import FusionWarning
from tests.fusion.programs import row, tensor, traced
from tests.kernels.stub_cuda import STREAM, Launched, StubCuda, standing_in

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")

ROWS, COLS = 6, 64
MATRIX = tensor(ROWS, COLS, place="cuda:0")


@pytest.fixture(scope="module")
def driver() -> Iterator[StubCuda]:
    with standing_in() as stub:
        yield stub


@pytest.fixture
def stub(driver: StubCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubCuda]:
    """Tensors of the CPU are taken for those of a GPU: addresses are all that a launch takes of them."""
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(fused_launch, "current_device", lambda: lambda: 0)
    monkeypatch.setattr(fused_launch, "current_stream", lambda: lambda index: STREAM)
    on_host = fused_launch.maker
    monkeypatch.setattr(fused_launch, "maker", lambda spec, i: on_host(tensor(*spec.shape, dtype=spec.dtype), i))
    monkeypatch.setattr(
        Tunable, "run", lambda self, like, config, call, launch: self.run_on(0, call, launch) if not config else None
    )
    with selecting(Selector(Store(None), devices=lambda i: Device("stub", H200), capturing=lambda i: False)):
        yield driver


def scaled(x: Any, y: Any, rate: Any, key: Any, stream: Any) -> Any:
    mask = row("dropout_mask")(0.4, key, stream, shape=(ROWS, COLS), dtype=DType.F32, place="cuda:0")
    return row("tanh")(x * rate) + y * mask


def centred(x: Any) -> Any:
    return x - row("mean")(x, dims=(1,)), row("sum")(x, dims=(1,))


BODIES: dict[str, tuple[Any, list[Spec], list[int]]] = {
    "numbers": (scaled, [MATRIX, MATRIX, FLOAT_NUMBER, INT_NUMBER, INT_NUMBER], [8, 8, 8, 4, 8, 4, 8, 8]),
    "rows": (centred, [MATRIX], [8, 8, 8]),
    "doubles": (lambda x, rate: x * rate, [tensor(ROWS, COLS, dtype=DType.F64, place="cuda:0"), FLOAT_NUMBER], [8] * 3),
}
"""Each function, its inputs, and the sizes of the arguments of its kernel."""


def inputs_of(specs: list[Spec], numbers: tuple[Any, ...] = (0.3, 5, -7)) -> list[Any]:
    rest = iter(numbers)
    wide = {DType.F32: torch.float32, DType.F64: torch.float64}
    return [
        torch.randn(spec.shape, dtype=wide[spec.dtype]) if isinstance(spec, TensorSpec) else next(rest)
        for spec in specs
    ]


def told(stub: StubCuda, kernel: FusedKernel, inputs: list[Any], sizes: list[int]) -> tuple[Launched, int]:
    """Returns the launch of a call as the driver gets it, without the addresses of results, and the number of calls."""
    stub.expect(len(sizes))
    calls = stub.calls
    outputs = kernel(*inputs)
    last = stub.last(sizes)
    fresh = {y.data_ptr() for y in outputs}
    words = tuple(0 if word in fresh else word for word in last.words)
    assert sum(word in fresh for word in last.words) == len(outputs)
    return Launched(last.shape, last.who, words), stub.calls - calls


@pytest.mark.parametrize("name", BODIES)
def test_the_driver_gets_the_same(name: str, stub: StubCuda) -> None:
    function, specs, sizes = BODIES[name]
    kernel = FusedKernel(traced(function, specs), strict=False)
    inputs = inputs_of(specs)
    slow = kernel.quick
    first, calls = told(stub, kernel, inputs, sizes)
    assert calls == 1
    quick = kernel.quick
    assert quick is not slow
    assert told(stub, kernel, inputs, sizes) == (first, 1)
    assert kernel.quick is quick
    others = inputs_of(specs, (0.7, 2**63 - 1, 2**40))  # other numbers: the same kernel
    again, _ = told(stub, kernel, others, sizes)
    assert kernel.quick is quick
    kernel.quick = kernel._unknown
    assert told(stub, kernel, others, sizes)[0] == again


def test_numbers_are_made_again_where_they_are_others(stub: StubCuda) -> None:
    """Kept by identity: -0.0 equals 0.0 and is another number."""
    kernel = FusedKernel(traced(lambda x, rate: x * rate, [MATRIX, FLOAT_NUMBER]), strict=False)
    (x,) = inputs_of([MATRIX])
    sizes = [8, 8, 4]
    stub.expect(3)

    def word(rate: float) -> int:
        kernel(x, rate)
        return stub.last(sizes).words[2]

    zero, one = 0.0, float("1.0")
    bits = {number: int(np.float32(number).view(np.uint32)) for number in (2.0, 3.0)}
    assert [word(rate) for rate in (2.0, 2.0, 3.0, 3.0, 2.0)] == [bits[n] for n in (2.0, 2.0, 3.0, 3.0, 2.0)]
    assert [word(rate) for rate in (zero, -zero, zero)] == [0, 1 << 31, 0]
    assert word(one) == word(float("1.0")) == word(1) == word(True)
    assert word(float("nan")) == word(float("nan")) != word(2.0)


def test_kept_numbers_are_not_made_again(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[Any] = []
    original = fused_launch.launched_with

    def counted(argument: Any, inputs: Any) -> Any:
        converted.append(argument)
        return original(argument, inputs)

    for module in (kernel_variants, fused_launch):
        monkeypatch.setattr(module, "launched_with", counted)
    function, specs, sizes = BODIES["numbers"]
    kernel = FusedKernel(traced(function, specs), strict=False)
    inputs = inputs_of(specs)
    counts = []
    for arguments in (inputs, inputs, inputs, [*inputs[:2], 0.9, *inputs[3:]]):
        converted.clear()
        told(stub, kernel, arguments, sizes)
        counts.append(len(converted))
    assert counts[2] == 0
    assert counts[0] == counts[1] == counts[3] == 5  # by Triton; by the quick way for the first time; for another rate


def test_kept_numbers_of_threads_are_not_mixed_up(stub: StubCuda) -> None:
    """Each thread passes numbers of its own to one kernel."""
    kernel = FusedKernel(traced(lambda x, a, b: x * a + b, [MATRIX, FLOAT_NUMBER, FLOAT_NUMBER]), strict=False)
    (x,) = inputs_of([MATRIX])
    stub.expect(4)
    for _ in range(3):
        kernel(x, 1.0, 1.0)
    launch: Any = kernel.quick
    cells = dict(zip(launch.__code__.co_freevars, launch.__closure__, strict=True))
    wrong: list[tuple[float, float]] = []
    submit = cells["submit"].cell_contents

    def seen(*arguments: Any) -> None:
        a, b = arguments[-3:-1]
        if b != a + 0.5:
            wrong.append((a, b))

    cells["submit"].cell_contents = seen
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda n=n: [kernel(x, float(n), n + 0.5) for _ in range(300)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
        cells["submit"].cell_contents = submit
    assert wrong == []


def test_other_layouts_and_addresses_go_the_long_way(stub: StubCuda) -> None:
    function, specs, sizes = BODIES["rows"]
    kernel = FusedKernel(traced(function, specs), strict=False)
    inputs = inputs_of(specs)
    told(stub, kernel, inputs, sizes)
    quick = kernel.quick
    met: list[Any] = []
    run = FusedKernel.run

    def noted(self: FusedKernel, *given: Any) -> Any:
        met.append(given)
        return run(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusedKernel, "run", noted)
        told(stub, kernel, inputs, sizes)
        assert not met
        shifted = torch.empty(ROWS * COLS + 1)[1:].view(ROWS, COLS)
        for other in (torch.randn(COLS, ROWS).mT, shifted):
            met.clear()
            told(stub, kernel, [other], sizes)
            assert met
    assert kernel.quick is quick
    assert len(kernel.variants) == 2


def test_a_quick_way_is_made_once(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another device is the current one, each call takes the long way, and makes no quick one."""
    function, specs, sizes = BODIES["rows"]
    kernel = FusedKernel(traced(function, specs), strict=False)
    monkeypatch.setattr(fused_launch, "current_device", lambda: lambda: 1)
    told(stub, kernel, inputs_of(specs), sizes)
    quick = kernel.quick
    told(stub, kernel, inputs_of(specs), sizes)
    assert kernel.quick is quick


def test_observed_launches_are_seen_and_other_choices_are_taken(stub: StubCuda) -> None:
    function, specs, sizes = BODIES["rows"]
    kernel = FusedKernel(traced(function, specs), strict=False)
    inputs = inputs_of(specs)
    told(stub, kernel, inputs, sizes)
    quick = kernel.quick
    with observing() as launches:
        told(stub, kernel, inputs, sizes)
    assert len(launches) == 1
    told(stub, kernel, inputs, sizes)
    assert kernel.quick is quick
    with autotune.deterministic(True):
        told(stub, kernel, inputs, sizes)
        assert kernel.quick is not quick
    autotune.set_level(autotune.level())  # all choices are made anew
    before = kernel.quick
    told(stub, kernel, inputs, sizes)
    assert kernel.quick is not before


def doubled(x: Any) -> Any:
    return x * 2.0 + 1.0


def test_results_over_inputs_are_launched_quickly_too(stub: StubCuda) -> None:
    kernel = FusedKernel(traced(doubled, [MATRIX]), strict=False, over={0: 0})
    (x,) = inputs_of([MATRIX])
    for _ in range(3):
        stub.expect(2)
        (y,) = kernel(x)
        assert y is x
        assert stub.last([8, 8]).words == (x.data_ptr(), x.data_ptr())
    assert kernel.quick is not kernel._unknown
    assert kernel.quick.__name__ == "launch"


def test_what_is_recorded_was_compiled_before(stub: StubCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded program may write over other inputs than the one that warmed up: nothing is compiled meanwhile."""
    from triton.runtime import jit

    body = traced(lambda x, y: x * y + 0.25, [MATRIX, MATRIX])
    plain = FusedKernel(body, strict=False)
    first, second = FusedKernel(body, strict=False, over={0: 0}), plain.written_over({0: 1})
    x, y = inputs_of([MATRIX, MATRIX])
    room = torch.randn(ROWS * COLS + 1)
    shifted = room[1:].view(ROWS, COLS)
    plain(x, y)
    plain(shifted, y)
    plain(x, torch.randn(COLS, ROWS).mT)
    assert first._family is plain._family is second._family
    monkeypatch.setattr(kernel_variants, "_loading_on", lambda place: (contextlib.nullcontext(), torch.empty(0)))
    plain._family.prepare()

    tried: list[Any] = []

    def refused(self: Any, *_: Any, **__: Any) -> Any:
        tried.append(self)
        raise AssertionError("compiled while recording")

    monkeypatch.setattr(jit.JITFunction, "_do_compile", refused)
    for operands in ((x, y), (shifted, y), (x, torch.randn(COLS, ROWS).mT)):
        for kernel in (plain, first, second):
            stub.expect(3)
            (output,) = kernel(*operands)
            assert stub.last([8, 8, 8]).words == (operands[0].data_ptr(), operands[1].data_ptr(), output.data_ptr())
    assert not tried
    with contextlib.suppress(AssertionError), warnings.catch_warnings():
        warnings.simplefilter("ignore", FusionWarning)
        plain(shifted, shifted)  # both addresses are odd: that was not met
    assert tried
