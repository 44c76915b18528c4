"""Perceptual metrics beside torch's layers and scipy's roots, with the same weights; weights from files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg
from torch.nn import functional

from burn_torch import Device, Module, RecordError, ShapeError, Tensor
from burn_torch.nn.loss import Reduction
from burn_torch.vision import DistsConfig, FidConfig, LpipsConfig, LpipsNet, Vgg19
from burn_torch.vision.feature_networks import VggFeatures
from burn_torch.vision.frechet import InceptionFeatures

CPU = Device.cpu()
VGG16 = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)


def pair(seed: np.random.Generator, size: int = 32) -> tuple[Tensor, Tensor]:
    first, second = seed.random((2, 2, 3, size, size)).astype(np.float32)
    return Tensor.from_data(first, CPU), Tensor.from_data(second, CPU)


def of_torch(x: Tensor) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x).copy())


def conv(x: torch.Tensor, layer: Module, **settings: int) -> torch.Tensor:
    return functional.conv2d(x, of_torch(layer.weight.val()), of_torch(layer.bias.val()), **settings).relu()


def vgg_maps(x: torch.Tensor, stages: list, pool) -> list[torch.Tensor]:
    maps = []
    for i, stage in enumerate(stages):
        x = pool(x) if i else x
        for layer in stage:
            x = conv(x, layer, padding=1)
        maps.append(x)
    return maps


def alex_maps(x: torch.Tensor, layers: list) -> list[torch.Tensor]:
    maps = []
    for i, (layer, stride, padding) in enumerate(zip(layers, (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), strict=True)):
        x = functional.max_pool2d(x, 3, 2) if i in (1, 2) else x
        x = conv(x, layer, stride=stride, padding=padding)
        maps.append(x)
    return maps


def squeeze_maps(x: torch.Tensor, network: Module) -> list[torch.Tensor]:
    maps = [x := conv(x, network.conv1, stride=2)]
    for i, fire in enumerate(network.fires):
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True) if i in (0, 2, 4) else x
        x = conv(x, fire.squeeze)
        x = torch.cat([conv(x, fire.expand1x1), conv(x, fire.expand3x3, padding=1)], 1)
        maps.append(x)
    return [maps[i] for i in (0, 2, 4, 5, 6, 7, 8)]


@pytest.mark.parametrize("net", LpipsNet)
def test_lpips_is_the_weighted_distance_of_unit_features(net, seed) -> None:
    first, second = pair(seed, 64 if net is LpipsNet.Alex else 32)
    lpips = LpipsConfig(net=net).init(CPU)
    ours = lpips.forward_no_reduction(first, second)
    maps = {
        LpipsNet.Vgg: lambda x: vgg_maps(x, lpips.extractor.stages, lambda x: functional.max_pool2d(x, 2)),
        LpipsNet.Alex: lambda x: alex_maps(x, lpips.extractor.layers),
        LpipsNet.Squeeze: lambda x: squeeze_maps(x, lpips.extractor),
    }[net]
    shift, scale = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ((-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)))
    features = [maps((of_torch(x) * 2 - 1 - shift) / scale) for x in (first, second)]
    expected = torch.zeros(2)
    for x, y, lin in zip(*features, lpips.lins, strict=True):
        units = [f / f.square().sum(1, keepdim=True).sqrt().clamp_min(1e-10) for f in (x, y)]
        expected += functional.conv2d((units[0] - units[1]) ** 2, of_torch(lin.weight.val())).mean((1, 2, 3))
    np.testing.assert_allclose(np.asarray(ours), expected.numpy(), rtol=1e-3, atol=1e-5)
    assert lpips.forward(first, first).item() == 0.0
    total = lpips.forward(first, second, Reduction.Sum)
    assert total.shape == (1,)
    np.testing.assert_allclose(total.item(), np.asarray(ours).sum(), rtol=1e-5)


def test_lpips_has_finite_slopes_between_equal_images(seed) -> None:
    lpips = LpipsConfig(net=LpipsNet.Squeeze).init(CPU)
    device = CPU.autodiff()
    x = Tensor.from_data(np.asarray(pair(seed)[0]), device).require_grad()
    gradients = lpips.to_device(device).forward(x, x.detach() * 0.5).backward()
    slope = np.asarray(x.grad(gradients))
    assert np.isfinite(slope).all()
    assert np.abs(slope).max() > 0


def test_dists_weighs_structure_and_texture(seed) -> None:
    first, second = pair(seed)
    dists = DistsConfig().init(CPU)
    window = torch.from_numpy(np.outer(np.hanning(5)[1:-1], np.hanning(5)[1:-1])).float()
    window = window / window.sum()

    def pool(x: torch.Tensor) -> torch.Tensor:
        weight = window.expand(x.shape[1], 1, 3, 3)
        return (functional.conv2d(x**2, weight, stride=2, padding=1, groups=x.shape[1]) + 1e-12).sqrt()

    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    images = [of_torch(first), of_torch(second)]
    maps = [[x, *vgg_maps((x - mean) / std, dists.extractor.stages, pool)] for x in images]
    similar = torch.zeros(2, dtype=torch.float64)
    for x, y in zip(*maps, strict=True):
        x, y = x.double().flatten(2), y.double().flatten(2)
        means, spreads = (x.mean(2), y.mean(2)), (x.var(2, correction=0), y.var(2, correction=0))
        covariance = (x * y).mean(2) - means[0] * means[1]
        similar += ((2 * means[0] * means[1] + 1e-6) / (means[0] ** 2 + means[1] ** 2 + 1e-6)).sum(1)
        similar += ((2 * covariance + 1e-6) / (spreads[0] + spreads[1] + 1e-6)).sum(1)
    ours = dists.forward_no_reduction(first, second)
    np.testing.assert_allclose(np.asarray(ours), 1 - similar.numpy() / 2950, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(dists.forward(first, first).item(), 0.0, atol=1e-6)


def test_the_frechet_distance_is_that_of_scipys_root(seed) -> None:
    fid = FidConfig().init(CPU)
    first = seed.normal(size=(60, 8)) @ seed.normal(size=(8, 8))
    second = seed.normal(size=(50, 8)) @ seed.normal(size=(8, 8)) + 0.5
    ours = fid.compute_fid(Tensor.from_data(first, CPU), Tensor.from_data(second, CPU))
    covariances = [np.cov(x, rowvar=False) for x in (first, second)]
    root = linalg.sqrtm(covariances[0] @ covariances[1]).real
    gap = first.mean(0) - second.mean(0)
    expected = gap @ gap + np.trace(covariances[0] + covariances[1] - 2 * root)
    np.testing.assert_allclose(ours.item(), expected, rtol=1e-4)
    equal = fid.compute_fid(Tensor.from_data(first, CPU), Tensor.from_data(first, CPU))
    np.testing.assert_allclose(equal.item(), 0.0, atol=1e-6 * np.trace(covariances[0]) * 8)
    with pytest.raises(ShapeError, match="no features of two sets"):
        fid.compute_fid(ours, ours)


def test_blocks_of_inception_are_chains_of_torchs_layers(seed) -> None:
    network = InceptionFeatures.new(CPU)
    x = seed.normal(size=(1, 1280, 5, 5)).astype(np.float32)

    def layer(y: torch.Tensor, name: str, padding: tuple[int, int] = (0, 0)) -> torch.Tensor:
        one = block.convs[name]
        y = functional.conv2d(y, of_torch(one.conv.weight.val()), padding=padding)
        return functional.batch_norm(y, torch.zeros(y.shape[1]), torch.ones(y.shape[1]), eps=0.001).relu()

    block, y = network.mixed["Mixed_7b"], torch.from_numpy(x)
    three, deep = layer(y, "branch3x3_1"), layer(layer(y, "branch3x3dbl_1"), "branch3x3dbl_2", (1, 1))
    parts = [layer(y, "branch1x1"), layer(three, "branch3x3_2a", (0, 1)), layer(three, "branch3x3_2b", (1, 0))]
    parts += [layer(deep, "branch3x3dbl_3a", (0, 1)), layer(deep, "branch3x3dbl_3b", (1, 0))]
    parts.append(layer(functional.avg_pool2d(y, 3, 1, 1, count_include_pad=False), "branch_pool"))
    ours = block.forward(Tensor.from_data(x, CPU))
    np.testing.assert_allclose(np.asarray(ours), torch.cat(parts, 1).numpy(), rtol=1e-3, atol=1e-4)
    widths = {"Mixed_5d": 288, "Mixed_6a": 768, "Mixed_6e": 768, "Mixed_7a": 1280}
    for name, width in widths.items():
        convs = network.mixed[name].convs
        channels = next(iter(convs.values())).conv.weight.shape[1]
        probe = Tensor.zeros((1, channels, 9, 9), CPU)
        assert network.mixed[name].forward(probe).shape[1] == width


@pytest.mark.slow
def test_inception_gives_2048_features_of_images_of_any_size(seed) -> None:
    fid = FidConfig().init(CPU)
    assert fid.extract_features(pair(seed)[0]).shape == (2, 2048)


@pytest.mark.parametrize("use_avg_pool", [False, True])
def test_vgg19_gives_the_first_map_of_each_stage(use_avg_pool, seed) -> None:
    network = Vgg19.new(use_avg_pool, CPU)
    x, maps = pair(seed)[0], []
    y = of_torch(x)
    for i, stage in enumerate(network.stages):
        y = (functional.avg_pool2d if use_avg_pool else functional.max_pool2d)(y, 2) if i else y
        for j, one in enumerate(stage):
            y = conv(y, one, padding=1)
            if j == 0:
                maps.append(y.flatten(2))
    for ours, theirs in zip(network.forward(x), maps, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-3, atol=1e-5)


def test_weights_come_from_files_by_torchvisions_names(tmp_path, seed) -> None:
    theirs = {}
    lpips = LpipsConfig(net=LpipsNet.Squeeze).init(CPU)
    theirs["features.0.weight"], theirs["features.0.bias"] = torch.randn(64, 3, 3, 3), torch.randn(64)
    for number, fire in zip((3, 4, 6, 7, 9, 10, 11, 12), lpips.extractor.fires, strict=True):
        for name in ("squeeze", "expand1x1", "expand3x3"):
            layer = getattr(fire, name)
            theirs[f"features.{number}.{name}.weight"] = torch.randn(layer.weight.shape)
            theirs[f"features.{number}.{name}.bias"] = torch.randn(layer.bias.shape)
    theirs["classifier.1.weight"] = torch.randn(10, 512, 1, 1)
    lins = {f"lin{i}.model.1.weight": torch.randn(lin.weight.shape) for i, lin in enumerate(lpips.lins)}
    torch.save(theirs, tmp_path / "backbone.pth")
    torch.save(lins, tmp_path / "lins.pth")
    config = LpipsConfig(net=LpipsNet.Squeeze)
    loaded = config.init_pretrained(CPU, [tmp_path / "backbone.pth", tmp_path / "lins.pth"])
    fire = loaded.extractor.fires[3].expand3x3
    np.testing.assert_array_equal(np.asarray(fire.weight.val()), theirs["features.7.expand3x3.weight"].numpy())
    np.testing.assert_array_equal(np.asarray(loaded.lins[6].weight.val()), lins["lin6.model.1.weight"].numpy())
    with pytest.raises(RecordError, match="do not have all weights"):
        config.init_pretrained(CPU, tmp_path / "lins.pth")
    for make in (
        config.init_pretrained,
        DistsConfig().init_pretrained,
        FidConfig().init_pretrained,
        lambda device: Vgg19.pretrained(False, device),
    ):
        with pytest.raises(RecordError, match="nothing is downloaded"):
            make(CPU)
    assert [int(pattern.split("\\.")[1]) for pattern in VggFeatures.names("")] == list(VGG16)
