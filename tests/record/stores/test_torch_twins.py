"""State dicts of torch.nn layers load through the adapter, give the same forward, and go back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Tensor, nn
from burn_torch.nn import activation
from burn_torch.record.stores import (
    BurnToPyTorchAdapter,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
)

DEVICE = Device.cpu()


class Holder(Module):
    """A layer at a path, as in a model."""

    inner: Any


class TorchHolder(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner


def plain(layer: Any, x: Tensor) -> Tensor:
    made: Tensor = layer.forward(x)
    return made


def recurrent(layer: Any, x: Tensor) -> Tensor:
    made: Tensor = first(layer.forward(x, None))
    return made


def attention(layer: Any, x: Tensor) -> Tensor:
    made: Tensor = layer.forward(nn.MhaInput.self_attn(x)).context
    return made


def encoder(layer: Any, x: Tensor) -> Tensor:
    made: Tensor = layer.forward(nn.TransformerEncoderInput(x))
    return made


def decoder(layer: Any, x: Tensor) -> Tensor:
    made: Tensor = layer.forward(nn.TransformerDecoderInput(x, x))
    return made


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


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
    x = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    return Holder(config.init(DEVICE)), TorchHolder(layer), x, forward, inputs


def outputs(ours: Holder, theirs: TorchHolder, x: Any, forward: Callable[[Any, Tensor], Tensor], inputs: int) -> Any:
    found = forward(ours.inner, Tensor.from_data(x, DEVICE)).into_data().array
    with torch.no_grad():
        wanted = first(theirs.inner(*[torch.from_numpy(x)] * inputs)).numpy()
    return found, wanted


@pytest.mark.parametrize("name", CASES)
def test_a_torch_layer_loads_and_gives_the_same_forward(name: str, tmp_path: Path) -> None:
    ours, theirs, *rest = twins(name)
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    loaded, result = PytorchStore.from_file(tmp_path / "m.pt").apply_to(ours)
    assert result.missing == () == result.errors
    assert set(result.unused) <= {"inner.num_batches_tracked"}
    found, wanted = outputs(loaded, theirs, *rest)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_goes_back_to_torch(name: str, tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    ours, theirs, *rest = twins(name)
    store = SafetensorsStore.from_file(tmp_path / "m").with_to_adapter(BurnToPyTorchAdapter())
    state = load_file(store.collect_from(ours))
    counters = {key for key in theirs.state_dict() if key.endswith("num_batches_tracked")}
    assert state.keys() == theirs.state_dict().keys() - counters
    theirs.load_state_dict(state, strict=not counters)
    found, wanted = outputs(ours, theirs, *rest)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    again, _ = store.with_from_adapter(PyTorchToBurnAdapter()).apply_to(twins(name)[0])
    for (_, left), (_, right) in zip(again.named_params(), ours.named_params(), strict=True):
        assert np.array_equal(left.val().into_data().array, right.val().into_data().array)
