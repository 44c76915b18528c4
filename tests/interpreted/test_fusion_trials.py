"""Generated kernels as tunables: all their tiles pass the trial before a measurement, and a wrong one does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import autotune  # after the check for triton
from burn_kernels.autotune import trial as trials
from burn_kernels.autotune.key import Device
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import Store
from burn_kernels.autotune.tunable import Inputs, Tunable
from burn_kernels.autotune.tuner import Budget
from burn_kernels.launch import H200
from burn_torch.backend.libtorch.generated import triton_kernels as fused
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import needs
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.triton import lowering
from burn_torch.fusion.triton.configs import Tiles, candidates_of
from tests.fusion.programs import PROGRAMS, row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

QUICK = ("gelu", "dropout_residual_norm", "norm_backward")


def variants(name: str, dtype: DType, *, held: bool = False) -> list[Any]:
    """The kernels of a program, for inputs without gaps."""
    function, specs, _ = PROGRAMS[name]
    typed = [spec.with_dtype(dtype) if isinstance(spec, TensorSpec) else spec for spec in specs]
    nodes = [node for node in plan_of(traced(function, typed)).graph.nodes if node.call.op.name == "fusion::kernel"]
    listed = []
    for node in nodes:
        body, none = body_of(node.call.attrs["body"]), [None] * len(node.inputs)
        kernel = lowering.lower(body, layouts=none, held=held)
        listed.append(fused.Variant(body, kernel, none, {}))
    return listed


def judged(variant: Any, tiles: Tiles) -> list[str]:
    tunable: Tunable = variant.tunable
    facts = tunable.facts(0)
    trial = tunable.trial(facts, Inputs("cpu", seed=1))
    return trials.judge(trial, tiles, trials.Truth.of(trial), facts.dtype)


@pytest.mark.parametrize("held", [False, True], ids=["numbers", "held numbers"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]
)
def test_every_candidate_passes_its_trial(name: str, held: bool) -> None:
    for dtype in (DType.F32, DType.BF16)[: 1 if name == "norm_backward" else 2]:  # its statistics stay float32
        for variant in variants(name, dtype, held=held):
            for tiles in candidates_of(variant.kernel):
                assert judged(variant, tiles) == [], (variant.kernel.name, tiles)


@pytest.mark.parametrize("dims", [(0,), (1,)], ids=["columns", "rows"])
def test_every_candidate_of_rows_in_steps_passes(dims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "LONGEST_ROW", 8)
    specs = [tensor(300, 5) if dims == (0,) else tensor(2, 5003)]
    body = traced(lambda x: row("sum")(row("tanh")(x), dims=dims), specs)
    kernel = lowering.lower(body, layouts=[None])
    assert kernel.rows_together == (dims == (0,))
    variant = fused.Variant(body, kernel, [None], {})
    for tiles in candidates_of(kernel):
        assert judged(variant, tiles) == [], tiles


def test_strides_are_tried_as_they_are() -> None:
    body = traced(lambda x, y: row("tanh")(x) + y, [tensor(6, 10), tensor(6, 10)])
    layouts = [(1, 6), (20, 2)]
    variant = fused.Variant(body, lowering.lower(body, layouts=layouts), layouts, {})
    tunable = variant.tunable
    assert tunable.facts(4)[3:5] == (4, "strided")
    assert judged(variant, candidates_of(variant.kernel)[0]) == []


def test_programs_that_do_not_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    (variant,) = variants("gelu", DType.F32)
    few = Tiles(16, 1, 1)
    assert judged(variant, few) == []
    monkeypatch.setattr(Tiles, "programs", lambda self, kernel: kernel.domain.rows // self.x)
    assert judged(variant, few)[0] == "output 0: 12 elements not written, or NaN where there should be numbers"


def test_a_kernel_that_is_wrong_in_all_its_tiles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default's results are what errors are measured by, but not where they are wrong."""
    (variant,) = variants("gelu", DType.F32)
    launched = variant._launch_with

    def shifted(tiles: Tiles, arguments: Any, outputs: Any, numbers: Any) -> Any:
        launched(tiles, arguments, outputs, numbers)
        outputs[0].add_(0.01)

    monkeypatch.setattr(fused.Variant, "_launch_with", lambda self, *given: shifted(*given))
    faults = judged(variant, candidates_of(variant.kernel)[0])
    assert any("relative RMS error" in fault for fault in faults)


class Counting:
    """A clock that counts its calls; tiles of more warps take longer."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.calls = 0

    def milliseconds(self, call: Any) -> float:
        call()
        self.calls += 1
        return 1.0

    def settle(self) -> None:
        pass

    def aside(self) -> Any:
        return torch.no_grad()

    def spare_bytes(self) -> int:
        return 1 << 40


@pytest.mark.parametrize("level", ["off", "cached", "on"])
def test_the_second_use_measures_where_that_is_allowed(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, capturing = Counting(), [False]
    selector = Selector(
        Store(None), devices=lambda i: Device("stub", H200), clocks=lambda i: clock,
        capturing=lambda i: capturing[0], budget=Budget(key_s=60.0),
    )  # fmt: skip
    monkeypatch.setattr(Tunable, "run", lambda self, like, config, call, launch: self.run_on(0, call, launch))
    kernel = FusedKernel(traced(lambda x: row("tanh")(x) + 1.0, [tensor(70, 30)]), strict=False)
    x = torch.randn(70, 30)
    with selecting(selector), autotune.using(level):
        capturing[0] = True
        for _ in range(3):
            kernel(x)
        assert not clock.calls  # never inside of a capture
        capturing[0] = False
        with autotune.deterministic(True):
            for _ in range(3):
                kernel(x)
        assert not clock.calls
        for _ in range(3):
            (y,) = kernel(x)
        assert (clock.calls > 0) == (level == "on")
        source = {decision.source for (_, fixed), decision in selector.decisions.items() if not fixed}
    torch.testing.assert_close(y, x.tanh() + 1.0)
    assert source == ({"measured"} if level == "on" else {"default", "model"} & source)
