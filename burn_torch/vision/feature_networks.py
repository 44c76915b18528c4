"""Networks whose features perceptual metrics compare: VGG, AlexNet, SqueezeNet."""

from __future__ import annotations

from burn_torch.module import Module
from burn_torch.nn import Conv2d, Conv2dConfig, PaddingConfig2d
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.activation import relu
from burn_torch.tensor.functional import avg_pool2d, max_pool2d
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.pretrained import Weights, load_weights

__all__ = ["AlexFeatures", "Fire", "SqueezeFeatures", "Vgg19", "VggFeatures"]

_WIDTHS = (64, 128, 256, 512, 512)


def _stages(depths: tuple[int, ...], device: Device) -> list[list[Conv2d]]:
    """Stages of convolutions of 3 x 3 that keep the size."""
    stages, channels = [], 3
    for depth, width in zip(depths, _WIDTHS, strict=True):
        stage = []
        for _ in range(depth):
            config = Conv2dConfig((channels, width), (3, 3), padding=PaddingConfig2d.Explicit(1, 1, 1, 1))
            stage.append(config.init(device))
            channels = width
        stages.append(stage)
    return stages


def vgg_names(depths: tuple[int, ...], prefix: str) -> dict[str, str]:
    """The names of torchvision's `features`, in which an activation follows each layer and a pool each stage."""
    names, number = {}, 0
    for i, depth in enumerate(depths):
        for j in range(depth):
            names[rf"^features\.{number}\."] = f"{prefix}stages.{i}.{j}."
            number += 2
        number += 1
    return names


class VggFeatures(Module):
    """VGG-16 up to its last convolution: the maps before each pool.

    Shapes: x (batch, 3, height, width) -> five maps of 64, 128, 256, 512 and 512 channels.
    Source: Simonyan, Zisserman 2014, https://arxiv.org/abs/1409.1556.
    """

    stages: list[list[Conv2d]]

    @staticmethod
    def new(device: Device) -> VggFeatures:
        """With fresh parameters."""
        return VggFeatures(_stages((2, 2, 3, 3, 3), device))

    @staticmethod
    def names(prefix: str) -> dict[str, str]:
        """Names of torchvision's file, and the names here."""
        return vgg_names((2, 2, 3, 3, 3), prefix)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The five maps."""
        maps: list[Tensor] = []
        for stage in self.stages:
            x = max_pool2d(maps[-1], 2) if maps else x
            for layer in stage:
                x = relu(layer.forward(x))
            maps.append(x)
        return maps


class Vgg19(Module):
    """VGG-19 up to conv5_1, for styles: the maps of the first convolution of each stage, with pixels on one axis.

    Shapes: x (batch, 3, height, width) -> five maps (batch, channels, pixels).
    Source: Gatys et al. 2015, https://arxiv.org/abs/1508.06576.
    """

    stages: list[list[Conv2d]]
    use_avg_pool: bool

    @staticmethod
    def new(use_avg_pool: bool, device: Device) -> Vgg19:
        """With fresh parameters; means or maxima between stages."""
        return Vgg19(_stages((2, 2, 4, 4, 1), device), use_avg_pool)

    @staticmethod
    def pretrained(use_avg_pool: bool, device: Device, weights: Weights | None = None) -> Vgg19:
        """With the weights of a file.  Raises: RecordError without one."""
        names = vgg_names((2, 2, 4, 4, 1), "")
        return load_weights(Vgg19.new(use_avg_pool, device), weights, names, "torchvision's vgg19 of ImageNet")

    def forward(self, x: Tensor) -> list[Tensor]:
        """The five maps.  Raises: ShapeError, DTypeError."""
        require_images(x, 3)
        require_floats(x)
        maps: list[Tensor] = []
        for i, stage in enumerate(self.stages):
            if i:
                x = avg_pool2d(x, 2) if self.use_avg_pool else max_pool2d(x, 2)
            for j, layer in enumerate(stage):
                x = relu(layer.forward(x))
                if not j:
                    maps.append(x.flatten(2, 3))
        return maps


class AlexFeatures(Module):
    """The convolutions of AlexNet: the map of each.

    Shapes: x (batch, 3, height, width) -> five maps of 64, 192, 384, 256 and 256 channels.
    Source: Krizhevsky 2014, https://arxiv.org/abs/1404.5997.
    """

    layers: list[Conv2d]

    @staticmethod
    def new(device: Device) -> AlexFeatures:
        """With fresh parameters."""
        sizes = ((3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1))
        layers = []
        for channels, width, size, stride, pad in sizes:
            padding = PaddingConfig2d.Explicit(pad, pad, pad, pad)
            config = Conv2dConfig((channels, width), (size, size), stride=(stride, stride), padding=padding)
            layers.append(config.init(device))
        return AlexFeatures(layers)

    @staticmethod
    def names(prefix: str) -> dict[str, str]:
        """Names of torchvision's file, and the names here."""
        return {rf"^features\.{number}\.": f"{prefix}layers.{i}." for i, number in enumerate((0, 3, 6, 8, 10))}

    def forward(self, x: Tensor) -> list[Tensor]:
        """The five maps."""
        maps: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x = max_pool2d(x, 3, 2) if i in (1, 2) else x
            x = relu(layer.forward(x))
            maps.append(x)
        return maps


class Fire(Module):
    """A narrow convolution, and two wide ones side by side.

    Shapes: x (batch, channels, height, width) -> (batch, 2 wide, height, width).
    """

    squeeze: Conv2d
    expand1x1: Conv2d
    expand3x3: Conv2d

    @staticmethod
    def new(channels: int, narrow: int, wide: int, device: Device) -> Fire:
        """With fresh parameters."""
        around = PaddingConfig2d.Explicit(1, 1, 1, 1)
        return Fire(
            Conv2dConfig((channels, narrow), (1, 1)).init(device),
            Conv2dConfig((narrow, wide), (1, 1)).init(device),
            Conv2dConfig((narrow, wide), (3, 3), padding=around).init(device),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Both wide maps, one behind the other."""
        x = relu(self.squeeze.forward(x))
        return Tensor.cat([relu(self.expand1x1.forward(x)), relu(self.expand3x3.forward(x))], 1)


class SqueezeFeatures(Module):
    """SqueezeNet 1.1 without its classifier: seven maps.

    Shapes: x (batch, 3, height, width) -> maps of 64, 128, 256, 384, 384, 512 and 512 channels.
    Source: Iandola et al. 2016, https://arxiv.org/abs/1602.07360.
    """

    conv1: Conv2d
    fires: list[Fire]

    @staticmethod
    def new(device: Device) -> SqueezeFeatures:
        """With fresh parameters."""
        fires, channels = [], 64
        for narrow in (16, 16, 32, 32, 48, 48, 64, 64):
            fires.append(Fire.new(channels, narrow, 4 * narrow, device))
            channels = 8 * narrow
        return SqueezeFeatures(Conv2dConfig((3, 64), (3, 3), stride=(2, 2)).init(device), fires)

    @staticmethod
    def names(prefix: str) -> dict[str, str]:
        """Names of torchvision's file, and the names here."""
        numbers = enumerate((3, 4, 6, 7, 9, 10, 11, 12))
        fires = {rf"^features\.{number}\.": f"{prefix}fires.{i}." for i, number in numbers}
        return {r"^features\.0\.": f"{prefix}conv1.", **fires}

    def forward(self, x: Tensor) -> list[Tensor]:
        """The seven maps."""
        x = relu(self.conv1.forward(x))
        maps = [x]
        for i, fire in enumerate(self.fires):
            x = max_pool2d(x, 3, 2, ceil_mode=True) if i in (0, 2, 4) else x
            x = fire.forward(x)
            if i in (1, 3) or i > 3:
                maps.append(x)
        return maps
