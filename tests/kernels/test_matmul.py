"""Linear layers: what is kept, which ways there are, when tf32 is allowed, and what the launchers refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelError, KernelShapeError, matmul
from burn_kernels.autotune.cost import choice
from burn_kernels.launch import A100, H200, MI300X, recording

X, W, B = torch.ones(4, 6), torch.ones(3, 6), torch.ones(3)


def test_what_is_kept() -> None:
    y, kept = matmul.forward_kept(X, W, B)
    assert kept is None
    y, kept = matmul.forward_kept(X, W, B, kind="relu")
    assert kept is y
    y, kept = matmul.forward_kept(X, W, B, y, kind="relu")
    assert kept is not None
    assert torch.equal(kept, torch.full((4, 3), 7.0))
    y, kept = matmul.forward_kept(-X, W, B, kind="silu")
    assert kept is not None
    assert torch.equal(kept, torch.full((4, 3), -5.0))


def test_gradients_that_nobody_asks_for_are_not_computed() -> None:
    dx, dw, db = matmul.backward(torch.ones(4, 3), X, W, None, bias=False, needs=(False, True))
    assert dx is None
    assert dw is not None
    assert db is None


def test_without_timings_the_library_is_taken_whatever_the_sizes() -> None:
    for machine in (H200, A100, MI300X):
        for rows, features, inner in ((1, 64, 64), (16, 4096, 64), (8192, 8192, 128), (8192, 16_384, 4096)):
            facts = matmul.facts(torch.bfloat16, rows, features, inner, (inner, inner), 0, "gelu bias kept")
            named = matmul.FORWARD.named(facts, machine)
            first, *others = named.values()
            assert first == matmul.default(rows, features, 2, machine) == matmul.Config(matmul.LIBRARY)
            assert others
            works = {name: matmul.FORWARD.work(config, facts, machine) for name, config in named.items()}
            assert named[choice(works, machine)] == first


@pytest.mark.parametrize("sizes", [(0, 5, 3), (4, 5, 0)], ids=str)
def test_of_nothing_the_library_computes_without_a_choice(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # prices are of an element, so the cost model divided by 0
    rows, inner, features = sizes
    asked = []

    def run(_: object, like: object, config: object, call: object, launch: Callable[[object], object]) -> object:
        asked.append(config)
        return launch(config)

    monkeypatch.setattr(type(matmul.FORWARD), "run", run)
    with recording(H200):
        x, w = torch.empty(rows, inner, device="meta"), torch.empty(features, inner, device="meta")
        assert matmul.forward(x, w, kind="gelu").shape == (rows, features)
    assert asked == [matmul.Config(matmul.LIBRARY)]


def test_the_librarys_own_ending_is_for_what_it_can() -> None:
    def ways(flags: str, itemsize: int = 2) -> set[int]:
        return {config.way for config in matmul.candidates(64, 64, itemsize, H200, flags=flags)}

    assert matmul.ENDING in ways("relu bias")
    assert matmul.ENDING in ways("gelu_tanh bias")
    for flags in ("relu", "gelu bias", "gelu_tanh bias kept", "relu bias residual", "silu bias"):
        assert matmul.ENDING not in ways(flags)
    assert matmul.ENDING in ways("relu bias", 4)
    assert matmul.ENDING not in ways("gelu_tanh bias", 4)  # the library's is right for half types only
    for dtype, right in ((torch.float16, True), (torch.float32, False)):
        facts = matmul.facts(dtype, 64, 64, 64, (64, 64), 0, "gelu_tanh bias")
        assert matmul.FORWARD.supports(matmul.Config(matmul.ENDING), facts) == right
    assert matmul.ENDING not in {c.way for c in matmul.candidates(64, 64, 2, MI300X, flags="relu bias")}


def test_tf32_is_used_where_torch_uses_it() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        for name, allowed in (("highest", False), ("high", True), ("highest", False)):
            torch.set_float32_matmul_precision(name)
            assert matmul.in_tf32(X) is allowed
            assert not matmul.in_tf32(X.bfloat16())
            with recording(H200) as launches:
                matmul.forward(X, W, config=matmul.tiles(4, 3, 4, H200)[0])
            assert launches[0].constants["PRECISION"] == ("tf32" if allowed else "ieee")
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"linear: the sizes do not fit.*x \(4, 6\).*w \(5, 4\).*w \(features, inner\).*pass w.T",
            lambda: matmul.forward(X, torch.ones(5, 4)),
        ),
        (
            KernelShapeError,
            r"linear: bias has another shape.*expected: bias \(3,\)",
            lambda: matmul.forward(X, W, torch.ones(4)),
        ),
        (
            KernelShapeError,
            r"linear: residual has another shape.*expected: residual \(4, 3\)",
            lambda: matmul.forward(X, W, B, X),
        ),
        (
            KernelArgumentError,
            r"linear: no such activation.*'mish'.*one of none, .*exact form",
            lambda: matmul.forward(X, W, kind="mish"),
        ),
        (
            KernelArgumentError,
            r"linear backward: what the forward kept is missing.*kind 'silu', kept None.*second result of forward_kept",
            lambda: matmul.slope_and_bias(torch.ones(4, 3), None, kind="silu"),
        ),
        (
            KernelArgumentError,
            r"linear backward: what the forward kept is not needed.*kind 'none', kept \(4, 3\).*None without an act",
            lambda: matmul.slope_and_bias(torch.ones(4, 3), torch.ones(4, 3)),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
