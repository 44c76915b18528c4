"""How different two sets of images are: the Frechet distance of the features of Inception."""

from __future__ import annotations

from typing import Final

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.config.rules import Rules
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.module import Module
from burn_torch.nn import BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, PaddingConfig2d
from burn_torch.tensor import Device, InterpolateOptions, Tensor
from burn_torch.tensor.activation import relu
from burn_torch.tensor.apply import apply_one
from burn_torch.tensor.functional import avg_pool2d, interpolate, max_pool2d
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.pretrained import Weights, load_weights

__all__ = ["Fid", "FidConfig", "InceptionFeatures"]

_SIZE: Final = 299
Layer = tuple[int, int, tuple[int, int], int, tuple[int, int]]
Step = str | tuple[str, ...]


class _Convolution(Module):
    """A convolution, the running statistics of its channels, and their positive part."""

    conv: Conv2d
    bn: BatchNorm

    def forward(self, x: Tensor) -> Tensor:
        """With the running statistics on every device: features do not depend on the batch."""
        norm = self.bn
        moments = (norm.gamma.val(), norm.beta.val(), norm.running_mean.value(), norm.running_var.value())
        return relu(apply_one(ops.batch_norm_inference, (self.conv.forward(x), *moments, norm.epsilon)))


def _convolution(layer: Layer, device: Device) -> _Convolution:
    channels, width, kernel, stride, (rows, columns) = layer
    padding = PaddingConfig2d.Explicit(rows, columns, rows, columns)
    config = Conv2dConfig((channels, width), kernel, stride=(stride, stride), padding=padding, bias=False)
    return _Convolution(config.init(device), BatchNormConfig(width, epsilon=0.001).init(device))


def _layer(channels: int, width: int, kernel: str = "1x1", stride: int = 1, same: bool = True) -> Layer:
    height, across = (int(size) for size in kernel.split("x"))
    return channels, width, (height, across), stride, (height // 2, across // 2) if same else (0, 0)


class _Mixed(Module):
    """Branches side by side: chains of convolutions, the last of which may be several; "max" and "avg" pool."""

    convs: dict[str, _Convolution]
    chains: tuple[tuple[Step, ...], ...]

    def forward(self, x: Tensor) -> Tensor:
        """The results of all branches, one behind the other."""
        results = []
        for chain in self.chains:
            y = x
            for step in chain:
                if isinstance(step, tuple):
                    y = Tensor.cat([self.convs[name].forward(y) for name in step], 1)
                elif step == "avg":
                    y = avg_pool2d(y, 3, 1, 1, count_include_pad=False)
                elif step in ("max", "halve"):
                    y = max_pool2d(y, 3, 1, 1) if step == "max" else max_pool2d(y, 3, 2)
                else:
                    y = self.convs[step].forward(y)
            results.append(y)
        return Tensor.cat(results, 1)


def _double(first: int, count: int, name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{i}" for i in range(first, first + count))


_CHAINS: Final[dict[str, tuple[tuple[Step, ...], ...]]] = {
    "A": (("branch1x1",), _double(1, 2, "branch5x5"), _double(1, 3, "branch3x3dbl"), ("avg", "branch_pool")),
    "B": (("branch3x3",), _double(1, 3, "branch3x3dbl"), ("halve",)),
    "C": (("branch1x1",), _double(1, 3, "branch7x7"), _double(1, 5, "branch7x7dbl"), ("avg", "branch_pool")),
    "D": (_double(1, 2, "branch3x3"), _double(1, 4, "branch7x7x3"), ("halve",)),
    "E": (
        ("branch1x1",),
        ("branch3x3_1", ("branch3x3_2a", "branch3x3_2b")),
        (*_double(1, 2, "branch3x3dbl"), ("branch3x3dbl_3a", "branch3x3dbl_3b")),
        ("avg", "branch_pool"),
    ),
}


def _layers(kind: str, channels: int, width: int) -> dict[str, Layer]:
    """The convolutions of a block; `width` is what differs between blocks of a kind."""
    double = [_layer(channels, 64), _layer(64, 96, "3x3"), _layer(96, 96, "3x3")]
    if kind == "A":
        wide = [_layer(channels, 48), _layer(48, 64, "5x5")]
        layers = [_layer(channels, 64), *wide, *double, _layer(channels, width)]
    elif kind == "B":
        layers = [_layer(channels, 384, "3x3", 2, False), *double[:2], _layer(96, 96, "3x3", 2, False)]
    elif kind == "C":
        single = [_layer(channels, width), _layer(width, width, "1x7"), _layer(width, 192, "7x1")]
        long = [_layer(width, width, size) for size in ("7x1", "1x7", "7x1")]
        last = [_layer(width, 192, "1x7"), _layer(channels, 192)]
        layers = [_layer(channels, 192), *single, _layer(channels, width), *long, *last]
    elif kind == "D":
        small = [_layer(channels, 192), _layer(192, 320, "3x3", 2, False), _layer(channels, 192)]
        layers = [*small, _layer(192, 192, "1x7"), _layer(192, 192, "7x1"), _layer(192, 192, "3x3", 2, False)]
    else:
        both = [_layer(384, 384, "1x3"), _layer(384, 384, "3x1")]
        deep = [_layer(channels, 448), _layer(448, 384, "3x3")]
        layers = [_layer(channels, 320), _layer(channels, 384), *both, *deep, *both, _layer(channels, 192)]
    steps = [step for chain in _CHAINS[kind] for step in chain]
    names = [name for step in steps for name in ((step,) if isinstance(step, str) else step)]
    return dict(zip([name for name in names if name not in ("avg", "halve")], layers, strict=True))


_STEM: Final = {
    "Conv2d_1a_3x3": _layer(3, 32, "3x3", 2, False),
    "Conv2d_2a_3x3": _layer(32, 32, "3x3", 1, False),
    "Conv2d_2b_3x3": _layer(32, 64, "3x3"),
    "Conv2d_3b_1x1": _layer(64, 80),
    "Conv2d_4a_3x3": _layer(80, 192, "3x3", 1, False),
}
_MIXED: Final = {
    "Mixed_5b": ("A", 192, 32),
    "Mixed_5c": ("A", 256, 64),
    "Mixed_5d": ("A", 288, 64),
    "Mixed_6a": ("B", 288, 0),
    "Mixed_6b": ("C", 768, 128),
    "Mixed_6c": ("C", 768, 160),
    "Mixed_6d": ("C", 768, 160),
    "Mixed_6e": ("C", 768, 192),
    "Mixed_7a": ("D", 768, 0),
    "Mixed_7b": ("E", 1280, 0),
    "Mixed_7c": ("E", 2048, 0),
}
"""The kind of each block, its channels, and the width that differs."""


class InceptionFeatures(Module):
    """Inception v3 without its classifier, as FID uses it.

    Means at a border are of the pixels inside; the last block takes maxima instead.  Running statistics always count.
    Shapes: x (batch, 3, height, width), at 299 x 299 -> (batch, 2048).
    Source: Szegedy et al. 2015, https://arxiv.org/abs/1512.00567; the variant of pytorch-fid.
    """

    stem: dict[str, _Convolution]
    mixed: dict[str, _Mixed]

    @staticmethod
    def new(device: Device) -> InceptionFeatures:
        """With fresh parameters."""
        mixed = {}
        for name, (kind, channels, width) in _MIXED.items():
            convs = {key: _convolution(layer, device) for key, layer in _layers(kind, channels, width).items()}
            chains = _CHAINS[kind]
            if name == "Mixed_7c":
                chains = (*chains[:-1], ("max", "branch_pool"))
            mixed[name] = _Mixed(convs, chains)
        return InceptionFeatures({name: _convolution(layer, device) for name, layer in _STEM.items()}, mixed)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the last map over its pixels."""
        for i, layer in enumerate(self.stem.values()):
            x = layer.forward(x)
            if i in (2, 4):
                x = max_pool2d(x, 3, 2)
        for block in self.mixed.values():
            x = block.forward(x)
        return x.mean_dims((2, 3)).reshape((x.shape[0], x.shape[1]))


class FidConfig(Config):
    """The Frechet distance of Inception's features.

    normalize true: images are from 0 to 1, and become -1 to 1; Burn takes ImageNet's mean and spread.
    num_iterations 50: steps of the iteration for a matrix root.
    """

    normalize: bool = True
    num_iterations: int = 50

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_iterations").stop()

    def init(self, device: Device) -> Fid:
        """With a fresh network, whose distances mean nothing."""
        return Fid(InceptionFeatures.new(device), self.normalize, self.num_iterations)

    def init_pretrained(self, device: Device, weights: Weights | None = None) -> Fid:
        """With published weights: pytorch-fid's file of Inception.

        Raises: RecordError where no file is named, or it lacks a weight.
        """
        names = {
            r"^(Conv2d_\w+)\.": "extractor.stem.${1}.",
            r"^(Mixed_\w+)\.(branch\w+)\.": "extractor.mixed.${1}.convs.${2}.",
        }
        return load_weights(self.init(device), weights, names, "pytorch-fid's weights of Inception")


class Fid(Module):
    """The Frechet distance of two sets of images, as normal distributions of Inception's features.

        |m1 - m2|^2 + trace(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2),   with means m and unbiased covariances S

    It is taken in float64; roots are those of Newton and Schulz, of covariances with 1e-6 of their mean variance on the
    diagonal.  Source: Heusel et al. 2017, https://arxiv.org/abs/1706.08500.
    """

    extractor: InceptionFeatures
    normalize: bool
    num_iterations: int

    def extract_features(self, images: Tensor) -> Tensor:
        """The features of images (batch, 3, height, width) of any size -> (batch, 2048).

        Raises: ShapeError, DTypeError.
        """
        require_images(images, 3)
        require_floats(images)
        if images.shape[2:] != (_SIZE, _SIZE):
            images = interpolate(images, (_SIZE, _SIZE), InterpolateOptions("bilinear", align_corners=False))
        return self.extractor.forward(images * 2.0 - 1.0 if self.normalize else images)

    def compute_fid(self, features_real: Tensor, features_gen: Tensor) -> Tensor:
        """The distance of two sets of features (n, d) and (m, d), n and m 2 or more -> (1,) of f64.

        Raises: ShapeError.
        """
        sizes = [(x.ndim, x.shape[-1]) for x in (features_real, features_gen)]
        if sizes[0] != sizes[1] or sizes[0][0] != 2 or min(features_real.shape[0], features_gen.shape[0]) < 2:
            raise told(
                ShapeError,
                "these are no features of two sets",
                given=f"features_real {features_real.spec}, features_gen {features_gen.spec}",
                expected="(n, d) and (m, d), with 2 or more images each",
                mend="join the features of several batches: Tensor.cat(features, 0)",
            )
        (mean1, cov1), (mean2, cov2) = (_moments(x.cast(DType.F64)) for x in (features_real, features_gen))
        eye = Tensor.eye(cov1.shape[0], (cov1.device.no_grad(), DType.F64))
        variance = ((cov1 + cov2) * eye).sum() / (2.0 * cov1.shape[0])
        small = eye * (variance.clamp_min(1e-6) * 1e-6).reshape((1, 1))
        cov1, cov2 = cov1 + small, cov2 + small
        root = self._root(cov1)
        both = self._root(root.matmul(cov2).matmul(root))
        return (mean1 - mean2).square().sum() + ((cov1 + cov2 - both * 2.0) * eye).sum()

    def forward(self, images_real: Tensor, images_gen: Tensor) -> Tensor:
        """The distance of two sets of images -> (1,)."""
        return self.compute_fid(self.extract_features(images_real), self.extract_features(images_gen))

    def _root(self, x: Tensor) -> Tensor:
        """The root of a symmetric matrix without negative eigenvalues."""
        size = x.square().sum().sqrt().clamp_min(1e-30).reshape((1, 1))
        eye = Tensor.eye(x.shape[0], (x.device.no_grad(), DType.F64))
        y, z = x / size, eye
        for _ in range(self.num_iterations):
            step = (eye * 3.0 - z.matmul(y)) * 0.5
            y, z = y.matmul(step), step.matmul(z)
        return y * size.sqrt()


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    mean = features.mean_dims((0,))
    centred = features - mean
    return mean, centred.transpose().matmul(centred) / float(features.shape[0] - 1)
