"""MultiHeadAttention: queries that read values by their keys."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from burn_torch.config import Config
from burn_torch.core.errors import ConfigError
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._attention import attend, attention_weights, join_heads, joint_mask, read_values, split_heads
from burn_torch.nn._layer import KAIMING, Rules, noting_layer, require_ndim
from burn_torch.nn.attention_cache import MhaCache, positions_from
from burn_torch.nn.decoding_cache import DecodingCache
from burn_torch.nn.dropout import Dropout, DropoutConfig
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.tensor import Device, Tensor

__all__ = ["MhaInput", "MhaOutput", "MultiHeadAttention", "MultiHeadAttentionConfig"]


@final
@dataclass(frozen=True, eq=False)
class MhaInput:
    """Holds what MultiHeadAttention reads.  Masks are true where a key is hidden.

    Shapes: query (batch, seq_q, d_model), key and value (batch, seq_k, d_model), padding (batch, seq_k), attention
    (batch, seq_q, seq_k).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    padding: Tensor | None = None
    attention: Tensor | None = None

    @staticmethod
    def new(query: Tensor, key: Tensor, value: Tensor) -> MhaInput:
        """Burn's constructor."""
        return MhaInput(query, key, value)

    @staticmethod
    def self_attn(tensor: Tensor) -> MhaInput:
        """A sequence that reads itself."""
        return MhaInput(tensor, tensor, tensor)

    def mask_pad(self, mask: Tensor | None) -> MhaInput:
        """With a mask of keys, (batch, seq_k)."""
        return dataclasses.replace(self, padding=mask)

    def mask_attn(self, mask: Tensor | None) -> MhaInput:
        """With a mask of keys for each query, (batch, seq_q, seq_k)."""
        return dataclasses.replace(self, attention=mask)


@final
@dataclass(frozen=True, eq=False)
class MhaOutput:
    """Holds what MultiHeadAttention gives: weights (batch, heads, seq_q, seq_k), context (batch, seq_q, d_model)."""

    weights: Tensor
    context: Tensor


class MultiHeadAttentionConfig(Config):
    """Attention of `n_heads` heads, each of d_model / n_heads features.

    dropout 0.1: as in the paper, of the weights.  min_float -1e4: the score of a hidden key, which half types still
    hold, and whose exponential is 0.  quiet_softmax: a head may read nothing.  initializer: even in
    +-1 / sqrt(d_model).
    """

    d_model: int
    n_heads: int
    dropout: float = 0.1
    min_float: float = -1.0e4
    quiet_softmax: bool = False
    initializer: Initializer = KAIMING
    key_bias: bool = True
    value_bias: bool = True
    query_bias: bool = True
    output_bias: bool = True

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_model", "n_heads").divides("n_heads", "d_model").fraction("dropout").stop()

    def init(self, device: Device) -> MultiHeadAttention:
        """The layer with fresh parameters."""

        def linear(bias: bool) -> Linear:
            return LinearConfig(self.d_model, self.d_model, bias=bias, initializer=self.initializer).init(device)

        return MultiHeadAttention(
            query=linear(self.query_bias),
            key=linear(self.key_bias),
            value=linear(self.value_bias),
            output=linear(self.output_bias),
            dropout=DropoutConfig(self.dropout).init(),
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_k=self.d_model // self.n_heads,
            min_float=self.min_float,
            quiet_softmax=self.quiet_softmax,
        )


class MultiHeadAttention(Module):
    """Each head reads the values whose keys fit its query; a linear layer joins the heads.

        weights = dropout(softmax(query(q) @ key(k)^T / sqrt(d_k)))        for each head, d_k = d_model / n_heads
        context = output(weights @ value(v))

    A hidden key has the score `min_float`.  A query whose keys are all hidden reads them evenly.

    Shapes: see MhaInput and MhaOutput.  Dtypes: any float, the same for inputs and parameters; masks are bool.
    Source: Vaswani et al. 2017, section 3.2.2, https://arxiv.org/abs/1706.03762.
    PyTorch: torch.nn.MultiheadAttention(batch_first=True, average_attn_weights=False).  Burn drops scores, before the
    softmax; here weights are dropped, as in the paper's code and in PyTorch.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    dropout: Dropout
    d_model: int
    n_heads: int
    d_k: int
    min_float: float
    quiet_softmax: bool

    @noting_layer
    def forward(self, input: MhaInput) -> MhaOutput:
        """Returns what the queries read, and with which weights."""
        mask = self._mask(input)
        query, key, value = self._heads(input)
        weights = self._weights(query, key, mask)
        return MhaOutput(weights, self.output.forward(read_values(weights, value)))

    @noting_layer
    def context(self, input: MhaInput) -> Tensor:
        """The context of `forward` alone: the weights are never written to memory, unless they are dropped or quiet."""
        mask = self._mask(input)
        return self.output.forward(self._read(*self._heads(input), mask))

    def forward_cache(self, input: MhaInput, cache: MhaCache) -> MhaOutput:
        """`forward` of the positions that the cache has not answered yet.

        input: the whole sequences so far, and masks for them; earlier positions must not see later ones, so their
        answers stay.  The memory of `MhaCache.autoregressive_cross_attention` is read at the first call only.
        Returns: the context of all positions, but the weights of the new ones alone: (batch, heads, new, seq_k).
        """
        query = positions_from(input.query, cache.positions)
        key, value = input.key, input.value
        if not cache.fixed_memory:
            key, value = positions_from(key, cache.key.length(2)), positions_from(value, cache.value.length(2))
        new = self.forward_next(dataclasses.replace(input, query=query, key=key, value=value), cache)
        return MhaOutput(new.weights, cache.output.append(new.context, 1))

    @noting_layer
    def forward_next(self, input: MhaInput, cache: MhaCache) -> MhaOutput:
        """`forward` of new positions: queries, keys and values of these alone, masks for the whole sequences.

        The memory of `MhaCache.autoregressive_cross_attention` is whole, and read at the first call only.
        """
        mask = self._mask(input, cache)  # all checks before the cache changes
        query = split_heads(self.query.forward(input.query), self.n_heads)
        if cache.fixed_memory:
            key = cache.key.forward_full(input.key, self._keys)
            value = cache.value.forward_full(input.value, self._values)
        else:
            key, value = self._keys(input.key), self._values(input.value)
            key, value = cache.key.append(key, 2), cache.value.append(value, 2)
        weights = self._weights(query, key, mask)
        cache.positions += input.query.shape[1]
        return MhaOutput(weights, self.output.forward(read_values(weights, value)))

    @noting_layer
    def decode(
        self,
        x: Tensor,
        cache: DecodingCache,
        score: Callable[..., Tensor] | None = None,
        *,
        sinks: Tensor | None = None,
    ) -> tuple[Tensor, DecodingCache]:
        """Self-attention of new positions over a cache of fixed size: what they read, and the cache with them.

        Each sees what the cache held, itself, and what came before it in x; no size changes from call to call, so one
        compiled program serves every token.  Weights are not dropped.  A score function and sinks are those of
        `flex.flex_attention`.

        Shapes: x (batch, new, d_model) -> the same; the cache has n_heads heads of d_k columns.
        Raises: ConfigError of a quiet softmax, which has a sink of 0 of its own.
        """
        if self.quiet_softmax:
            raise ConfigError(
                "MultiHeadAttention: a quiet softmax does not decode over a cache of fixed size",
                given="quiet_softmax True",
                expected="quiet_softmax False",
                mend="forward_next(input, MhaCache.autoregressive()) computes it",
            )
        require_ndim(x, self, "(batch, seq, d_model)")
        query = split_heads(self.query.forward(x), self.n_heads)
        held = cache.append(self._keys(x), self._values(x))
        read = held.attend(query, score, sinks=sinks, scale=self._scale)
        return self.output.forward(join_heads(read)), held

    @property
    def _scale(self) -> float:
        return 1.0 / math.sqrt(self.d_k)

    def _keys(self, x: Tensor) -> Tensor:
        return split_heads(self.key.forward(x), self.n_heads)

    def _values(self, x: Tensor) -> Tensor:
        return split_heads(self.value.forward(x), self.n_heads)

    def _heads(self, input: MhaInput) -> tuple[Tensor, Tensor, Tensor]:
        query = split_heads(self.query.forward(input.query), self.n_heads)
        return query, self._keys(input.key), self._values(input.value)

    def _mask(self, input: MhaInput, cache: MhaCache | None = None) -> Tensor | None:
        """The mask of the queries in `input`; masks are given for the cached positions too."""
        for x in (input.query, input.key, input.value):
            require_ndim(x, self, "(batch, seq, d_model)")
        (batch, new), seq_k = input.query.shape[:2], input.key.shape[1]
        done = 0
        if cache is not None:
            done, held = cache.positions, cache.key.length(2)
            seq_k = (held or seq_k) if cache.fixed_memory else held + seq_k
        mask = joint_mask(self, input.padding, input.attention, batch, done + new, seq_k)
        return mask if input.attention is None or mask is None or not done else mask.narrow(2, done, new)

    def _read(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return attend(
            query,
            key,
            value,
            mask,
            scale=self._scale,
            min_float=self.min_float,
            quiet=self.quiet_softmax,
            dropout=self.dropout,
        )

    def _weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        weights = attention_weights(
            query, key, mask, scale=self._scale, min_float=self.min_float, quiet=self.quiet_softmax
        )
        return self.dropout.forward(weights)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        content.add("d_model", self.d_model).add("n_heads", self.n_heads).add("d_k", self.d_k)
        content.add("dropout", self.dropout.prob).add("min_float", self.min_float)
        return content.add("quiet_softmax", self.quiet_softmax)
