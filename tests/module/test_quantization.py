"""Modules with quantised weights: what they compute, where they go, what trains for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Distribution, Module, Tensor, compile, nn
from burn_torch.core.errors import ArgumentError
from burn_torch.module import GradientsParams, QuantizedParam, Quantizer
from burn_torch.optim import ParamGroup, SgdConfig
from burn_torch.tensor import Calibration, QuantLevel, QuantScheme, QuantStore, QuantValue, functional


class Net(Module):
    conv: nn.Conv2d
    norm: nn.LayerNorm
    linear: nn.Linear
    embedding: nn.Embedding

    def forward(self, image: Tensor, words: Tensor) -> Tensor:
        flat = self.conv.forward(image).flatten(1)
        return self.linear.forward(self.norm.forward(flat)) + self.embedding.forward(words).sum_dim(1).flatten(1)


def net(device: Device) -> Net:
    return Net(
        nn.Conv2dConfig((1, 2), (3, 3)).init(device),
        nn.LayerNormConfig(32).init(device),
        nn.LinearConfig(32, 5).init(device),
        nn.EmbeddingConfig(7, 5).init(device),
    )


def inputs(device: Device) -> tuple[Tensor, Tensor]:
    image = Tensor.random((3, 1, 6, 6), Distribution.Normal(0, 1), device)
    return image, Tensor.from_data([[1, 2], [3, 4], [5, 6]], device)


SCHEMES = [
    QuantScheme(QuantValue.Q8S),
    QuantScheme(QuantValue.Q4S, QuantLevel.per_block(8)),
    QuantScheme(QuantValue.E4M3, QuantLevel.per_channel(-1), QuantStore.Native),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.value.value)
def test_a_quantised_module_computes_with_what_its_codes_say(scheme: QuantScheme) -> None:
    model, quantizer = net(Device.cpu()), Quantizer(Calibration.MinMax, scheme)
    image, words = inputs(Device.cpu())
    small = model.quantize_weights(quantizer)
    rounded = model.map_params(lambda param: param.map(lambda x: x.quantize_dynamic(scheme).dequantize()))
    expected = np.asarray(rounded.forward(image, words))
    np.testing.assert_allclose(np.asarray(small.forward(image, words)), expected, rtol=1e-5, atol=1e-5)
    compiled = compile(lambda model, *inputs: model.forward(*inputs))
    np.testing.assert_allclose(np.asarray(compiled(small, image, words)), expected, rtol=1e-5, atol=1e-5)
    faked = model.train().fake_quantize_weights(quantizer).forward(*map(Tensor.from_inner, (image, words)))
    np.testing.assert_allclose(np.asarray(faked.inner()), expected, rtol=1e-5, atol=1e-5)
    assert small.num_params() == model.num_params()
    assert all(not param.require_grad for _, param in small.named_params())
    again = small.quantize_weights(quantizer)
    assert again is small  # codes and scales are no weights
    there = small.to_device(Device.cpu().autodiff()).forward(*map(Tensor.from_inner, (image, words)))
    np.testing.assert_allclose(np.asarray(there.inner()), expected, rtol=1e-5, atol=1e-5)


def test_a_group_says_what_is_quantised() -> None:
    model = net(Device.cpu())
    quantizer = Quantizer(Calibration.AbsMean, QuantScheme(QuantValue.Q2S))
    group = ParamGroup.from_regex(r"linear\.weight$")
    for small in (
        model.quantize_weights(quantizer.set_param_group(group)),
        model.quantize_weights_group(quantizer, group),
    ):
        assert isinstance(small.linear.weight, QuantizedParam)
        assert small.conv is model.conv
        assert small.linear.bias is model.linear.bias
        mean = np.abs(np.asarray(model.linear.weight.val())).mean()
        assert np.asarray(small.linear.weight.val().scales).item() == pytest.approx(mean)
        assert small.linear.weight.id == model.linear.weight.id
        assert small.linear.weight.dequantize().id == model.linear.weight.id
    with pytest.raises(ArgumentError, match=r"'linear'(.|\n)*a ParamGroup(.|\n)*mend"):
        quantizer.set_param_group("linear")  # type: ignore[arg-type]  # a wrong one


def test_a_tensor_that_does_not_fit_is_named_by_its_path() -> None:
    quantizer = Quantizer(Calibration.MinMax, QuantScheme(level=QuantLevel.per_block((2, 2))))
    with pytest.raises(ArgumentError, match="lacks the axes") as caught:
        net(Device.cpu()).quantize_weights(quantizer)
    assert "in conv.bias" in caught.value.__notes__


def test_training_passes_the_gradients_of_rounded_weights_to_the_weights(seed: Any) -> None:
    device = Device.cpu().autodiff()
    quantizer = Quantizer(Calibration.MinMax, QuantScheme(QuantValue.Q4S, QuantLevel.per_channel(-1)))
    data, upstream = seed.normal(size=(64, 8)).astype(np.float32), seed.normal(size=(64, 3)).astype(np.float32)
    x, model = Tensor.from_data(data, device), nn.LinearConfig(8, 3).init(device)
    y = model.fake_quantize_weights(quantizer).forward(x)
    grads = GradientsParams.from_grads((y * Tensor.from_data(upstream, device)).sum().backward(), model)
    gradient = grads.get(model.weight.id)
    assert gradient is not None
    np.testing.assert_allclose(np.asarray(gradient), data.T @ upstream, rtol=1e-4, atol=1e-4)

    target = x @ Tensor.from_data(seed.normal(size=(8, 3)).astype(np.float32), device)
    optim, start = SgdConfig().init(), model
    for _ in range(60):
        loss = (model.fake_quantize_weights(quantizer).forward(x) - target).square().mean()
        model, optim = optim.step(0.1, model, GradientsParams.from_grads(loss.backward(), model))
    losses = [(m.quantize_weights(quantizer).forward(x) - target).square().mean().into_scalar() for m in (start, model)]
    assert losses[1] < 0.1 * losses[0]


def test_gradients_pass_a_quantised_weight_to_the_input(seed: Any) -> None:
    device = Device.cpu().autodiff()
    x = Tensor.from_data(seed.normal(size=(4, 6)), device).require_grad()
    weight = Tensor.from_data(seed.normal(size=(6, 5)), device.inner())
    for scheme in SCHEMES:
        q = weight.quantize_dynamic(scheme)
        upstream = seed.normal(size=(4, 5))
        y = functional.linear(x, q)
        grads = (y * Tensor.from_data(upstream, device)).sum().backward()
        np.testing.assert_allclose(np.asarray(x.grad(grads)), upstream @ np.asarray(q.dequantize()).T, rtol=1e-6)
