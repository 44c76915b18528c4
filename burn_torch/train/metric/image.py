"""Metrics of images: PSNR, SSIM, MS-SSIM, and the overlap of masks.

Each image has its value, and the epoch is the mean over the images; only Dice adds its areas.  Sums of pixels are taken
in float64 where the device has it: the variances of SSIM are differences of numbers that are nearly equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Self, final

import numpy as np

from burn_torch.config import Config, replace
from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError, ShapeError
from burn_torch.nn._layer import Rules
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.functional import avg_pool2d, conv2d
from burn_torch.tensor.options import ConvOptions
from burn_torch.train.metric._tensors import changed, exact, same_shape
from burn_torch.train.metric.accumulate import AdditiveMetric, Array, ratio
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.output import DiceInput, MsSsimInput, PsnrInput, SsimInput, adapt

__all__ = [
    "DiceMetric",
    "DiceMetricConfig",
    "MsSsimMetric",
    "MsSsimMetricConfig",
    "PsnrMetric",
    "PsnrMetricConfig",
    "SsimMetric",
    "SsimMetricConfig",
]

WANG: Final = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of five scales, from Wang, Simoncelli and Bovik 2003, section 3.2."""


class PsnrMetricConfig(Config):
    """The peak signal-to-noise ratio.

    max_pixel_val: 1.0 for images in [0, 1], 255.0 for bytes.  epsilon: the least squared error that counts, so that
    equal images have a finite value; 1e-10 makes that 100 dB where the range is 1.
    """

    max_pixel_val: float
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        Rules(self).positive("max_pixel_val", "epsilon").stop()


class SsimMetricConfig(Config):
    """The structural similarity.

    pixel_range: the largest possible pixel less the smallest one.  k1 0.01, k2 0.03, kernel_size 11 and sigma 1.5 are
    those of the paper.  border "valid": only windows inside the image count, as in the paper and in scikit-image;
    "reflect": the image is mirrored at its border and every pixel counts, as Burn does.
    """

    pixel_range: float
    k1: float = 0.01
    k2: float = 0.03
    kernel_size: int = 11
    sigma: float = 1.5
    border: str = "valid"

    def __post_init__(self) -> None:
        _window_rules(self).stop()

    def with_k1_k2(self, k1: float, k2: float) -> SsimMetricConfig:
        """The configuration with other constants of stability."""
        return replace(self, k1=k1, k2=k2)


class MsSsimMetricConfig(Config):
    """The structural similarity at several scales.

    As for SSIM.  channels 3: colour images.  betas: the weight of each scale, the finest first; five of them need
    images of 16 * kernel_size pixels or more.
    """

    pixel_range: float
    k1: float = 0.01
    k2: float = 0.03
    kernel_size: int = 11
    sigma: float = 1.5
    channels: int = 3
    betas: tuple[float, ...] = WANG
    border: str = "valid"

    def __post_init__(self) -> None:
        rules = _window_rules(self).at_least(1, "channels")
        if not self.betas or any(beta < 0 for beta in self.betas):
            rules.fault("betas", "no weights", "one number of 0 or more for each scale", "betas=(1.0,) is one scale")
        rules.stop()

    def with_k1_k2(self, k1: float, k2: float) -> MsSsimMetricConfig:
        """The configuration with other constants of stability."""
        return replace(self, k1=k1, k2=k2)


class DiceMetricConfig(Config):
    """The overlap of masks.

    epsilon 1e-7: added to both areas, so that two empty masks overlap wholly.  include_background false: with several
    classes the first one is left out, since most of most images is background.
    """

    epsilon: float = 1e-7
    include_background: bool = False

    def __post_init__(self) -> None:
        Rules(self).positive("epsilon").stop()


class _MeanOverImages(AdditiveMetric):
    """The mean of a value of each image."""

    higher_is_better = True

    def with_name(self, name: str) -> Self:
        """The same metric under another name."""
        return changed(self, name=name)

    def summarise(self, measured: Mapping[str, Array], /) -> Mapping[str, Array | float]:
        """The sum over the images, and how many they are."""
        values = self.of_images(measured["images"].astype(np.float64))
        return {"sum": math.fsum(values.tolist()), "items": values.size}

    def of_images(self, numbers: Array) -> Array:
        """The value of each image from what `measure` found of it."""
        return numbers

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The mean over the images."""
        return ratio(sums["sum"], sums["items"])


@checked(error=ConfigError, but=("update", "measure"))
@final
class PsnrMetric(_MeanOverImages):
    """The mean over images of 10 log10(max^2 / mse), in dB.

    The mean of the ratios of the images, not the ratio of the mean error: that would hide a few bad ones.
    scikit-image: metrics.peak_signal_noise_ratio of each image.
    """

    unit = "dB"

    def __init__(self, config: PsnrMetricConfig) -> None:
        super().__init__()
        self.config: Final = config
        self.name = f"PSNR@{config.max_pixel_val:g}"

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The mean squared error of each image."""
        outputs, targets = _images("PsnrMetric", adapt(item, PsnrInput, "PsnrMetric"))
        return {"images": (outputs - targets).square().mean_dims((1, 2, 3)).reshape(outputs.shape[0])}

    def of_images(self, numbers: Array) -> Array:
        """Decibels of mean squared errors."""
        return 10.0 * np.log10(self.config.max_pixel_val**2 / np.maximum(numbers, self.config.epsilon))


@checked(error=ConfigError, but=("update", "measure"))
@final
class SsimMetric(_MeanOverImages):
    """The mean over images of the structural similarity, from -1 to 1; 1 is equality.

        SSIM = (2 mx my + c1) (2 sxy + c2) / ((mx^2 + my^2 + c1) (sx^2 + sy^2 + c2))

    with means, variances and covariance under a Gaussian window; an image has the mean over its windows and channels.
    Source: Wang et al. 2004, section III.  scikit-image: metrics.structural_similarity with gaussian_weights=True,
    use_sample_covariance=False, data_range=pixel_range.
    """

    def __init__(self, config: SsimMetricConfig) -> None:
        super().__init__()
        self.config: Final = config
        self._window = _Window(config)
        self.name = f"SSIM (dr={config.pixel_range:g}, w={config.kernel_size}, σ={config.sigma:g})"

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The similarity of each image."""
        outputs, targets = _images("SsimMetric", adapt(item, SsimInput, "SsimMetric"))
        _require_size("SsimMetric", outputs, self.config.kernel_size, 1)
        luminance, structure = self._window.similarity(outputs, targets)
        return {"images": (luminance * structure).mean_dims((1, 2, 3)).reshape(outputs.shape[0])}


@checked(error=ConfigError, but=("update", "measure"))
@final
class MsSsimMetric(_MeanOverImages):
    """The mean over images of the structural similarity at several scales, from 0 to 1.

        MS-SSIM = mean(l_M cs_M)^beta_M  prod_(j < M) mean(cs_j)^beta_j

    l and cs are the two factors of SSIM, of an image that each scale halves by the mean of 2 x 2 pixels.  A mean below
    0 counts as 0.  An image has the mean over its channels.
    Source: Wang, Simoncelli and Bovik 2003.
    """

    def __init__(self, config: MsSsimMetricConfig) -> None:
        super().__init__()
        self.config: Final = config
        self._window = _Window(config)
        self.name = f"MS-SSIM (pr={config.pixel_range:g}, k={config.kernel_size}, σ={config.sigma:g})"

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The similarity of each image."""
        config = self.config
        x, y = _images("MsSsimMetric", adapt(item, MsSsimInput, "MsSsimMetric"))
        _require_size("MsSsimMetric", x, config.kernel_size, len(config.betas), config.channels)
        value = Tensor.ones((*x.shape[:2], 1, 1), x.device).cast(x.dtype)
        for scale, beta in enumerate(config.betas):
            luminance, structure = self._window.similarity(x, y)
            last = scale == len(config.betas) - 1
            value = value * (luminance * structure if last else structure).mean_dims((2, 3)).clamp_min(0.0).powf(beta)
            if not last:
                x, y = avg_pool2d(x, 2), avg_pool2d(y, 2)
        return {"images": value.mean_dims((1, 2, 3)).reshape(x.shape[0])}


@checked(error=ConfigError, but=("update", "measure"))
@final
class DiceMetric(AdditiveMetric):
    """Twice the common area of two masks over the sum of their areas, of all images, classes and pixels together.

        Dice = (2 |x and y| + epsilon) / (|x| + |y| + epsilon)

    Areas of the whole epoch are added, so the value does not depend on how it was cut into batches.
    """

    name = "Dice Metric"
    higher_is_better = True

    def __init__(self, config: DiceMetricConfig | None = None) -> None:
        super().__init__()
        self.config: Final = DiceMetricConfig() if config is None else config

    @staticmethod
    def with_config(config: DiceMetricConfig) -> DiceMetric:
        """Burn's name for `DiceMetric(config)`."""
        return DiceMetric(config)

    def measure(self, item: object, metadata: MetricMetadata, /) -> Mapping[str, Tensor | float]:
        """The areas of the batch."""
        values = adapt(item, DiceInput, "DiceMetric")
        outputs, targets = exact(values.outputs), exact(values.targets)
        same_shape("DiceMetric", outputs, targets, ndim=3, shape="(batch, classes, *space)")
        classes = outputs.shape[1]
        if self.config.include_background and classes < 2:
            raise ShapeError(
                "DiceMetric: there is no background to include",
                given=f"masks {outputs.shape} of one class",
                expected="the background and at least one other class",
                mend="leave include_background=False, or give one-hot masks with the background first",
            )
        if not self.config.include_background and classes > 1:
            outputs, targets = outputs.narrow(1, 1, classes - 1), targets.narrow(1, 1, classes - 1)
        return {"common": (outputs * targets).sum(), "areas": outputs.sum() + targets.sum(), "items": outputs.shape[0]}

    def compute(self, sums: Mapping[str, Array], /) -> float:
        """The overlap of the sums; NaN without images."""
        if not sums["items"].sum():
            return math.nan
        epsilon = self.config.epsilon
        return (2.0 * float(sums["common"].sum()) + epsilon) / (float(sums["areas"].sum()) + epsilon)


def _images(reader: str, values: PsnrInput) -> tuple[Tensor, Tensor]:
    outputs, targets = exact(values.outputs), exact(values.targets)
    if outputs.ndim != 4:
        raise ShapeError(
            f"{reader}: these are not images",
            given=f"outputs {outputs.shape}, targets {targets.shape}",
            expected="both (batch, channels, height, width)",
            mend="add the axes that are missing, for example x.unsqueeze_dim(1) for one channel",
        )
    same_shape(reader, outputs, targets, ndim=4, shape="(batch, channels, height, width)")
    return outputs, targets


@final
class _Window:
    """A Gaussian window that moves over images; its weights are brought to a device once."""

    def __init__(self, config: SsimMetricConfig | MsSsimMetricConfig) -> None:
        self._config = config
        self._kernels: dict[tuple[Device, DType, int], Tensor] = {}

    def similarity(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Luminance, and contrast times structure, at each place.

        Shapes: x and y (batch, channels, height, width) -> twice (batch, channels, places down, places across).
        """
        config = self._config
        c1, c2 = (config.k1 * config.pixel_range) ** 2, (config.k2 * config.pixel_range) ** 2
        mx, my = self._means(x), self._means(y)
        of_both, squares = mx * my, mx.square() + my.square()
        variances = self._means(x.square()) + self._means(y.square()) - squares
        covariance = self._means(x * y) - of_both
        return (2 * of_both + c1) / (squares + c1), (2 * covariance + c2) / (variances + c2)

    def _means(self, x: Tensor) -> Tensor:
        kernel, options = self._kernel(x), ConvOptions(groups=x.shape[1])
        if self._config.border == "reflect":
            x = x.pad((self._config.kernel_size // 2,) * 4, "reflect")
        return conv2d(conv2d(x, kernel, None, options), kernel.swap_dims(2, 3), None, options)

    def _kernel(self, x: Tensor) -> Tensor:
        size, channels = self._config.kernel_size, x.shape[1]
        key = (x.device, x.dtype, channels)
        if key not in self._kernels:
            weights = np.exp(-((np.arange(size) - size // 2) ** 2) / (2.0 * self._config.sigma**2))
            row = np.tile((weights / weights.sum()).reshape(1, 1, 1, size), (channels, 1, 1, 1))
            self._kernels[key] = Tensor.from_data(
                row.astype(np.float64 if x.dtype is DType.F64 else np.float32), x.device
            )
        return self._kernels[key]


def _window_rules(config: SsimMetricConfig | MsSsimMetricConfig) -> Rules:
    rules = Rules(config).positive("pixel_range", "k1", "k2", "sigma").at_least(1, "kernel_size")
    if config.kernel_size % 2 == 0:
        rules.fault("kernel_size", "even, so it has no middle", "an odd number", "kernel_size=11 is that of the paper")
    if config.border not in ("valid", "reflect"):
        rules.fault("border", "no such border", "'valid' or 'reflect'", "'valid' is what the paper does")
    return rules


def _require_size(reader: str, x: Tensor, kernel_size: int, scales: int, channels: int | None = None) -> None:
    least = kernel_size * 2 ** (scales - 1)
    if min(x.shape[2:]) < least or channels not in (None, x.shape[1]):
        raise ShapeError(
            f"{reader}: the images do not fit its windows",
            given=f"images {x.shape}",
            expected=f"{'any' if channels is None else channels} channels, height and width of {least} or more for"
            f" {scales} scale{'s' * (scales > 1)} and a window of {kernel_size}",
            mend="lower kernel_size, give fewer betas (one for each scale), or set channels",
        )
