"""EmbeddingBag beside PyTorch's, MixtureOfExperts beside a loop over tokens; outputs and gradients in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn

import burn_torch
from burn_torch import nn
from burn_torch.core.errors import ArgumentError, BoundsError, ConfigError, ShapeError
from burn_torch.tensor import Device, Tensor
from tests.nn.twins import AD, CPU, array, close, double, tensor, with_arrays

Rng = np.random.Generator
MODES = {mode.value.lower(): mode for mode in nn.EmbeddingBagMode}


# -- bags ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_bags_are_those_of_torch(mode: str, padding_idx: int | None, seed: Rng) -> None:
    lengths = [3, 0, 5, 1, 2]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    indices = seed.integers(0, 7, ends[-1])
    indices[-2:] = 2  # a bag of padding alone
    weights = seed.normal(size=len(indices)) if mode == "sum" else None
    g = seed.normal(size=(len(lengths), 4))
    for last in (False, True):
        twin = tnn.EmbeddingBag(7, 4, mode=mode, padding_idx=padding_idx, include_last_offset=last).double()
        config = nn.EmbeddingBagConfig(7, 4, mode=MODES[mode], padding_idx=padding_idx, include_last_offset=last)
        layer = with_arrays(double(config.init(AD)), {"weight": twin.weight.detach().numpy()})
        offsets = ends if last else ends[:-1]
        their_weights = None if weights is None else torch.from_numpy(weights).requires_grad_()
        expected = twin(torch.from_numpy(indices), torch.from_numpy(offsets), their_weights)
        (expected * torch.from_numpy(g)).sum().backward()
        our_weights = None if weights is None else tensor(weights, AD).require_grad()
        y = layer.forward(tensor(indices, AD), tensor(offsets, AD), our_weights)
        close(y, expected.detach().numpy(), 1e-12)
        gradients = (y * tensor(g, AD)).sum().backward()
        close(layer.weight.val().grad(gradients), twin.weight.grad.numpy(), 1e-12)
        if our_weights is not None and their_weights is not None:
            close(our_weights.grad(gradients), their_weights.grad.numpy(), 1e-12)


def test_lines_of_indices_are_bags_and_compile(seed: Rng) -> None:
    indices = seed.integers(0, 7, (3, 5))
    layer = nn.EmbeddingBagConfig(7, 4, padding_idx=1).init(CPU)
    table = array(layer.weight.val()).astype(np.float64)
    expected = np.stack([table[line[line != 1]].mean(0) for line in indices])
    close(layer.forward(tensor(indices, CPU)), expected, 1e-6)
    close(burn_torch.compile(lambda layer, x: layer.forward(x))(layer, tensor(indices, CPU)), expected, 1e-6)
    assert layer.forward(Tensor.zeros((0, 4), CPU).int()).shape == (0, 4)


def test_bags_refuse_what_does_not_fit() -> None:
    layer = nn.EmbeddingBagConfig(7, 4).init(CPU)
    flat = Tensor.from_ints([1, 2, 3], CPU)
    with pytest.raises(ShapeError, match=r"(?s)do not fit together.*given:.*expected:.*mend:") as caught:
        layer.forward(flat)
    assert "in EmbeddingBag(n_embedding=7, d_model=4" in str(caught.value.__notes__)
    with pytest.raises(ArgumentError, match="only sums have weights"):
        layer.forward(flat, Tensor.from_ints([0], CPU), Tensor.ones((3,), CPU))
    with pytest.raises(BoundsError, match="not those of segments"):
        array(layer.forward(flat, Tensor.from_ints([0, 9], CPU)))
    with pytest.raises(BoundsError, match="out of range"):
        array(layer.forward(Tensor.from_ints([[7]], CPU)))
    with pytest.raises(ConfigError, match="padding_idx"):
        nn.EmbeddingBagConfig(7, 4, padding_idx=7)


# -- experts -------------------------------------------------------------------------------------------------
def mix(layer: nn.MixtureOfExperts, params: dict[str, torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The mixture token by token; with a capacity, tokens in order until an expert is full."""
    n_experts, top_k = params["router"].shape[1], layer.top_k
    logits = x @ params["router"]
    p = logits.softmax(1)
    chosen = p.topk(top_k, 1)
    capacity = math.inf
    if layer.capacity_factor is not None:
        capacity = min(len(x), math.ceil(layer.capacity_factor * len(x) * top_k / n_experts))
    counts = [0] * n_experts
    rows = []
    for i, token in enumerate(x):
        weights = chosen.values[i] / (chosen.values[i].sum() if layer.normalize_weights else 1.0)
        y = torch.zeros_like(token)
        for w, e in zip(weights, chosen.indices[i].tolist(), strict=True):
            counts[e] += 1
            if counts[e] <= capacity:
                inner = torch.nn.functional.silu(token @ params["gate"][e]) * (token @ params["up"][e])
                y = y + w * (inner @ params["down"][e])
        if "shared" in params:
            inner = torch.nn.functional.silu(token @ params["shared_gate"]) * (token @ params["shared_up"])
            y = y + inner @ params["shared"]
        rows.append(y)
    part = torch.tensor(counts, dtype=torch.float64) / (len(x) * top_k)
    balance = n_experts * (part * p.mean(0)).sum()
    return torch.stack(rows), balance, logits.logsumexp(1).square().mean(), torch.tensor(counts)


def params_of(layer: Any) -> dict[str, Any]:
    params = {name: getattr(layer, name) for name in ("router", "gate", "up", "down")}
    if layer.shared_inner is not None:
        params |= {
            "shared_gate": layer.shared_inner.linear_inner.weight,
            "shared_up": layer.shared_inner.linear_outer.weight,
            "shared": layer.shared_outer.weight,
        }
    return params


@pytest.mark.parametrize(
    "settings",
    [{}, {"top_k": 1, "normalize_weights": False}, {"top_k": 3, "n_shared": 2}, {"capacity_factor": 0.6}],
    ids=str,
)
def test_a_mixture_is_that_of_a_loop_over_tokens(settings: dict[str, Any], seed: Rng) -> None:
    layer = double(nn.MixtureOfExpertsConfig(6, 5, 4, **settings).init(AD))
    x = seed.normal(size=(2, 7, 6))
    params = params_of(layer)
    theirs = {name: torch.from_numpy(array(param.val()).copy()).requires_grad_() for name, param in params.items()}
    their_x = torch.from_numpy(x.reshape(14, 6)).requires_grad_()
    expected = mix(layer, theirs, their_x)
    our_x = tensor(x, AD).require_grad()
    output = layer.forward(our_x)
    close(output.output, expected[0].detach().numpy().reshape(x.shape), 1e-10)
    close(output.load_balancing_loss, expected[1].detach().numpy().reshape(1), 1e-10)
    close(output.router_z_loss, expected[2].detach().numpy().reshape(1), 1e-10)
    assert output.tokens_per_expert.into_data().to_vec() == expected[3].tolist()
    g = seed.normal(size=x.shape)
    ((expected[0] * torch.from_numpy(g.reshape(14, 6))).sum() + 0.3 * expected[1] + 0.2 * expected[2]).sum().backward()
    loss = (output.output * tensor(g, AD)).sum() + output.load_balancing_loss * 0.3 + output.router_z_loss * 0.2
    gradients = loss.backward()
    close(our_x.grad(gradients), their_x.grad.numpy().reshape(x.shape), 1e-9)
    for name, param in params.items():
        close(param.val().grad(gradients), theirs[name].grad.numpy(), 1e-9)


def test_a_router_that_loves_one_expert_and_no_tokens_at_all() -> None:
    layer = nn.MixtureOfExpertsConfig(3, 4, 5, top_k=1).init(CPU)
    router = np.zeros((3, 5))
    router[:, 2] = 50.0
    layer = with_arrays(layer, {"router": router.astype(np.float32)})
    output = layer.forward(Tensor.ones((6, 3), CPU))
    assert output.tokens_per_expert.into_data().to_vec() == [0, 0, 6, 0, 0]
    close(output.load_balancing_loss, np.array([5.0]), 1e-6)
    empty = layer.forward(Tensor.zeros((0, 3), CPU))
    assert empty.output.shape == (0, 3)
    assert (array(empty.load_balancing_loss), array(empty.router_z_loss)) == (0.0, 0.0)
    with pytest.raises(ShapeError, match="does not fit the experts"):
        layer.forward(Tensor.ones((6, 4), CPU))
    with pytest.raises(ConfigError, match="top_k"):
        nn.MixtureOfExpertsConfig(3, 4, 5, top_k=6)
    with pytest.raises(ConfigError, match="capacity_factor"):
        nn.MixtureOfExpertsConfig(3, 4, 5, capacity_factor=0.0)


@pytest.mark.parametrize("capacity", [None, 1.0])
def test_a_step_compiles_and_each_leaf_agrees(capacity: float | None, seed: Rng) -> None:
    layer = nn.MixtureOfExpertsConfig(6, 5, 4, capacity_factor=capacity, n_shared=1).init(CPU)
    x = tensor(seed.normal(size=(9, 6)).astype(np.float32), CPU)

    def loss(layer: nn.MixtureOfExperts, x: Tensor) -> Tensor:
        output = layer.forward(x)
        return output.output.square().sum() + output.load_balancing_loss + output.router_z_loss

    value, slopes = burn_torch.value_and_grad(loss)(layer, x)
    compiled, compiled_slopes = burn_torch.compile(burn_torch.value_and_grad(loss))(layer, x)
    close(compiled, array(value), 1e-5)
    for (_, a), (_, b) in zip(slopes.items(), compiled_slopes.items(), strict=True):
        close(a, array(b), 1e-4)
    moved = layer.to_device(Device.ndarray())
    close(moved.forward(tensor(array(x), Device.ndarray())).output, array(layer.forward(x).output), 1e-5)
