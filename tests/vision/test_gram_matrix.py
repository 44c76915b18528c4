"""Features of VGG19 and the style loss beside torch, with weights from torchvision's file."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch.core.errors import ConfigError, RecordError, ShapeError
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device
from burn_torch.vision import GramMatrixLoss, GramMatrixLossConfig, Vgg19
from tests.nn.twins import array, close, double, tensor


@functools.cache
def network_of(pools_means: bool) -> Vgg19:
    return double(Vgg19.new(pools_means, Device.cpu()))  # type: ignore[no-any-return]  # any module


def features(x: torch.Tensor, network: Vgg19) -> list[torch.Tensor]:
    """As in the paper: pools between blocks, a relu behind each convolution."""
    read = []
    for block, count in enumerate((2, 2, 4, 4, 1), 1):
        if block > 1:
            x = F.avg_pool2d(x, 2) if network.use_avg_pool else F.max_pool2d(x, 2)
        for j in range(1, count + 1):
            layer = network.stages[block - 1][j - 1]
            x = F.relu(F.conv2d(x, *(torch.tensor(array(p.val())) for p in (layer.weight, layer.bias)), padding=1))
            if j == 1:
                read.append(x.flatten(2))
    return read


@pytest.mark.parametrize("pools_means", [False, True])
def test_the_loss_and_its_gradient_are_the_formula(pools_means: bool, seed: np.random.Generator) -> None:
    network = network_of(pools_means)
    images = [seed.uniform(size=(2, 3, 17, 16)) for _ in range(2)]
    weights = (0.5, 2.0, 0.0, 1.0, 3.0)
    theirs = [torch.tensor(x).requires_grad_() for x in images]
    mean, std = (
        torch.tensor(x, dtype=torch.float64)[:, None, None] for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    both = [features((x - mean) / std, network) for x in theirs]
    expected = torch.zeros(2, dtype=torch.float64)
    for weight, a, b in zip(weights, *both, strict=True):
        gap = torch.einsum("ncp,ndp->ncd", a, a) - torch.einsum("ncp,ndp->ncd", b, b)
        expected = expected + weight * (gap**2).sum((1, 2)) / (4 * (a.shape[1] * a.shape[2]) ** 2)
    (wanted,) = torch.autograd.grad(expected.sum(), theirs[:1])

    ours, target = (tensor(x) for x in images)
    ours = ours.require_grad()
    loss = GramMatrixLoss(weights, network)
    losses = loss.forward_no_reduction(ours, target)
    close(losses, expected)
    close(ours.grad(losses.sum().backward()), wanted)
    close(loss.forward(ours, target), expected.mean().reshape(1))
    close(loss.forward(ours, target, Reduction.Sum), expected.sum().reshape(1))
    for got, value in zip(network.forward(target), features(torch.tensor(images[1]), network), strict=True):
        close(got, value)


def test_the_configuration_reads_a_file_of_torchvision(tmp_path: Path) -> None:
    source = Vgg19.new(False, Device.cpu())
    numbers = iter((0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28))
    state = {
        f"features.{number}.{part}": torch.tensor(array(getattr(layer, part).val()))
        for stage in source.stages
        for layer, number in zip(stage, numbers, strict=False)
        for part in ("weight", "bias")
    }
    torch.save(state, tmp_path / "vgg19.pth")
    loss = GramMatrixLossConfig([1.0] * 5, use_avg_pool=True).init(Device.cpu().autodiff(), tmp_path / "vgg19.pth")
    assert loss.feat_extractor.use_avg_pool
    for (path, ours), (_, theirs) in zip(loss.named_params(), source.named_params(), strict=True):
        assert np.array_equal(array(ours.val()), array(theirs.val())), path
        assert not ours.val().is_require_grad()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecordError, match=r"no weights without a file(.|\n)*torchvision's vgg19"):
        GramMatrixLossConfig([1.0] * 5).init(Device.cpu())
    for layers, words in (([1.0, 1.0], "not one for each layer"), ([1.0] * 4 + [-1.0], "below 0 or not finite")):
        with pytest.raises(ConfigError, match=words):
            GramMatrixLossConfig(layers)
    loss = GramMatrixLoss((1.0,) * 5, network_of(False))
    grey, small = tensor(np.zeros((1, 1, 16, 16))), tensor(np.zeros((1, 3, 15, 16)))
    with pytest.raises(ShapeError, match="GramMatrixLoss: these are no images that the network reads"):
        loss.forward(grey, grey)
    with pytest.raises(ShapeError, match="GramMatrixLoss: the shapes differ"):
        loss.forward(grey, small)
    with pytest.raises(ShapeError, match=r"no images that the network reads\n.*\n  expected: .* 16 pixels or more"):
        loss.forward(small, small)
