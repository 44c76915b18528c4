"""Defines what the attention layers share: heads, masks, weights."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.spec import Shape
from burn_torch.module import Module
from burn_torch.nn._layer import in_layer
from burn_torch.nn.dropout import Dropout
from burn_torch.tensor import Tensor, activation
from burn_torch.tensor.apply import apply

__all__ = ["attend", "attention_weights", "join_heads", "joint_mask", "read_values", "split_heads"]

_NOTHING = -1.0e4
"""A hidden key with a score of this or less weighs nothing: its exponential is 0 beside that of any other."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Shapes: x (batch, seq, heads * d_head) -> (batch, heads, seq, d_head)."""
    batch, seq, width = x.shape
    return x.reshape((batch, seq, heads, width // heads)).swap_dims(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Shapes: x (batch, heads, seq, d_head) -> (batch, seq, heads * d_head)."""
    batch, heads, seq, d_head = x.shape
    return x.swap_dims(1, 2).reshape((batch, seq, heads * d_head))


def joint_mask(
    layer: Module, mask_pad: Tensor | None, mask_attn: Tensor | None, batch: int, seq_q: int, seq_k: int
) -> Tensor | None:
    """Both masks as one that broadcasts to (batch, heads, seq_q, seq_k); None if there is none.

    Raises: ShapeError unless mask_pad is (batch, seq_k) and mask_attn (batch, seq_q, seq_k).
    """
    joint = None
    if mask_pad is not None:
        _require(layer, "mask_pad", mask_pad, (batch, seq_k), "(batch, keys)")
        joint = mask_pad.reshape((batch, 1, 1, seq_k))
    if mask_attn is not None:
        _require(layer, "mask_attn", mask_attn, (batch, seq_q, seq_k), "(batch, queries, keys)")
        each = mask_attn.reshape((batch, 1, seq_q, seq_k))
        joint = each if joint is None else each.bool_or(joint)
    return joint


def _require(layer: Module, name: str, mask: Tensor, shape: Shape, axes: str) -> None:
    if mask.shape != shape:
        raise in_layer(
            ShapeError(
                f"{type(layer).__name__}: {name} does not fit the input",
                given=f"{name} {mask.spec}",
                expected=f"{name} {axes}, here {shape}, true where a key is hidden",
                mend="make it for these sequences, see generate_padding_mask and generate_autoregressive_mask",
            ),
            layer,
        )


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    min_float: float,
    quiet: bool,
    dropout: Dropout,
) -> Tensor:
    """dropout(attention_weights(...)) @ value, heads joined.

    If no caller asks for the weights, they are never written to memory, unless they are dropped, quiet, or hidden keys
    count for something.
    """
    if quiet or min_float > _NOTHING or (dropout.prob > 0 and query.backend.trains):
        weights = attention_weights(query, key, mask, scale=scale, min_float=min_float, quiet=quiet)
        return read_values(dropout.forward(weights), value)
    if mask is not None:  # a query whose keys are all hidden reads them evenly: as with scores of 0
        blind = mask.all_dim(3)
        query, mask = query.mask_fill(blind, 0.0), mask.bool_and(blind.bool_not())
    read: Tensor = apply(ops.attention, (query, key, value, mask, None, scale, None), False, 0)[0]
    return join_heads(read)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, *, scale: float, min_float: float, quiet: bool
) -> Tensor:
    """softmax(query @ key^T * scale) with `min_float` for the scores of hidden keys.

    Neighbouring heads of the query share a head of the key where it has fewer.

    Shapes: query (batch, heads, seq_q, d_head), key (batch, key_heads, seq_k, d_head) -> (batch, heads, seq_q, seq_k).
    """
    batch, heads, seq_q, d_head = query.shape
    key_heads, seq_k = key.shape[1:3]
    if heads != key_heads:  # heads that share a key stand as one longer sequence: nothing is repeated
        query = query.reshape((batch, key_heads, heads // key_heads * seq_q, d_head))
    scores = (query * scale).matmul(key.transpose())
    if heads != key_heads:
        scores = scores.reshape((batch, heads, seq_q, seq_k))
    if mask is not None:
        scores = scores.mask_fill(mask, min_float)
    return activation.quiet_softmax(scores, 3) if quiet else activation.softmax(scores, 3)


def read_values(weights: Tensor, value: Tensor) -> Tensor:
    """weights @ value, heads joined.

    Shapes: weights (batch, heads, seq_q, seq_k), value (batch, value_heads, seq_k, d_head) -> (batch, seq_q, heads *
    d_head).
    """
    batch, heads, seq_q, seq_k = weights.shape
    value_heads, d_head = value.shape[1], value.shape[3]
    if heads == value_heads:
        return join_heads(weights.matmul(value))
    shared = weights.reshape((batch, value_heads, heads // value_heads * seq_q, seq_k))
    return join_heads(shared.matmul(value).reshape((batch, heads, seq_q, d_head)))
