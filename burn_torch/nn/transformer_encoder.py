"""TransformerEncoder: layers of self-attention and feed-forward networks."""

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
    "TransformerEncoder",
    "TransformerEncoderAutoregressiveCache",
    "TransformerEncoderConfig",
    "TransformerEncoderInput",
    "TransformerEncoderLayer",
    "TransformerEncoderLayerAutoregressiveCache",
]


class TransformerEncoderConfig(TransformerFields):
    """`n_layers` encoder layers of `n_heads` heads and a feed-forward network of `d_ff` features.

    dropout 0.1: as in the paper.  norm_first false: as in the paper; true trains more steadily when deep.
    quiet_softmax: a head may read nothing.  initializer: even in +-1 / sqrt(d_input).  activation Gelu: what most
    transformers since BERT use.  layer_norm_eps 1e-5: as LayerNorm.
    """

    def init(self, device: Device) -> TransformerEncoder:
        """The layers with fresh parameters."""
        return stack_of(self, TransformerEncoder, TransformerEncoderLayer.new, device)


@final
@dataclass(frozen=True, eq=False)
class TransformerEncoderInput:
    """A sequence and its masks, true where a position is hidden.

    Shapes: tensor (batch, seq, d_model), padding (batch, seq), attention (batch, seq, seq).
    """

    tensor: Tensor
    padding: Tensor | None = None
    attention: Tensor | None = None

    @staticmethod
    def new(tensor: Tensor) -> TransformerEncoderInput:
        """Burn's constructor."""
        return TransformerEncoderInput(tensor)

    def mask_pad(self, mask: Tensor | None) -> TransformerEncoderInput:
        """With a mask of padding, (batch, seq)."""
        return dataclasses.replace(self, padding=mask)

    def mask_attn(self, mask: Tensor | None) -> TransformerEncoderInput:
        """With a mask of what each position must not see, (batch, seq, seq)."""
        return dataclasses.replace(self, attention=mask)


@final
class TransformerEncoderLayerAutoregressiveCache:
    """Holds what one encoder layer keeps while decoding: keys and values, and its output."""

    __slots__ = ("mha", "output")

    def __init__(self) -> None:
        self.mha = MhaCache.autoregressive()
        self.output = TensorCache()

    @staticmethod
    def empty() -> TransformerEncoderLayerAutoregressiveCache:
        """Holds nothing yet."""
        return TransformerEncoderLayerAutoregressiveCache()


@final
class TransformerEncoderAutoregressiveCache:
    """Holds what an encoder keeps while decoding; `encoder.new_autoregressive_cache()` makes one."""

    __slots__ = ("layers", "output")

    @checked(num_layers=between(0, 1 << 20))
    def __init__(self, num_layers: int) -> None:
        self.layers = [TransformerEncoderLayerAutoregressiveCache() for _ in range(num_layers)]
        self.output = TensorCache()

    @staticmethod
    @checked(num_layers=between(0, 1 << 20))
    def empty(num_layers: int) -> TransformerEncoderAutoregressiveCache:
        """Holds nothing yet."""
        return TransformerEncoderAutoregressiveCache(num_layers)


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual path around it.

        x = norm_1(x + dropout(mha(x)));  y = norm_2(x + dropout(pwff(x)))              norm_first false
        x = x + dropout(mha(norm_2(x)));  y = x + dropout(pwff(norm_1(x)))              norm_first true

    Shapes: x (batch, seq, d_model) -> (batch, seq, d_model).
    Source: Vaswani et al. 2017, section 3.1, https://arxiv.org/abs/1706.03762; norm_first: Xiong et al. 2020,
    https://arxiv.org/abs/2002.04745.
    PyTorch: torch.nn.TransformerEncoderLayer(batch_first=True), whose norm1 and norm2 are norm_1 and norm_2; with
    norm_first they are norm_2 and norm_1.
    """

    mha: MultiHeadAttention
    pwff: PositionWiseFeedForward
    norm_1: LayerNorm
    norm_2: LayerNorm
    dropout: Dropout
    norm_first: bool

    @staticmethod
    def new(config: TransformerEncoderConfig, device: Device) -> TransformerEncoderLayer:
        """One layer of such an encoder, with fresh parameters."""
        return layer_of(config, TransformerEncoderLayer, 2, device, mha=attention_of(config, device))

    def forward(self, input: Tensor, mask_pad: Tensor | None = None, mask_attn: Tensor | None = None) -> Tensor:
        """The layer over whole sequences."""
        return self._around(input, lambda x: self.mha.context(MhaInput(x, x, x, mask_pad, mask_attn)))

    def forward_autoregressive_inference(
        self,
        input: Tensor,
        mask_pad: Tensor | None,
        mask_attn: Tensor | None,
        cache: TransformerEncoderLayerAutoregressiveCache,
    ) -> Tensor:
        """`forward` of the whole sequence so far, where only positions that the cache does not hold are computed."""
        return cache.output.forward_autoregressive(
            input, 1, lambda x: self.forward_next(x, mask_pad, mask_attn, cache.mha)
        )

    def forward_next(self, new: Tensor, mask_pad: Tensor | None, mask_attn: Tensor | None, cache: MhaCache) -> Tensor:
        """The layer over new positions, which see the cached ones; masks are those of the whole sequence."""
        return self._around(new, lambda x: self.mha.forward_next(MhaInput(x, x, x, mask_pad, mask_attn), cache).context)

    def _around(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        drop = self.dropout.forward
        if self.norm_first:
            x = x + drop(attend(self.norm_2.forward(x)))
            return x + drop(self.pwff.forward(self.norm_1.forward(x)))
        x = self.norm_1.forward(x + drop(attend(x)))
        return self.norm_2.forward(x + drop(self.pwff.forward(x)))


class TransformerEncoder(TransformerStack):
    """Encoder layers, one after the other.

    With a mask from `generate_autoregressive_mask` it is what language models call a decoder.

    Shapes: see TransformerEncoderInput; -> (batch, seq, d_model).
    PyTorch: torch.nn.TransformerEncoder without a last norm.
    """

    layers: tuple[TransformerEncoderLayer, ...]

    def forward(self, input: TransformerEncoderInput) -> Tensor:
        """The encoded sequences."""
        x = input.tensor
        for layer in self.layers:
            x = layer.forward(x, input.padding, input.attention)
        return x

    def forward_autoregressive_inference(
        self, input: TransformerEncoderInput, cache: TransformerEncoderAutoregressiveCache
    ) -> Tensor:
        """`forward` of the whole sequence so far, where only positions that the cache does not hold are computed.

        Earlier positions must not see later ones (a causal `mask_attn`), so that their encoding stays.
        """

        def run(x: Tensor) -> Tensor:
            for layer, held in zip(self.layers, cache.layers, strict=True):
                x = layer.forward_next(x, input.padding, input.attention, held.mha)
            return x

        return cache.output.forward_autoregressive(input.tensor, 1, run)

    def new_autoregressive_cache(self) -> TransformerEncoderAutoregressiveCache:
        """An empty cache, for one sequence."""
        return TransformerEncoderAutoregressiveCache(len(self.layers))
