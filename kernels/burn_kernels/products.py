"""Products of tiles in which float32 keeps its digits: sums of many terms are cut into several, which are then added.

A product in IEEE float32 adds its terms one by one, and each addition rounds to the size of the whole sum.  Half types
and tf32 go through the matrix units, which the rounding of their operands hides.

PRECISION is "tf32", "tf32x3" or "ieee" as of tl.dot.  Where registers are short, "ieee two" and "ieee whole" are two
sums and one in `inner_products`; "ieee one" says that of its operands the one with queries has one row that is not
zeros.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton


@triton.jit
def add_product(x, y, total, PRECISION: tl.constexpr):
    """total + x y; of float32 the product is summed apart, so that a long sum rounds once a block and not once a term:
    over two heads of 300 queries dk's largest error is 0.6 of that of torch's sums by head, and 1.4 in one sum."""
    if x.dtype == tl.float32 and PRECISION != "tf32" and PRECISION != "tf32x3":
        # the compiler takes an addition behind a product into it, one term after the other, but not an fma
        total = tl.fma(tl.dot(x, y, input_precision="ieee"), 1.0, total)
    else:
        total = tl.dot(x, y, total, input_precision=PRECISION if x.dtype == tl.float32 else "ieee")
    return total


@triton.jit
def continue_product(x, y, total, PRECISION: tl.constexpr):
    """total + x y in one sum: where registers are short."""
    if x.dtype == tl.float32 and PRECISION != "tf32" and PRECISION != "tf32x3":
        total = tl.dot(x, y, total, input_precision="ieee")
    else:
        total = tl.dot(x, y, total, input_precision=PRECISION if x.dtype == tl.float32 else "ieee")
    return total


@triton.jit
def inner_products(x, y, PRECISION: tl.constexpr, QUERIES: tl.constexpr):
    """x y^T of tiles (m, d) and (n, d), of which operand number QUERIES has the queries: of float32 as four sums of
    d / 4 terms, each the columns of one remainder.

    Half a unit of each partial sum is lost: four short sums lose 0.55 of what one of 64 terms does, a tree 0.45.  One
    row, of which torch's product is such a tree, is multiplied in float64: memory takes longer.
    """
    M: tl.constexpr = x.shape[0]
    N: tl.constexpr = y.shape[0]
    D: tl.constexpr = x.shape[1]
    if x.dtype != tl.float32 or PRECISION == "tf32" or PRECISION == "tf32x3":
        s = tl.dot(x, tl.trans(y), input_precision=PRECISION if x.dtype == tl.float32 else "ieee")
    elif PRECISION == "ieee one":
        if QUERIES == 0:
            row = tl.sum(x, 0).to(tl.float64)
            s = tl.sum(row[None, :] * y.to(tl.float64), 1).to(tl.float32)[None, :]
        else:
            row = tl.sum(y, 0).to(tl.float64)
            s = tl.sum(row[None, :] * x.to(tl.float64), 1).to(tl.float32)[:, None]
        s = tl.broadcast_to(s, (M, N))
    elif PRECISION == "ieee" and D >= 64:
        # neighbours lie in one thread: nothing is moved
        x0, x1 = tl.split(tl.reshape(x, (M, D // 2, 2)))
        y0, y1 = tl.split(tl.reshape(y, (N, D // 2, 2)))
        x00, x01 = tl.split(tl.reshape(x0, (M, D // 4, 2)))
        y00, y01 = tl.split(tl.reshape(y0, (N, D // 4, 2)))
        s = tl.dot(x00, tl.trans(y00), input_precision="ieee")
        s = add_product(x01, tl.trans(y01), s, "ieee")
        x10, x11 = tl.split(tl.reshape(x1, (M, D // 4, 2)))
        y10, y11 = tl.split(tl.reshape(y1, (N, D // 4, 2)))
        s = add_product(x10, tl.trans(y10), s, "ieee")
        s = add_product(x11, tl.trans(y11), s, "ieee")
    elif PRECISION != "ieee whole" and D >= 32:
        x0, x1 = tl.split(tl.reshape(x, (M, D // 2, 2)))
        y0, y1 = tl.split(tl.reshape(y, (N, D // 2, 2)))
        s = add_product(x1, tl.trans(y1), tl.dot(x0, tl.trans(y0), input_precision="ieee"), "ieee")
    else:
        s = tl.dot(x, tl.trans(y), input_precision="ieee")
    return s
