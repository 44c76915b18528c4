"""QLoRA: adapters over quantised weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import ArgumentError, Device, Param, Tensor, nn
from burn_torch.module import Lora, ParamGroup, QLora, QuantizedParam, Quantizer
from burn_torch.optim import AdamConfig
from burn_torch.record.stores import PeftStore
from burn_torch.tensor import Calibration, QuantLevel, QuantScheme, QuantValue
from burn_torch.transform import compile, value_and_grad

PLACES = [Device.cpu().autodiff(), Device.ndarray().autodiff()]
QUANTIZER = Quantizer(Calibration.MinMax, QuantScheme(QuantValue.Q8S, QuantLevel.per_block((16, 1))))
QLORA = QLora(Lora(2, 4.0), QUANTIZER)


def ffn(device: Device) -> nn.PositionWiseFeedForward:
    return nn.PositionWiseFeedForwardConfig(16, 32, dropout=0.0).init(device)


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach()).astype(np.float64)


def loss_of(model: nn.PositionWiseFeedForward, x: Tensor) -> Tensor:
    return (model.forward(x) - 1.0).square().mean()


def step(model: Any, optim: Any, x: Tensor) -> tuple[Tensor, Any, Any]:
    loss, grads = value_and_grad(loss_of)(model, x)
    return (loss, *optim.step(3e-2, model, grads))


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_adapters_learn_over_codes_that_stay(device: Device, tmp_path: Path, seed: Any) -> None:
    plain = ffn(device)
    model = plain.apply_qlora(QLORA)
    weight: Any = model.linear_inner.weight
    assert isinstance(weight.stored, QuantizedParam)
    assert weight.adapter().a.shape == (16, 2)
    assert isinstance(model.linear_inner.bias, Param)
    x = Tensor.from_data(seed.standard_normal((5, 16)).astype("f"), device)
    quantized = plain.quantize_weights_group(QUANTIZER, ParamGroup.from_predicate("weight"))
    np.testing.assert_allclose(values(model.forward(x)), values(quantized.forward(x)), rtol=1e-5, atol=1e-6)
    assert model.num_params() == plain.num_params() + 2 * 2 * (16 + 32)

    compiled, optim = compile(step), AdamConfig().init()
    first, _, _ = step(model, optim, x)
    again, *state = compiled(model, optim, x)
    np.testing.assert_allclose(values(again), values(first), rtol=1e-5)
    for _ in range(5):
        last, *state = compiled(*state, x)
    assert compiled.traces == 1
    assert last.into_scalar() < 0.9 * first.into_scalar()
    tuned, optim = state
    assert set(optim.to_record().states) == {param.id for path, param in tuned.named_params() if ".lora." in path}
    kept = tuned.linear_inner.weight.stored
    assert kept.codes.val().into_data() == weight.stored.codes.val().into_data()

    merged = tuned.merge_reparameterizations()
    assert isinstance(merged.linear_inner.weight, Param)
    np.testing.assert_allclose(values(merged.forward(x)), values(tuned.forward(x)), rtol=1e-4, atol=1e-5)
    fresh = ffn(device).apply_qlora(QLORA).load_file(tuned.save_file(tmp_path / "whole"))
    assert fresh.forward(x).into_data() == tuned.forward(x).into_data()
    store = PeftStore.from_file(tmp_path / "adapters")
    tuned.save_into(store)
    over_floats, _ = plain.load_from(store)
    np.testing.assert_allclose(values(over_floats.forward(x)), values(tuned.forward(x)), rtol=0.1, atol=0.1)


def test_the_gradients_are_those_of_the_dequantised_weights(seed: Any) -> None:
    device = PLACES[0]
    layer: Any = nn.LinearConfig(16, 4).init(device).apply_qlora(QLORA)
    x = Tensor.from_data(seed.standard_normal((3, 16)).astype("f"), device).require_grad()
    g = Tensor.from_data(seed.standard_normal((3, 4)).astype("f"), device)
    grads = (layer.forward(x) * g).sum().backward()
    dequantized = values(layer.weight.base().dequantize())
    gradient = x.grad(grads)
    assert gradient is not None
    np.testing.assert_allclose(values(gradient), values(g) @ dequantized.T, rtol=1e-4, atol=1e-5)  # b is zeros
    assert layer.weight.adapter().b.val().grad(grads) is not None


def test_groups_and_mistakes() -> None:
    device = PLACES[0]
    inner = QLora(Lora(2, 4.0), QUANTIZER.set_param_group(ParamGroup.from_path("linear_inner.weight")))
    model: Any = ffn(device).apply_qlora(inner)
    assert isinstance(model.linear_inner.weight.stored, QuantizedParam)
    assert isinstance(model.linear_outer.weight.stored, Param)
    table: Any = nn.EmbeddingConfig(16, 8).init(device).apply_qlora(QLORA)
    assert table.forward(Tensor.from_ints([[1, 3]], device)).shape == (1, 2, 8)
    with pytest.raises(ArgumentError, match=r"no settings of adapters over quantised[\s\S]*expected: +a QLora"):
        ffn(device).apply_qlora(Lora(2, 4.0))  # type: ignore[arg-type]
