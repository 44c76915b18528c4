"""The style loss: how far the correlations between features of two images are apart."""

from __future__ import annotations

import math

from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import Rules, noting_layer
from burn_torch.nn.loss import Reduction
from burn_torch.nn.loss._reduction import reduced, same_shape
from burn_torch.tensor import Device, Tensor
from burn_torch.vision.feature_networks import Vgg19
from burn_torch.vision.pretrained import Weights

__all__ = ["GramMatrixLoss", "GramMatrixLossConfig"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The channels of ImageNet, on which the network was trained: means and standard deviations."""


class GramMatrixLossConfig(Config):
    """A style loss.

    layer_weights: how much each of the five layers counts, conv1_1 first; 0 leaves one out.  use_avg_pool false: the
    network pools maxima, as it was trained; true, as Gatys et al., gives smoother images.
    """

    layer_weights: list[float]
    use_avg_pool: bool = False

    def __post_init__(self) -> None:
        rules = Rules(self)
        if len(self.layer_weights) != 5:
            rules.fault("layer_weights", "not one for each layer", "five numbers", "write 0.0 for layers to leave out")
        elif not all(0 <= weight < math.inf for weight in self.layer_weights):
            rules.fault("layer_weights", "below 0 or not finite", "numbers of 0 or more", "write 0.0 to leave one out")
        rules.stop()

    def init(self, device: Device, weights: Weights | None = None) -> GramMatrixLoss:
        """The loss with torchvision's weights of VGG19 from files; they are not trained further.

        Raises: RecordError without a file, and for files of another network.
        """
        network = Vgg19.pretrained(self.use_avg_pool, device, weights).no_grad()
        return GramMatrixLoss(tuple(self.layer_weights), network)


class GramMatrixLoss(Module):
    """Squared distances of the Gram matrices of features, weighted by layer: two images of one style are near.

        G = F F^T of features F (channels, pixels),   loss = sum over layers of
        weight * sum((G(predictions) - G(targets))^2) / (4 * channels^2 * pixels^2)

    Shapes: predictions, targets (batch, 3, height, width), values from 0 to 1, 16 pixels or more along each axis ->
    (1,), or (batch,) without a reduction.
    Dtypes: that of the network's weights.
    Source: Gatys, Ecker, Bethge 2016, section 2.2.
    """

    layer_weights: tuple[float, ...]
    feat_extractor: Vgg19

    @noting_layer
    def forward(self, predictions: Tensor, targets: Tensor, reduction: Reduction = Reduction.Auto) -> Tensor:
        """The reduced loss."""
        return reduced(self.forward_no_reduction(predictions, targets), reduction)

    @noting_layer
    def forward_no_reduction(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The loss of each image."""
        same_shape(self, predictions=predictions, targets=targets)
        if predictions.ndim != 4 or predictions.shape[1] != 3 or min(predictions.shape[2:]) < 16:
            raise ShapeError(
                "GramMatrixLoss: these are no images that the network reads",
                given=f"predictions {predictions.spec}",
                expected="(batch, 3, height, width), red, green and blue, of 16 pixels or more along each axis",
                mend="gray2rgb makes three channels of one; Interpolate2d makes images larger",
            )
        features = zip(*(self.feat_extractor.forward(_normalise(x)) for x in (predictions, targets)), strict=True)
        total: Tensor | None = None
        for weight, (ours, theirs) in zip(self.layer_weights, features, strict=True):
            _, channels, pixels = ours.shape
            apart = ours.matmul(ours.transpose()) - theirs.matmul(theirs.transpose())
            loss = apart.square().sum_dims_squeeze((1, 2)) * (weight / (4.0 * channels**2 * pixels**2))
            total = loss if total is None else total + loss
        assert total is not None, "there are five layers"
        return total


def _normalise(images: Tensor) -> Tensor:
    device = images.device.no_grad()
    mean, std = (Tensor.from_data(list(x), (device, images.dtype)).reshape(1, 3, 1, 1) for x in (_MEAN, _STD))
    return (images - mean) / std
