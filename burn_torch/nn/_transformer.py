"""Defines what the encoder and the decoder share: their configuration, and how they are built of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules
from burn_torch.nn.activation import ActivationConfig
from burn_torch.nn.dropout import DropoutConfig
from burn_torch.nn.feed_forward import PositionWiseFeedForwardConfig
from burn_torch.nn.multi_head_attention import MultiHeadAttention, MultiHeadAttentionConfig
from burn_torch.nn.norm import LayerNormConfig
from burn_torch.tensor import Device

__all__ = ["TransformerFields", "TransformerStack", "attention_of", "layer_of", "stack_of"]

M = TypeVar("M", bound=Module)


class TransformerFields(Config):
    """Holds the fields of both; TransformerEncoderConfig has their reasons."""

    d_model: int
    d_ff: int
    n_heads: int
    n_layers: int
    dropout: float = 0.1
    norm_first: bool = False
    quiet_softmax: bool = False
    initializer: Initializer = KAIMING
    activation: ActivationConfig = ActivationConfig.Gelu
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_model", "d_ff", "n_heads").at_least(0, "n_layers")
        rules.divides("n_heads", "d_model").fraction("dropout").positive("layer_norm_eps").stop()


class TransformerStack(Module):
    """Holds layers, one after the other, and the sizes they were built with."""

    layers: tuple[Any, ...]
    d_model: int
    d_ff: int
    n_heads: int
    n_layers: int
    dropout: float
    norm_first: bool
    quiet_softmax: bool

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        for name in self.__module_fields__[1:]:
            content.add(name, getattr(self, name))
        return content


def stack_of(
    config: TransformerFields, kind: Callable[..., M], new_layer: Callable[[Any, Device], Module], device: Device
) -> M:
    """An encoder or a decoder of `n_layers` layers with fresh parameters."""
    layers = tuple([new_layer(config, device) for _ in range(config.n_layers)])
    return kind(layers, *[getattr(config, name) for name in TransformerStack.__module_fields__[1:]])


def attention_of(config: TransformerFields, device: Device) -> MultiHeadAttention:
    """The attention of a layer, with fresh parameters."""
    return MultiHeadAttentionConfig(
        config.d_model,
        config.n_heads,
        dropout=config.dropout,
        quiet_softmax=config.quiet_softmax,
        initializer=config.initializer,
    ).init(device)


def layer_of(
    config: TransformerFields, kind: Callable[..., M], norms: int, device: Device, **attentions: MultiHeadAttention
) -> M:
    """A layer of these attentions, a feed-forward network and so many norms, with fresh parameters."""
    pwff = PositionWiseFeedForwardConfig(
        config.d_model,
        config.d_ff,
        dropout=config.dropout,
        initializer=config.initializer,
        activation=config.activation,
    )
    norm = LayerNormConfig(config.d_model, epsilon=config.layer_norm_eps)
    return kind(
        **attentions,
        pwff=pwff.init(device),
        **{f"norm_{i + 1}": norm.init(device) for i in range(norms)},
        dropout=DropoutConfig(config.dropout).init(),
        norm_first=config.norm_first,
    )
