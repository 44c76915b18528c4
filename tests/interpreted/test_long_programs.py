"""The lazy stream with generated kernels, where programs are long or are met at other sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, nn

PLAIN, FUSED = Device.cpu(fused=False).autodiff(), Device.cpu().fused().autodiff()


def test_recipes_of_one_operation_are_more_than_a_segment_holds(seed: np.random.Generator) -> None:
    """They were recorded again and again, each time in a new segment, until Python's stack ended."""
    count = 80
    data, upstream = seed.standard_normal((2, 3, 4 * count)).astype(np.float32)
    results = []
    for device in (PLAIN, FUSED):
        x = Tensor.from_data(data[:, :4], device).require_grad()
        parts = [((x * (0.01 * n) + 0.5) * x - 0.25) * 2.0 for n in range(count)]
        (x.inner() + 1.0).into_data()  # a cut: parts stay recipes
        y = Tensor.cat(parts, 1)
        gradients = (y * Tensor.from_data(upstream, device)).sum().backward()
        results.append((y.inner().into_torch(), x.grad(gradients)))
    (y, g), (z, h) = results
    torch.testing.assert_close(z, y)
    assert g is not None
    assert h is not None
    torch.testing.assert_close(h.into_torch(), g.into_torch(), rtol=1e-5, atol=1e-5)


def test_group_norms_of_other_channels(seed: np.random.Generator) -> None:
    """The rule asks channels % groups == 0, which no symbol solves: planned at each number of channels."""
    for groups, channels in ((2, 4), (2, 8), (2, 6), (3, 9), (3, 6), (1, 5)):
        x = seed.standard_normal((2, channels, 3, 5)).astype(np.float32)
        outputs = [
            nn.GroupNormConfig(groups, channels).init(device.inner()).forward(Tensor.from_data(x, device.inner())) + 1.0
            for device in (PLAIN, FUSED)
        ]
        torch.testing.assert_close(outputs[1].into_torch(), outputs[0].into_torch(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Lstm", "Gru"])
def test_recurrences_of_many_steps(kind: str, seed: np.random.Generator) -> None:
    data = seed.standard_normal((2, 64, 8)).astype(np.float32)
    plain = getattr(nn, f"{kind}Config")(8, 8, True).init(PLAIN)
    fused = plain.to_device(FUSED)
    results = []
    for layer, device in ((plain, PLAIN), (fused, FUSED)):
        x = Tensor.from_data(data, device).require_grad()
        y = layer.forward(x)
        loss = (y[0] if isinstance(y, tuple) else y).square().sum()
        gradient = x.grad(loss.backward())
        assert gradient is not None
        results.append((float(loss.into_scalar()), gradient.into_torch()))
    (a, g), (b, h) = results
    assert b == pytest.approx(a, rel=1e-5)
    torch.testing.assert_close(h, g, rtol=1e-4, atol=1e-5)
