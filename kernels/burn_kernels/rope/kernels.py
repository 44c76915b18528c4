"""The kernel of rotary position embedding; the formulas are in `rope`."""

from __future__ import annotations

from typing import NamedTuple

from burn_kernels._triton import tl, triton
from burn_kernels.prims import sin_cos_of_turn


class Strides(NamedTuple):
    """The distances between elements of a tensor that neighbour each other along an axis."""

    batch: int
    seq: int
    head: int


class TableStrides(NamedTuple):
    """The same for a table of angles or of positions."""

    batch: int
    seq: int


@triton.jit
def _rotate(x1, x2, cos, sin):
    return x1 * cos - x2 * sin, x2 * cos + x1 * sin


@triton.jit
def _rotate_heads(
    x_ptr, y_ptr, batch, step, head, x_strides, y_strides, heads, valid, cos, sin, pairs, cols,
    INTERLEAVED: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    # tokens along axis 0, heads along axis 1, columns along axis 2
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    x_token = batch * x_strides.batch + step * x_strides.seq
    y_token = batch * y_strides.batch + step * y_strides.seq
    at = x_ptr + x_token + head * x_strides.head
    to = y_ptr + y_token + head * y_strides.head
    valid = valid & (head < heads)
    if INTERLEAVED:
        TOKENS: tl.constexpr = valid.shape[0]
        HEADS: tl.constexpr = valid.shape[1]
        col = tl.arange(0, 2 * PAIRS)[None, None, :]
        inside = valid & (col < 2 * pairs)
        x = tl.load(at + col, mask=inside, other=0.0).to(tl.float32)
        x1, x2 = tl.split(tl.reshape(x, (TOKENS, HEADS, PAIRS, 2)))
        y1, y2 = _rotate(x1, x2, cos, sin)
        y = tl.reshape(tl.join(y1, y2), (TOKENS, HEADS, 2 * PAIRS))
        tl.store(to + col, y.to(TYPE), mask=inside)
    else:
        col = tl.arange(0, PAIRS)[None, None, :]
        inside = valid & (col < pairs)
        x1 = tl.load(at + col, mask=inside, other=0.0).to(tl.float32)
        x2 = tl.load(at + col + pairs, mask=inside, other=0.0).to(tl.float32)
        y1, y2 = _rotate(x1, x2, cos, sin)
        tl.store(to + col, y1.to(TYPE), mask=inside)
        tl.store(to + col + pairs, y2.to(TYPE), mask=inside)
    if REST > 0:
        rest = 2 * pairs + tl.arange(0, REST)[None, None, :]
        inside = valid & (rest < cols)
        tl.store(to + rest, tl.load(at + rest, mask=inside, other=0.0), mask=inside)


@triton.jit
def _rope(
    q_ptr, k_ptr, qy_ptr, ky_ptr, cos_ptr, sin_ptr, turn_ptr, position_ptr, q_strides, k_strides, qy_strides,
    ky_strides, table_strides, position_strides, tokens, seq, offset, length, q_heads, k_heads, q_blocks, pairs, cols,
    INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr,
    REST: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    valid = token < tokens
    batch, step = token // seq, token % seq
    if position_ptr is None:
        position = step + offset
    else:
        at = position_ptr + batch * position_strides.batch + step * position_strides.seq
        position = tl.load(at, mask=valid, other=0).to(tl.int64) + offset
    pair = tl.arange(0, PAIRS)
    if turn_ptr is not None:
        turn = position[:, None] * tl.load(turn_ptr + pair, mask=pair < pairs, other=0)[None, :]
        sin, cos = sin_cos_of_turn((turn >> 32).to(tl.int32))
    else:
        at = (batch * table_strides.batch + position * table_strides.seq)[:, None] + pair[None, :]
        # no row of the table: NaN, which shows, rather than a read of foreign memory
        there = (valid & (position >= 0) & (position < length))[:, None] & (pair < pairs)[None, :]
        cos = tl.load(cos_ptr + at, mask=there, other=float("nan")).to(tl.float32)
        sin = tl.load(sin_ptr + at, mask=there, other=float("nan")).to(tl.float32)
    if INVERSE:
        sin = -sin
    cos, sin = cos[:, None, :], sin[:, None, :]
    valid, batch, step = valid[:, None, None], batch[:, None, None], step[:, None, None]
    block = tl.program_id(1)
    if block < q_blocks:
        head = block * HEADS + tl.arange(0, HEADS).to(tl.int64)[None, :, None]
        _rotate_heads(
            q_ptr, qy_ptr, batch, step, head, q_strides, qy_strides, q_heads, valid, cos, sin, pairs=pairs, cols=cols,
            INTERLEAVED=INTERLEAVED, PAIRS=PAIRS, REST=REST,
        )  # fmt: skip
    elif k_ptr is not None:
        head = (block - q_blocks) * HEADS + tl.arange(0, HEADS).to(tl.int64)[None, :, None]
        _rotate_heads(
            k_ptr, ky_ptr, batch, step, head, k_strides, ky_strides, k_heads, valid, cos, sin, pairs=pairs, cols=cols,
            INTERLEAVED=INTERLEAVED, PAIRS=PAIRS, REST=REST,
        )  # fmt: skip
