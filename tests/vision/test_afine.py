"""A-FINE beside the formulas of its paper in torch's layers, with one file of weights; and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import Device, RecordError, ShapeError, Tensor
from burn_torch.nn.loss import Reduction
from burn_torch.vision import Afine, AfineConfig
from burn_torch.vision.pretrained import load_weights

WIDTH, HEADS, LAYERS, PATCH, PLACES, HIDDEN = 8, 2, 3, 4, 10, 6
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).reshape(1, 3, 1, 1)
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).reshape(1, 3, 1, 1)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.mlp = torch.nn.ModuleDict(
            {"c_fc": torch.nn.Linear(WIDTH, 4 * WIDTH), "c_proj": torch.nn.Linear(4 * WIDTH, WIDTH)}
        )


class Visual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, WIDTH, PATCH, PATCH, bias=False)
        self.class_embedding = torch.nn.Parameter(torch.randn(WIDTH))
        self.positional_embedding = torch.nn.Parameter(torch.randn(PLACES, WIDTH))
        self.ln_pre = torch.nn.LayerNorm(WIDTH)
        self.transformer = torch.nn.ModuleDict({"resblocks": torch.nn.ModuleList([Block() for _ in range(LAYERS)])})


def published() -> dict[str, dict[str, torch.Tensor]]:
    """A file of weights with the names and the parts of the published one, of a small transformer."""
    torch.manual_seed(1)
    head = torch.nn.ModuleDict(
        {
            "proj_feat": torch.nn.Linear(2 * WIDTH, HIDDEN),
            "proj_head": torch.nn.Sequential(
                torch.nn.Linear(6 + HIDDEN * LAYERS, 6 * HIDDEN), torch.nn.GELU(), torch.nn.Linear(6 * HIDDEN, 1)
            ),
        }
    )
    channels = 3 + WIDTH * LAYERS
    visual = {f"visual.{name}": value.detach() for name, value in Visual().state_dict().items()}
    return {
        "finetuned_clip": {**visual, "logit_scale": torch.tensor(1.0)},
        "natural": {**head.state_dict(), "mean": MEAN, "std": STD},
        "fidelity": {
            "alpha": torch.randn(1, 1, channels),
            "beta": torch.randn(1, 1, channels),
            "mean": MEAN,
            "std": STD,
        },
        "fidelity_scale": {"yita3": torch.tensor(0.3), "yita4": torch.tensor(0.9)},
        "natural_scale": {"yita3": torch.tensor(0.2), "yita4": torch.tensor(-1.5)},
        "adapter": {"k": torch.tensor(0.7)},
    }


def maps_of(x: torch.Tensor, file: dict[str, Any]) -> list[torch.Tensor]:
    visual = Visual()
    weights = {n.removeprefix("visual."): v for n, v in file["finetuned_clip"].items() if n != "logit_scale"}
    visual.load_state_dict(weights)
    tokens = visual.conv1(x).flatten(2).transpose(1, 2)
    tokens = torch.cat([visual.class_embedding.expand(len(x), 1, WIDTH), tokens], 1)
    places = F.interpolate(visual.positional_embedding[None, None], (tokens.shape[1], WIDTH), mode="bicubic")[0]
    tokens = visual.ln_pre(tokens + places)
    maps = [(x * STD + MEAN).flatten(2).transpose(1, 2)]
    for block in visual.transformer["resblocks"]:
        normal = block.ln_1(tokens)
        tokens = tokens + block.attn(normal, normal, normal)[0]
        hidden = block.mlp["c_fc"](block.ln_2(tokens))
        tokens = tokens + block.mlp["c_proj"](hidden * torch.sigmoid(1.702 * hidden))
        maps.append(tokens[:, 1:].relu())
    return maps


def logistic(x: torch.Tensor, center: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    return 4 / (1 + torch.exp(-(x - center) / width)) - 2


def naturalness(maps: list[torch.Tensor], file: dict[str, Any]) -> torch.Tensor:
    own = file["natural"]
    moments = [torch.cat([m.mean(1), m.var(1, unbiased=False)], 1) for m in maps]
    rest = [F.linear(m, own["proj_feat.weight"], own["proj_feat.bias"]) for m in moments[1:]]
    hidden = F.gelu(F.linear(torch.cat([moments[0], *rest], 1), own["proj_head.0.weight"], own["proj_head.0.bias"]))
    raw = F.linear(hidden, own["proj_head.2.weight"], own["proj_head.2.bias"])
    return logistic(raw, file["natural_scale"]["yita3"], file["natural_scale"]["yita4"].abs())


def fidelity(xs: list[torch.Tensor], ys: list[torch.Tensor], file: dict[str, Any]) -> torch.Tensor:
    alpha, beta = (F.softplus(file["fidelity"][name]).flatten() for name in ("alpha", "beta"))
    total, at = torch.zeros(len(xs[0])), 0
    for x, y in zip(xs, ys, strict=True):
        part = slice(at, at + x.shape[2])
        at += x.shape[2]
        mx, my = x.mean(1), y.mean(1)
        cov = (x * y).mean(1) - mx * my
        total += (alpha[part] * (2 * mx * my + 1e-10) / (mx**2 + my**2 + 1e-10)).sum(1)
        spread = x.var(1, unbiased=False) + y.var(1, unbiased=False)
        total += (beta[part] * (2 * cov + 1e-10) / (spread + 1e-10)).sum(1)
    raw = 1 - total / (alpha.sum() + beta.sum() + 1e-10)
    scale = file["fidelity_scale"]
    return logistic(raw, scale["yita3"].clamp(0.05, 0.95), scale["yita4"].clamp(0.01, 0.7))[:, None]


def score(x: torch.Tensor, y: torch.Tensor, file: dict[str, Any]) -> torch.Tensor:
    height, width = (-(-n // PATCH) * PATCH for n in x.shape[2:])
    images = [(image - MEAN) / STD for image in (x, y)]
    if (height, width) != x.shape[2:]:
        images = [F.interpolate(image, (height, width), mode="bicubic") for image in images]
    xs, ys = (maps_of(image, file) for image in images)
    own, other = naturalness(xs, file), naturalness(ys, file)
    u = torch.exp(F.softplus(file["adapter"]["k"]) * (other - own)) * own + fidelity(xs, ys, file)
    return 100 * torch.sigmoid((u + 1.9710) / 2.3734).flatten()


def small(device: Device) -> Afine:
    sizes = {"width": WIDTH, "n_heads": HEADS, "n_layers": LAYERS, "patch": PATCH, "places": PLACES, "hidden": HIDDEN}
    return Afine.new(device, **sizes)


@pytest.mark.parametrize("size", [(12, 12), (8, 20), (10, 13)])
def test_scores_and_gradients_are_those_of_the_formulas(size: tuple[int, int], tmp_path: Path, seed: Any) -> None:
    file = published()
    torch.save(file, tmp_path / "afine.pth")
    ours = load_weights(small(Device.cpu().autodiff()), tmp_path / "afine.pth", Afine.names(), "afine.pth")
    data = seed.random((2, 3, 3, *size)).astype(np.float32)
    x, y = (Tensor.from_data(part, Device.cpu().autodiff()).require_grad() for part in data)
    tx, ty = (torch.tensor(part, requires_grad=True) for part in data)
    scores, expected = ours.forward_no_reduction(x, y), score(tx, ty, file)
    np.testing.assert_allclose(np.asarray(scores.inner()), expected.detach().numpy(), rtol=2e-5, atol=2e-4)
    assert np.ptp(np.asarray(scores.inner())) > 1e-3
    upstream = seed.normal(size=3).astype(np.float32)
    wanted = torch.autograd.grad(expected, (tx, ty), torch.from_numpy(upstream))
    grads = (scores * Tensor.from_data(upstream, Device.cpu().autodiff())).sum().backward()
    for image, gradient in zip((x, y), wanted, strict=True):
        scale = float(gradient.abs().max())
        np.testing.assert_allclose(np.asarray(image.grad(grads)), gradient.numpy(), rtol=0, atol=2e-4 * scale)
    assert ours.forward(x, y, Reduction.Sum).item() == pytest.approx(float(expected.detach().sum()), rel=1e-5)


def test_there_are_no_weights_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no weights without a file(.|\n)*afine.pth(.|\n)*init_pretrained"):
        load_weights(small(Device.cpu()), None, Afine.names(), "afine.pth of A-FINE (CVPR 2025)")
    file = published()
    del file["adapter"]
    torch.save(file, tmp_path / "part.pth")
    with pytest.raises(RecordError, match=r"the files do not have all weights(.|\n)*missing are k "):
        load_weights(small(Device.cpu()), tmp_path / "part.pth", Afine.names(), "afine.pth")


def test_images_that_are_no_pair_are_refused() -> None:
    images = Tensor.zeros((1, 3, 8, 8), Device.cpu())
    with pytest.raises(ShapeError, match="the images are not pairs"):
        small(Device.cpu()).forward(images, Tensor.zeros((1, 3, 8, 12), Device.cpu()))
    assert AfineConfig(normalize_input=False).to_dict() == {"normalize_input": False}
    assert "normalize_input: true" in str(small(Device.cpu()))
