"""The kernels of optimizer steps; the formulas are in `optimizer`.

A chunk's length is read from the table, so the compiler does not know what divides it, and a mask by it splits accesses
of 16 bytes.  Programs that have all their elements, almost all, go without one.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.random import held


@triton.jit
def _pointer(table_ptr, column: tl.constexpr, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    pointer = tl.load(table_ptr + column).to(tl.pointer_type(TYPE))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _place(table_ptr, SHARES: tl.constexpr, BLOCK: tl.constexpr):
    """The table's row of this program, which SHARES programs have, and where in the chunk its own elements are."""
    row = table_ptr + tl.program_id(0) // SHARES * 9
    start = tl.program_id(0) % SHARES * BLOCK
    return row, start, tl.minimum(tl.load(row).to(tl.int32), start + BLOCK)


@triton.jit
def _clip(clip_ptr):
    clip = 1.0
    if clip_ptr is not None:
        clip = tl.load(clip_ptr).to(tl.float32)
    return clip


@triton.jit
def _load(pointer, at, inside):
    # past the first cache: nothing is read twice
    if inside is None:
        x = tl.load(pointer + at, cache_modifier=".cg")
    else:
        x = tl.load(pointer + at, mask=inside, other=0.0, cache_modifier=".cg")
    return x.to(tl.float32)


@triton.jit
def _store(pointer, at, x, inside):
    tl.store(pointer + at, x.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def _adamw_part(pointers, at, inside, numbers, COPY: tl.constexpr, COUPLED: tl.constexpr):
    p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, copy_ptr = pointers
    clip, rest1, beta2, rest2, eps, kept, rate, second, decay = numbers
    p = _load(p_ptr, at, inside)
    g = _load(g_ptr, at, inside) * clip
    if COUPLED:
        g += decay * p
    m = _load(m_ptr, at, inside)
    v = _load(v_ptr, at, inside)
    m += rest1 * (g - m)
    v = beta2 * v + rest2 * g * g
    p = p * kept - rate * m / (tl.sqrt_rn(v) * second + eps)
    _store(p_out, at, p, inside)
    _store(m_out, at, m, inside)
    _store(v_out, at, v, inside)
    if COPY:
        _store(copy_ptr, at, p, inside)


@triton.jit
def _adamw(
    table_ptr, clip_ptr, rest1, beta2, rest2, eps, kept, rate, second, decay, P: tl.constexpr, G: tl.constexpr,
    S: tl.constexpr, C: tl.constexpr, COPY: tl.constexpr, ALIGNED: tl.constexpr, HELD: tl.constexpr,
    COUPLED: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kept, rate, second = held(kept, HELD), held(rate, HELD), held(second, HELD)
    table_ptr, start, end = _place(table_ptr, SHARES, BLOCK)
    p_ptr, g_ptr = _pointer(table_ptr, 1, P, ALIGNED), _pointer(table_ptr, 2, G, ALIGNED)
    m_ptr, v_ptr = _pointer(table_ptr, 3, S, ALIGNED), _pointer(table_ptr, 4, S, ALIGNED)
    p_out, m_out = _pointer(table_ptr, 5, P, ALIGNED), _pointer(table_ptr, 6, S, ALIGNED)
    v_out, copy_ptr = _pointer(table_ptr, 7, S, ALIGNED), _pointer(table_ptr, 8, C, ALIGNED)
    pointers = (p_ptr, g_ptr, m_ptr, v_ptr, p_out, m_out, v_out, copy_ptr)
    numbers = (_clip(clip_ptr), rest1, beta2, rest2, eps, kept, rate, second, decay)
    at = start + tl.arange(0, BLOCK)
    if end == start + BLOCK:
        _adamw_part(pointers, at, None, numbers, COPY, COUPLED)
    else:
        _adamw_part(pointers, at, at < end, numbers, COPY, COUPLED)


@triton.jit
def _sgd_part(
    pointers, at, inside, numbers, COPY: tl.constexpr, MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr
):  # fmt: skip
    p_ptr, g_ptr, v_ptr, p_out, v_out, copy_ptr = pointers
    clip, lr, decay, momentum, share = numbers
    p = _load(p_ptr, at, inside)
    g = _load(g_ptr, at, inside) * clip + decay * p
    if MOMENTUM:
        v = momentum * _load(v_ptr, at, inside) + share * g
        _store(v_out, at, v, inside)
        if NESTEROV:
            g += momentum * v
        else:
            g = v
    p -= lr * g
    _store(p_out, at, p, inside)
    if COPY:
        _store(copy_ptr, at, p, inside)


@triton.jit
def _sgd(
    table_ptr, clip_ptr, lr, decay, momentum, share, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    C: tl.constexpr, COPY: tl.constexpr, MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, ALIGNED: tl.constexpr,
    SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    table_ptr, start, end = _place(table_ptr, SHARES, BLOCK)
    p_ptr, g_ptr = _pointer(table_ptr, 1, P, ALIGNED), _pointer(table_ptr, 2, G, ALIGNED)
    v_ptr, p_out = _pointer(table_ptr, 3, S, ALIGNED), _pointer(table_ptr, 5, P, ALIGNED)
    v_out, copy_ptr = _pointer(table_ptr, 6, S, ALIGNED), _pointer(table_ptr, 8, C, ALIGNED)
    pointers = (p_ptr, g_ptr, v_ptr, p_out, v_out, copy_ptr)
    numbers = (_clip(clip_ptr), lr, decay, momentum, share)
    at = start + tl.arange(0, BLOCK)
    if end == start + BLOCK:
        _sgd_part(pointers, at, None, numbers, COPY, MOMENTUM, NESTEROV)
    else:
        _sgd_part(pointers, at, at < end, numbers, COPY, MOMENTUM, NESTEROV)
