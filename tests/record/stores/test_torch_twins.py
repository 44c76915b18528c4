"""State dicts of torch.nn layers load through the adapter, give the same forward, and go back."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Param, RunningState, Tensor, nn
from burn_torch.module import tree
from burn_torch.nn import activation
from burn_torch.record.stores import (
    BurnToPyTorchAdapter,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
)
from tests.nn.test_deform_conv import formula

DEVICE = Device.cpu()


class Holder(Module):
    """A layer at a path, as in a model."""

    inner: Any


class TorchHolder(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner


def plain(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x)
    return output


def recurrent(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = first(layer.forward(x, None))
    return output


def attention(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(nn.MhaInput.self_attn(x)).context
    return output


def encoder(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(nn.TransformerEncoderInput(x))
    return output


def decoder(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(nn.TransformerDecoderInput(x, x))
    return output


def both_stacks(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(nn.TransformerInput(x, x))
    return output


def looked_up(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x.int())
    return output


def cross_attention(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x, x, None)
    return output


def twice(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x, x)
    return output


def hidden(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x).hidden
    return output


def first_class(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x, Tensor.from_ints([0] * x.shape[0], x.device))
    return output


def mixed(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x).output
    return output


def log_prob(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.log_prob(x)
    return output


def deformed(layer: Any, x: Tensor) -> Tensor:
    output: Tensor = layer.forward(x, Tensor.cat([x, x], 1)[:, :, 1:, 1:])
    return output


class TorchDeformed(torch.nn.Module):
    """A deformable convolution with the names that torchvision gives its parameters; its offsets come from x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.rand(6, 2, 2, 2)), torch.nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        offset = torch.cat([x, x], 1)[:, :, 1:, 1:]
        settings = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "offset_groups": 1}
        return formula(x, offset, self.weight, None, self.bias, **settings)  # type: ignore[arg-type]


class TorchGated(torch.nn.Module):
    """Holds what torch.nn lacks a layer for, as it is written there."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.linear_inner = torch.nn.Linear(6, 4, bias=bias)
        self.linear_outer = torch.nn.Linear(6, 4, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gated: torch.Tensor = torch.nn.functional.silu(self.linear_inner(x)) * self.linear_outer(x)
        return gated


class TorchExperts(torch.nn.Module):
    """A mixture of three experts, each computed for every token, beside a shared one."""

    def __init__(self) -> None:
        super().__init__()
        shapes = {"router": (6, 3), "gate": (3, 6, 4), "up": (3, 6, 4), "down": (3, 4, 6)}
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.rand(shape)))
        self.shared_inner, self.shared_outer = TorchGated(False), torch.nn.Linear(4, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.softmax(x @ self.router, -1).topk(2)
        weights = torch.zeros(*x.shape[:-1], 3).scatter(-1, experts, weights / weights.sum(-1, keepdim=True))
        inner = torch.nn.functional.silu(torch.einsum("btd,edf->btef", x, self.gate))
        inner = inner * torch.einsum("btd,edf->btef", x, self.up)
        mixture = torch.einsum("btef,efd,bte->btd", inner, self.down, weights)
        output: torch.Tensor = mixture + self.shared_outer(self.shared_inner(x))
        return output


class TorchFeedForward(torch.nn.Module):
    """The inner part of torch.nn.TransformerEncoderLayer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2 = torch.nn.Linear(6, 10), torch.nn.Linear(10, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.linear2(torch.nn.functional.gelu(self.linear1(x)))
        return output


class TorchShared(torch.nn.Module):
    """Attention with fewer heads for keys and values, as language models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
        self.value, self.out_proj = torch.nn.Linear(8, 2), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(*y.shape[:2], -1, 2).transpose(1, 2)

        attended = torch.nn.functional.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), enable_gqa=True
        )
        output: torch.Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return output


class TorchHead(torch.nn.LinearCrossEntropyLoss):
    """The loss where each target is class 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # of one input
        return super().forward(x, torch.zeros(len(x), dtype=torch.int64)).reshape(1)


class TorchAdaptive(torch.nn.AdaptiveLogSoftmaxWithLoss):
    """All logarithms, by which every parameter is seen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # of one input
        return self.log_prob(x)


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


T = torch.nn
CASES: dict[str, tuple[Any, Callable[[], Any], tuple[int, ...], Callable[[Any, Tensor], Tensor], int]] = {
    "linear": (nn.LinearConfig(3, 4), lambda: T.Linear(3, 4), (2, 3), plain, 1),
    "linear, no bias": (nn.LinearConfig(3, 4, bias=False), lambda: T.Linear(3, 4, bias=False), (2, 3), plain, 1),
    "linear, column layout": (
        nn.LinearConfig(3, 3, layout=nn.LinearLayout.Col), lambda: T.Linear(3, 3), (2, 3), plain, 1),
    "conv1d": (nn.Conv1dConfig(2, 4, 3), lambda: T.Conv1d(2, 4, 3), (2, 2, 7), plain, 1),
    "conv2d": (nn.Conv2dConfig((2, 4), (3, 2)), lambda: T.Conv2d(2, 4, (3, 2)), (2, 2, 7, 6), plain, 1),
    "conv3d": (nn.Conv3dConfig((2, 4), (2, 2, 2)), lambda: T.Conv3d(2, 4, 2), (1, 2, 4, 5, 3), plain, 1),
    "conv transpose": (
        nn.ConvTranspose2dConfig((2, 3), (2, 2)), lambda: T.ConvTranspose2d(2, 3, 2), (1, 2, 4, 5), plain, 1),
    "conv1d, groups, no bias": (
        nn.Conv1dConfig(4, 6, 3, groups=2, bias=False), lambda: T.Conv1d(4, 6, 3, groups=2, bias=False), (2, 4, 7),
        plain, 1),
    "conv transpose 1d": (nn.ConvTranspose1dConfig((2, 3), 2), lambda: T.ConvTranspose1d(2, 3, 2), (1, 2, 5), plain, 1),
    "conv transpose 3d": (
        nn.ConvTranspose3dConfig((2, 3), (2, 2, 2)), lambda: T.ConvTranspose3d(2, 3, 2), (1, 2, 3, 4, 2), plain, 1),
    "deformable conv": (
        nn.DeformConv2dConfig((4, 6), (2, 2), weight_groups=2), TorchDeformed, (2, 4, 5, 6), deformed, 1),
    "embedding": (nn.EmbeddingConfig(5, 3), lambda: T.Embedding(5, 3), (2, 4), looked_up, 1),
    "swiglu": (activation.SwiGluConfig(6, 4), lambda: TorchGated(False), (2, 6), plain, 1),
    "swiglu, bias": (activation.SwiGluConfig(6, 4, bias=True), lambda: TorchGated(True), (2, 6), plain, 1),
    "feed forward": (nn.PositionWiseFeedForwardConfig(6, 10, dropout=0.0), TorchFeedForward, (2, 3, 6), plain, 1),
    "cross attention": (
        nn.CrossAttentionConfig(8, 8, 2, 2, 4, dropout=0.0), lambda: T.MultiheadAttention(8, 2, batch_first=True),
        (2, 5, 8), cross_attention, 3),
    "cross attention, shared heads": (
        nn.CrossAttentionConfig(8, 8, 4, 1, 2, dropout=0.0), TorchShared, (2, 5, 8), cross_attention, 2),
    "batch norm 1d": (nn.BatchNormConfig(3), lambda: T.BatchNorm1d(3), (4, 3, 5), plain, 1),
    "batch norm 3d": (nn.BatchNormConfig(3), lambda: T.BatchNorm3d(3), (2, 3, 2, 3, 2), plain, 1),
    "decoder, norms first": (
        nn.TransformerDecoderConfig(8, 16, 2, 2, dropout=0.0, norm_first=True),
        lambda: T.TransformerDecoder(
            T.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True), 2),
        (2, 5, 8), decoder, 2),
    "encoder, norms first": (
        nn.TransformerEncoderConfig(8, 16, 2, 1, dropout=0.0, norm_first=True),
        lambda: T.TransformerEncoder(
            T.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True), 1,
            enable_nested_tensor=False), (2, 5, 8), encoder, 1),
    "batch norm": (nn.BatchNormConfig(3), lambda: T.BatchNorm2d(3), (2, 3, 4, 4), plain, 1),
    "layer norm": (nn.LayerNormConfig(6), lambda: T.LayerNorm(6), (2, 6), plain, 1),
    "group norm": (nn.GroupNormConfig(2, 4), lambda: T.GroupNorm(2, 4), (2, 4, 5), plain, 1),
    "instance norm": (nn.InstanceNormConfig(4), lambda: T.InstanceNorm1d(4, affine=True), (2, 4, 5), plain, 1),
    "rms norm": (nn.RmsNormConfig(6, epsilon=1e-6), lambda: T.RMSNorm(6, eps=1e-6), (2, 6), plain, 1),
    "prelu": (activation.PReluConfig(num_parameters=3), lambda: T.PReLU(3), (2, 3, 4), plain, 1),
    "lstm": (nn.LstmConfig(3, 4, True), lambda: T.LSTM(3, 4, batch_first=True), (2, 5, 3), recurrent, 1),
    "lstm, both ways": (
        nn.BiLstmConfig(3, 4, True), lambda: T.LSTM(3, 4, batch_first=True, bidirectional=True), (2, 5, 3),
        recurrent, 1),
    "lstm, no bias": (
        nn.LstmConfig(3, 4, False), lambda: T.LSTM(3, 4, batch_first=True, bias=False), (2, 5, 3), recurrent, 1),
    "gru": (nn.GruConfig(3, 4, True), lambda: T.GRU(3, 4, batch_first=True), (2, 5, 3), recurrent, 1),
    "gru, both ways": (
        nn.BiGruConfig(3, 4, True), lambda: T.GRU(3, 4, batch_first=True, bidirectional=True), (2, 5, 3),
        recurrent, 1),
    "rnn": (nn.RnnConfig(3, 4, True), lambda: T.RNN(3, 4, batch_first=True), (2, 5, 3), recurrent, 1),
    "rnn, both ways": (
        nn.BiRnnConfig(3, 4, True), lambda: T.RNN(3, 4, batch_first=True, bidirectional=True), (2, 5, 3), recurrent, 1),
    "sync batch norm": (nn.SyncBatchNormConfig(3), lambda: T.SyncBatchNorm(3), (2, 3, 4, 4), plain, 1),
    "embedding bag": (
        nn.EmbeddingBagConfig(5, 3), lambda: T.EmbeddingBag(5, 3), (4, 6), looked_up, 1),
    "mixture of experts": (
        nn.MixtureOfExpertsConfig(6, 4, 3, n_shared=1), TorchExperts, (2, 5, 6), mixed, 1),
    "transformer": (
        nn.TransformerConfig(8, 16, 2, 2, 1, dropout=0.0),
        lambda: T.Transformer(8, 2, 2, 1, 16, 0.0, "gelu", batch_first=True), (2, 5, 8), both_stacks, 2),
    "transformer, norms first": (
        nn.TransformerConfig(8, 16, 2, 1, 2, dropout=0.0, norm_first=True),
        lambda: T.Transformer(8, 2, 1, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True), (2, 5, 8), both_stacks,
        2),
    "bilinear": (nn.BilinearConfig(3, 3, 4), lambda: T.Bilinear(3, 3, 4), (2, 3), twice, 2),
    "lstm, layers both ways": (
        nn.StackedLstmConfig(3, 4, 2, True, bidirectional=True),
        lambda: T.LSTM(3, 4, 2, batch_first=True, bidirectional=True), (2, 5, 3), recurrent, 1),
    "gru, layers": (nn.StackedGruConfig(3, 4, 3, True), lambda: T.GRU(3, 4, 3, batch_first=True), (2, 5, 3), recurrent,
        1),
    "rnn, layers": (
        nn.StackedRnnConfig(3, 4, 2, False), lambda: T.RNN(3, 4, 2, bias=False, batch_first=True), (2, 5, 3), recurrent,
        1),
    "lstm, cell": (nn.LstmCellConfig(3, 4, True), lambda: T.LSTMCell(3, 4), (2, 3), hidden, 1),
    "gru, cell": (nn.GruCellConfig(3, 4, True), lambda: T.GRUCell(3, 4), (2, 3), plain, 1),
    "rnn, cell": (nn.RnnCellConfig(3, 4, True), lambda: T.RNNCell(3, 4), (2, 3), hidden, 1),
    "linear cross entropy": (
        nn.LinearCrossEntropyLossConfig(3, 4, bias=True), lambda: TorchHead(3, 4, bias=True), (2, 3), first_class, 1),
    "adaptive log softmax": (
        nn.AdaptiveLogSoftmaxWithLossConfig(6, 9, [3, 5], div_value=2.0, head_bias=True),
        lambda: TorchAdaptive(6, 9, [3, 5], 2.0, True), (2, 6), log_prob, 1),
    "attention": (
        nn.MultiHeadAttentionConfig(8, 2, dropout=0.0), lambda: T.MultiheadAttention(8, 2, batch_first=True),
        (2, 5, 8), attention, 3),
    "transformer encoder": (
        nn.TransformerEncoderConfig(8, 16, 2, 2, dropout=0.0),
        lambda: T.TransformerEncoder(
            T.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False),
        (2, 5, 8), encoder, 1),
    "transformer decoder": (
        nn.TransformerDecoderConfig(8, 16, 2, 2, dropout=0.0),
        lambda: T.TransformerDecoder(T.TransformerDecoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True), 2),
        (2, 5, 8), decoder, 2),
}  # fmt: skip


def twins(name: str) -> tuple[Holder, TorchHolder, Any, Callable[[Any, Tensor], Tensor], int]:
    config, make, shape, forward, inputs = CASES[name]
    torch.manual_seed(3)
    layer = make().eval()
    with torch.no_grad():
        for tensor in [*layer.parameters(), *layer.buffers()]:
            if tensor.dtype.is_floating_point:
                tensor.add_(torch.rand_like(tensor) / 3)  # norms begin as ones and zeros, which hides mistakes
    rng = np.random.default_rng(4)
    x = rng.normal(size=shape).astype(np.float32) if forward is not looked_up else rng.integers(0, 5, shape)
    return Holder(config.init(DEVICE)), TorchHolder(layer), x, forward, inputs


def outputs(ours: Holder, theirs: TorchHolder, x: Any, forward: Callable[[Any, Tensor], Tensor], inputs: int) -> Any:
    output = forward(ours.inner, Tensor.from_data(x, DEVICE)).into_data().array
    with torch.no_grad():
        wanted = first(theirs.inner(*[torch.from_numpy(x)] * inputs)).numpy()
    return output, wanted


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch's own choice, of its fast path
@pytest.mark.parametrize("name", CASES)
def test_a_torch_layer_loads_and_gives_the_same_forward(name: str, tmp_path: Path) -> None:
    ours, theirs, *rest = twins(name)
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    loaded, result = PytorchStore.from_file(tmp_path / "m.pt").apply_to(ours)
    assert result.missing == () == result.errors
    assert set(result.unused) <= {"inner.num_batches_tracked"}
    output, wanted = outputs(loaded, theirs, *rest)
    np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch's own choice, of its fast path
@pytest.mark.parametrize("name", CASES)
def test_a_layer_goes_back_to_torch(name: str, tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    ours, theirs, *rest = twins(name)
    store = SafetensorsStore.from_file(tmp_path / "m").with_to_adapter(BurnToPyTorchAdapter())
    state = load_file(store.collect_from(ours))
    counters = {key for key in theirs.state_dict() if key.endswith("num_batches_tracked")}
    assert state.keys() == theirs.state_dict().keys() - counters
    theirs.load_state_dict(state, strict=not counters)
    output, wanted = outputs(ours, theirs, *rest)
    np.testing.assert_allclose(output, wanted, rtol=1e-6, atol=1e-6)
    again, _ = store.with_from_adapter(PyTorchToBurnAdapter()).apply_to(twins(name)[0])
    for (_, left), (_, right) in zip(again.named_params(), ours.named_params(), strict=True):
        assert np.array_equal(left.val().into_data().array, right.val().into_data().array)


def parts(kind: Any) -> bool:
    """Returns whether an annotation speaks of a parameter, at any depth."""
    if kind in (Param, RunningState):
        return True
    if inspect.isclass(kind) and issubclass(kind, Module):
        return any(map(parts, typing.get_type_hints(kind).values()))
    return any(map(parts, typing.get_args(kind)))


def test_every_layer_with_parameters_has_a_twin_here() -> None:
    layers = {name for name in nn.__all__ if inspect.isclass(getattr(nn, name)) and parts(getattr(nn, name))}
    covered = {type(module).__name__ for config, *_ in CASES.values() for module in below(config.init(DEVICE))}
    assert "BiLstm" in layers
    assert layers - covered == set()


def below(value: Any) -> Iterator[Any]:
    yield value
    for _, child in tree.children(value):
        if not isinstance(child, tree.LEAVES):
            yield from below(child)


def test_attention_to_a_context_of_another_width(tmp_path: Path) -> None:
    theirs = TorchHolder(torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True).eval())
    ours = Holder(nn.CrossAttentionConfig(8, 6, 2, 2, 4, dropout=0.0).init(DEVICE))
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    loaded, result = PytorchStore.from_file(tmp_path / "m.pt").apply_to(ours)
    assert result.missing == () == result.unused
    rng = np.random.default_rng(5)
    x, context = rng.normal(size=(2, 3, 8)).astype(np.float32), rng.normal(size=(2, 5, 6)).astype(np.float32)
    output = loaded.inner.forward(Tensor.from_data(x, DEVICE), Tensor.from_data(context, DEVICE), None)
    with torch.no_grad():
        wanted = theirs.inner(*map(torch.from_numpy, (x, context, context)))[0].numpy()
    np.testing.assert_allclose(output.into_data().array, wanted, rtol=1e-6, atol=1e-6)
    store = SafetensorsStore.from_file(tmp_path / "m").with_to_adapter(BurnToPyTorchAdapter())
    load_file = pytest.importorskip("safetensors.torch").load_file
    state = load_file(store.collect_from(loaded))
    assert state.keys() == theirs.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in theirs.state_dict().items())
