"""How different two images look: LPIPS and DISTS, distances of the features of networks."""

from __future__ import annotations

from enum import Enum
from typing import Final, final

from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.module import Content, Module, Param
from burn_torch.nn import Conv2d, Conv2dConfig
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import ConvOptions, Device, Tensor
from burn_torch.tensor.activation import relu
from burn_torch.tensor.functional import conv2d
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.augmentation import normalize
from burn_torch.vision.feature_networks import AlexFeatures, SqueezeFeatures, VggFeatures
from burn_torch.vision.pretrained import Weights, load_weights

__all__ = ["Dists", "DistsConfig", "Lpips", "LpipsConfig", "LpipsNet"]


@final
class LpipsNet(Enum):
    """The network whose features are compared."""

    Vgg = "vgg"
    Alex = "alex"
    Squeeze = "squeeze"


_NETS: Final[dict[LpipsNet, tuple[type[VggFeatures | AlexFeatures | SqueezeFeatures], tuple[int, ...], str]]] = {
    LpipsNet.Vgg: (VggFeatures, (64, 128, 256, 512, 512), "vgg16"),
    LpipsNet.Alex: (AlexFeatures, (64, 192, 384, 256, 256), "alexnet"),
    LpipsNet.Squeeze: (SqueezeFeatures, (64, 128, 256, 384, 384, 512, 512), "squeezenet1_1"),
}


class LpipsConfig(Config):
    """The learned perceptual distance: of VGG-16's features, for images from 0 to 1 unless normalize is false, which
    takes them from -1 to 1.
    """

    net: LpipsNet = LpipsNet.Vgg
    normalize: bool = True

    def init(self, device: Device) -> Lpips:
        """With fresh parameters; their distances mean nothing before weights are loaded."""
        kind, widths, _ = _NETS[self.net]
        lins = [Conv2dConfig((width, 1), (1, 1), bias=False).init(device) for width in widths]
        return Lpips(kind.new(device), lins, self.net, self.normalize)

    def init_pretrained(self, device: Device, weights: Weights | None = None) -> Lpips:
        """With published weights: torchvision's file of the network, and that of the linear layers of LPIPS.

        Raises: RecordError where no file is named, or they lack a weight.
        """
        kind, _, name = _NETS[self.net]
        names = {**kind.names("extractor."), r"^lin(\d)\.model\.1\.": "lins.${1}."}
        published = f"torchvision's {name} of ImageNet, and {self.net.value}.pth of LPIPS version 0.1"
        return load_weights(self.init(device), weights, names, published)


class Lpips(Module):
    """The learned perceptual distance of images.

        mean over pixels of w * (f(x) / |f(x)| - f(y) / |f(y)|)^2, summed over the maps of the network

    Shapes: input, target (batch, 3, height, width) -> (1,), or (batch,) without a reduction.  Dtypes: any float.
    Raises: ShapeError, DTypeError.  Source: Zhang et al. 2018, https://arxiv.org/abs/1801.03924.
    """

    extractor: VggFeatures | AlexFeatures | SqueezeFeatures
    lins: list[Conv2d]
    net: LpipsNet
    normalize: bool

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Mean) -> Tensor:
        """The mean of the distances, or their sum."""
        return reduce_distances(self.forward_no_reduction(input, target), reduction)

    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The distance of each pair."""
        require_pair(input, target)
        maps = [self.extractor.forward(self._scale(images)) for images in (input, target)]
        total: Tensor | None = None
        for first, second, lin in zip(*maps, self.lins, strict=True):
            difference: Tensor = lin.forward((_unit(first) - _unit(second)).square()).mean_dims((1, 2, 3))
            total = difference if total is None else total + difference
        assert total is not None
        return total.reshape((input.shape[0],))

    def _scale(self, images: Tensor) -> Tensor:
        images = images * 2.0 - 1.0 if self.normalize else images
        return normalize(images, (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450))

    def custom_content(self, content: Content) -> Content:
        """The network and the range."""
        return content.add("net", self.net.name).add("normalize", self.normalize)


def _unit(x: Tensor) -> Tensor:
    """Features of length 1 at each pixel; zeros stay, and give no infinite slope."""
    squares = x.square().sum_dim(1)
    nothing = squares.equal(0.0)
    return x / squares.mask_fill(nothing, 1.0).sqrt().clamp_min(1e-10)


class DistsConfig(Config):
    """The distance of structure and texture, for images from 0 to 1; normalize false takes them as the network does."""

    normalize: bool = True

    def init(self, device: Device) -> Dists:
        """With a fresh network and equal weights of all channels."""
        weights = [Param.from_tensor(Tensor.full((1, 1475, 1, 1), 0.1, device)) for _ in range(2)]
        return Dists(VggFeatures.new(device), weights[0], weights[1], self.normalize)

    def init_pretrained(self, device: Device, weights: Weights | None = None) -> Dists:
        """With published weights: torchvision's file of the network, and that of alpha and beta.

        Raises: RecordError where no file is named, or they lack a weight.
        """
        published = "torchvision's vgg16 of ImageNet, and weights.pt of DISTS with alpha and beta"
        return load_weights(self.init(device), weights, VggFeatures.names("extractor."), published)


class Dists(Module):
    """The distance of images in structure, the means of features, and in texture, their covariances.

        1 - sum over channels of (alpha * structure + beta * texture) / sum of (alpha + beta)

    The first three channels are those of the images, before they are normalised.  Maxima of VGG-16 become root means
    of squares under a Hann window.  Burn divides structure and texture by sums of their own, and compares the
    normalised images.

    Shapes: input, target (batch, 3, height, width) -> (1,), or (batch,) without a reduction.  Dtypes: any float.
    Raises: ShapeError, DTypeError.  Source: Ding et al. 2020, https://arxiv.org/abs/2004.07728.
    """

    extractor: VggFeatures
    alpha: Param
    beta: Param
    normalize: bool

    def forward(self, input: Tensor, target: Tensor, reduction: Reduction = Reduction.Mean) -> Tensor:
        """The mean of the distances, or their sum."""
        return reduce_distances(self.forward_no_reduction(input, target), reduction)

    def forward_no_reduction(self, input: Tensor, target: Tensor) -> Tensor:
        """The distance of each pair."""
        require_pair(input, target)
        similarities = []
        for x, y in zip(self._maps(input), self._maps(target), strict=True):
            means = [images.mean_dims((2, 3)) for images in (x, y)]
            deviations = [images - mean for images, mean in zip((x, y), means, strict=True)]
            spread = [deviation.square().mean_dims((2, 3)) for deviation in deviations]
            together = (deviations[0] * deviations[1]).mean_dims((2, 3))
            structure = (means[0] * means[1] * 2.0 + 1e-6) / (means[0].square() + means[1].square() + 1e-6)
            similarities.append((structure, (together * 2.0 + 1e-6) / (spread[0] + spread[1] + 1e-6)))
        alpha, beta = self.alpha.val(), self.beta.val()
        structure, texture = (Tensor.cat([pair[i] for pair in similarities], 1) for i in range(2))
        distance = ((1.0 - structure) * alpha + (1.0 - texture) * beta).sum_dim(1)
        return distance.reshape((input.shape[0],)) / (alpha.sum() + beta.sum())

    def _maps(self, images: Tensor) -> list[Tensor]:
        x = normalize(images, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if self.normalize else images
        maps = [images]
        for i, stage in enumerate(self.extractor.stages):
            x = _pool(x) if i else x
            for layer in stage:
                x = relu(layer.forward(x))
            maps.append(x)
        return maps


def _pool(x: Tensor) -> Tensor:
    """Root means of squares under a Hann window of 3 x 3, at every second pixel."""
    device, channels = (x.device.no_grad(), DType.F64), x.shape[1]
    window = Tensor.from_data([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]], device) / 16.0
    weight = window.cast(x.dtype).reshape((1, 1, 3, 3)).expand((channels, 1, 3, 3))
    return (conv2d(x.square(), weight, None, ConvOptions(2, 1, 1, channels)) + 1e-12).sqrt()


def reduce_distances(distances: Tensor, reduction: Reduction) -> Tensor:
    """The sum for Reduction.Sum, else the mean."""
    return distances.sum() if reduction is Reduction.Sum else distances.mean()


def require_pair(input: Tensor, target: Tensor) -> None:
    """Raises: ShapeError, DTypeError unless both are images of three channels, of floats and of one shape."""
    for images in (input, target):
        require_images(images, 3)
        require_floats(images)
    if input.shape != target.shape:
        raise told(
            ShapeError,
            "the images are not pairs",
            given=f"input {input.spec}, target {target.spec}",
            expected="one shape",
            mend="resize one of them: functional.interpolate",
        )
