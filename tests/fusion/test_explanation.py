"""Output of explain: kernels with lines, boundaries with reasons, as text, data and a page."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from burn_torch import Device, Tensor, assert_fused, compile, explain
from burn_torch.core.errors import ArgumentError, ArtifactError, DeviceError
from burn_torch.fusion import Reason
from burn_torch.fusion.triton.configs import Tiles
from tests.fusion.choosing import choosing


def block(x: Tensor) -> Tensor:
    h = (x * 2.0 + 1.0).exp()
    return (h @ h).relu() * 0.5  # the second line


def gelu(x: Tensor) -> Tensor:
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0


@pytest.fixture
def x() -> Tensor:
    return Tensor.ones((8, 8), Device.cpu())


def test_a_compiled_function(x: Tensor) -> None:
    explanation = explain(compile(block, fuse=True), x).fusion
    assert explanation is not None
    first, library, last = explanation.kernels
    assert (first.rows, library.rows, last.rows) == (("mul", "add", "exp"), ("matmul",), ("relu", "mul"))
    assert (first.generated, library.generated, explanation.generated) == (True, False, 2)
    assert (first.bytes_read, first.bytes_written, first.bytes_saved) == (256, 256, 4 * 256)
    assert (library.bytes_read, library.bytes_written) == (256, 256)
    assert first.source is not None
    assert f"def {first.name}(" in first.source
    assert first.tiles is not None
    assert last.origins[0].endswith("return (h @ h).relu() * 0.5  # the second line")
    assert {(b.producer, b.consumer, b.reason, b.bytes) for b in explanation.boundaries} == {
        ("exp", "matmul", Reason.LIBRARY, 256), ("matmul", "relu", Reason.LIBRARY, 256),
    }  # fmt: skip


def test_as_text_data_and_a_page(x: Tensor, tmp_path: Path) -> None:
    whole = explain(compile(block, fuse=True), x)
    explanation = whole.fusion
    assert explanation is not None
    text = str(explanation)
    assert text.startswith("3 kernels, 2 generated, of 6 operations; 1.5 KiB less to move\n")
    assert "mul, add, exp" in text
    assert "saves 1.0 KiB" in text
    assert "exp -> matmul, 256 B: library: no timing puts a generated matmul before the library's" in text
    assert text.replace("\n", "\n  ") in str(whole)
    data = json.loads(explanation.to_json())
    assert [kernel["generated"] for kernel in data["kernels"]] == [True, False, True]
    assert data["boundaries"][0]["reason"] == "library"
    assert json.loads(whole.to_json())["fusion"] == data
    page = explanation.show(tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert "tl.store(" in page
    assert "&gt; matmul" in page
    temporary = explanation.show()
    assert temporary.read_text(encoding="utf-8") == page
    temporary.unlink()


def test_unfused_has_none(x: Tensor) -> None:
    assert explain(block, x).fusion is None
    assert json.loads(explain(block, x).to_json())["fusion"] is None


def test_assert_fused(x: Tensor) -> None:
    explanation = assert_fused(gelu, max_kernels=1)(x)
    assert explanation.fusion is not None
    assert explanation.fusion.kernels[0].rows == (
        "mul",
        "erf",
        "add",
        "mul",
        "mul",
    )  # constants are divided by beforehand
    assert_fused(compile(gelu), max_kernels=1)(x)
    assert_fused(compile(gelu, fuse=True), max_kernels=1)(x)
    with pytest.raises(
        AssertionError, match=r"block is more kernels(?s:.)*given: *3 kernels(?s:.)*matmul(?s:.)*2 at most"
    ):
        assert_fused(block, max_kernels=2)(x)


def test_a_device_tells_of_this_threads_stream() -> None:
    device = Device.cpu().fused()
    device.flush()
    x = Tensor.ones((8, 8), Device.cpu()).to_device(device)
    for _ in range(3):
        gelu(x).into_data()
    pending = gelu(x)
    explanation = device.autodiff().explain()
    assert explanation.pending == 5
    program = explanation.programs[-1]
    assert program.times >= 3
    assert not program.fused
    assert program.plan.kernels[0].rows == ("div", "erf", "add", "mul", "div")
    assert program.plan.kernels[0].origins[0].startswith(__file__)
    text = str(explanation)
    assert text.startswith("Fusion(LibTorch) at cpu: ")
    assert "5 operations pending" in text
    assert "operation by operation; as kernels it would be\n  1 kernel, 1 generated, of 5 operations" in text
    assert json.loads(explanation.to_json())["programs"][-1]["key"] == program.key
    pending.into_data()


def test_a_device_that_is_not_fused_has_nothing_to_tell() -> None:
    with pytest.raises(DeviceError, match=r"nothing is fused(?s:.)*given: *Device\(cpu, LibTorch\)(?s:.)*fused\(\)"):
        Device.cpu().explain()


def test_the_config_that_was_chosen_is_reported_with_who_chose_it(x: Tensor) -> None:
    """As the tuner decided last, under the name of the kernel or of the same one in a recorded program."""
    step = compile(gelu, fuse=True)
    (before,) = explain(step, x).fusion.kernels  # type: ignore[union-attr]  # it is fused
    assert before.tiles_from == "default"
    assert "64 x 1 elements a program, 4 warps\n" in str(before)
    asked: list[str] = []

    def choices(name: str) -> tuple[Tiles, str] | None:
        asked.append(name)
        return (Tiles(32, 1, 2, 3), "measured") if len(asked) == 2 else None

    with choosing(tiles=choices):
        (after,) = explain(step, x).fusion.kernels  # type: ignore[union-attr]  # it is fused
    assert asked[0] == before.name
    assert after.tiles == Tiles(32, 1, 2, 3)
    assert "32 x 1 elements a program, 2 warps, 3 stages, measured\n" in str(after)


def test_decisions_of_the_tuner_are_found_by_the_kernels_name() -> None:
    pytest.importorskip("triton")
    from burn_kernels.autotune import selection
    from burn_torch.backend.libtorch.generated.tuning import last_tiles

    decision = types.SimpleNamespace(
        tunable=types.SimpleNamespace(name="fused_told"), config=Tiles(8, 1, 1), source="shipped"
    )
    decisions = selection.current().decisions
    decisions["told"] = decision  # type: ignore[index, assignment]  # a stand-in
    try:
        assert last_tiles("fused_told") == (Tiles(8, 1, 1), "shipped")
        assert last_tiles("fused_other") is None
    finally:
        del decisions["told"]  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("count", ["1", -1, True, 1.0, None])
def test_a_number_of_kernels_is_a_whole_number(count: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"max_kernels must be a whole number(?s:.)*given: *max_kernels=(?s:.)*max_kernels=1\)"
    ):
        assert_fused(gelu, max_kernels=count)


@pytest.mark.parametrize("fuse", ["yes", 1, 0])
def test_to_fuse_is_yes_or_no(fuse: Any) -> None:
    with pytest.raises(ArgumentError, match=r"compile: fuse is not(?s:.)*given(?s:.)*True or False or None"):
        compile(gelu, fuse=fuse)


def test_pages_that_cannot_be_written(x: Tensor, tmp_path: Path) -> None:
    explanation = explain(compile(gelu, fuse=True), x)
    for show in (explanation.show, explanation.fusion.show, Device.cpu().fused().explain().show):  # type: ignore[union-attr]  # fused
        for path in (tmp_path, tmp_path / "nowhere" / "page.html"):
            with pytest.raises(ArtifactError, match=r"page cannot be written(?s:.)*given: *.*(?s:.)*page.html"):
                show(path)
    assert list(tmp_path.iterdir()) == []


def test_pages_of_streams_and_of_functions(x: Tensor, tmp_path: Path) -> None:
    page = explain(compile(gelu, fuse=True), x).show(tmp_path / "function.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert "numerics fast" in page
    assert "@triton.jit" in page or "#pragma omp" in page
    assert explain(gelu, x).show(tmp_path / "unfused.html").read_text(encoding="utf-8").count("<svg") == 1
    device = Device.cpu().fused()
    device.flush()
    block(x.to_device(device)).into_data()
    explanation = device.explain()
    page = explanation.show(tmp_path / "stream.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(explanation.programs) >= 1
    assert explanation.programs[-1].title in page
