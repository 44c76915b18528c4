"""Every layer of burn_torch.nn with inputs that its forward takes: what exports are tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from burn_torch import Device, Module, Tensor, nn

__all__ = ["CASES", "Case", "classes"]

CPU = Device.cpu()


@dataclass(frozen=True)
class Case:
    """A layer, what it is called with, and whether its batch may vary."""

    make: Callable[[], Any]
    inputs: Callable[[np.random.Generator], tuple[Any, ...]]
    dynamic: bool = True


def floats(*shape: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(rng.standard_normal(shape).astype(np.float32), CPU)


def uniform(*shape: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(rng.uniform(0.1, 0.9, shape).astype(np.float32), CPU)


def whole(below: int, *shape: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(rng.integers(0, below, shape), CPU)


def signs(*shape: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(rng.choice(np.array([-1.0, 1.0], np.float32), shape), CPU)


def padded(batch: int, seq: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(np.arange(seq)[None] >= rng.integers(1, seq + 1, batch)[:, None], CPU)


def hidden(*shape: int) -> Callable[[np.random.Generator], Tensor]:
    return lambda rng: Tensor.from_data(rng.random(shape) < 0.4, CPU)


def case(make: Any, *drawn: Any, dynamic: bool = True, wrap: Callable[..., Any] | None = None) -> Case:
    """A module or a configuration; inputs are drawn, and put together by `wrap`."""

    def made() -> Any:
        return make if isinstance(make, Module) else make.init(CPU)

    def inputs(rng: np.random.Generator) -> tuple[Any, ...]:
        inputs_of_case = [x(rng) for x in drawn]
        return (wrap(*inputs_of_case),) if wrap is not None else tuple(inputs_of_case)

    return Case(made, inputs, dynamic)


def state(*shape: int) -> Callable[[np.random.Generator], nn.LstmState]:
    return lambda rng: nn.LstmState(floats(*shape)(rng), floats(*shape)(rng))


def places(below: int, *shape: int) -> Callable[[np.random.Generator], Tensor]:
    """Places of maxima in planes of so many elements, each once."""

    def draw(rng: np.random.Generator) -> Tensor:
        planes = rng.permuted(np.tile(np.arange(below), (6, 1)), axis=1)[:, : int(np.prod(shape))]
        return Tensor.from_data(planes.reshape(2, 3, *shape), CPU)

    return draw


class _OfLengths(Module):
    """A recurrent layer over padded sequences."""

    layer: nn.StackedLstm

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return self.layer.forward(x, None, lengths)


X = floats(3, 6)
IMAGE = floats(2, 4, 7, 9)
SEQ = floats(2, 5, 8)
VOLUMES = {1: floats(2, 3, 6), 2: floats(2, 3, 5, 6), 3: floats(2, 3, 4, 5, 6)}
PADS = {1: (2, 1), 2: (2, 1, 0, 3), 3: (2, 1, 0, 3, 1, 2)}
PAIR = (floats(3, 6), floats(3, 6))

_ALIGNED = tuple(lambda rng, x=x: Tensor.from_data(x, CPU) for x in ([[1, 2], [2, 2]], [2, 3], [1, 2]))


def _labels(rng: np.random.Generator) -> Tensor:
    """Classes of each item before its first -1."""
    return Tensor.from_data(
        np.where(rng.random((3, 6)) < 0.3, -1, rng.permuted(np.tile(np.arange(6), (3, 1)), axis=1)), CPU
    )


_ENCODER = nn.TransformerEncoderConfig(8, 16, 2, 2)
_DECODER = nn.TransformerDecoderConfig(8, 16, 2, 2)

CASES: dict[str, Case] = {
    **{
        name: case(getattr(nn, name)(), X)
        for name in (
            "HardSwish",
            "Identity",
            "LogSigmoid",
            "Mish",
            "Relu",
            "Relu6",
            "Selu",
            "SiLU",
            "Sigmoid",
            "Softsign",
            "Tanh",
            "Tanhshrink",
        )
    },
    **{
        f"{name}{axes}d": case(getattr(nn, f"{name}{axes}dConfig")(PADS[axes]), VOLUMES[axes])
        for name in ("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad")
        for axes in (1, 2, 3)
    },
    **{
        f"ConstantPad{axes}d": case(getattr(nn, f"ConstantPad{axes}dConfig")(PADS[axes], -1.5), VOLUMES[axes])
        for axes in (1, 2, 3)
    },
    **{f"Dropout{axes}d": case(getattr(nn, f"Dropout{axes}dConfig")(0.5), VOLUMES[axes]) for axes in (1, 2, 3)},
    **{name: case(getattr(nn, f"{name}Config")(1), SEQ) for name in ("LogSoftmax", "Softmax", "Softmin")},
    "Softmax2d": case(nn.Softmax2d(), IMAGE),
    "AlphaDropout": case(nn.AlphaDropoutConfig(0.5), X),
    "FeatureAlphaDropout": case(nn.FeatureAlphaDropoutConfig(0.5), IMAGE),
    "ChannelShuffle": case(nn.ChannelShuffleConfig(2), IMAGE),
    "Flatten": case(nn.FlattenConfig(), IMAGE),
    "Flatten, inner axes": case(nn.FlattenConfig(start_dim=2, end_dim=3), IMAGE),
    "Unflatten": case(nn.UnflattenConfig(1, (2, -1)), IMAGE),
    **{
        name: case(getattr(nn, f"{name}Config")(), X)
        for name in (
            "Celu",
            "Elu",
            "HardShrink",
            "HardSigmoid",
            "Hardtanh",
            "LeakyRelu",
            "Shrink",
            "SoftShrink",
            "Softplus",
            "ThresholdedRelu",
            "RRelu",
            "PRelu",
        )
    },
    "GLU": case(nn.GLU(1), X),
    "Gelu": case(nn.Gelu(), X),
    "Gelu, by tanh": case(nn.Gelu(approximate=True), X),
    "Softplus, steep": case(nn.SoftplusConfig(beta=3.0), X),
    "Celu, wide": case(nn.CeluConfig(alpha=2.0), X),
    "PRelu, channels": case(nn.PReluConfig(num_parameters=4), IMAGE),
    "Threshold": case(nn.ThresholdConfig(0.1, -3.0), X),
    "Dropout": case(nn.DropoutConfig(0.5), X),
    "GaussianNoise": case(nn.GaussianNoiseConfig(0.5), X),
    "Linear": case(nn.LinearConfig(6, 3), X),
    "Linear, wide": case(nn.LinearConfig(8, 3, bias=False), SEQ),
    "Linear, columns": case(nn.LinearConfig(8, 3, layout=nn.LinearLayout.Col), SEQ),
    "SwiGlu": case(nn.SwiGluConfig(6, 3), X),
    "Embedding": case(nn.EmbeddingConfig(11, 4), whole(11, 3, 5)),
    "EmbeddingBag": case(nn.EmbeddingBagConfig(11, 4, padding_idx=3), whole(11, 3, 5)),
    "MixtureOfExperts": case(nn.MixtureOfExpertsConfig(8, 6, 4, n_shared=1), SEQ),
    "Conv1d": case(nn.Conv1dConfig(4, 6, 3, stride=2, groups=2, padding=nn.PaddingConfig1d.Same), floats(2, 4, 9)),
    "Conv2d": case(nn.Conv2dConfig((4, 6), (3, 2), dilation=(2, 1), padding=nn.PaddingConfig2d.Same), IMAGE),
    "Conv3d": case(nn.Conv3dConfig((2, 3), (2, 3, 2)), floats(2, 2, 4, 5, 6)),
    "ConvTranspose1d": case(nn.ConvTranspose1dConfig((4, 6), 3, stride=2, padding=1, padding_out=1), floats(2, 4, 9)),
    "ConvTranspose2d": case(nn.ConvTranspose2dConfig((4, 6), (3, 2), groups=2), IMAGE),
    "ConvTranspose3d": case(nn.ConvTranspose3dConfig((2, 3), (2, 3, 2), bias=False), floats(2, 2, 4, 5, 6)),
    "Bilinear": case(nn.BilinearConfig(6, 6, 4), *PAIR),
    "Embedding, padded": case(nn.EmbeddingConfig(11, 4, padding_idx=2), whole(11, 3, 5)),
    "LpPool1d": case(nn.LpPool1dConfig(2.0, 3, stride=2), floats(2, 4, 10)),
    "LpPool2d": case(nn.LpPool2dConfig(3.0, (3, 2)), IMAGE),
    "LpPool3d": case(nn.LpPool3dConfig(1.5, (2, 3, 2), strides=(1, 2, 2)), VOLUMES[3]),
    "MaxUnpool1d": case(nn.MaxUnpool1dConfig(2), floats(2, 3, 4), places(8, 4)),
    "MaxUnpool2d": case(nn.MaxUnpool2dConfig((3, 2), strides=(2, 2)), floats(2, 3, 2, 4), places(40, 2, 4)),
    "MaxUnpool3d": case(nn.MaxUnpool3dConfig((1, 2, 1)), floats(2, 3, 2, 2, 2), places(16, 2, 2, 2)),
    "FractionalMaxPool2d": case(nn.FractionalMaxPool2dConfig((2, 3), output_size=(4, 5)), IMAGE),
    "FractionalMaxPool3d": case(nn.FractionalMaxPool3dConfig((2, 2, 1), output_ratio=(0.6, 0.7, 0.5)), VOLUMES[3]),
    "AvgPool1d": case(nn.AvgPool1dConfig(3, stride=2, ceil_mode=True), floats(2, 4, 10)),
    "AvgPool2d": case(nn.AvgPool2dConfig((3, 2), padding=nn.PaddingConfig2d.Explicit(1, 1, 1, 1)), IMAGE),
    "AvgPool2d, without padding": case(
        nn.AvgPool2dConfig((3, 3), padding=nn.PaddingConfig2d.Explicit(1, 1, 1, 1), count_include_pad=False), IMAGE
    ),
    "MaxPool1d": case(nn.MaxPool1dConfig(3, stride=2, ceil_mode=True), floats(2, 4, 10)),
    "MaxPool2d": case(nn.MaxPool2dConfig((3, 2), dilation=(2, 1)), IMAGE),
    "AvgPool3d": case(nn.AvgPool3dConfig((2, 3, 2)), VOLUMES[3]),
    "AvgPool3d, without padding": case(
        nn.AvgPool3dConfig(
            (3, 3, 3),
            strides=(2, 1, 2),
            padding=nn.PaddingConfig3d.Explicit(1, 1, 1, 1, 1, 1),
            count_include_pad=False,
        ),
        VOLUMES[3],
    ),
    "MaxPool3d": case(nn.MaxPool3dConfig((2, 3, 2), strides=(2, 1, 1), dilation=(1, 1, 2)), VOLUMES[3]),
    "AdaptiveMaxPool1d": case(nn.AdaptiveMaxPool1dConfig(4), floats(2, 3, 10)),
    "AdaptiveMaxPool2d": case(nn.AdaptiveMaxPool2dConfig((3, 5)), IMAGE),
    "AdaptiveMaxPool3d": case(nn.AdaptiveMaxPool3dConfig((2, 2, 3)), VOLUMES[3]),
    "AdaptiveAvgPool1d": case(nn.AdaptiveAvgPool1dConfig(4), floats(2, 3, 10)),
    "AdaptiveAvgPool2d": case(nn.AdaptiveAvgPool2dConfig((3, 5)), IMAGE),
    "AdaptiveAvgPool2d, one bin": case(nn.AdaptiveAvgPool2dConfig((1, 1)), IMAGE),
    "AdaptiveAvgPool3d": case(nn.AdaptiveAvgPool3dConfig((2, 2, 3)), floats(2, 2, 4, 5, 6)),
    "Interpolate1d": case(nn.Interpolate1dConfig(output_size=13), floats(2, 3, 5)),
    "Interpolate1d, linear": case(
        nn.Interpolate1dConfig(scale_factor=2.0, mode=nn.InterpolateMode.Linear), floats(2, 3, 5)
    ),
    "Interpolate2d": case(nn.Interpolate2dConfig(scale_factor=(2.0, 3.0)), IMAGE),
    "Interpolate2d, linear": case(
        nn.Interpolate2dConfig(output_size=(5, 12), mode=nn.InterpolateMode.Linear, align_corners=False), IMAGE
    ),
    "Interpolate2d, cubic": case(nn.Interpolate2dConfig(output_size=(5, 12), mode=nn.InterpolateMode.Cubic), IMAGE),
    "PixelShuffle": case(nn.PixelShuffleConfig(2), IMAGE),
    "PixelUnshuffle": case(nn.PixelUnshuffleConfig(3), floats(2, 2, 6, 9)),
    "Unfold4d": case(nn.Unfold4dConfig((3, 2), stride=(2, 1), padding=(1, 0)), IMAGE),
    "DeformConv2d": case(nn.DeformConv2dConfig((4, 6), (2, 2), weight_groups=2), IMAGE, floats(2, 8, 6, 8)),
    "Fold4d": case(nn.Fold4dConfig((7, 9), (3, 2), stride=(2, 1), padding=(1, 0)), floats(2, 12, 32)),
    "SyncBatchNorm": case(nn.SyncBatchNormConfig(4), IMAGE),
    "BatchNorm": case(nn.BatchNormConfig(4), IMAGE),
    "GroupNorm": case(nn.GroupNormConfig(2, 4), IMAGE),
    "InstanceNorm": case(nn.InstanceNormConfig(4), IMAGE),
    "LayerNorm": case(nn.LayerNormConfig(8), SEQ),
    "RmsNorm": case(nn.RmsNormConfig(8), SEQ),
    "LocalResponseNorm": case(nn.LocalResponseNormConfig(3), IMAGE),
    "PositionalEncoding": case(nn.PositionalEncodingConfig(8, max_sequence_size=16), SEQ),
    "RotaryEncoding": case(nn.RotaryEncodingConfig(16, 8), floats(2, 3, 5, 8)),
    "MultiHeadAttention": case(
        nn.MultiHeadAttentionConfig(8, 2),
        SEQ,
        padded(2, 5),
        hidden(2, 5, 5),
        wrap=lambda x, p, a: nn.MhaInput(x, x, x, p, a),
    ),
    "MultiHeadAttention, quiet": case(
        nn.MultiHeadAttentionConfig(8, 2, quiet_softmax=True), SEQ, wrap=nn.MhaInput.self_attn
    ),
    "CrossAttention": case(nn.CrossAttentionConfig(8, 6, 4, 2, 4), SEQ, floats(2, 7, 6)),
    "PositionWiseFeedForward": case(nn.PositionWiseFeedForwardConfig(8, 16), SEQ),
    "Transformer": case(
        nn.TransformerConfig(8, 16, 2, 1, 1), SEQ, floats(2, 7, 8), padded(2, 5), wrap=nn.TransformerInput
    ),
    "TransformerEncoder": case(_ENCODER, SEQ, padded(2, 5), wrap=lambda x, p: nn.TransformerEncoderInput(x, p)),
    "TransformerEncoder, norm first": case(
        nn.TransformerEncoderConfig(8, 16, 2, 1, norm_first=True), SEQ, wrap=nn.TransformerEncoderInput
    ),
    "TransformerEncoderLayer": case(_ENCODER.init(CPU).layers[0], SEQ),
    "TransformerDecoder": case(
        _DECODER, SEQ, floats(2, 7, 8), padded(2, 5), wrap=lambda t, m, p: nn.TransformerDecoderInput(t, m, p)
    ),
    "TransformerDecoderLayer": case(
        _DECODER.init(CPU).layers[0], SEQ, floats(2, 7, 8), wrap=nn.TransformerDecoderInput
    ),
    "Rnn": case(nn.RnnConfig(8, 6, True), SEQ),
    "Gru": case(nn.GruConfig(8, 6, True), SEQ),
    "Gru, reset before": case(nn.GruConfig(8, 6, False, reset_after=False), SEQ),
    "Lstm": case(nn.LstmConfig(8, 6, True), SEQ),
    "Lstm, state": case(nn.LstmConfig(8, 6, True, reverse=True), SEQ, state(2, 6)),
    **{f"{kind}Cell": case(getattr(nn, f"{kind}CellConfig")(6, 5, True), X) for kind in ("Gru", "Lstm", "Rnn")},
    **{
        f"Stacked{kind}": case(getattr(nn, f"Stacked{kind}Config")(8, 6, 2, True, bidirectional=kind == "Lstm"), SEQ)
        for kind in ("Gru", "Lstm", "Rnn")
    },
    "StackedLstm, padded": case(
        _OfLengths(nn.StackedLstmConfig(8, 6, 2, True, bidirectional=True).init(CPU)), SEQ, whole(6, 2)
    ),
    "BiRnn": case(nn.BiRnnConfig(8, 6, True), SEQ),
    "BiGru": case(nn.BiGruConfig(8, 6, True), SEQ),
    "BiLstm": case(nn.BiLstmConfig(8, 6, True), SEQ),
    "CosineSimilarity": case(nn.CosineSimilarityConfig(), *PAIR),
    "PairwiseDistance": case(nn.PairwiseDistanceConfig(), *PAIR),
    "AdaptiveLogSoftmaxWithLoss": case(nn.AdaptiveLogSoftmaxWithLossConfig(6, 9, [3, 5]), X, whole(9, 3)),
    "BinaryCrossEntropyLoss": case(nn.BinaryCrossEntropyLossConfig(logits=True), X, whole(2, 3, 6)),
    "CosineEmbeddingLoss": case(nn.CosineEmbeddingLossConfig(), *PAIR, signs(3)),
    "CTCLoss": case(nn.CTCLossConfig(), floats(5, 2, 8), *_ALIGNED, dynamic=False),
    "RNNTLoss": case(nn.RNNTLossConfig(), floats(2, 3, 3, 4), *_ALIGNED),
    "CrossEntropyLoss": case(nn.CrossEntropyLossConfig(smoothing=0.1), X, whole(6, 3)),
    "FocalLoss": case(nn.FocalLossConfig(), X, whole(2, 3, 6)),
    "GaussianNLLLoss": case(nn.GaussianNLLLossConfig(full=True), *PAIR, uniform(3, 6)),
    "HingeEmbeddingLoss": case(nn.HingeEmbeddingLossConfig(), X, signs(3, 6)),
    "HuberLoss": case(nn.HuberLossConfig(0.5), *PAIR),
    "KLDivLoss": case(nn.KLDivLossConfig(), X, uniform(3, 6)),
    "LpLoss": case(nn.LpLossConfig(1.0), *PAIR),
    "LinearCrossEntropyLoss": case(nn.LinearCrossEntropyLossConfig(8, 6, pad_tokens=[1]), SEQ, whole(6, 2, 5)),
    "MarginRankingLoss": case(nn.MarginRankingLossConfig(), *PAIR, signs(3, 6)),
    "MseLoss": case(nn.MseLoss(), *PAIR),
    "MultiLabelMarginLoss": case(nn.MultiLabelMarginLoss(), X, _labels),
    "MultiLabelSoftMarginLoss": case(
        nn.MultiLabelSoftMarginLossConfig(weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), X, whole(2, 3, 6)
    ),
    "MultiMarginLoss": case(nn.MultiMarginLossConfig(), X, whole(6, 3)),
    "NLLLoss": case(nn.NLLLossConfig(weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), X, whole(6, 3)),
    "PoissonNllLoss": case(nn.PoissonNllLossConfig(full=True), X, uniform(3, 6)),
    "SmoothL1Loss": case(nn.SmoothL1LossConfig(), *PAIR),
    "SoftMarginLoss": case(nn.SoftMarginLoss(), X, signs(3, 6)),
    "TripletMarginLoss": case(nn.TripletMarginLossConfig(), *PAIR, floats(3, 6)),
    "TripletMarginWithDistanceLoss": case(nn.TripletMarginWithDistanceLossConfig(swap=True), *PAIR, floats(3, 6)),
}
"""By the name of the class, and what is special."""

WITHOUT_FORWARD = {"GateController"}


def classes() -> set[str]:
    """The layers of nn that compute something."""
    layers = {name for name in nn.__all__ if isinstance(kind := getattr(nn, name), type) and issubclass(kind, Module)}
    return layers - WITHOUT_FORWARD
