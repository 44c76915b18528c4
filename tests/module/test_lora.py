"""LoRA: what is added, what is trained, what is saved, and the merged model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ArgumentError, Device, DType, Module, Tensor, nn
from burn_torch.module import Lora, LoraAdapter, ParamGroup
from burn_torch.optim import AdamConfig, Optimizer, OptimizerRecord
from burn_torch.transform import compile, grad, value_and_grad

PLACES = [Device.cpu().autodiff(), Device.ndarray().autodiff()]
ATTENTION = ParamGroup.from_regex(r"(query|value)\.weight$")


class Net(Module):
    """Tokens through a table, an encoder layer and a head."""

    table: nn.Embedding
    encoder: nn.TransformerEncoder
    head: nn.Linear

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, seq) -> (batch, seq, 5)."""
        return self.head.forward(self.encoder.forward(nn.TransformerEncoderInput(self.table.forward(tokens))))


def net(device: Device, d_model: int = 16, n_layers: int = 1) -> Net:
    return Net(
        nn.EmbeddingConfig(11, d_model).init(device),
        nn.TransformerEncoderConfig(d_model, 4 * d_model, 2, n_layers, dropout=0.0).init(device),
        nn.LinearConfig(d_model, 5).init(device),
    )


def tokens(device: Device) -> Tensor:
    return Tensor.from_ints([[1, 4, 10], [0, 4, 7]], device)


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach()).astype(np.float64)


def with_random_b(model: Any, seed: Any) -> Any:
    """The model with adapters that change something: b begins with zeros."""
    lora_b = {id(p) for path, p in model.named_params() if path.endswith(".lora.b")}
    return model.map_params(
        lambda p: (
            p.map(lambda x: Tensor.from_data(0.1 * seed.standard_normal(x.shape), p.device).cast(x.dtype))
            if id(p) in lora_b
            else p
        )
    )


def loss_of(model: Net, x: Tensor) -> Tensor:
    return model.forward(x).square().mean()


def step(model: Net, optim: Optimizer, x: Tensor) -> tuple[Tensor, Net, Optimizer]:
    loss, grads = value_and_grad(loss_of)(model, x)
    return (loss, *optim.step(1e-3, model, grads))


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_a_layer_adds_the_product_of_low_rank(device: Device, seed: Any) -> None:
    for lora in (Lora(2, 3.0, init_std=0.5), Lora(2, 3.0, init_std=0.5, rank_stabilized=True)):
        plain = nn.LinearConfig(4, 6).init(device)
        layer = with_random_b(plain.apply_lora(lora), seed)
        adapter = layer.weight.adapter()
        assert isinstance(adapter, LoraAdapter)
        assert adapter.scale == (3.0 / 2**0.5 if lora.rank_stabilized else 1.5)
        assert (adapter.rank, adapter.a.shape, adapter.b.shape) == (2, (4, 2), (2, 6))
        x, g = seed.standard_normal((3, 5, 4)), seed.standard_normal((3, 5, 6))
        w, b, lora_a, lora_b = (
            torch.from_numpy(values(param.val()).copy()).requires_grad_()
            for param in (plain.weight, plain.bias, adapter.a, adapter.b)  # type: ignore[union-attr]  # it has a bias
        )
        expected = torch.from_numpy(x) @ (w + adapter.scale * lora_a @ lora_b) + b
        y = layer.forward(Tensor.from_data(x.astype("f"), device))
        np.testing.assert_allclose(values(y), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        delta = adapter.scale * (lora_a @ lora_b).detach().numpy()
        np.testing.assert_allclose(values(adapter.delta()), delta, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(values(layer.weight.val()), values(plain.weight.val()) + delta, rtol=1e-5, atol=1e-6)
        grads = (y * Tensor.from_data(g.astype("f"), device)).sum().backward()
        (expected * torch.from_numpy(g)).sum().backward()
        for param, twin in ((adapter.a, lora_a), (adapter.b, lora_b)):
            gradient = param.val().grad(grads)
            assert gradient is not None
            assert twin.grad is not None
            np.testing.assert_allclose(values(gradient), twin.grad.numpy(), rtol=1e-4, atol=1e-4)
        assert layer.weight.base().grad(grads) is None


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_a_new_adapter_changes_nothing_and_a_merged_one_no_more_than_rounding(device: Device, seed: Any) -> None:
    plain = net(device)
    model = plain.apply_lora(Lora(2, 4.0))
    x = tokens(device)
    np.testing.assert_array_equal(values(model.forward(x)), values(plain.forward(x)))
    changed = with_random_b(model, seed)
    merged = changed.merge_reparameterizations()
    assert merged.num_params() == plain.num_params()
    assert abs(values(changed.forward(x)) - values(plain.forward(x))).max() > 1e-2
    np.testing.assert_allclose(values(merged.forward(x)), values(changed.forward(x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        values(changed.valid().forward(x.inner())), values(changed.forward(x)), rtol=1e-5, atol=1e-6
    )
    assert changed.valid().train().head.weight.adapter() is not None
    assert {path for path, param in model.named_params() if param.require_grad} == {
        f"{path}.lora.{name}" for path, param in plain.named_params() if len(param.shape) == 2 for name in "ab"
    }


def test_a_step_is_one_graph_with_states_of_adapters_alone_and_goes_on_exactly(tmp_path: Path) -> None:
    device = PLACES[0]
    plain = net(device, d_model=256)
    model, optim = plain.apply_lora(Lora(8, 16.0).set_param_group(ATTENTION)), AdamConfig().init()
    trained = sum(param.numel for _, param in model.named_params() if param.require_grad)
    assert trained == 2 * 2 * 8 * 256
    assert trained < 0.02 * model.num_params()
    x = tokens(device)
    compiled = compile(step)
    first, model, optim = compiled(model, optim, x)
    for _ in range(2):
        last, model, optim = compiled(model, optim, x)
    assert last.into_scalar() < first.into_scalar()
    assert compiled.traces == 1
    record = optim.to_record()
    adapters = {param.id for path, param in model.named_params() if ".lora." in path}
    assert set(record.states) == adapters
    for path, param in plain.named_params():  # the base is what it was
        assert dict(model.named_params())[path].val().into_data() == param.val().into_data()

    whole, alone = model.save_file(tmp_path / "model"), tmp_path / "adapters.safetensors"
    model.into_record_group(ParamGroup.from_regex(r"\.lora\.")).save(alone)
    assert alone.stat().st_size < 0.03 * whole.stat().st_size
    states = record.save(tmp_path / "optim")
    expected = compiled(model, optim, x)
    fresh = net(device, d_model=256).apply_lora(Lora(8, 16.0).set_param_group(ATTENTION))
    resumed = compile(step)(fresh.load_file(whole), AdamConfig().init().load_record(OptimizerRecord.load(states)), x)
    base = fresh.load_record(plain.into_record().allow_partial())
    from_alone = base.load_record(type(plain.into_record()).load(alone).allow_partial())
    assert from_alone.forward(x).into_data() == model.forward(x).into_data()
    assert resumed[0].into_data() == expected[0].into_data()
    for (path, one), (_, other) in zip(resumed[1].named_params(), expected[1].named_params(), strict=True):
        assert one.val().into_data() == other.val().into_data(), path


def test_a_base_in_bf16_may_have_adapters_in_f32(seed: Any) -> None:
    device = PLACES[0]
    plain = nn.LinearConfig(8, 8).init(device).map_params(lambda p: p.map(lambda x: x.detach().cast(DType.BF16)))
    x = Tensor.from_data(seed.standard_normal((4, 8)).astype("f"), device).cast(DType.BF16)
    same, wide = plain.apply_lora(Lora(2, 4.0)), plain.apply_lora(Lora(2, 4.0).set_dtype(DType.F32))
    for model, dtype in ((same, DType.BF16), (wide, DType.F32)):
        adapter = model.weight.adapter()
        assert adapter is not None
        assert adapter.a.val().dtype is adapter.b.val().dtype is dtype
        changed = with_random_b(model, seed)
        y = changed.forward(x)
        assert y.dtype is changed.weight.val().dtype is DType.BF16
        merged = changed.merge_reparameterizations()
        np.testing.assert_allclose(values(merged.forward(x)), values(y), rtol=0.03, atol=0.03)
    grads = grad(lambda model: model.forward(x).cast(DType.F32).sum())(wide)
    assert len(grads) == 2


def test_rows_of_a_table_are_adapted_by_their_index(seed: Any) -> None:
    for device in PLACES:
        table = with_random_b(nn.EmbeddingConfig(7, 4).init(device).apply_lora(Lora(2, 4.0)), seed)
        rows = table.forward(Tensor.from_ints([[6, 0], [3, 3]], device))
        np.testing.assert_allclose(values(rows), values(table.weight.val())[[[6, 0], [3, 3]]], rtol=1e-5, atol=1e-6)


def test_seeds_and_settings() -> None:
    import burn_torch

    adapters = []
    for device in PLACES:
        burn_torch.seed(3)
        adapter = nn.LinearConfig(32, 2).init(device).apply_lora(Lora(16, 1.0)).weight.adapter()
        assert adapter is not None
        adapters.append(values(adapter.a.val()))
    np.testing.assert_array_equal(*adapters)
    assert adapters[0].std() == pytest.approx(1 / 16, rel=0.15)  # 1 / rank


def test_mistakes_are_refused_in_words() -> None:
    model = net(Device.cpu())
    for wrong in (
        Lora,
        lambda rank, alpha: Lora(2, alpha, init_std=0.0),
        lambda rank, alpha: Lora(2, alpha, dtype=DType.I32),
    ):
        with pytest.raises(ArgumentError, match=r"this is not an adapter[\s\S]*mend: +Lora\(rank=8"):
            wrong(0, 1.0)
    with pytest.raises(ArgumentError, match=r"apply_lora: the module has no parameter of this group\n.*the group z"):
        model.apply_lora(Lora(2, 4.0).set_param_group(ParamGroup.from_path("z")))
    with pytest.raises(ArgumentError, match=r"apply_lora: the module has no parameter of this group"):
        model.apply_lora(Lora(2, 4.0).set_param_group(ParamGroup.from_path("head.bias")))
    query = model.apply_lora(Lora(2, 4.0).set_param_group(ParamGroup.from_predicate("query")))
    with pytest.raises(ArgumentError, match=r"query\.weight is reparameterized already"):
        query.apply_lora(Lora(2, 4.0))
    both = query.apply_lora(Lora(4, 4.0).set_param_group(ParamGroup.from_predicate("value")))
    ranks = [
        layer.adapter().rank
        for layer in (both.encoder.layers[0].mha.query.weight, both.encoder.layers[0].mha.value.weight)
    ]  # type: ignore[union-attr]
    assert ranks == [2, 4]
    with pytest.raises(ArgumentError, match=r"apply_lora[\s\S]*Lora\(rank=8"):
        model.apply_lora(8)  # type: ignore[arg-type]
