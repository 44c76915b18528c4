"""Transformer: an encoder, and a decoder that reads what it has encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, fields_of, noting_layer
from burn_torch.nn.activation import ActivationConfig
from burn_torch.nn.norm import LayerNorm, LayerNormConfig
from burn_torch.nn.transformer_decoder import TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput
from burn_torch.nn.transformer_encoder import TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput
from burn_torch.tensor import Device, Tensor

__all__ = ["Transformer", "TransformerConfig", "TransformerInput"]


class TransformerConfig(Config):
    """`n_encoder_layers` encoder and `n_decoder_layers` decoder layers, each stack with a norm behind it.

    final_norm true: with norm_first the stacks end without one otherwise; PyTorch has it either way.  The other fields
    are those of TransformerEncoderConfig.
    """

    d_model: int
    d_ff: int
    n_heads: int
    n_encoder_layers: int
    n_decoder_layers: int
    dropout: float = 0.1
    norm_first: bool = False
    final_norm: bool = True
    quiet_softmax: bool = False
    initializer: Initializer = KAIMING
    activation: ActivationConfig = ActivationConfig.Gelu
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_model", "d_ff", "n_heads")
        rules.at_least(0, "n_encoder_layers", "n_decoder_layers")
        rules.divides("n_heads", "d_model").fraction("dropout").positive("layer_norm_eps").stop()

    def init(self, device: Device) -> Transformer:
        """Both stacks with fresh parameters."""
        fields = fields_of(self)
        depths = [fields.pop(name) for name in ("n_encoder_layers", "n_decoder_layers")]
        norm = LayerNormConfig(self.d_model, epsilon=self.layer_norm_eps) if fields.pop("final_norm") else None
        encoder_norm, decoder_norm = (None if norm is None else norm.init(device) for _ in depths)
        return Transformer(
            TransformerEncoderConfig(**fields, n_layers=depths[0]).init(device),
            TransformerDecoderConfig(**fields, n_layers=depths[1]).init(device),
            encoder_norm,
            decoder_norm,
        )


@final
@dataclass(frozen=True, eq=False)
class TransformerInput:
    """A source, a target, and their masks, true where a position is hidden.

    Shapes: source (batch, seq_s, d_model), target (batch, seq_t, d_model); source_padding (batch, seq_s),
    source_attention (batch, seq_s, seq_s), target_padding (batch, seq_t), target_attention (batch, seq_t, seq_t),
    memory_attention (batch, seq_t, seq_s).
    """

    source: Tensor
    target: Tensor
    source_padding: Tensor | None = None
    source_attention: Tensor | None = None
    target_padding: Tensor | None = None
    target_attention: Tensor | None = None
    memory_attention: Tensor | None = None


class Transformer(Module):
    """The encoder reads the source; the decoder reads the target and what the encoder gives; see both for the layers.

    The decoder sees no padding of the source.  Hide later positions of the target with
    `target_attention=generate_autoregressive_mask(batch, seq_t, device)`.

    Shapes: see TransformerInput; -> (batch, seq_t, d_model).
    Source: Vaswani et al. 2017, section 3, https://arxiv.org/abs/1706.03762.
    PyTorch: torch.nn.Transformer(batch_first=True), whose activation is Relu unless told, and whose masks of padding
    of the source and of the memory are two arguments.
    """

    encoder: TransformerEncoder
    decoder: TransformerDecoder
    encoder_norm: LayerNorm | None
    decoder_norm: LayerNorm | None

    @noting_layer
    def forward(self, input: TransformerInput) -> Tensor:
        """The decoded target."""
        memory = self.encode(input)
        decoded = self.decoder.forward(
            TransformerDecoderInput(
                input.target,
                memory,
                input.target_padding,
                input.target_attention,
                input.source_padding,
                input.memory_attention,
            )
        )
        return decoded if self.decoder_norm is None else self.decoder_norm.forward(decoded)

    def encode(self, input: TransformerInput) -> Tensor:
        """The encoded source, the memory of the decoder.  Shapes: -> (batch, seq_s, d_model)."""
        memory = self.encoder.forward(
            TransformerEncoderInput(input.source, input.source_padding, input.source_attention)
        )
        return memory if self.encoder_norm is None else self.encoder_norm.forward(memory)

    def custom_content(self, content: Content) -> Content:
        """Sizes as both stacks show them."""
        for name in ("d_model", "d_ff", "n_heads"):
            content.add(name, getattr(self.encoder, name))
        content.add("n_encoder_layers", self.encoder.n_layers).add("n_decoder_layers", self.decoder.n_layers)
        for name in ("dropout", "norm_first", "quiet_softmax"):
            content.add(name, getattr(self.encoder, name))
        return content.add("final_norm", self.encoder_norm is not None)
