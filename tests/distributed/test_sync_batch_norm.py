"""SyncBatchNorm of two processes beside one BatchNorm on their joined batch, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from burn_torch import Module, nn
from tests.nn.twins import AD, CPU, close, compare, same, tensor

COUNTS = [[5, 3], [4, 0]]
"""The sizes of the two batches."""


def test_two_processes_normalise_as_one_does(launch: Callable[..., Any]) -> None:
    results = launch("normalised", counts=COUNTS).results()
    rng = np.random.default_rng(4)
    gamma, beta = rng.normal(size=3), rng.normal(size=3)
    for case, counts in enumerate(COUNTS):
        every, weights = rng.normal(size=(2, sum(counts), 3, 2)) * 2 + 5
        twin = torch.nn.BatchNorm1d(3, momentum=0.3, dtype=torch.float64)
        with torch.no_grad():
            twin.weight.copy_(torch.from_numpy(gamma))
            twin.bias.copy_(torch.from_numpy(beta))
        x = torch.tensor(every, requires_grad=True)
        y = twin(x)
        (y * torch.from_numpy(weights)).sum().backward()
        for run in (2 * case, 2 * case + 1):  # eager, compiled
            ys, slopes, gammas, betas, means, variances = (
                [np.array(rank[run][i]) for rank in results] for i in range(6)
            )
            for parts, whole in ((ys, y), (slopes, x.grad)):
                close(np.concatenate([part.reshape(-1, 3, 2) for part in parts]), whole, 1e-12)
            close(gammas[0] + gammas[1], twin.weight.grad, 1e-12)
            close(betas[0] + betas[1], twin.bias.grad, 1e-12)
            for rank in range(2):
                close(means[rank], twin.running_mean, 1e-12)
                close(variances[rank], twin.running_var, 1e-12)


def test_alone_it_is_a_batch_norm(seed: np.random.Generator) -> None:
    twin = torch.nn.BatchNorm2d(3, dtype=torch.float64)
    params = {"gamma": (twin.weight, same), "beta": (twin.bias, same)}
    layer = compare(seed, nn.SyncBatchNormConfig(3).init(AD), twin, seed.normal(size=(4, 3, 2, 2)), params=params)
    close(layer.running_var.value(), twin.running_var)
    twin.eval()
    x = seed.normal(size=(2, 3, 2, 2))
    close(layer.valid().forward(tensor(x, CPU)), twin(torch.from_numpy(x)))


def test_layers_of_a_model_are_converted_and_keep_what_they_hold() -> None:
    class Net(Module):
        norms: list[nn.BatchNorm]
        linear: nn.Linear

    norm = nn.BatchNormConfig(3, momentum=0.2).init(AD)
    net = nn.SyncBatchNorm.convert(Net([norm, norm], nn.LinearConfig(2, 3).init(AD)))
    first, second = net.norms
    assert isinstance(first, nn.SyncBatchNorm)
    assert first is second  # a layer that is used twice stays one
    assert first.gamma is norm.gamma
    assert first.running_mean is norm.running_mean
    assert first.momentum == 0.2
    assert nn.SyncBatchNorm.convert(net) is net
    assert str(first) == str(norm).replace("BatchNorm", "SyncBatchNorm")
