"""TransformerDecoder: layers of self-attention, attention to a memory, and feed-forward networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from burn_torch.core.checking import between, checked
from burn_torch.module import Module
from burn_torch.nn._transformer import TransformerFields, TransformerStack, attention_of, layer_of, stack_of
from burn_torch.nn.attention_cache import MhaCache, TensorCache
from burn_torch.nn.dropout import Dropout
from burn_torch.nn.feed_forward import PositionWiseFeedForward
from burn_torch.nn.multi_head_attention import MhaInput, MultiHeadAttention
from burn_torch.nn.norm import LayerNorm
from burn_torch.tensor import Device, Tensor

__all__ = [
    "TransformerDecoder",
    "TransformerDecoderAutoregressiveCache",
    "TransformerDecoderConfig",
    "TransformerDecoderInput",
    "TransformerDecoderLayer",
    "TransformerDecoderLayerAutoregressiveCache",
]


class TransformerDecoderConfig(TransformerFields):
    """`n_layers` decoder layers; the fields are those of TransformerEncoderConfig."""

    def init(self, device: Device) -> TransformerDecoder:
        """The layers with fresh parameters."""
        return stack_of(self, TransformerDecoder, TransformerDecoderLayer.new, device)


@final
@dataclass(frozen=True, eq=False)
class TransformerDecoderInput:
    """A target, the memory that it reads, and their masks, true where a position is hidden.

    Shapes: target (batch, seq_t, d_model), memory (batch, seq_m, d_model); target_padding (batch, seq_t),
    target_attention (batch, seq_t, seq_t), memory_padding (batch, seq_m), memory_attention (batch, seq_t, seq_m).
    """

    target: Tensor
    memory: Tensor
    target_padding: Tensor | None = None
    target_attention: Tensor | None = None
    memory_padding: Tensor | None = None
    memory_attention: Tensor | None = None

    @staticmethod
    def new(target: Tensor, memory: Tensor) -> TransformerDecoderInput:
        """Burn's constructor."""
        return TransformerDecoderInput(target, memory)

    def target_mask_pad(self, mask: Tensor | None) -> TransformerDecoderInput:
        """With a mask of the target's padding, (batch, seq_t)."""
        return dataclasses.replace(self, target_padding=mask)

    def target_mask_attn(self, mask: Tensor | None) -> TransformerDecoderInput:
        """With a mask of what each position of the target must not see of it, (batch, seq_t, seq_t)."""
        return dataclasses.replace(self, target_attention=mask)

    def memory_mask_pad(self, mask: Tensor | None) -> TransformerDecoderInput:
        """With a mask of the memory's padding, (batch, seq_m)."""
        return dataclasses.replace(self, memory_padding=mask)

    def memory_mask_attn(self, mask: Tensor | None) -> TransformerDecoderInput:
        """With a mask of what each position of the target must not see of the memory, (batch, seq_t, seq_m)."""
        return dataclasses.replace(self, memory_attention=mask)

    def with_target(self, target: Tensor) -> TransformerDecoderInput:
        """The same with another target."""
        return dataclasses.replace(self, target=target)


@final
class TransformerDecoderLayerAutoregressiveCache:
    """Holds what one decoder layer keeps while decoding: keys and values of target and memory, and its output."""

    __slots__ = ("cross_attn", "output", "self_attn")

    def __init__(self) -> None:
        self.cross_attn = MhaCache.autoregressive_cross_attention()
        self.self_attn = MhaCache.autoregressive()
        self.output = TensorCache()

    @staticmethod
    def empty() -> TransformerDecoderLayerAutoregressiveCache:
        """Holds nothing yet."""
        return TransformerDecoderLayerAutoregressiveCache()


@final
class TransformerDecoderAutoregressiveCache:
    """Holds what a decoder keeps while decoding; `decoder.new_autoregressive_cache()` makes one."""

    __slots__ = ("layers", "output")

    @checked(num_layers=between(0, 1 << 20))
    def __init__(self, num_layers: int) -> None:
        self.layers = [TransformerDecoderLayerAutoregressiveCache() for _ in range(num_layers)]
        self.output = TensorCache()

    @staticmethod
    @checked(num_layers=between(0, 1 << 20))
    def empty(num_layers: int) -> TransformerDecoderAutoregressiveCache:
        """Holds nothing yet."""
        return TransformerDecoderAutoregressiveCache(num_layers)


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the memory and a feed-forward network, each with a residual path around it.

        x = norm_1(x + dropout(self_attn(x)))              norm_first: x = x + dropout(self_attn(norm_3(x)))
        x = norm_2(x + dropout(cross_attn(x, memory)))                 x = x + dropout(cross_attn(norm_1(x), memory))
        y = norm_3(x + dropout(pwff(x)))                               y = x + dropout(pwff(norm_2(x)))

    Shapes: see TransformerDecoderInput.
    Source: Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762.
    PyTorch: torch.nn.TransformerDecoderLayer(batch_first=True), whose norm1, norm2, norm3 are norm_1, norm_2, norm_3;
    with norm_first they are norm_3, norm_1, norm_2.
    """

    cross_attn: MultiHeadAttention
    self_attn: MultiHeadAttention
    pwff: PositionWiseFeedForward
    norm_1: LayerNorm
    norm_2: LayerNorm
    norm_3: LayerNorm
    dropout: Dropout
    norm_first: bool

    @staticmethod
    def new(config: TransformerDecoderConfig, device: Device) -> TransformerDecoderLayer:
        """One layer of such a decoder, with fresh parameters."""
        cross_attn, self_attn = attention_of(config, device), attention_of(config, device)
        return layer_of(config, TransformerDecoderLayer, 3, device, cross_attn=cross_attn, self_attn=self_attn)

    def forward(self, input: TransformerDecoderInput) -> TransformerDecoderInput:
        """The input with the target that this layer makes of it."""
        own = (input.target_padding, input.target_attention)
        other = (input.memory_padding, input.memory_attention)
        target = self._around(
            input.target,
            lambda x: self.self_attn.context(MhaInput(x, x, x, *own)),
            lambda x: self.cross_attn.context(MhaInput(x, input.memory, input.memory, *other)),
        )
        return input.with_target(target)

    def forward_autoregressive_inference(
        self, input: TransformerDecoderInput, cache: TransformerDecoderLayerAutoregressiveCache
    ) -> TransformerDecoderInput:
        """`forward` of the whole target so far, where only positions that the cache does not hold are computed."""
        target = cache.output.forward_autoregressive(input.target, 1, lambda x: self.forward_next(x, input, cache))
        return input.with_target(target)

    def forward_next(
        self, new: Tensor, input: TransformerDecoderInput, cache: TransformerDecoderLayerAutoregressiveCache
    ) -> Tensor:
        """The layer over new positions of the target, which see the cached ones; masks are those of the whole."""
        own = (input.target_padding, input.target_attention)
        other = (input.memory_padding, input.memory_attention)
        memory = input.memory
        return self._around(
            new,
            lambda x: self.self_attn.forward_next(MhaInput(x, x, x, *own), cache.self_attn).context,
            lambda x: self.cross_attn.forward_next(MhaInput(x, memory, memory, *other), cache.cross_attn).context,
        )

    def _around(self, x: Tensor, attend: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor]) -> Tensor:
        drop = self.dropout.forward
        if self.norm_first:
            x = x + drop(attend(self.norm_3.forward(x)))
            x = x + drop(read(self.norm_1.forward(x)))
            return x + drop(self.pwff.forward(self.norm_2.forward(x)))
        x = self.norm_1.forward(x + drop(attend(x)))
        x = self.norm_2.forward(x + drop(read(x)))
        return self.norm_3.forward(x + drop(self.pwff.forward(x)))


class TransformerDecoder(TransformerStack):
    """Decoder layers, one after the other.

    Shapes: see TransformerDecoderInput; -> (batch, seq_t, d_model).
    PyTorch: torch.nn.TransformerDecoder without a last norm.
    """

    layers: tuple[TransformerDecoderLayer, ...]

    def forward(self, input: TransformerDecoderInput) -> Tensor:
        """The decoded target."""
        for layer in self.layers:
            input = layer.forward(input)
        return input.target

    def forward_autoregressive_inference(
        self, input: TransformerDecoderInput, cache: TransformerDecoderAutoregressiveCache
    ) -> Tensor:
        """`forward` of the whole target so far, where only positions that the cache does not hold are computed.

        Earlier positions must not see later ones (a causal `target_mask_attn`), so that their decoding stays.  The
        memory is read at the first call only.
        """

        def run(x: Tensor) -> Tensor:
            for layer, held in zip(self.layers, cache.layers, strict=True):
                x = layer.forward_next(x, input, held)
            return x

        return cache.output.forward_autoregressive(input.target, 1, run)

    def new_autoregressive_cache(self) -> TransformerDecoderAutoregressiveCache:
        """An empty cache, for one sequence."""
        return TransformerDecoderAutoregressiveCache(len(self.layers))
