"""Ten blocks of models, each with a whole step: forward and backward, or loss, clipping and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from burn_torch import Device, Distribution, Module, Tensor, vjp
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    Conv2d,
    Conv2dConfig,
    CrossEntropyLoss,
    CrossEntropyLossConfig,
    Dropout,
    DropoutConfig,
    LayerNorm,
    LayerNormConfig,
    LeakyRelu,
    LeakyReluConfig,
    Linear,
    LinearConfig,
    Lstm,
    LstmConfig,
    LstmState,
    MaxPool2d,
    MaxPool2dConfig,
    PaddingConfig2d,
    RmsNorm,
    RmsNormConfig,
    RotaryEncoding,
    RotaryEncodingConfig,
    SwiGlu,
    SwiGluConfig,
    TransformerEncoderConfig,
    TransformerEncoderLayer,
)
from burn_torch.nn.activation import Gelu
from burn_torch.optim import AdamWConfig, GradientClippingConfig, GradientsParams
from burn_torch.tensor import functional
from burn_torch.tensor.options import AttentionModuleOptions

__all__ = ["BLOCKS", "REAL", "TINY", "Block", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """How large a block is: `real` as in use, where kernels are counted; `tiny` to be computed by the interpreter."""

    batch: int
    seq: int
    width: int
    heads: int
    image: int
    channels: int


REAL = Sizes(batch=8, seq=512, width=512, heads=8, image=32, channels=64)
TINY = Sizes(batch=2, seq=4, width=8, heads=2, image=4, channels=4)


def normal(device: Device, *shape: int) -> Tensor:
    return Tensor.random(shape, Distribution.Normal(0.0, 1.0), device)


# -- sequences ---------------------------------------------------------------------------------------------
class Transformer(Module):
    layer: TransformerEncoderLayer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x, None, None)


def transformer(device: Device, sizes: Sizes, *, norm_first: bool, dropout: float) -> tuple[Any, ...]:
    width, heads = sizes.width, sizes.heads
    config = TransformerEncoderConfig(width, 4 * width, heads, 1, dropout=dropout, norm_first=norm_first)
    x = normal(device, sizes.batch, sizes.seq, sizes.width)
    return Transformer(TransformerEncoderLayer.new(config, device)), x, normal(device, *x.shape)


class Gqa(Module):
    """A layer as of Llama: RMS norms, grouped queries with rotary positions, SwiGLU."""

    attention_norm: RmsNorm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    rotary: RotaryEncoding
    forward_norm: RmsNorm
    gate: SwiGlu
    down: Linear
    heads: int
    kv_heads: int

    def forward(self, x: Tensor) -> Tensor:
        h = self.attention_norm.forward(x)
        query = self.rotary.forward(self._heads(self.query.forward(h), self.heads))
        key = self.rotary.forward(self._heads(self.key.forward(h), self.kv_heads))
        value = self._heads(self.value.forward(h), self.kv_heads)
        read = functional.attention(query, key, value, options=AttentionModuleOptions(is_causal=True))
        x = x + self.output.forward(read.swap_dims(1, 2).reshape(x.shape))
        return x + self.down.forward(self.gate.forward(self.forward_norm.forward(x)))

    @staticmethod
    def _heads(x: Tensor, heads: int) -> Tensor:
        batch, seq, width = x.shape
        return x.reshape((batch, seq, heads, width // heads)).swap_dims(1, 2)


def gqa(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    width, head = sizes.width, sizes.width // sizes.heads
    few = sizes.heads // 2

    def linear(d_input: int, d_output: int) -> Linear:
        return LinearConfig(d_input, d_output, bias=False).init(device)

    model = Gqa(
        RmsNormConfig(width).init(device),
        linear(width, width),
        linear(width, few * head),
        linear(width, few * head),
        linear(width, width),
        RotaryEncodingConfig(sizes.seq, head).init(device),
        RmsNormConfig(width).init(device),
        SwiGluConfig(width, 2 * width).init(device),
        linear(2 * width, width),
        sizes.heads,
        few,
    )
    x = normal(device, sizes.batch, sizes.seq, width)
    return model, x, normal(device, *x.shape)


class Mixer(Module):
    token_norm: LayerNorm
    token_up: Linear
    token_down: Linear
    channel_norm: LayerNorm
    channel_up: Linear
    channel_down: Linear
    gelu: Gelu

    def forward(self, x: Tensor) -> Tensor:
        h = self.token_norm.forward(x).swap_dims(1, 2)
        x = x + self.token_down.forward(self.gelu.forward(self.token_up.forward(h))).swap_dims(1, 2)
        h = self.channel_norm.forward(x)
        return x + self.channel_down.forward(self.gelu.forward(self.channel_up.forward(h)))


def mixer(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    model = Mixer(
        LayerNormConfig(sizes.width).init(device),
        LinearConfig(sizes.seq, 2 * sizes.seq).init(device),
        LinearConfig(2 * sizes.seq, sizes.seq).init(device),
        LayerNormConfig(sizes.width).init(device),
        LinearConfig(sizes.width, 4 * sizes.width).init(device),
        LinearConfig(4 * sizes.width, sizes.width).init(device),
        Gelu(),
    )
    x = normal(device, sizes.batch, sizes.seq, sizes.width)
    return model, x, normal(device, *x.shape)


class Cell(Module):
    """One step of an LSTM from a given state."""

    lstm: Lstm

    def forward(self, x: Tensor) -> Tensor:
        batch, width = x.shape[0], self.lstm.d_hidden
        states = x.narrow(1, 0, 2 * width)
        state = LstmState(states.narrow(1, 0, width), states.narrow(1, width, width))
        _, after = self.lstm.forward(x.narrow(1, 2 * width, width).reshape((batch, 1, width)), state)
        return Tensor.cat([after.cell, after.hidden], 1)


def lstm_cell(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    width = sizes.width
    model = Cell(LstmConfig(width, width, True).init(device))
    batch = sizes.batch * sizes.heads
    return model, normal(device, batch, 3 * width), normal(device, batch, 2 * width)


# -- images ------------------------------------------------------------------------------------------------
def conv(device: Device, d_input: int, d_output: int, kernel: int, stride: int = 1, *, bias: bool = False) -> Conv2d:
    padding = PaddingConfig2d.Explicit(*[kernel // 2] * 4)
    return Conv2dConfig(
        (d_input, d_output), (kernel, kernel), stride=(stride, stride), padding=padding, bias=bias
    ).init(device)


class Residual(Module):
    """Convolutions with batch norms between them, and the input added before the last activation."""

    convs: tuple[Conv2d, ...]
    norms: tuple[BatchNorm, ...]

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for number, (layer, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            h = norm.forward(layer.forward(h))
            h = h.relu() if number < len(self.convs) - 1 else h
        return (h + x).relu()


def basic(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    c = sizes.channels
    convs = (conv(device, c, c, 3), conv(device, c, c, 3))
    return residual(device, sizes, convs, c)


def bottleneck(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    c, wide = sizes.channels, 4 * sizes.channels
    convs = (conv(device, wide, c, 1), conv(device, c, c, 3), conv(device, c, wide, 1))
    return residual(device, sizes, convs, wide)


def residual(device: Device, sizes: Sizes, convs: tuple[Conv2d, ...], channels: int) -> tuple[Any, ...]:
    norms = tuple(BatchNormConfig(layer.weight.val().shape[0]).init(device) for layer in convs)
    x = normal(device, sizes.batch, channels, sizes.image, sizes.image)
    return Residual(convs, norms), x, normal(device, *x.shape)


class Down(Module):
    """Two convolutions with batch norm and ReLU; the result goes on halved, and as it is to the way up."""

    convs: tuple[Conv2d, ...]
    norms: tuple[BatchNorm, ...]
    pool: MaxPool2d

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.convs, self.norms, strict=True):
            x = norm.forward(layer.forward(x)).relu()
        halved = self.pool.forward(x)
        batch = x.shape[0]
        return Tensor.cat([x.reshape((batch, -1)), halved.reshape((batch, -1))], 1)


def unet_down(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    c = sizes.channels
    convs = (conv(device, c, 2 * c, 3), conv(device, 2 * c, 2 * c, 3))
    norms = (BatchNormConfig(2 * c).init(device), BatchNormConfig(2 * c).init(device))
    x = normal(device, sizes.batch, c, sizes.image, sizes.image)
    count = 2 * c * sizes.image * sizes.image
    model = Down(convs, norms, MaxPool2dConfig((2, 2), strides=(2, 2)).init())
    return model, x, normal(device, sizes.batch, count + count // 4)


class Discriminator(Module):
    """A halving convolution with bias, batch norm, leaky ReLU and dropout."""

    conv: Conv2d
    norm: BatchNorm
    activation: LeakyRelu
    dropout: Dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout.forward(self.activation.forward(self.norm.forward(self.conv.forward(x))))


def discriminator(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    c = sizes.channels
    model = Discriminator(
        conv(device, c, 2 * c, 3, 2, bias=True),
        BatchNormConfig(2 * c).init(device),
        LeakyReluConfig(negative_slope=0.2).init(),
        DropoutConfig(0.25).init(),
    )
    x = normal(device, sizes.batch, c, sizes.image, sizes.image)
    half = -(-sizes.image // 2)
    return model, x, normal(device, sizes.batch, 2 * c, half, half)


# -- loss and optimizer --------------------------------------------------------------------------------------
class Head(Module):
    norm: LayerNorm
    linear: Linear
    criterion: CrossEntropyLoss

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.criterion.forward(self.linear.forward(self.norm.forward(x)), y)


OPTIMIZER = AdamWConfig(weight_decay=0.1, grad_clipping=GradientClippingConfig.Norm(1.0))


def head(device: Device, sizes: Sizes) -> tuple[Any, ...]:
    rows, classes = sizes.batch * sizes.seq, 2 * sizes.width
    model = Head(
        LayerNormConfig(sizes.width).init(device),
        LinearConfig(sizes.width, classes).init(device),
        CrossEntropyLossConfig().init(device),
    )
    targets = Tensor.random((rows,), Distribution.Uniform(0, classes), device).int()
    return model, OPTIMIZER.init(), normal(device, rows, sizes.width), targets, 0.001


# -- steps -----------------------------------------------------------------------------------------------------
def backwards(model: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Any]:
    """Returns the block's output for x, and the gradients of half its squared distance to g, which need the forward."""
    y, pull = vjp(lambda block, given: block.forward(given), model, x)
    return y, pull(y - g)


def updates(model: Any, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
    """One step of training."""
    loss = model.loss(x, y)
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def unchanged(arguments: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    """The arguments again."""
    return arguments


def trained(arguments: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    """The model and the optimizer of the step before: from then on the optimizer has its state."""
    return (*result[:2], *arguments[2:])


@dataclass(frozen=True)
class Block:
    """make  (device, sizes) -> the arguments of its step.  step  forward and backward.  then  those of the next one."""

    make: Callable[[Device, Sizes], tuple[Any, ...]]
    step: Callable[..., Any] = backwards
    then: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] = unchanged


BLOCKS: dict[str, Block] = {
    "transformer, pre-norm": Block(lambda device, sizes: transformer(device, sizes, norm_first=True, dropout=0.0)),
    "transformer, post-norm": Block(lambda device, sizes: transformer(device, sizes, norm_first=False, dropout=0.1)),
    "grouped queries, RoPE, SwiGLU": Block(gqa),
    "ResNet basic": Block(basic),
    "ResNet bottleneck": Block(bottleneck),
    "MLP-mixer": Block(mixer),
    "LSTM cell": Block(lstm_cell),
    "U-Net down": Block(unet_down),
    "GAN discriminator": Block(discriminator),
    "loss and optimizer": Block(head, updates, trained),
}
