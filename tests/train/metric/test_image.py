"""PSNR, SSIM, MS-SSIM and Dice beside scikit-image, scipy and scikit-learn."""

import math

import numpy as np
import pytest
from scipy.ndimage import correlate1d

from burn_torch import ConfigError, Device, ShapeError
from burn_torch.train import (
    DiceInput,
    DiceMetric,
    DiceMetricConfig,
    MsSsimMetric,
    MsSsimMetricConfig,
    PsnrInput,
    PsnrMetric,
    PsnrMetricConfig,
    RegressionOutput,
    SsimMetric,
    SsimMetricConfig,
)

SIZES = (2, 1, 0, 3)


def blurred(image, size, sigma, mode):
    weights = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    for axis in (-2, -1):
        image = correlate1d(image, weights, axis, mode="mirror")
    return image[..., size // 2 : -(size // 2), size // 2 : -(size // 2)] if mode == "valid" else image


def factors(x, y, config):
    """Luminance, and contrast with structure, of one channel, by the formulas of the papers."""
    c1, c2 = (config.k1 * config.pixel_range) ** 2, (config.k2 * config.pixel_range) ** 2
    mx, my, xx, yy, xy = (
        blurred(image, config.kernel_size, config.sigma, config.border) for image in (x, y, x * x, y * y, x * y)
    )
    luminance = (2 * mx * my + c1) / (mx**2 + my**2 + c1)
    return luminance, (2 * (xy - mx * my) + c2) / (xx - mx**2 + yy - my**2 + c2)


def ms_ssim(x, y, config):
    """The mean over channels of one image."""
    channels = []
    for one, other in zip(x, y, strict=True):
        value = 1.0
        for scale, beta in enumerate(config.betas):
            luminance, structure = factors(one, other, config)
            last = scale == len(config.betas) - 1
            value *= max((luminance * structure if last else structure).mean(), 0) ** beta
            height, width = one.shape[0] // 2 * 2, one.shape[1] // 2 * 2
            one, other = (
                image[:height, :width].reshape(height // 2, 2, width // 2, 2).mean((1, 3)) for image in (one, other)
            )
        channels.append(value)
    return np.mean(channels)


@pytest.fixture
def images(seed, tensor):
    """images(shape, scale): batches of pairs, in float32; the first pair is equal."""

    def made(shape, scale=1.0):
        items, pairs = [], []
        for size in SIZES:
            x = (scale * seed.random((size, *shape))).astype(np.float32)
            y = np.clip(x + scale * seed.normal(0, 0.2, x.shape), 0, scale).astype(np.float32)
            if not pairs:
                y[0] = x[0]
            items.append(PsnrInput(tensor(y), tensor(x)))
            pairs.append((y.astype(np.float64), x.astype(np.float64)))
        return items, pairs

    return made


def expect(pairs, value):
    each = [[value(y, x) for y, x in zip(*pair, strict=True)] for pair in pairs]
    return [np.mean(values) if values else math.nan for values in each], np.mean(np.concatenate(each))


@pytest.mark.parametrize(("scale", "epsilon"), [(1.0, 1e-10), (255.0, 1e-4)])
def test_psnr(scale, epsilon, images, check):
    ski = pytest.importorskip("skimage.metrics")
    items, pairs = images((3, 8, 9), scale)

    def value(y, x):
        if (x == y).all():
            return 10 * math.log10(scale**2 / epsilon)
        return ski.peak_signal_noise_ratio(x, y, data_range=scale)

    check(lambda: PsnrMetric(PsnrMetricConfig(scale, epsilon=epsilon)), items, *expect(pairs, value))


def test_psnr_is_the_mean_of_the_images(tensor, feed):
    # errors of 0.1 and 0.01: 20 dB and 40 dB
    outputs = np.stack([np.full((1, 2, 2), 0.1), np.full((1, 2, 2), 0.01)])
    item = RegressionOutput(tensor(0.0), tensor(outputs, np.float64), tensor(np.zeros((2, 1, 2, 2)), np.float64))
    assert feed(PsnrMetric(PsnrMetricConfig(1.0)), [item]) == [pytest.approx(30.0)]


@pytest.mark.parametrize(("channels", "scale"), [(1, 1.0), (3, 255.0)])
def test_ssim_is_that_of_scikit_image(channels, scale, images, check):
    ski = pytest.importorskip("skimage.metrics")
    items, pairs = images((channels, 14, 17), scale)

    def value(y, x):
        return ski.structural_similarity(
            x, y, data_range=scale, channel_axis=0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )

    check(lambda: SsimMetric(SsimMetricConfig(scale)), items, *expect(pairs, value))


@pytest.mark.parametrize("border", ["valid", "reflect"])
def test_ssim_with_other_settings(border, images, check):
    config = SsimMetricConfig(2.0).with_kernel_size(5).with_sigma(0.8).with_k1_k2(0.02, 0.05).with_border(border)
    items, pairs = images((2, 7, 6), 2.0)
    batches, whole = expect(pairs, lambda y, x: np.mean(np.prod(factors(y, x, config), 0)))
    check(lambda: SsimMetric(config), items, batches, whole)


def test_ssim_of_flat_images(tensor, feed):
    # nothing varies: (2 x y + c1) / (x^2 + y^2 + c1)
    flat = [
        PsnrInput(tensor(np.full((1, 1, 12, 12), x)), tensor(np.full((1, 1, 12, 12), y))) for x, y in [(0, 1), (1, 1)]
    ]
    assert feed(SsimMetric(SsimMetricConfig(1.0)), flat) == pytest.approx([1e-4 / (1 + 1e-4), 1.0], rel=1e-6)


@pytest.mark.parametrize("border", ["valid", "reflect"])
def test_ms_ssim(border, images, check):
    config = MsSsimMetricConfig(1.0, kernel_size=3, sigma=1.0, channels=2, border=border)
    items, pairs = images((2, 50, 57))
    check(lambda: MsSsimMetric(config), items, *expect(pairs, lambda y, x: ms_ssim(y, x, config)))


def test_ms_ssim_of_one_scale_is_ssim(images, feed):
    items, _ = images((3, 12, 13))
    one = MsSsimMetric(MsSsimMetricConfig(1.0).with_betas((1.0,)))
    ssim = SsimMetric(SsimMetricConfig(1.0))
    feed(one, items[:1])
    feed(ssim, items[:1])
    assert one.value() == pytest.approx(ssim.value(), rel=1e-12)


def test_ms_ssim_of_opposites_is_not_negative(tensor, feed):
    board = np.indices((1, 1, 12, 12)).sum(0) % 2
    item = PsnrInput(tensor(board), tensor(1 - board))
    assert feed(MsSsimMetric(MsSsimMetricConfig(1.0, channels=1, betas=(1.0,))), [item]) == [0.0]


@pytest.mark.parametrize("device", [Device.cpu().autodiff(), Device.ndarray()], ids=["autodiff", "ndarray"])
def test_other_devices(device, images, tensor, feed):
    _, pairs = images((1, 12, 12))
    for make in (lambda: SsimMetric(SsimMetricConfig(1.0)), lambda: PsnrMetric(PsnrMetricConfig(1.0))):
        here = feed(make(), [PsnrInput(tensor(y), tensor(x)) for y, x in pairs[:1]])
        there = feed(make(), [PsnrInput(tensor(y, device=device), tensor(x, device=device)) for y, x in pairs[:1]])
        assert there == pytest.approx(here, rel=1e-12)


@pytest.mark.parametrize(("classes", "background"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("data", ["random", "empty"])
def test_dice(classes, background, data, seed, check, tensor):
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    epsilon, items, pairs = 1e-9, [], []
    for size in SIZES:
        shape = (size, classes, 4, 5)
        masks = [np.zeros(shape, int) if data == "empty" else seed.integers(0, 2, shape) for _ in range(2)]
        items.append(DiceInput(*(tensor(mask, np.int64) for mask in masks)))
        pairs.append([mask if background or classes == 1 else mask[:, 1:] for mask in masks])

    def expected(x, y):
        if not x.size:
            return math.nan
        return f1_score(y.ravel(), x.ravel(), zero_division=1.0)

    check(
        lambda: DiceMetric.with_config(DiceMetricConfig(epsilon=epsilon, include_background=background)),
        items,
        [expected(x, y) for x, y in pairs],
        expected(*(np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))),
    )


def test_names_and_defaults():
    assert PsnrMetric(PsnrMetricConfig(255.0)).name == "PSNR@255"
    assert SsimMetric(SsimMetricConfig(1.0)).name == "SSIM (dr=1, w=11, σ=1.5)"
    assert MsSsimMetric(MsSsimMetricConfig(255.0)).name == "MS-SSIM (pr=255, k=11, σ=1.5)"
    assert SsimMetric(SsimMetricConfig(1.0)).with_name("mine").name == "mine"
    config = MsSsimMetricConfig(1.0)
    assert (config.k1, config.k2, config.channels) == (0.01, 0.03, 3)
    assert config.betas == (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
    assert DiceMetric().config == DiceMetricConfig(epsilon=1e-7, include_background=False)
    assert PsnrMetricConfig(1.0).with_epsilon(1e-8).epsilon == 1e-8
    assert PsnrMetricConfig.from_json(PsnrMetricConfig(2.0).to_json()) == PsnrMetricConfig(2.0)


def test_faults(tensor, feed):
    with pytest.raises(ConfigError, match=r"max_pixel_val[\s\S]*above 0[\s\S]*epsilon"):
        PsnrMetricConfig(0.0, epsilon=-1.0)
    with pytest.raises(ConfigError, match=r"kernel_size[\s\S]*odd"):
        SsimMetricConfig(1.0, kernel_size=4)
    with pytest.raises(ConfigError, match=r"border[\s\S]*'valid' or 'reflect'"):
        SsimMetricConfig(1.0, border="wrap")
    with pytest.raises(ConfigError, match=r"betas"):
        MsSsimMetricConfig(1.0, betas=())
    with pytest.raises(ConfigError, match=r"epsilon"):
        DiceMetricConfig(epsilon=0.0)

    def pair(x, y=None):
        return PsnrInput(tensor(np.zeros(x)), tensor(np.zeros(x if y is None else y)))

    with pytest.raises(ShapeError, match=r"PsnrMetric: these are not images\n  given:    outputs \(2, 8, 8\)"):
        feed(PsnrMetric(PsnrMetricConfig(1.0)), [pair((2, 8, 8))])
    with pytest.raises(
        ShapeError, match=r"PsnrMetric: the outputs do not fit the targets\n  given:    outputs \(1, 1, 8, 8"
    ):
        feed(PsnrMetric(PsnrMetricConfig(1.0)), [pair((1, 1, 8, 8), (1, 1, 8, 9))])
    with pytest.raises(
        ShapeError, match=r"SsimMetric: .*\n  given:    images \(1, 1, 12, 10\)\n  expected: .*11 or more"
    ):
        feed(SsimMetric(SsimMetricConfig(1.0)), [pair((1, 1, 12, 10))])
    with pytest.raises(
        ShapeError, match=r"MsSsimMetric: .*\n  given:    images \(1, 3, 175, 176\)\n  expected: 3 channels.*176"
    ):
        feed(MsSsimMetric(MsSsimMetricConfig(1.0)), [pair((1, 3, 175, 176))])
    with pytest.raises(ShapeError, match=r"images \(1, 1, 176, 176\)\n  expected: 3 channels"):
        feed(MsSsimMetric(MsSsimMetricConfig(1.0)), [pair((1, 1, 176, 176))])
    masks = DiceInput(tensor(np.zeros((2, 1, 3))), tensor(np.zeros((2, 1, 3))))
    with pytest.raises(ShapeError, match=r"no background to include\n  given:    masks \(2, 1, 3\)"):
        feed(DiceMetric(DiceMetricConfig(include_background=True)), [masks])
    with pytest.raises(ShapeError, match=r"DiceMetric: .*\n  given:    outputs \(2, 3\), targets \(2, 3\)"):
        feed(DiceMetric(), [DiceInput(tensor(np.zeros((2, 3))), tensor(np.zeros((2, 3))))])
