"""Filters of images: convolution with a kernel, medians; and blurs that are drawn for each image."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Self

from burn_torch.config import Config
from burn_torch.core import ambient
from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.philox import fold
from burn_torch.module import draw
from burn_torch.nn._layer import Rules
from burn_torch.tensor import ConvOptions, Device, PadMode, Tensor
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.functional import conv2d
from burn_torch.vision._draws import uniform
from burn_torch.vision._images import require_floats, require_images

__all__ = ["BoxBlur", "BoxBlurConfig", "MedianBlur", "MedianBlurConfig", "filter2d", "median"]


def filter2d(images: Tensor, kernel: Tensor, border: PadMode | str | float = PadMode.Reflect) -> Tensor:
    """Each channel correlated with one kernel; the result has the size of the images.

        y[i, j] = sum over a, b of kernel[a, b] * x[i + a - height // 2, j + b - width // 2]

    The border is made up by `border`, as Tensor.pad says; an even kernel reaches further up and to the left.

    Shapes: images (batch, channels, height, width), kernel (kernel height, kernel width) -> as images.
    Dtypes: any float; the kernel is cast to the type of the images.  Raises: ShapeError, DTypeError.
    OpenCV: filter2D; scipy.ndimage.correlate, mode "mirror" for Reflect.
    """
    require_images(images)
    require_floats(images)
    require_tensor(kernel, "kernel")
    if kernel.ndim != 2 or not kernel.spec.numel:
        raise told(
            ShapeError,
            "this is no kernel",
            given=f"kernel {kernel.spec}",
            expected="kernel (height, width)",
            mend="kernel.reshape((height, width))",
        )
    (height, width), channels = kernel.shape, images.shape[1]
    if not images.spec.numel:
        return images
    weight = kernel.cast(images.dtype).reshape((1, 1, height, width)).expand((channels, 1, height, width))
    padded = images.pad(_around(height, width), border)
    return conv2d(padded, weight, None, ConvOptions(groups=channels))


def median(images: Tensor, size: int) -> Tensor:
    """The median of the size x size pixels around each pixel of a channel; the border repeats its last pixel.

    The larger of the two in the middle where their number is even.  A NaN counts as larger than all numbers.

    Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any that can be sorted.
    Raises: ShapeError, ArgumentError.  scipy.ndimage.median_filter(mode="nearest"), for each channel.
    """
    require_images(images)
    if size < 1:
        raise told(
            ArgumentError,
            "a window has pixels",
            given=f"size {size}",
            expected="1 or more",
            mend="3 is the smallest odd window that does something",
        )
    if not images.spec.numel or size == 1:
        return images
    height, width = images.shape[2:]
    padded = images.pad(_around(size, size), PadMode.Edge)
    windows = [
        padded.narrow(2, row, height).narrow(3, column, width)
        for row, column in itertools.product(range(size), repeat=2)
    ]
    return Tensor.stack(windows, 0).sort(0).narrow(0, size * size // 2, 1).reshape(images.shape)


def _around(height: int, width: int) -> list[tuple[int, int]]:
    """How far a kernel reaches before and after a pixel, along rows and columns."""
    return [(size // 2, (size - 1) // 2) for size in (height, width)]


# -- blurs that are drawn --------------------------------------------------------------------------------------
class _BlurConfig(Config):
    kernel_size: int = 3
    probability: float = 1.0

    def __post_init__(self) -> None:
        rules = Rules(self).fraction("probability")
        if self.kernel_size < 3 or self.kernel_size % 2 == 0:
            rules.fault("kernel_size", "no window around a pixel", "an odd number of 3 or more", "write kernel_size=3")
        rules.stop()


class BoxBlurConfig(_BlurConfig):
    """A blur by the mean of a window: of 3 x 3 pixels, and always, unless told otherwise."""

    def init(self, device: Device | None = None) -> BoxBlur:
        """The blur; it computes where the images are, so the device does not matter."""
        return BoxBlur(self.kernel_size, self.probability)


class MedianBlurConfig(_BlurConfig):
    """A blur by the median of a window: of 3 x 3 pixels, and always, unless told otherwise."""

    def init(self, device: Device | None = None) -> MedianBlur:
        """The blur; it computes where the images are, so the device does not matter."""
        return MedianBlur(self.kernel_size, self.probability)


class _DrawnBlur(ABC):
    """A blur of those images of a batch that a draw chooses, each by itself.

    In a step scope the draws follow from its key, so a step that runs again blurs the same images.  Elsewhere they
    follow from `burn_torch.seed`, or from the seed of `with_seed` and the number of calls before.
    """

    def __init__(self, kernel_size: int, probability: float, seed: int | None = None) -> None:
        self.kernel_size, self.probability, self.seed = kernel_size, probability, seed
        self._calls = itertools.count()

    def with_seed(self, seed: int) -> Self:
        """The same blur with draws of its own."""
        return type(self)(self.kernel_size, self.probability, seed)

    @abstractmethod
    def apply(self, images: Tensor) -> Tensor:
        """All images blurred."""

    def forward(self, images: Tensor) -> Tensor:
        """Each image blurred with the probability of the configuration, else as it was.

        Shapes: images (batch, channels, height, width) -> the same.  Raises: ShapeError, DTypeError.
        """
        require_images(images)
        if self.probability >= 1.0:
            return self.apply(images)
        if self.probability <= 0.0:
            return images
        chosen = uniform(images, 0.0, 1.0, self._key()).lower(self.probability)
        return images.mask_where(chosen.expand(images.shape), self.apply(images))

    def _key(self) -> tuple[int, int]:
        if self.seed is None:
            return draw(self)
        if ambient.innermost() is None:
            return self.seed, next(self._calls)
        key, stream = draw(self)
        return fold(key, self.seed), stream


class BoxBlur(_DrawnBlur):
    """Replaces each pixel by the mean of the window around it; the border is mirrored.

    Dtypes: any float.  kornia: augmentation.RandomBoxBlur.
    """

    def apply(self, images: Tensor) -> Tensor:
        """All images blurred.  Raises: ShapeError, DTypeError."""
        require_images(images)
        size = self.kernel_size
        kernel = Tensor.full((size, size), 1.0 / size**2, (images.device.no_grad(), images.dtype))
        return filter2d(images, kernel, PadMode.Reflect)


class MedianBlur(_DrawnBlur):
    """Replaces each pixel by the median of the window around it; the border repeats its last pixel.

    Dtypes: any that can be sorted.  kornia: augmentation.RandomMedianBlur.
    """

    def apply(self, images: Tensor) -> Tensor:
        """All images blurred.  Raises: ShapeError."""
        return median(images, self.kernel_size)


check_functions(globals(), "vision")
