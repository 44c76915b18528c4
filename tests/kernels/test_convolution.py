"""Direct convolutions: the rule that takes them without timing, how work is cut, and what the launchers refuse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import burn_kernels.torch  # noqa: F401  # registers the operators
from burn_kernels import (
    KernelArgumentError,
    KernelDeviceError,
    KernelDTypeError,
    KernelError,
    KernelShapeError,
    convolution,
)
from burn_kernels.autotune.trial import Trial
from burn_kernels.convolution import LIBRARY, Config, Geometry, is_direct
from burn_kernels.convolution import choice as convolution_choice
from burn_kernels.convolution import depthwise as convolution_depthwise
from burn_kernels.convolution import launch_backward as convolution_backward
from burn_kernels.convolution.choice import is_first
from burn_kernels.convolution.configs import (
    STEPS,
    direct_candidates,
    direct_weight_candidates,
    shares,
    tile_weight_candidates,
)
from burn_kernels.convolution.planes import MOST_PRODUCTS, plane_shares
from burn_kernels.convolution.references import in_tf32
from burn_kernels.convolution.steps import by_steps, takes_steps
from burn_kernels.launch import A100, H200, MI300X, Machine, recording

X, W = torch.ones(2, 4, 6, 6), torch.ones(8, 4, 3, 3)


def operator(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None) -> object:
    """The operator of PyTorch; its fake computes where a tensor is on the meta device."""
    run: Any = torch.ops.burn_kernels.convolution
    return run(x, w, b, [1, 1], [0, 0], [1, 1], 1, False, "none", 1, 0.0, None)


def sizes(batch: int, channels: int, side: int, outs: int, kernel: int, stride: int = 1, groups: int = 1) -> Geometry:
    pad = kernel // 2 if kernel % 2 and side > 30 else 0
    return Geometry(batch, channels, side, side, outs, kernel, kernel, stride, stride, pad, pad, 1, 1, groups)


@pytest.mark.parametrize(
    ("geometry", "dtype", "direct"),
    [
        (sizes(64, 1, 28, 8, 3), torch.float32, True),  # the Burn book's first layer: memory rules
        (sizes(4096, 1, 28, 8, 3), torch.float32, True),
        (sizes(64, 8, 26, 16, 3), torch.float32, True),  # its second: few channels, little work
        (sizes(512, 8, 26, 16, 3), torch.float32, True),
        (sizes(128, 3, 32, 32, 3), torch.float32, True),  # a first layer
        (sizes(128, 16, 32, 16, 3), torch.float32, False),  # in tf32 it is, see below
        (sizes(128, 32, 16, 32, 3), torch.float32, False),  # channels for a library
        (sizes(4096, 8, 26, 16, 3), torch.float32, False),  # much work
        (sizes(512, 8, 26, 16, 3), torch.bfloat16, False),  # for which half types have tensor cores
        (sizes(32, 64, 56, 64, 3, groups=64), torch.bfloat16, True),  # depthwise
        (sizes(32, 3, 224, 64, 7, 2), torch.float32, False),  # a stem
        (sizes(32, 3, 224, 64, 7, 2), torch.bfloat16, False),
        (sizes(32, 64, 56, 64, 3), torch.float32, False),
    ],
)
def test_the_choice_without_timings(geometry: Geometry, dtype: torch.dtype, direct: bool) -> None:
    assert is_direct(geometry, dtype) == direct
    configs = convolution.candidates(geometry, dtype, H200)
    tiles = is_first(geometry) and dtype == torch.bfloat16  # of a first layer they are faster, see below
    assert (configs[0] != LIBRARY) == (direct or tiles)
    assert LIBRARY in configs
    assert convolution.default(geometry, dtype, H200) == configs[0]


@pytest.mark.parametrize(
    ("geometry", "plane"),
    [
        (sizes(32, 64, 56, 64, 3, groups=64), True),
        (sizes(32, 64, 56, 64, 7, groups=64), True),
        (sizes(32, 64, 7, 64, 2, groups=64), True),
        (sizes(32, 64, 56, 64, 3, 2, groups=64), False),  # steps of 2
        (sizes(32, 64, 56, 64, 9, groups=64), False),  # 81 sums of dw
        (sizes(32, 32, 56, 64, 3, groups=32), False),  # two planes from one
        (sizes(32, 64, 56, 64, 3)._replace(groups=64, pad_w=2), False),  # an output wider than the input
    ],
)
def test_which_convolutions_are_of_planes(geometry: Geometry, plane: bool) -> None:
    assert convolution.is_plane(geometry) == plane
    assert not plane or is_direct(geometry, torch.bfloat16)


def test_tiles_are_candidates_of_a_stem_where_torch_allows_tf32_in_convolutions() -> None:
    geometry, other = sizes(32, 3, 224, 64, 7, 2), sizes(32, 3, 224, 32, 3, 2)
    for allowed in (True, False):
        with torch.backends.cudnn.flags(allow_tf32=allowed):
            assert in_tf32(torch.float32, geometry) == allowed
            assert not in_tf32(torch.float32, other)
            assert any(config.channels for config in convolution.candidates(geometry, torch.float32, H200)) == allowed
            assert not any(config.channels for config in convolution.candidates(other, torch.float32, H200))


def test_what_computes_a_first_layer_without_timings() -> None:
    stem, patches, other = sizes(32, 3, 224, 64, 7, 2), sizes(32, 3, 224, 96, 4, 4), sizes(32, 16, 224, 64, 3, 2)

    def chosen(geometry: Geometry, dtype: torch.dtype, machine: Machine) -> tuple[bool, bool, bool]:
        """Asks whether tiles compute y and dw, and steps of 1 dx."""
        learned = convolution_choice.facts_of(
            dtype, geometry, 0, True, convolution_choice.words_of(dtype, geometry, "b")
        )
        data = learned._replace(flags="")
        dw = convolution_backward.WEIGHTS.candidates(learned, machine)[0]
        configs = convolution_backward.DATA.candidates(data, machine)
        assert STEPS in configs
        assert convolution_backward.DATA.supports(STEPS, data)
        return bool(convolution.default(geometry, dtype, machine).channels), bool(dw.channels), configs[0] == STEPS

    assert chosen(stem, torch.bfloat16, H200) == chosen(patches, torch.float16, H200) == (True, True, True)
    assert chosen(other, torch.bfloat16, H200) == (False, False, False)
    # cuDNN's weight gradient of a stem is in tf32 too; the rest is exact, or may be
    assert chosen(stem, torch.float32, H200) == (False, True, False)
    assert chosen(patches, torch.float32, H200) == (False, False, False)
    assert chosen(stem, torch.float32, A100) == (False, False, False)
    assert chosen(stem, torch.bfloat16, A100) == (False, False, False)
    for case in (sizes(32, 3, 224, 32, 3), sizes(32, 32, 56, 64, 3, 2), sizes(32, 4, 56, 4, 3, 2, groups=4)):
        facts = convolution_choice.facts_of(torch.bfloat16, case, 0, True, "")
        assert STEPS not in convolution_backward.DATA.candidates(facts, H200)
        assert not convolution_backward.DATA.supports(STEPS, facts)


@pytest.mark.parametrize(
    ("size", "kernel", "steps", "pad"),
    [
        ((20, 21), (7, 7), (2, 2), (3, 3)),
        ((16, 16), (4, 4), (4, 4), (0, 0)),
        ((13, 11), (5, 3), (2, 3), (2, 0)),
        ((15, 9), (3, 2), (3, 1), (1, 1)),
        ((14, 14), (2, 2), (3, 3), (0, 0)),  # pixels that nothing reads
        ((9, 9), (3, 3), (2, 2), (5, 4)),  # outputs that read nothing
    ],
)
def test_a_gradient_by_steps_of_one_is_that_of_steps(
    size: tuple[int, int], kernel: tuple[int, int], steps: tuple[int, int], pad: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True), torch.randn(4, 3, *kernel).double()
    y = torch.nn.functional.conv2d(x, w, None, steps, pad)
    dz = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, x, dz)
    geometry = convolution.geometry("a test", x, w, None, steps, pad, 1, 1)
    assert takes_steps(geometry)
    dx = by_steps(dz, w, geometry)
    assert dx.is_contiguous()
    torch.testing.assert_close(dx, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("side", "kernel"), [(56, 3), (7, 3), (1, 1), (14, 7), (30, 5)])
def test_lanes_of_planes_cover_the_images(side: int, kernel: int, dtype: torch.dtype) -> None:
    geometry = Geometry(64, 96, side, side, 96, kernel, kernel, 1, 1, kernel // 2, kernel // 2, 1, 1, 96)
    for machine in (H200, A100, MI300X):
        configs = convolution_depthwise.candidates(geometry, dtype, machine)
        torchs = [at for at, config in enumerate(configs) if config == convolution_depthwise.LIBRARY]
        assert torchs == ([0] if machine.backend == "hip" and kernel == 7 else [len(configs) - 1])
        assert convolution_depthwise.default(geometry, dtype, machine) == configs[0]
        for config in (config for config in configs if config != convolution_depthwise.LIBRARY):
            assert config.cols * dtype.itemsize <= 16
            assert config.rows == 1 or config.rows * config.cols * geometry.taps <= MOST_PRODUCTS
            parts, each = plane_shares(geometry, config, machine)
            lanes = geometry.batch * -(-side // config.rows) * -(-side // config.cols)
            assert (parts - 1) * each < lanes <= parts * each
            assert each % (32 * config.warps) == 0


def test_parts_cover_the_pixels_and_fill_the_machine() -> None:
    for geometry in (
        sizes(64, 8, 26, 16, 3),
        sizes(1, 1, 5, 1, 2),
        sizes(32, 3, 224, 64, 7, 2),
        sizes(9, 6, 31, 6, 5, 1, 6),
    ):
        for machine in (H200, A100, MI300X):
            assert len(direct_candidates(geometry.targets, geometry.kernel_w, geometry.pixels, machine)) >= 1
            for config in (*direct_weight_candidates(geometry, machine), *tile_weight_candidates(geometry, machine)):
                blocks, parts, each = shares(geometry, config, machine)
                assert (parts - 1) * each < geometry.pixels <= parts * each
                assert geometry.kernel_h % config.rows == 0
                read = config.rows * (config.channels or 1)
                assert blocks * config.outs * read >= geometry.outs * geometry.sources * geometry.kernel_h
    blocks, parts, _ = shares(sizes(64, 8, 26, 16, 3), direct_weight_candidates(sizes(64, 8, 26, 16, 3), H200)[0], H200)
    assert blocks * parts >= 4 * H200.processors


@contextlib.contextmanager
def tf32(convolutions: bool, products: bool) -> Iterator[None]:
    """Sets what torch allows meanwhile."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if products else "highest")
    try:
        with torch.backends.cudnn.flags(allow_tf32=convolutions):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("asked", [True, False])
def test_candidates_are_compared_without_the_tf32_that_nobody_asked_for(asked: bool) -> None:
    """autotune: the exact kernels were disqualified beside a library that takes tf32 at large sizes only."""
    geometry, seen = sizes(64, 8, 26, 16, 3), list[str]()

    def look(*anything: Any) -> list[torch.Tensor]:
        conv: Any = torch.backends.cudnn.conv
        seen.append(conv.fp32_precision)
        return []

    with tf32(True, asked):
        words = convolution_choice.words_of(torch.float32, geometry)
        facts = convolution_choice.facts_of(torch.float32, geometry, 0, True, words)
        trial = convolution_choice.compared_exactly(Trial((), look, look), facts)
        trial.run((), None)
        trial.reference(())
        (trial.timed or trial.run)((), None)
        look()
    assert seen == (["tf32"] * 4 if asked else ["ieee", "ieee", "tf32", "tf32"])


@pytest.mark.parametrize("convolutions", [True, False])
@pytest.mark.parametrize("products", [True, False])
def test_float32_is_multiplied_in_tf32_where_somebody_asked_for_it(convolutions: bool, products: bool) -> None:
    geometry, allowed = sizes(64, 8, 26, 16, 3), convolutions and products
    with tf32(convolutions, products):
        assert in_tf32(torch.float32) is allowed
        assert not in_tf32(torch.bfloat16)
        assert is_direct(sizes(128, 16, 32, 16, 3), torch.float32) is allowed
        facts = convolution_choice.facts_of(
            torch.float32, geometry, 0, True, convolution_choice.words_of(torch.float32, geometry)
        )
        assert convolution_choice.digits_of(facts) == (torch.float16 if allowed else torch.float32)
        for machine, tiles in ((H200, allowed), (MI300X, False)):
            configs = convolution.candidates(geometry, torch.float32, machine)
            assert [any(c.channels for c in configs), configs[0].channels > 0] == [tiles, tiles]
            assert all(convolution_choice.supports(c, facts) for c in configs)
        assert convolution_choice.supports(Config(16, 128, 4, 8), facts) is allowed
        assert not any(c.channels for c in convolution.candidates(geometry, torch.bfloat16, MI300X))


def test_tiles_are_for_sums_of_many_terms_to_many_channels() -> None:
    cases = (sizes(64, 1, 28, 8, 3), sizes(64, 8, 26, 3, 3), sizes(64, 3, 32, 32, 3), sizes(8, 8, 13, 8, 11))
    with tf32(True, True):
        first = [convolution.candidates(geometry, torch.float32, H200)[0].channels for geometry in cases]
    assert first == [0, 0, 3, 0]
    relu = convolution_choice.facts_of(torch.float32, sizes(64, 8, 26, 16, 3), 0, True, "b relu tf32")
    assert not convolution_choice.offers_tiles(relu, H200)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_bias_gradient_comes_from_the_pass_of_the_weight_gradient(allowed: bool) -> None:
    def meta(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    x, w, b = meta(64, 8, 26, 26), meta(16, 8, 3, 3), meta(16)
    with tf32(allowed, allowed), recording(H200) as launches:
        y, passed = convolution.forward(x, w, b, relu=True, pool="max")
        convolution.backward(y, x, w, b, y, passed, relu=True, pool="max")
        convolution.backward(meta(64, 16, 24, 24), x, w, b, needs=(False, True, True))
    names = [launch.kernel.fn.__name__ for launch in launches]
    data, weights = ("convolve_tiles", "weigh_tiles") if allowed else ("convolve", "weigh")
    assert names == ["convolve", "spread", data, weights, "join_weights", weights, "join_weights"]


def test_what_is_not_needed_is_not_computed() -> None:
    y, _ = convolution.forward(X, W)
    grads = convolution.backward(y, X, W, None, needs=(True, False, True))
    assert [g is None for g in grads] == [False, True, True]
    grads = convolution.backward(y, X, W, torch.ones(8), needs=(False, False, True))
    assert [g is None for g in grads] == [True, True, False]


def test_no_images_have_gradients_of_zero() -> None:
    y, _ = convolution.forward(X[:0], W, torch.ones(8))
    assert y.shape == (0, 8, 4, 4)
    dx, dw, db = convolution.backward(y, X[:0], W, torch.ones(8))
    assert dx is not None
    assert dw is not None
    assert db is not None
    assert (dx.shape, dw.abs().sum().item(), db.abs().sum().item()) == (X[:0].shape, 0.0, 0.0)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (
            KernelShapeError,
            r"convolution: the sizes do not fit.*x \(2, 4, 6, 6\).*groups 2.*groups \* sources.*as torch.nn.Conv2d",
            {"groups": 2},
        ),
        (KernelShapeError, r"convolution: b has another shape.*b \(3,\).*expected: b \(8,\)", {"b": torch.ones(3)}),
        (
            KernelArgumentError,
            r"convolution: the kernel does not fit.*dilation 3.*at least one pixel.*pad more",
            {"dilation": 3},
        ),
        (
            KernelArgumentError,
            r"convolution: no such pool.*'min' of 2, an output of 4 x 4.*none, max, mean, windows from 1 to 3",
            {"pool": "min"},
        ),
        (
            KernelArgumentError,
            r"convolution: no such pool.*'max' of 4.*torch.nn.functional",
            {"pool": "max", "window": 4},
        ),
        (KernelArgumentError, r"convolution: the probability is outside.*prob -0.5.*from 0 to 1", {"prob": -0.5}),
    ],
)
def test_refusals(error: type[KernelError], message: str, options: dict[str, Any]) -> None:
    call: Callable[..., object] = convolution.forward
    with pytest.raises(error, match=f"(?s){message}"):
        call(X, W, **options)


def test_an_upstream_gradient_of_another_shape_is_refused() -> None:
    with pytest.raises(
        KernelShapeError, match=r"(?s)convolution backward: dy has another shape.*expected: dy \(2, 8, 4, 4\)"
    ):
        convolution.backward(torch.ones(2, 8, 3, 3), X, W, None)
    with pytest.raises(
        KernelShapeError, match=r"(?s)backward: dy has another.*y \(2, 8, 4, 4\).*expected: dy \(2, 8, 4"
    ):
        convolution.backward(torch.ones(2, 8, 3, 3), X, W, None, torch.ones(2, 8, 4, 4), relu=True)
    with pytest.raises(KernelShapeError, match=r"(?s)backward: y has another shape.*expected: y \(2, 8, 4, 4\)"):
        convolution.backward(torch.ones(2, 8, 4, 4), X, W, None, torch.ones(2, 8, 3, 3), relu=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda w: operator(X, w),
        lambda w: operator(X, W, w[:, 0, 0, 0]),
        lambda w: convolution.reference(X, w),
    ],
)
def test_weights_on_another_device_are_refused_without_the_launcher_too(call: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(KernelDeviceError, match=r"(?s)different devices.*float32 cpu.*float32 meta.*all on cpu.*x.to"):
        call(W.to("meta"))


def test_whole_numbers_are_refused_without_the_launcher_too() -> None:
    for run, place in ((convolution.reference, "cpu"), (convolution.forward, "cpu"), (operator, "meta")):
        with pytest.raises(KernelDTypeError, match=r"(?s)int32.*one float type"):
            run(X.to(place, torch.int32), W.to(place, torch.int32))
