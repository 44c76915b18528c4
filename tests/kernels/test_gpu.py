"""Tests that need a GPU: accuracy at real sizes, offsets past 32 bits, CUDA graphs, the same bits twice."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks._kernels.large import large
from burn_kernels import (
    REGISTRY,
    Problem,
    activation,
    attention,
    batch_norm,
    convolution,
    cross_entropy,
    dropout,
    embedding,
    glu,
    group_norm,
    matmul,
    norm,
    optimizer,
    reduce,
    residual_norm,
    rope,
    softmax,
    verify,
)
from burn_kernels.attention import library as attention_library
from burn_kernels.attention.configs import backward_candidates
from burn_kernels.convolution.configs import tile_candidates
from burn_kernels.launch import machine_of
from burn_kernels.spec import Draw

pytestmark = pytest.mark.gpu

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_errors_are_those_of_torch_at_five_seeds(name: str, dtype: torch.dtype) -> None:
    for seed in range(5):
        for problem in large(name, Draw(seed)):
            assert verify(REGISTRY[name], problem, dtype=dtype, device="cuda", seed=seed) == []


@pytest.mark.usefixtures("alone_on_the_gpu")
def test_offsets_past_32_bits() -> None:
    # the last rows lie behind element 2^31
    rows, cols = 2**31 // 16384 + 8, 16384
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    y = softmax.forward(x)
    torch.testing.assert_close(y[-4:], torch.softmax(x[-4:], -1))
    del y
    z, _ = norm.rms_norm(x, None)
    torch.testing.assert_close(z[-4:], torch.nn.functional.rms_norm(x[-4:], (cols,), None, 1e-5))
    del z
    torch.testing.assert_close(dropout.forward(x, 0.0, 1, 2)[-1], x[-1])
    torch.testing.assert_close(glu.forward(x, x, kind="relu")[-1], torch.relu(x[-1]) * x[-1])
    torch.testing.assert_close(activation.forward(x, kind="relu")[-1], torch.relu(x[-1]))
    x[-1, 5] = 100.0
    assert reduce.argmax(x).item() == (rows - 1) * cols + 5
    torch.testing.assert_close(reduce.amax(x, 1)[-4:], x[-4:].amax(1))
    targets = torch.randint(0, cols, (rows,), device="cuda")
    losses, _ = cross_entropy.forward(x, targets, reduction="none")
    expected = torch.nn.functional.cross_entropy(x[-4:].float(), targets[-4:], reduction="none")
    torch.testing.assert_close(losses[-4:], expected)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_every_way_to_a_linear_layer(dtype: torch.dtype) -> None:
    draw = Draw(3)
    for shape, features in (((300, 515), 777), ((7, 64), 4096), ((1, 1000), 50)):
        for kind in matmul.KINDS:
            problem = Problem(
                (
                    draw.normal(*shape),
                    draw.normal(features, shape[1], std=shape[1] ** -0.5),
                    draw.normal(features),
                    None,
                ),
                {"kind": kind},
            )
            for kept in (True, False):
                flags = f"{kind} bias{' kept' if kept and matmul.keeps(kind, residual=False) == 'z' else ''}"
                machine = machine_of(torch.empty(0, device="cuda"))
                for config in matmul.candidates(shape[0], features, dtype.itemsize, machine, flags=flags):
                    run = matmul.SPEC.forward if kept else matmul.forward
                    reference = matmul.SPEC.reference if kept else matmul.reference
                    spec = dataclasses.replace(
                        matmul.SPEC,
                        forward=functools.partial(run, config=config),
                        reference=reference,
                        twin_kept=matmul.SPEC.twin_kept if kept else None,
                        gradient=matmul.SPEC.gradient if kept else None,
                        reference_gradient=matmul.SPEC.reference_gradient if kept else None,
                    )
                    assert verify(spec, problem, dtype=dtype, device="cuda") == [], (config, shape)


@pytest.mark.usefixtures("alone_on_the_gpu")
def test_tiles_past_32_bits() -> None:
    # the last rows of x and of the output lie behind element 2^31
    x = torch.randn(2**31 // 4096 + 40, 4096, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    config = matmul.tiles(x.shape[0], 4096, 2, machine_of(x))[1]
    y = matmul.forward(x, w, kind="relu", config=config)
    torch.testing.assert_close(y[-40:], torch.relu(x[-40:] @ w.T), rtol=2e-2, atol=2e-2)
    dz, _ = matmul.slope_and_bias(y, y, kind="relu")
    torch.testing.assert_close(dz[-40:], y[-40:])


def test_float32_is_multiplied_as_torch_is_told_to() -> None:
    x, w = (torch.randn(512, 512, device="cuda") for _ in range(2))
    config = matmul.tiles(512, 512, 4, machine_of(x))[0]
    exact = x.double() @ w.double().T

    def error() -> float:
        return float((matmul.forward(x, w, config=config) - exact).norm() / exact.norm())

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert error() < 1e-6
        torch.set_float32_matmul_precision("high")
        assert 1e-5 < error() < 1e-3
    finally:
        torch.set_float32_matmul_precision(before)


def test_dropout_has_the_same_mask_on_the_gpu() -> None:
    x = torch.rand(1_000_003) + 1.0
    for key, stream in ((0, 0), (2**63 - 1, 2**62 + 3), (2**64 - 1, 2**33)):
        assert torch.equal(dropout.forward(x.cuda(), 0.3, key, stream).cpu(), dropout.forward(x, 0.3, key, stream))


def in_a_graph(call: Callable[[], Any]) -> Any:
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch is not typed there
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    graph.replay()
    torch.cuda.synchronize()
    return out


def test_launchers_never_wait_so_a_graph_can_hold_them() -> None:
    x, targets = torch.randn(64, 1000, device="cuda"), torch.randint(0, 1000, (64,), device="cuda")
    w = torch.randn(1000, device="cuda")
    y, mean, rstd = norm.layer_norm(x, w, w)
    table = optimizer.table([x.clone()], [x], [x.clone()], [x * x], in_place=True)
    heads = torch.randn(2, 4, 100, 64, device="cuda", dtype=torch.bfloat16)
    read, sums = attention.forward(heads, heads, heads, softcap=9.0)
    steps = rope.turns(100, device="cuda")
    images, kernels = x.view(10, 10, 8, 80), torch.randn(10, 10, 3, 3, device="cuda")
    calls: list[Callable[[], Any]] = [
        lambda: softmax.forward(x),
        lambda: norm.layer_norm_backward(y, x, w, mean, rstd),
        lambda: cross_entropy.forward_with_gradient(x, targets),
        lambda: glu.backward(x, y, x),
        lambda: dropout.forward(x, 0.5, 3, 4),
        lambda: activation.backward(y, x),
        lambda: residual_norm.rms_norm(x, y, w, prob=0.1, key=1, stream=2),
        lambda: reduce.var(x, 0),
        lambda: embedding.backward(x, targets, rows=1000, scale_by_frequency=True),
        lambda: rope.forward_computed(x.view(1, 64, 10, 100), None, steps),
        lambda: attention.forward(heads, heads, heads, causal=True),
        lambda: attention.backward(heads, heads, heads, heads, None, None, read, sums, softcap=9.0)[:3],
        lambda: matmul.slope_and_bias(y, matmul.forward(x, x.T @ x), kind="silu"),
        lambda: optimizer.adamw_(table, lr=1e-3, step=4),
        lambda: batch_norm.forward(images, None, None, activation="relu")[:3],
        lambda: group_norm.forward(images, None, None, 5),
        lambda: convolution.forward(images, kernels, relu=True, pool="max"),
        lambda: convolution.backward(images[:, :, 2:, 2:], images, kernels, None)[:2],
    ]
    for call in calls:
        torch.testing.assert_close(in_a_graph(call), call())


def test_the_same_bits_twice() -> None:
    x, dy, w = (torch.randn(*shape, device="cuda") for shape in ((999, 1000), (999, 1000), (1000,)))
    _, mean, rstd = norm.layer_norm(x, w, w)
    first = norm.layer_norm_backward(dy, x, w, mean, rstd)
    for _ in range(5):
        for one, other in zip(norm.layer_norm_backward(dy, x, w, mean, rstd), first, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "cols"), [(1, 40_001), (7, 50_257), (300, 56_320), (133, 33_003)])
def test_cross_entropy_of_rows_that_stay_in_registers(rows: int, cols: int, dtype: torch.dtype) -> None:
    x = (3.0 * torch.randn(rows, cols, device="cuda")).to(dtype)
    targets, dloss = torch.randint(0, cols, (rows,), device="cuda"), torch.randn(rows, device="cuda")
    targets[::5] = 3
    least = 6e-8 if dtype == torch.float16 else 1e-10  # its smallest number
    weight = torch.rand(cols, device="cuda") + 0.1
    options: dict[str, Any] = {"weight": weight, "z_loss": 0.02, "ignore_index": 3, "reduction": "none"}
    losses, dx = cross_entropy.forward_with_gradient_(x.clone(), targets, dloss=dloss, **options)
    expected, lse = cross_entropy.reference(x.double(), targets, **options)
    slope = cross_entropy.reference_backward(dloss.double(), x.double(), targets, lse, **options)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dx.double(), slope, rtol=2 * torch.finfo(dtype).eps, atol=least)
    loss, dx = cross_entropy.forward_with_gradient(x, targets, ignore_index=3)
    again = cross_entropy.forward_with_gradient(x, targets, ignore_index=3)
    assert torch.equal(dx, again[1])
    expected, lse = cross_entropy.reference(x.double(), targets, ignore_index=3)
    slope = cross_entropy.reference_backward(torch.ones_like(expected), x.double(), targets, lse, ignore_index=3)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(dx.double(), slope, rtol=2 * torch.finfo(dtype).eps, atol=least)


def test_cross_entropy_in_place_at_sizes_where_threads_could_overtake_each_other() -> None:
    for cols in (10, 129, 32000, 50257):
        x, targets = torch.randn(512, cols, device="cuda").bfloat16(), torch.randint(0, cols, (512,), device="cuda")
        loss, dx = cross_entropy.forward_with_gradient(x, targets)
        for _ in range(3):
            spare = x.clone()
            in_place = cross_entropy.forward_with_gradient_(spare, targets)
            assert in_place[1] is spare
            assert torch.equal(in_place[1], dx)
            assert torch.equal(in_place[0], loss)


@pytest.mark.parametrize("library", [False, True], ids=["direct", "torch's"])
def test_convolutions_of_both_kinds_agree_with_float64(library: bool) -> None:
    x, w, b = (torch.randn(*shape, device="cuda") for shape in ((64, 8, 26, 26), (16, 8, 3, 3), (16,)))
    exact = torch.nn.functional.conv2d(x.double(), w.double(), b.double()).relu()
    with torch.backends.cudnn.flags(allow_tf32=False):
        config = convolution.LIBRARY if library else convolution.Config(8, 512, 4)
        y, passed = convolution.forward(x, w, b, relu=True, config=config)
        assert passed is None
        torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)
        dy = torch.randn_like(y)
        weights = convolution.LIBRARY_WEIGHTS if library else convolution.WeightConfig(8, 3, 32, 1, 16)
        grads = convolution.backward(dy, x, w, b, y, relu=True, config=config, weight_config=weights)
    wide = (dy.double(), x.double(), w.double(), b.double(), y.double())
    for one, other in zip(grads, convolution.reference_backward(*wide, relu=True), strict=True):
        assert one is not None
        assert other is not None
        # sums of 37000 products of order 1
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tiles_of_convolutions_agree_with_float64(dtype: torch.dtype) -> None:
    x, w, b, dy = (
        torch.randn(*shape, device="cuda").to(dtype)
        for shape in ((32, 8, 26, 25), (16, 8, 3, 3), (16,), (32, 16, 26, 25))
    )
    wide_dy, *wide = (t.double() for t in (dy, x, w, b))
    y, _ = convolution.reference(*wide, padding=1)
    exact = y, *convolution.reference_backward(wide_dy, *wide, padding=1)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for config in tile_candidates(8, 16, 9, machine_of(x)):
            weights = convolution.WeightConfig(16, 3, 32, 1, 8, config.channels)
            y, _ = convolution.forward(x, w, b, padding=1, config=config)
            grads = convolution.backward(dy, x, w, b, padding=1, config=config, weight_config=weights)
            for one, other in zip((y, *grads), exact, strict=True):
                assert one is not None
                assert other is not None
                assert (one.double() - other).norm() < (1e-3 if dtype == torch.float32 else 5e-3) * other.norm(), config
    finally:
        torch.set_float32_matmul_precision(before)


def test_attention_is_the_same_by_every_config_and_twice() -> None:
    q, dy = (torch.randn(2, 8, 700, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    k, v = (torch.randn(2, 2, 700, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bias = torch.randn(1, 8, 700, 700, device="cuda", dtype=torch.bfloat16)
    for added, rule in ((None, {"causal": True}), (bias, {"softcap": 20.0})):
        run: Any = functools.partial(attention.forward, **rule)
        back: Any = functools.partial(attention.backward, **rule)
        y, lse = attention.reference(q, k, v, None, added, **rule)
        exact = attention.reference_backward(dy, q, k, v, None, added, y, lse, **rule)
        machine = machine_of(q)
        for config in attention.candidates(64, 2, machine, extras=len(rule)):
            torch.testing.assert_close(run(q, k, v, None, added, config=config)[0], y, rtol=2e-2, atol=2e-2)
        for loop in backward_candidates(64, 2, machine, extras=len(rule)):
            first, again = (back(dy, q, k, v, None, added, y, lse, config=loop) for _ in range(2))
            for one, other, expected in zip(first, again, exact, strict=True):
                if one is not None:
                    assert torch.equal(one, other)
                    torch.testing.assert_close(one, expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("number", [attention_library.FLASH, attention_library.CUDNN, attention_library.EFFICIENT])
def test_torchs_kernels_and_ours_can_follow_each_other(number: int) -> None:
    q, k, v, dy = (torch.randn(2, 4, 300, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    theirs = attention.Config(number, 0, 0, 0, 0)
    y, lse = attention.forward(q, k, v, causal=True, config=theirs)
    exact = attention.reference(q, k, v, causal=True)
    torch.testing.assert_close(y, exact[0], rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse, exact[1], rtol=1e-3, atol=1e-3)
    expected = attention.reference_backward(dy, q, k, v, None, None, *exact, causal=True)
    back = attention.BackwardConfig(number, 0, 0, 0, 0)
    # theirs then ours, theirs twice, ours then theirs: our y lies in another order
    for outputs, config, deterministic in (((y, lse), None, True), ((y, lse), back, False), (exact, back, False)):
        grads = attention.backward(
            dy, q, k, v, None, None, *outputs, causal=True, config=config, deterministic=deterministic
        )
        for one, other in zip(grads[:3], expected[:3], strict=True):
            assert one is not None
            torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)


@pytest.mark.usefixtures("alone_on_the_gpu")
def test_attention_past_32_bits() -> None:
    # the third batch entry begins past element 2^31
    room = torch.empty(2 * 2**30 + 2**20, device="cuda", dtype=torch.bfloat16)
    far = room.as_strided((3, 1, 64, 64), (2**30 + 8, 4096, 64, 1)).copy_(torch.randn(3, 1, 64, 64))
    near = far.contiguous()
    y, _ = attention.forward(far, far, far, softcap=9.0)
    torch.testing.assert_close(y, attention.forward(near, near, near, softcap=9.0)[0], rtol=0.0, atol=0.0)
