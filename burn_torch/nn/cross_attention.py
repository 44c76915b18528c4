"""CrossAttention: queries that read a context of another width, with fewer heads for keys and values if wanted."""

from __future__ import annotations

import math

from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._attention import attend, joint_mask, split_heads
from burn_torch.nn._layer import Rules, noting_layer, require_ndim
from burn_torch.nn.attention_cache import CrossAttentionCache
from burn_torch.nn.dropout import Dropout, DropoutConfig
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.tensor import Device, Tensor

__all__ = ["CrossAttention", "CrossAttentionConfig"]


class CrossAttentionConfig(Config):
    """Attention of queries (d_model) to a context (d_context).

    n_heads_kv divides n_heads: n_heads gives a head of the context to each head of the query, 1 gives one to all.
    d_head: features of a head.  dropout 0.1: of the weights.  min_float -1e4: the score of a hidden position, which
    half types still hold, and whose exponential is 0.  quiet_softmax: a head may read nothing.
    """

    d_model: int
    d_context: int
    n_heads: int
    n_heads_kv: int
    d_head: int
    dropout: float = 0.1
    min_float: float = -1.0e4
    quiet_softmax: bool = False

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "d_model", "d_context", "n_heads", "n_heads_kv", "d_head")
        rules.divides("n_heads_kv", "n_heads").fraction("dropout").stop()

    def init(self, device: Device) -> CrossAttention:
        """The layer with fresh parameters, even in +-sqrt(3 / (d_head * fan_in))."""
        initializer = Initializer.KaimingUniform(gain=self.d_head**-0.5, fan_out_only=False)

        def linear(d_input: int, d_output: int) -> Linear:
            return LinearConfig(d_input, d_output, initializer=initializer).init(device)

        width, width_kv = self.n_heads * self.d_head, self.n_heads_kv * self.d_head
        return CrossAttention(
            query=linear(self.d_model, width),
            key=linear(self.d_context, width_kv),
            value=linear(self.d_context, width_kv),
            output=linear(width, self.d_model),
            dropout=DropoutConfig(self.dropout).init(),
            n_heads=self.n_heads,
            n_heads_kv=self.n_heads_kv,
            d_head=self.d_head,
            min_float=self.min_float,
            quiet_softmax=self.quiet_softmax,
        )


class CrossAttention(Module):
    """Each head reads the positions of a context whose keys fit its query; a linear layer joins the heads.

        weights = dropout(softmax(query(x) @ key(context)^T / sqrt(d_head)))
        y = output(weights @ value(context))

    Query head h reads head h // (n_heads / n_heads_kv) of the context.  A hidden position has the score `min_float`.

    Shapes: query (batch, seq_q, d_model), context (batch, seq_k, d_context), mask (batch, seq_k) or None, true where
    a position is hidden -> (batch, seq_q, d_model).
    Dtypes: any float, the same for inputs and parameters; the mask is bool.
    Source: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    dropout: Dropout
    n_heads: int
    n_heads_kv: int
    d_head: int
    min_float: float
    quiet_softmax: bool

    def forward(self, query: Tensor, context: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns what the queries read of the context."""
        return self.forward_cache(query, context, mask, CrossAttentionCache())

    @noting_layer
    def forward_cache(self, query: Tensor, context: Tensor, mask: Tensor | None, cache: CrossAttentionCache) -> Tensor:
        """The same; keys and values of the context are computed at the first call with this cache only."""
        require_ndim(query, self, "(batch, seq_q, d_model)")
        require_ndim(context, self, "(batch, seq_k, d_context)")
        seq_k = cache.key.length(2) or context.shape[1]
        joint = joint_mask(self, mask, None, query.shape[0], query.shape[1], seq_k)
        heads = split_heads(self.query.forward(query), self.n_heads)
        key = cache.key.forward_full(context, lambda x: split_heads(self.key.forward(x), self.n_heads_kv))
        value = cache.value.forward_full(context, lambda x: split_heads(self.value.forward(x), self.n_heads_kv))
        read = attend(
            heads,
            key,
            value,
            joint,
            scale=1.0 / math.sqrt(self.d_head),
            min_float=self.min_float,
            quiet=self.quiet_softmax,
            dropout=self.dropout,
        )
        return self.output.forward(read)

    def custom_content(self, content: Content) -> Content:
        """Sizes and options."""
        content.add("d_model", self.query.weight.shape[0]).add("d_context", self.key.weight.shape[0])
        content.add("n_heads", self.n_heads).add("n_heads_kv", self.n_heads_kv).add("d_head", self.d_head)
        return content.add("dropout", self.dropout.prob).add("quiet_softmax", self.quiet_softmax)
