"""MultiHeadAttention and CrossAttention against torch in float64; masks, caches, dropout, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from burn_torch import Tensor
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.module import StepScope
from burn_torch.nn import (
    CrossAttentionCache,
    CrossAttentionConfig,
    MhaCache,
    MhaInput,
    MultiHeadAttentionConfig,
    SeqLengthOption,
    TensorCache,
    generate_autoregressive_mask,
    generate_padding_mask,
)
from tests.nn.twin_modules import (
    CPU,
    TRAINING,
    Array,
    array,
    assert_equal,
    drawn,
    gradients,
    load_torch,
    tensor,
    torch_gradients,
    values_of,
)

BATCH, HEADS, D_MODEL = 3, 2, 6


def torch_attention(values: dict[str, Array], prefix: str = "") -> dict[str, Array]:
    """Parameters, or gradients, of MultiHeadAttention as torch names and packs them."""
    parts = [f"{prefix}{name}" for name in ("query", "key", "value")]
    packed = {"in_proj_weight": np.concatenate([values[f"{part}.weight"].T for part in parts])}
    packed["out_proj.weight"] = values[f"{prefix}output.weight"].T
    if f"{prefix}output.bias" in values:
        packed["in_proj_bias"] = np.concatenate([values[f"{part}.bias"] for part in parts])
        packed["out_proj.bias"] = values[f"{prefix}output.bias"]
    return packed


def masks(rng: np.random.Generator, seq_q: int, seq_k: int) -> tuple[Array, Array]:
    """Random masks of padding and of pairs that leave each query its first key."""
    pad, attn = rng.random((BATCH, seq_k)) < 0.3, rng.random((BATCH, seq_q, seq_k)) < 0.3
    pad[:, 0], attn[:, :, 0] = False, False
    assert pad.any()
    assert attn.any()
    return pad, attn


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", ["", "pad", "attn", "pad attn"])
@pytest.mark.parametrize(("seq_q", "seq_k"), [(5, 5), (4, 7)])
def test_context_weights_and_all_gradients_equal_torch(
    bias: bool, masked: str, seq_q: int, seq_k: int, seed: np.random.Generator
) -> None:
    config = MultiHeadAttentionConfig(
        D_MODEL, HEADS, dropout=0.0, key_bias=bias, value_bias=bias, query_bias=bias, output_bias=bias
    )
    layer = drawn(config.init(TRAINING), seed)
    twin = torch.nn.MultiheadAttention(D_MODEL, HEADS, bias=bias, batch_first=True, dtype=torch.float64)
    load_torch(twin, torch_attention(values_of(layer)))
    arrays = {
        name: seed.standard_normal((BATCH, seq, D_MODEL)) for name, seq in (("q", seq_q), ("k", seq_k), ("v", seq_k))
    }
    pad, attn = masks(seed, seq_q, seq_k)

    ours = {name: tensor(x) for name, x in arrays.items()}
    mha_input = MhaInput.new(*ours.values())
    mha_input = mha_input.mask_pad(tensor(pad)) if "pad" in masked else mha_input
    mha_input = mha_input.mask_attn(tensor(attn)) if "attn" in masked else mha_input
    output = layer.forward(mha_input)
    leaves = {name: torch.from_numpy(x).requires_grad_() for name, x in arrays.items()}
    context, weights = twin(
        *leaves.values(),
        key_padding_mask=torch.from_numpy(pad) if "pad" in masked else None,
        attn_mask=torch.from_numpy(np.repeat(attn, HEADS, 0)) if "attn" in masked else None,
        average_attn_weights=False,
    )
    np.testing.assert_allclose(array(output.context), context.detach().numpy(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(array(output.weights), weights.detach().numpy(), rtol=1e-12, atol=1e-14)
    upstream = [seed.standard_normal(context.shape), seed.standard_normal(weights.shape)]
    grads = gradients(layer, [output.context, output.weights], upstream, ours)
    packed = {name: grads.pop(name) for name in ours} | torch_attention(grads)
    assert_equal(packed, torch_gradients([context, weights], upstream, leaves | dict(twin.named_parameters())))


def test_self_attention_reads_itself_and_gradients_add_up(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS, dropout=0.0).init(TRAINING), seed)
    twin = torch.nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=torch.float64)
    load_torch(twin, torch_attention(values_of(layer)))
    values = seed.standard_normal((BATCH, 5, D_MODEL))
    x, leaf = tensor(values), torch.from_numpy(values).requires_grad_()
    context, _ = twin(leaf, leaf, leaf)
    upstream = [seed.standard_normal(context.shape)]
    grads = gradients(layer, [layer.forward(MhaInput.self_attn(x)).context], upstream, {"x": x})
    wanted = torch_gradients([context], upstream, {"x": leaf} | dict(twin.named_parameters()))
    assert_equal({"x": grads.pop("x")} | torch_attention(grads), wanted)


def test_quiet_softmax_may_read_nothing(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS, quiet_softmax=True).init(CPU), seed)
    x = seed.standard_normal((BATCH, 5, D_MODEL))
    w = values_of(layer)

    def heads(name: str) -> Array:
        return (x @ w[f"{name}.weight"] + w[f"{name}.bias"]).reshape(BATCH, 5, HEADS, -1).swapaxes(1, 2)

    scores = np.exp(heads("query") @ heads("key").swapaxes(2, 3) / math.sqrt(D_MODEL / HEADS))
    wanted = scores / (1 + scores.sum(-1, keepdims=True))
    output = layer.forward(MhaInput.self_attn(tensor(x, device=CPU)))
    np.testing.assert_allclose(array(output.weights), wanted, rtol=1e-12)
    joined = (wanted @ heads("value")).swapaxes(1, 2).reshape(BATCH, 5, D_MODEL)
    np.testing.assert_allclose(array(output.context), joined @ w["output.weight"] + w["output.bias"], rtol=1e-11)
    np.testing.assert_array_equal(
        array(layer.context(MhaInput.self_attn(tensor(x, device=CPU)))), array(output.context)
    )


def test_a_query_whose_keys_are_all_hidden_reads_them_evenly(seed: np.random.Generator) -> None:
    layer = MultiHeadAttentionConfig(D_MODEL, HEADS).init(CPU)
    x = tensor(seed.standard_normal((1, 4, D_MODEL)).astype(np.float32), device=CPU)
    hidden = Tensor.full((1, 4), True, CPU)
    output = layer.forward(MhaInput.self_attn(x).mask_pad(hidden))
    np.testing.assert_array_equal(array(output.weights), np.full((1, HEADS, 4, 4), 0.25, np.float32))
    assert np.isfinite(array(output.context)).all()


def test_min_float_is_the_score_of_a_hidden_key(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, 1, min_float=0.5).init(CPU), seed)
    zeros = tensor(np.zeros((1, 2, D_MODEL)), device=CPU)
    open_ = array(layer.forward(MhaInput.self_attn(zeros)).weights)
    shut = array(
        layer.forward(MhaInput.self_attn(zeros).mask_pad(tensor(np.array([[True, False]]), device=CPU))).weights
    )
    score = float(values_of(layer)["query.bias"] @ values_of(layer)["key.bias"]) / math.sqrt(D_MODEL)
    np.testing.assert_allclose(open_, 0.5, rtol=1e-14)
    wanted = np.exp([0.5, score]) / np.exp([0.5, score]).sum()
    np.testing.assert_allclose(shut, np.broadcast_to(wanted, (1, 1, 2, 2)), rtol=1e-13)


def test_dropout_drops_weights_while_training_only(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS, dropout=0.25).init(TRAINING), seed)
    x = seed.standard_normal((8, 9, D_MODEL))
    with StepScope(7, layer):
        dropped = layer.forward(MhaInput.self_attn(tensor(x)))
    plain = layer.valid().forward(MhaInput.self_attn(tensor(x, device=CPU)))
    ratio = array(dropped.weights) / array(plain.weights)
    kept = ratio != 0
    np.testing.assert_allclose(ratio[kept], 1 / 0.75, rtol=1e-13)
    assert 0.2 < 1 - kept.mean() < 0.3  # of 1296 weights: five standard deviations of 0.012 are 0.06
    w = values_of(layer)
    value = (x @ w["value.weight"] + w["value.bias"]).reshape(8, 9, HEADS, -1).swapaxes(1, 2)
    read = (array(dropped.weights) @ value).swapaxes(1, 2).reshape(x.shape)
    np.testing.assert_allclose(
        array(dropped.context), read @ w["output.weight"] + w["output.bias"], rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("masked", ["", "pad", "attn", "all", "pad attn"])
def test_context_alone_and_its_gradients_are_those_of_forward(masked: str, seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS, dropout=0.0).init(TRAINING), seed)
    query, key, value = (tensor(seed.standard_normal((BATCH, n, D_MODEL))) for n in (4, 7, 7))
    mha_input = MhaInput.new(query, key, value)
    pad, attn = masks(seed, 4, 7)
    if "pad" in masked:
        mha_input = mha_input.mask_pad(tensor(pad))
    if "attn" in masked:
        attn[0, 1] = True  # a query that sees nothing, among others
        mha_input = mha_input.mask_attn(tensor(attn))
    if masked == "all":
        mha_input = mha_input.mask_pad(tensor(np.ones_like(pad)))
    wanted, alone = layer.forward(mha_input).context, layer.context(mha_input)
    np.testing.assert_allclose(array(alone), array(wanted), rtol=1e-12, atol=1e-14)
    upstream, inputs = [seed.standard_normal(wanted.shape)], {"query": query, "key": key, "value": value}
    assert_equal(gradients(layer, [alone], upstream, inputs), gradients(layer, [wanted], upstream, inputs))


def test_context_alone_drops_weights_as_forward_does(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS, dropout=0.25).init(TRAINING), seed)
    mha_input = MhaInput.self_attn(tensor(seed.standard_normal((2, 5, D_MODEL))))
    with StepScope(7, layer):
        wanted = array(layer.forward(mha_input).context)
    with StepScope(7, layer):
        np.testing.assert_array_equal(array(layer.context(mha_input)), wanted)


# -- caches ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [[1, 2, 3, 4, 5, 6], [3, 4, 6], [6], [2, 2, 6]])
def test_cached_self_attention_equals_the_causal_forward(steps: list[int], seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, 6, D_MODEL)), device=CPU)
    pad = tensor(masks(seed, 6, 6)[0], device=CPU)
    causal = generate_autoregressive_mask(BATCH, 6, CPU)
    wanted = layer.forward(MhaInput.self_attn(x).mask_attn(causal).mask_pad(pad))
    cache = MhaCache.autoregressive()
    done = 0
    for n in steps:
        now = MhaInput.self_attn(x.narrow(1, 0, n)).mask_pad(pad.narrow(1, 0, n))
        output = layer.forward_cache(now.mask_attn(generate_autoregressive_mask(BATCH, n, CPU)), cache)
        np.testing.assert_allclose(array(output.context), array(wanted.context)[:, :n], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(
            array(output.weights), array(wanted.weights)[:, :, done:n, :n], rtol=1e-12, atol=1e-14
        )
        done = n


def test_cached_cross_attention_reads_its_memory_once(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS).init(CPU), seed)
    x, memory = (tensor(seed.standard_normal((BATCH, n, D_MODEL)), device=CPU) for n in (4, 5))
    pad, attn = (tensor(mask, device=CPU) for mask in masks(seed, 4, 5))
    wanted = layer.forward(MhaInput.new(x, memory, memory).mask_pad(pad).mask_attn(attn)).context
    cache = MhaCache.autoregressive_cross_attention()
    for n in range(1, 5):
        source = memory if n == 1 else memory.zeros_like()
        mha_input = MhaInput.new(x.narrow(1, 0, n), source, source).mask_pad(pad).mask_attn(attn.narrow(1, 0, n))
        output = layer.forward_cache(mha_input, cache)
    np.testing.assert_allclose(array(output.context), array(wanted), rtol=1e-12, atol=1e-13)
    assert output.weights.shape == (BATCH, HEADS, 1, 5)


def test_a_refused_input_leaves_the_cache_as_it_was(seed: np.random.Generator) -> None:
    layer = drawn(MultiHeadAttentionConfig(D_MODEL, HEADS).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, 3, D_MODEL)), device=CPU)
    cache = MhaCache.autoregressive()
    layer.forward_cache(MhaInput.self_attn(x.narrow(1, 0, 2)), cache)
    with pytest.raises(ShapeError, match=r"mask_attn does not fit the input"):
        layer.forward_cache(MhaInput.self_attn(x).mask_attn(generate_autoregressive_mask(BATCH, 2, CPU)), cache)
    output = layer.forward_cache(MhaInput.self_attn(x).mask_attn(generate_autoregressive_mask(BATCH, 3, CPU)), cache)
    assert output.context.shape == (BATCH, 3, D_MODEL)
    assert cache.key.length(2) == 3


def test_cache_of_a_longer_sequence_is_refused() -> None:
    layer = MultiHeadAttentionConfig(D_MODEL, HEADS).init(CPU)
    cache = MhaCache.autoregressive()
    layer.forward_cache(MhaInput.self_attn(Tensor.ones((1, 3, D_MODEL), CPU)), cache)
    with pytest.raises(
        ArgumentError,
        match=r"shorter than what its cache holds\n  given: .*2 positions, and a cache of 3\n  expected: .*\n  mend: ",
    ):
        layer.forward_cache(MhaInput.self_attn(Tensor.ones((1, 2, D_MODEL), CPU)), cache)


def test_tensor_cache_grows_or_stays(seed: np.random.Generator) -> None:
    x = seed.standard_normal((2, 5, 3))
    seen: list[int] = []

    def doubled(t: Tensor) -> Tensor:
        seen.append(t.shape[1])
        return t * 2.0

    growing, full = TensorCache.empty(), TensorCache.empty()
    for n in (2, 3, 3, 5):
        output = growing.forward_autoregressive(tensor(x[:, :n], device=CPU), 1, doubled)
        np.testing.assert_array_equal(array(output), 2 * x[:, :n])
    assert seen == [2, 1, 2]
    np.testing.assert_array_equal(array(full.forward_full(tensor(x, device=CPU), doubled)), 2 * x)
    np.testing.assert_array_equal(array(full.forward_full(tensor(-x, device=CPU), doubled)), 2 * x)
    assert seen == [2, 1, 2, 5]


# -- CrossAttention ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_heads_kv", [4, 2, 1])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_attention_and_all_gradients_equal_torch(
    n_heads_kv: int, masked: bool, seed: np.random.Generator
) -> None:
    layer = drawn(CrossAttentionConfig(6, 5, 4, n_heads_kv, 3, dropout=0.0).init(TRAINING), seed)
    x, context = seed.standard_normal((BATCH, 4, 6)), seed.standard_normal((BATCH, 7, 5))
    pad = masks(seed, 4, 7)[0]
    w = {path: torch.from_numpy(value).requires_grad_() for path, value in values_of(layer).items()}
    leaves = {"x": torch.from_numpy(x).requires_grad_(), "context": torch.from_numpy(context).requires_grad_()}

    def heads(name: str, source: str, count: int) -> torch.Tensor:
        projected = leaves[source] @ w[f"{name}.weight"] + w[f"{name}.bias"]
        return projected.reshape(BATCH, -1, count, 3).transpose(1, 2)

    read = functional.scaled_dot_product_attention(
        heads("query", "x", 4),
        heads("key", "context", n_heads_kv),
        heads("value", "context", n_heads_kv),
        attn_mask=torch.from_numpy(~pad)[:, None, None] if masked else None,
        enable_gqa=True,
    )
    wanted = read.transpose(1, 2).reshape(BATCH, 4, 12) @ w["output.weight"] + w["output.bias"]
    inputs = {"x": tensor(x), "context": tensor(context)}
    output = layer.forward(inputs["x"], inputs["context"], tensor(pad) if masked else None)
    np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=1e-12, atol=1e-13)
    upstream = [seed.standard_normal(output.shape)]
    assert_equal(gradients(layer, [output], upstream, inputs), torch_gradients([wanted], upstream, leaves | w))


def test_cross_attention_cache_projects_the_context_once(seed: np.random.Generator) -> None:
    layer = drawn(CrossAttentionConfig(6, 5, 4, 2, 3, quiet_softmax=True).init(CPU), seed)
    x = tensor(seed.standard_normal((BATCH, 4, 6)), device=CPU)
    context = tensor(seed.standard_normal((BATCH, 7, 5)), device=CPU)
    pad = tensor(masks(seed, 4, 7)[0], device=CPU)
    wanted = layer.forward(x, context, pad)
    cache = CrossAttentionCache.new()
    layer.forward_cache(x, context, pad, cache)
    again = [layer.forward_cache(part, context.zeros_like(), pad, cache) for part in x.iter_dim(1)]
    np.testing.assert_allclose(array(Tensor.cat(again, 1)), array(wanted), rtol=1e-12, atol=1e-13)


def test_cross_attention_starts_even_within_its_bound() -> None:
    layer = CrossAttentionConfig(64, 32, 8, 2, 16).init(CPU)
    for name, fan_in in (("query", 64), ("key", 32), ("value", 32), ("output", 128)):
        weight = values_of(layer)[f"{name}.weight"]
        bound = math.sqrt(3 / (16 * fan_in))
        assert 0.97 * bound < abs(weight).max() <= bound
        assert abs(weight.mean()) < 0.1 * bound


# -- masks --------------------------------------------------------------------------------------------------
def test_autoregressive_mask_hides_what_comes_later() -> None:
    mask = array(generate_autoregressive_mask(2, 3, CPU))
    np.testing.assert_array_equal(mask, [[[False, True, True], [False, False, True], [False, False, False]]] * 2)


@pytest.mark.parametrize(
    ("option", "size"),
    [
        (None, 4),
        (SeqLengthOption.NoMax, 4),
        (2, 2),
        (SeqLengthOption.Max(3), 3),
        (SeqLengthOption.Max(9), 4),
        (SeqLengthOption.Fixed(6), 6),
        (SeqLengthOption.Fixed(1), 1),
    ],
)
def test_padding_mask_fills_up_and_cuts(option: Any, size: int) -> None:
    tokens = [[3, 3], [7], [5, 6, 7, 8], []]
    padding = generate_padding_mask(9, tokens, option, CPU)
    wanted = [[*row[:size], *[9] * (size - len(row))] for row in tokens]
    np.testing.assert_array_equal(array(padding.tensor), wanted)
    np.testing.assert_array_equal(array(padding.mask), np.array(wanted) == 9)


def test_padding_mask_of_no_sequences() -> None:
    assert generate_padding_mask(0, [], None, CPU).tensor.shape == (0, 1)


# -- configurations, display, errors --------------------------------------------------------------------------
@pytest.mark.parametrize(
    "config",
    [
        MultiHeadAttentionConfig(8, 4, dropout=0.0, min_float=-100.0, quiet_softmax=True, key_bias=False),
        CrossAttentionConfig(8, 6, 4, 2, 3, dropout=0.5, min_float=-2.0, quiet_softmax=True),
        SeqLengthOption.Max(3),
        SeqLengthOption.NoMax,
    ],
)
def test_config_goes_through_json(config: Any) -> None:
    assert type(config).from_json(config.to_json()) == config


def test_defaults_are_those_of_burn() -> None:
    mha = MultiHeadAttentionConfig(8, 4)
    assert (mha.dropout, mha.min_float, mha.quiet_softmax) == (0.1, -1.0e4, False)
    assert all((mha.key_bias, mha.value_bias, mha.query_bias, mha.output_bias))
    cross = CrossAttentionConfig(8, 6, 4, 2, 3)
    assert (cross.dropout, cross.min_float, cross.quiet_softmax) == (0.1, -1.0e4, False)


def test_display() -> None:
    assert str(MultiHeadAttentionConfig(2, 2).init(CPU)) == (
        "MultiHeadAttention {d_model: 2, n_heads: 2, d_k: 1, dropout: 0.1, min_float: -10000.0, quiet_softmax: false, "
        "params: 24}"
    )
    assert str(CrossAttentionConfig(4, 6, 2, 1, 3).init(CPU)) == (
        "CrossAttention {d_model: 4, d_context: 6, n_heads: 2, n_heads_kv: 1, d_head: 3, dropout: 0.1, "
        "quiet_softmax: false, params: 100}"
    )


def test_heads_that_do_not_divide_the_model_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not divide d_model 6\n  given:    n_heads = 4"):
        MultiHeadAttentionConfig(6, 4)
    with pytest.raises(ConfigError, match=r"does not divide n_heads 4\n  given:    n_heads_kv = 3"):
        CrossAttentionConfig(6, 5, 4, 3, 2)


@pytest.mark.parametrize(
    ("name", "shape", "axes"), [("mask_pad", (1, 4), r"\(batch, keys\)"), ("mask_attn", (2, 5, 4), r"\(batch, queries")]
)
def test_masks_of_other_shapes_are_refused(name: str, shape: tuple[int, ...], axes: str) -> None:
    layer = MultiHeadAttentionConfig(6, 2).init(CPU)
    mha_input = getattr(MhaInput.self_attn(Tensor.ones((2, 5, 6), CPU)), name)(Tensor.full(shape, True, CPU))
    for call in (layer.forward, layer.context):
        with pytest.raises(
            ShapeError,
            match=rf"MultiHeadAttention: {name} does not fit the input\n  given: .*\n  expected: {name} {axes}",
        ) as caught:
            call(mha_input)
        assert "in MultiHeadAttention(d_model=6, n_heads=2" in caught.value.__notes__[0]


def test_inputs_of_other_widths_are_named_with_the_layer() -> None:
    layer = MultiHeadAttentionConfig(6, 2).init(CPU)
    for shape in ((6,), (5, 6)):
        mha_input, cache = MhaInput.self_attn(Tensor.ones(shape, CPU)), MhaCache.autoregressive()
        for call in (layer.forward, layer.context, lambda x, cache=cache: layer.forward_cache(x, cache)):
            with pytest.raises(
                ShapeError, match=r"the input has . axes\n  given:.*\n  expected: \(batch, seq, d_model\)"
            ):
                call(mha_input)
    with pytest.raises(ShapeError, match=r"linear: the input does not fit the weight") as caught:
        layer.forward(MhaInput.self_attn(Tensor.ones((2, 5, 4), CPU)))
    assert any("in MultiHeadAttention" in note for note in caught.value.__notes__)
    cross = CrossAttentionConfig(6, 5, 4, 2, 3).init(CPU)
    with pytest.raises(ShapeError, match=r"expected: \(batch, seq_k, d_context\)"):
        cross.forward(Tensor.ones((2, 5, 6), CPU), Tensor.ones((5, 5), CPU))
