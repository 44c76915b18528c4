"""TransformerEncoder and TransformerDecoder against torch in float64; decoding with caches, records, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor
from burn_torch.core.errors import ConfigError, ShapeError
from burn_torch.module import StepScope
from burn_torch.nn import (
    ActivationConfig,
    PositionWiseFeedForwardConfig,
    SwiGluConfig,
    TransformerConfig,
    TransformerDecoderConfig,
    TransformerDecoderInput,
    TransformerDecoderLayerAutoregressiveCache,
    TransformerEncoderConfig,
    TransformerEncoderInput,
    TransformerEncoderLayerAutoregressiveCache,
    TransformerInput,
    generate_autoregressive_mask,
)
from tests.nn.twin_modules import (
    CPU,
    TRAINING,
    Array,
    array,
    assert_equal,
    drawn,
    filled,
    gradients,
    load_torch,
    tensor,
    torch_gradients,
    values_of,
)

BATCH, SEQ, MEMORY = 3, 5, 4
D_MODEL, D_FF, HEADS, LAYERS = 6, 10, 2, 2
SIZES = (D_MODEL, D_FF, HEADS, LAYERS)


def torch_attention(values: dict[str, Array], prefix: str) -> dict[str, Array]:
    parts = [f"{prefix}.{name}" for name in ("query", "key", "value")]
    return {
        "in_proj_weight": np.concatenate([values[f"{part}.weight"].T for part in parts]),
        "in_proj_bias": np.concatenate([values[f"{part}.bias"] for part in parts]),
        "out_proj.weight": values[f"{prefix}.output.weight"].T,
        "out_proj.bias": values[f"{prefix}.output.bias"],
    }


def torch_layout(values: dict[str, Array], *, norm_first: bool) -> dict[str, Array]:
    """Parameters, or gradients, of an encoder or a decoder as torch names and packs them."""
    decodes = any(".cross_attn." in path for path in values)
    attention = {"self_attn": "self_attn", "multihead_attn": "cross_attn"} if decodes else {"self_attn": "mha"}
    # our names follow the order in the layer where norms come last
    if not norm_first:
        norms = ["norm_1", "norm_2", "norm_3"]
    else:
        norms = ["norm_3", "norm_1", "norm_2"] if decodes else ["norm_2", "norm_1"]
    packed: dict[str, Array] = {}
    for i in range(LAYERS):
        ours, theirs = f"layers.{i}", f"layers.{i}"
        for name, own in attention.items():
            packed |= {f"{theirs}.{name}.{k}": v for k, v in torch_attention(values, f"{ours}.{own}").items()}
        for name, own in (("linear1", "linear_inner"), ("linear2", "linear_outer")):
            packed[f"{theirs}.{name}.weight"] = values[f"{ours}.pwff.{own}.weight"].T
            packed[f"{theirs}.{name}.bias"] = values[f"{ours}.pwff.{own}.bias"]
        for number, own in enumerate(norms[: 3 if decodes else 2], 1):
            packed[f"{theirs}.norm{number}.weight"] = values[f"{ours}.{own}.gamma"]
            packed[f"{theirs}.norm{number}.bias"] = values[f"{ours}.{own}.beta"]
    return packed


def masks(rng: np.random.Generator, seq_q: int, seq_k: int) -> tuple[Array, Array]:
    """Random masks of padding and of pairs that leave each query its first key."""
    pad, attn = rng.random((BATCH, seq_k)) < 0.3, rng.random((BATCH, seq_q, seq_k)) < 0.3
    pad[:, 0], attn[:, :, 0] = False, False
    return pad, attn


def each_head(mask: Array) -> torch.Tensor:
    return torch.from_numpy(np.repeat(mask, HEADS, 0))


TORCH_OPTIONS: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64, "layer_norm_eps": 1e-3}
OPTIONS: dict[str, Any] = {"dropout": 0.0, "layer_norm_eps": 1e-3}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_encoder_and_all_gradients_equal_torch(
    norm_first: bool, masked: bool, activation: str, seed: np.random.Generator
) -> None:
    own = ActivationConfig.Gelu if activation == "gelu" else ActivationConfig.Relu
    config = TransformerEncoderConfig(*SIZES, norm_first=norm_first, activation=own, **OPTIONS)
    encoder = drawn(config.init(TRAINING), seed)
    layer = torch.nn.TransformerEncoderLayer(
        D_MODEL, HEADS, D_FF, activation=activation, norm_first=norm_first, **TORCH_OPTIONS
    )
    twin = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    load_torch(twin, torch_layout(values_of(encoder), norm_first=norm_first))
    values = seed.standard_normal((BATCH, SEQ, D_MODEL))
    pad, attn = masks(seed, SEQ, SEQ)

    x, leaf = tensor(values), torch.from_numpy(values).requires_grad_()
    encoder_input = TransformerEncoderInput.new(x)
    if masked:
        encoder_input = encoder_input.mask_pad(tensor(pad)).mask_attn(tensor(attn))
        wanted = twin(leaf, mask=each_head(attn), src_key_padding_mask=torch.from_numpy(pad))
    else:
        wanted = twin(leaf)
    output = encoder.forward(encoder_input)
    np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-11, atol=1e-12)
    upstream = [seed.standard_normal(output.shape)]
    grads = gradients(encoder, [output], upstream, {"x": x})
    packed = {"x": grads.pop("x")} | torch_layout(grads, norm_first=norm_first)
    assert_equal(packed, torch_gradients([wanted], upstream, {"x": leaf} | dict(twin.named_parameters())))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_and_all_gradients_equal_torch(norm_first: bool, masked: bool, seed: np.random.Generator) -> None:
    decoder = drawn(TransformerDecoderConfig(*SIZES, norm_first=norm_first, **OPTIONS).init(TRAINING), seed)
    layer = torch.nn.TransformerDecoderLayer(
        D_MODEL, HEADS, D_FF, activation="gelu", norm_first=norm_first, **TORCH_OPTIONS
    )
    twin = torch.nn.TransformerDecoder(layer, LAYERS)
    load_torch(twin, torch_layout(values_of(decoder), norm_first=norm_first))
    arrays = {name: seed.standard_normal((BATCH, n, D_MODEL)) for name, n in (("target", SEQ), ("memory", MEMORY))}
    (pad, attn), (memory_pad, memory_attn) = masks(seed, SEQ, SEQ), masks(seed, SEQ, MEMORY)

    inputs = {name: tensor(value) for name, value in arrays.items()}
    leaves = {name: torch.from_numpy(value).requires_grad_() for name, value in arrays.items()}
    decoder_input = TransformerDecoderInput.new(**inputs)
    if masked:
        decoder_input = decoder_input.target_mask_pad(tensor(pad)).target_mask_attn(tensor(attn))
        decoder_input = decoder_input.memory_mask_pad(tensor(memory_pad)).memory_mask_attn(tensor(memory_attn))
        wanted = twin(
            leaves["target"],
            leaves["memory"],
            tgt_mask=each_head(attn),
            memory_mask=each_head(memory_attn),
            tgt_key_padding_mask=torch.from_numpy(pad),
            memory_key_padding_mask=torch.from_numpy(memory_pad),
        )
    else:
        wanted = twin(leaves["target"], leaves["memory"])
    output = decoder.forward(decoder_input)
    np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-11, atol=1e-12)
    upstream = [seed.standard_normal(output.shape)]
    grads = gradients(decoder, [output], upstream, inputs)
    packed = {name: grads.pop(name) for name in inputs} | torch_layout(grads, norm_first=norm_first)
    assert_equal(packed, torch_gradients([wanted], upstream, leaves | dict(twin.named_parameters())))


# -- decoding with caches -----------------------------------------------------------------------------------
STEPS = [[1, 2, 3, 4, 5], [2, 5], [3, 3, 4, 5]]


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("steps", STEPS)
def test_encoder_with_a_cache_equals_the_causal_forward(
    norm_first: bool, quiet: bool, steps: list[int], seed: np.random.Generator
) -> None:
    encoder = drawn(TransformerEncoderConfig(*SIZES, norm_first=norm_first, quiet_softmax=quiet).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, SEQ, D_MODEL)), device=CPU)
    pad = tensor(masks(seed, SEQ, SEQ)[0], device=CPU)
    causal = generate_autoregressive_mask(BATCH, SEQ, CPU)
    wanted = array(encoder.forward(TransformerEncoderInput(x).mask_attn(causal).mask_pad(pad)))
    cache, layer_caches = (
        encoder.new_autoregressive_cache(),
        [TransformerEncoderLayerAutoregressiveCache.empty() for _ in encoder.layers],
    )
    for n in steps:
        mask = generate_autoregressive_mask(BATCH, n, CPU)
        part, padding = x.narrow(1, 0, n), pad.narrow(1, 0, n)
        encoder_input = TransformerEncoderInput(part).mask_attn(mask).mask_pad(padding)
        output = encoder.forward_autoregressive_inference(encoder_input, cache)
        np.testing.assert_allclose(array(output), wanted[:, :n], rtol=1e-11, atol=1e-12)
        for layer, layer_cache in zip(encoder.layers, layer_caches, strict=True):
            part = layer.forward_autoregressive_inference(part, padding, mask, layer_cache)
        np.testing.assert_allclose(array(part), wanted[:, :n], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("steps", STEPS)
def test_decoder_with_a_cache_equals_the_causal_forward(
    norm_first: bool, steps: list[int], seed: np.random.Generator
) -> None:
    decoder = drawn(TransformerDecoderConfig(*SIZES, norm_first=norm_first).init(CPU), seed)
    target, memory = (tensor(seed.standard_normal((BATCH, n, D_MODEL)), device=CPU) for n in (SEQ, MEMORY))
    pad = tensor(masks(seed, SEQ, SEQ)[0], device=CPU)
    memory_pad, memory_attn = (tensor(mask, device=CPU) for mask in masks(seed, SEQ, MEMORY))

    def given(n: int) -> TransformerDecoderInput:
        decoder_input = TransformerDecoderInput(target.narrow(1, 0, n), memory).target_mask_pad(pad.narrow(1, 0, n))
        decoder_input = decoder_input.target_mask_attn(generate_autoregressive_mask(BATCH, n, CPU))
        return decoder_input.memory_mask_pad(memory_pad).memory_mask_attn(memory_attn.narrow(1, 0, n))

    wanted = array(decoder.forward(given(SEQ)))
    cache = decoder.new_autoregressive_cache()
    layer_caches = [TransformerDecoderLayerAutoregressiveCache.empty() for _ in decoder.layers]
    for n in steps:
        output = decoder.forward_autoregressive_inference(given(n), cache)
        np.testing.assert_allclose(array(output), wanted[:, :n], rtol=1e-11, atol=1e-12)
        part = given(n)
        for layer, layer_cache in zip(decoder.layers, layer_caches, strict=True):
            part = layer.forward_autoregressive_inference(part, layer_cache)
        np.testing.assert_allclose(array(part.target), wanted[:, :n], rtol=1e-11, atol=1e-12)


def test_a_cache_computes_new_positions_only(seed: np.random.Generator) -> None:
    """The cache never reads earlier positions again: changes to them after their step have no effect."""
    encoder = drawn(TransformerEncoderConfig(*SIZES).init(CPU), seed)
    values = seed.standard_normal((BATCH, SEQ, D_MODEL))
    cache = encoder.new_autoregressive_cache()

    def run(x: Array) -> Array:
        mask = generate_autoregressive_mask(BATCH, x.shape[1], CPU)
        encoder_input = TransformerEncoderInput(tensor(x, device=CPU)).mask_attn(mask)
        return array(encoder.forward_autoregressive_inference(encoder_input, cache))

    run(values[:, :4])
    changed = values.copy()
    changed[:, :4] = 100.0
    full = encoder.forward(
        TransformerEncoderInput(tensor(values, device=CPU)).mask_attn(generate_autoregressive_mask(BATCH, SEQ, CPU))
    )
    np.testing.assert_allclose(run(changed), array(full), rtol=1e-11, atol=1e-12)


def test_numpy_and_the_host_decode_alike(seed: np.random.Generator) -> None:
    decoder = drawn(TransformerDecoderConfig(*SIZES).init(CPU), seed)
    target, memory = (tensor(seed.standard_normal((BATCH, n, D_MODEL)), device=CPU) for n in (SEQ, MEMORY))
    causal = generate_autoregressive_mask(BATCH, SEQ, CPU)
    numpy = Device.ndarray()
    decoder_input = TransformerDecoderInput(target.to_device(numpy), memory.to_device(numpy))
    decoded = decoder.to_device(numpy).forward(decoder_input.target_mask_attn(causal.to_device(numpy)))
    wanted = decoder.forward(TransformerDecoderInput(target, memory).target_mask_attn(causal))
    np.testing.assert_allclose(array(decoded), array(wanted), rtol=1e-11, atol=1e-12)


# -- feed-forward, dropout, records -----------------------------------------------------------------------------
def test_feed_forward_takes_any_axes_and_any_activation(seed: np.random.Generator) -> None:
    gated = ActivationConfig.SwiGlu(SwiGluConfig(4, 4))
    for activation, shape in ((ActivationConfig.Relu, (2, 3, 6)), (gated, (6,))):
        layer = drawn(PositionWiseFeedForwardConfig(6, 4, activation=activation).init(CPU), seed)
        w, x = values_of(layer), seed.standard_normal(shape)
        inner = x @ w["linear_inner.weight"] + w["linear_inner.bias"]
        if activation is ActivationConfig.Relu:
            inner = np.maximum(inner, 0)
        else:
            gate = inner @ w["activation.linear_inner.weight"]
            inner = gate / (1 + np.exp(-gate)) * (inner @ w["activation.linear_outer.weight"])
        wanted = inner @ w["linear_outer.weight"] + w["linear_outer.bias"]
        np.testing.assert_allclose(array(layer.forward(tensor(x, device=CPU))), wanted, rtol=1e-12, atol=1e-13)


def test_dropout_draws_anew_in_each_place_and_again_the_same_in_the_same_step(seed: np.random.Generator) -> None:
    encoder = TransformerEncoderConfig(*SIZES, dropout=0.5).init(TRAINING)
    x = TransformerEncoderInput(tensor(seed.standard_normal((BATCH, SEQ, D_MODEL)).astype(np.float32)))

    def run(key: int) -> Array:
        with StepScope(key, encoder):
            return array(encoder.forward(x))

    np.testing.assert_array_equal(run(3), run(3))
    assert abs(run(3) - run(4)).max() > 0.1
    without = filled(TransformerEncoderConfig(*SIZES, dropout=0.0).init(TRAINING), values_of(encoder))
    inner = TransformerEncoderInput(x.tensor.inner())
    # the context is summed in another order without gradients
    np.testing.assert_allclose(array(encoder.valid().forward(inner)), array(without.forward(x)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("config", [TransformerEncoderConfig(*SIZES), TransformerDecoderConfig(*SIZES)])
def test_record_restores_the_same_stack(config: Any) -> None:
    stack = config.init(CPU)
    again = config.init(CPU).load_record(stack.into_record())
    for path, value in values_of(stack).items():
        np.testing.assert_array_equal(values_of(again)[path], value, err_msg=path)
    assert "layers.1.pwff.linear_outer.bias" in values_of(stack)


# -- configurations, display, errors ---------------------------------------------------------------------------
@pytest.mark.parametrize("config", [TransformerEncoderConfig, TransformerDecoderConfig])
def test_config_goes_through_json_with_burns_defaults(config: Any) -> None:
    settings = config(*SIZES, dropout=0.5, norm_first=True, quiet_softmax=True, activation=ActivationConfig.Relu)
    assert config.from_json(settings.to_json()) == settings
    plain = config(*SIZES)
    assert (plain.dropout, plain.norm_first, plain.quiet_softmax, plain.layer_norm_eps) == (0.1, False, False, 1e-5)
    assert plain.activation == ActivationConfig.Gelu
    feed_forward = PositionWiseFeedForwardConfig(2, 4, dropout=0.0)
    assert PositionWiseFeedForwardConfig.from_json(feed_forward.to_json()) == feed_forward


def test_display() -> None:
    options = "dropout: 0.1, norm_first: false, quiet_softmax: false"
    assert str(TransformerEncoderConfig(2, 4, 2, 3).init(CPU)) == (
        f"TransformerEncoder {{d_model: 2, d_ff: 4, n_heads: 2, n_layers: 3, {options}, params: 162}}"
    )
    assert str(TransformerDecoderConfig(2, 4, 2, 3).init(CPU)) == (
        f"TransformerDecoder {{d_model: 2, d_ff: 4, n_heads: 2, n_layers: 3, {options}, params: 246}}"
    )
    shown = str(PositionWiseFeedForwardConfig(2, 4).init(CPU))
    assert shown == "PositionWiseFeedForward {d_model: 2, d_ff: 4, prob: 0.1, params: 22}"


def test_config_names_all_its_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerEncoderConfig(6, 0, 4, -1, dropout=1.5)
    for words in ("d_ff", "does not divide d_model 6", "n_layers", "dropout"):
        assert words in str(caught.value)


def test_masks_of_the_new_positions_alone_are_refused() -> None:
    encoder = TransformerEncoderConfig(*SIZES).init(CPU)
    cache = encoder.new_autoregressive_cache()
    x = Tensor.ones((1, 3, D_MODEL), CPU)
    encoder.forward_autoregressive_inference(TransformerEncoderInput(x.narrow(1, 0, 2)), cache)
    mask = generate_autoregressive_mask(1, 1, CPU)
    with pytest.raises(
        ShapeError, match=r"mask_attn does not fit the input\n  given: .*\n  expected: .*\(1, 3, 3\)"
    ) as caught:
        encoder.forward_autoregressive_inference(TransformerEncoderInput(x).mask_attn(mask), cache)
    assert "in MultiHeadAttention" in caught.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch's own choice, of its fast path
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final_norm", [False, True])
def test_a_transformer_equals_torch(norm_first: bool, final_norm: bool, seed: np.random.Generator) -> None:
    config = TransformerConfig(
        D_MODEL, D_FF, HEADS, LAYERS, LAYERS, dropout=0.0, norm_first=norm_first, final_norm=final_norm,
        layer_norm_eps=1e-3,
    )  # fmt: skip
    ours = drawn(config.init(TRAINING), seed)
    twin: Any = torch.nn.Transformer(
        D_MODEL, HEADS, LAYERS, LAYERS, D_FF, activation="gelu", norm_first=norm_first, **TORCH_OPTIONS
    )
    if not final_norm:
        twin.encoder.norm = twin.decoder.norm = None

    def layout(values: dict[str, Array]) -> dict[str, Array]:
        packed = {}
        for stack in ("encoder", "decoder"):
            own = {p.removeprefix(f"{stack}."): v for p, v in values.items() if p.startswith(f"{stack}.")}
            packed |= {f"{stack}.{name}": v for name, v in torch_layout(own, norm_first=norm_first).items()}
            if final_norm:
                packed[f"{stack}.norm.weight"] = values[f"{stack}_norm.gamma"]
                packed[f"{stack}.norm.bias"] = values[f"{stack}_norm.beta"]
        return packed

    load_torch(twin, layout(values_of(ours)))
    named = {
        "source": seed.standard_normal((BATCH, MEMORY, D_MODEL)),
        "target": seed.standard_normal((BATCH, SEQ, D_MODEL)),
    }
    source_padding, memory_attention = masks(seed, SEQ, MEMORY)
    later = np.triu(np.ones((SEQ, SEQ), bool), 1)
    own = {name: tensor(value) for name, value in named.items()}
    output = ours.forward(
        TransformerInput(
            **own,
            source_padding=tensor(source_padding),
            target_attention=tensor(np.tile(later, (BATCH, 1, 1))),
            memory_attention=tensor(memory_attention),
        )
    )
    leaves = {name: torch.from_numpy(value).requires_grad_() for name, value in named.items()}
    padding = torch.from_numpy(source_padding)
    expected = twin(
        leaves["source"], leaves["target"], tgt_mask=torch.from_numpy(later), memory_mask=each_head(memory_attention),
        src_key_padding_mask=padding, memory_key_padding_mask=padding,
    )  # fmt: skip
    np.testing.assert_allclose(array(output), expected.detach().numpy(), rtol=1e-10, atol=1e-11)
    upstream = [seed.standard_normal((BATCH, SEQ, D_MODEL))]
    slopes = gradients(ours, [output], upstream, own)
    packed = layout(slopes) | {name: slopes[name] for name in named}
    assert_equal(packed, torch_gradients([expected], upstream, dict(twin.named_parameters()) | leaves))
    assert "n_encoder_layers: 2, n_decoder_layers: 2, dropout: 0.0" in str(ours)
    with pytest.raises(ConfigError, match="n_heads"):
        TransformerConfig(6, 8, 4, 1, 1)
