"""The kernels of products with codes; a code is a few bits of a word, the first the lowest.

SCALES says which scales a program meets: 0 where all rows of the weight share those of a column, 1 where the rows of a
step do, 2 where they do not.  EVEN: no step reaches beyond the weight.
"""

from __future__ import annotations

from burn_kernels._triton import let_next_begin, tl, triton, wait_for_last
from burn_kernels.prims import joined
from burn_kernels.products import add_product

__all__ = ["KERNELS", "few_rows", "gather", "one_row", "tiles"]


@triton.constexpr_function
def _fields(bits: int) -> int:
    """How many fields of a word become operands of their own: of 8 bits both halves do, since 4 and a power fit a half
    type's digits."""
    return 32 // min(bits, 4)


@triton.constexpr_function
def _unpacking(number: int, bits: int, half: str) -> str:
    """PTX of field `number` of two words as two halves: of bf16 2^7 + field, the sign turned; of f16 the field.

    An instruction more would take 2^7 off; the rounding of bf16 hides what sums lose by it, that of f16 does not (1.5
    times torch's error, where x has a mean).
    """
    field = min(bits, 4)
    per = 16 // field
    sign = 0 if bits == 8 and number % 2 == 0 else 1 << field - 1  # the lower half of 8 bits has none
    mask, frame = (1 << field) - 1, {"bf16": 0x4300, "f16": 0x6400}[half] | sign
    lines = [
        f"prmt.b32 a, $1, $2, {'0x7632' if number >= per else '0x5410'};",
        f"shr.b32 a, a, {field * (number % per)};",
        f"mov.b32 b, {frame | frame << 16};",
        f"lop3.b32 $0, a, {mask | mask << 16}, b, 0x6a;",
    ]
    if half == "f16":
        lines += [f"mov.b32 b, {0x8000_8000 | frame | frame << 16};", "add.rn.f16x2 $0, $0, b;"]
    return "{.reg .b32 a, b; " + " ".join(lines) + "}"


@triton.constexpr_function
def _excess(number: int, bits: int, kind: object, native: bool) -> float:
    """How much more than its part of the code a field is: its sign, and the power of two with which it was made."""
    if not native or str(kind) != "bf16":
        return 0.0
    return float(128 + (0 if bits == 8 and number % 2 == 0 else 1 << min(bits, 4) - 1))


@triton.jit
def _code(word, frame, NUMBER: tl.constexpr, BITS: tl.constexpr):
    """Code `NUMBER` of words whose signs are turned, in float32: 2^23 + code is made of bits, and 2^23 taken off.

    It is taken where it lies in a half of the word, and scaled down: a logical operation and a fma, no shift and no
    conversion.  `frame` is the bits of 2^23: a number of the launch and no constant, for which the compiler would spend
    a second logical operation.
    """
    HALF: tl.constexpr = 16 // BITS
    LARGEST: tl.constexpr = (1 << BITS) - 1
    AT: tl.constexpr = BITS * (NUMBER % HALF)
    DOWN: tl.constexpr = 1.0 / (1 << AT)
    SIGN: tl.constexpr = 1 << (BITS - 1)
    half = word >> 16 if NUMBER >= HALF else word
    bits = (half & (LARGEST << AT)) | frame.to(tl.uint32)
    return bits.to(tl.float32, bitcast=True) * DOWN - (8388608.0 * DOWN + SIGN)


@triton.jit
def _field(word, NUMBER: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr, NATIVE: tl.constexpr):
    """Field `NUMBER` of words in TYPE, and its excess.

    One instruction in the compiler's eyes where NATIVE, through which it moves layouts: so words, and not what is made
    of them, go from memory to where tensor cores take them.
    """
    EXCESS: tl.constexpr = _excess(NUMBER, BITS, TYPE, NATIVE)
    if NATIVE and TYPE == tl.bfloat16:
        field = tl.inline_asm_elementwise(
            _unpacking(NUMBER, BITS, "bf16"), "=r,r,r", [word], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    elif NATIVE and TYPE == tl.float16:
        field = tl.inline_asm_elementwise(
            _unpacking(NUMBER, BITS, "f16"), "=r,r,r", [word], dtype=tl.float16, is_pure=True, pack=2
        )
    else:
        WIDE: tl.constexpr = BITS if BITS < 4 else 4
        SIGN: tl.constexpr = 0 if BITS == 8 and NUMBER % 2 == 0 else 1 << WIDE - 1
        bits = ((word >> (WIDE * NUMBER)) & ((1 << WIDE) - 1)).to(tl.int32)
        field = ((bits ^ SIGN) - SIGN).to(tl.float32).to(TYPE)
    return field, EXCESS


@triton.jit
def _turn_signs(packed, BITS: tl.constexpr):
    SIGNS: tl.constexpr = 0xFFFFFFFF // ((1 << BITS) - 1) * (1 << (BITS - 1))
    return packed.to(tl.uint32, bitcast=True) ^ SIGNS


@triton.jit
def _interleave_halves(parts, COUNT: tl.constexpr):
    pairs = (tl.interleave(parts[0], parts[COUNT // 2]),)
    for i in tl.static_range(1, COUNT // 2):
        pairs = joined(pairs, (tl.interleave(parts[i], parts[COUNT // 2 + i]),))
    return pairs


@triton.jit
def _interleave(parts, COUNT: tl.constexpr):
    """Tensors (rows, words), one for each code of a word, as one (rows, columns)."""
    if COUNT >= 2:
        parts = _interleave_halves(parts, COUNT)
    if COUNT >= 4:
        parts = _interleave_halves(parts, COUNT // 2)
    if COUNT >= 8:
        parts = _interleave_halves(parts, COUNT // 4)
    if COUNT >= 16:
        parts = _interleave_halves(parts, COUNT // 8)
    return parts[0]


@triton.jit
def _decode(packed, frame, BITS: tl.constexpr, PER: tl.constexpr):
    """The codes of words (K, WORDS) in their order, (K, WORDS * PER) in float32.

    Neighbours lie in one thread, in order, so that their scales are loaded together.
    """
    word = _turn_signs(packed, BITS)
    parts = (_code(word, frame, 0, BITS),)
    for number in tl.static_range(1, PER):
        parts = joined(parts, (_code(word, frame, number, BITS),))
    return _interleave(parts, PER)


@triton.jit
def _load_words(code_ptr, at, k, word, end, words, EVEN: tl.constexpr):
    if EVEN:
        packed = tl.load(code_ptr + at)
    else:
        packed = tl.load(code_ptr + at, mask=(k < end)[:, None] & (word < words)[None, :], other=0)
    return packed.to(tl.int32)


@triton.jit
def _load_x(x_ptr, at, row, k, rows, end, EVEN: tl.constexpr):
    if EVEN:
        x = tl.load(x_ptr + at, mask=(row < rows)[:, None], other=0.0)
    else:
        x = tl.load(x_ptr + at, mask=(row < rows)[:, None] & (k < end)[None, :], other=0.0)
    return x


@triton.jit
def _scales(scale_ptr, k, n, d_in, d_out, scale_stride, block_k, block_n):
    """The scales of some rows and columns, one each, in float32."""
    at = (k // block_k)[:, None] * scale_stride + (n // block_n)[None, :]
    return tl.load(scale_ptr + at, mask=(k < d_in)[:, None] & (n < d_out)[None, :], other=0.0).to(tl.float32)


@triton.jit
def _step_scales(scale_ptr, first, n, d_in, d_out, scale_stride, block_k, block_n):
    """The scales (1, columns) of the rows of a step, which share them, in float32."""
    at = (first // block_k) * scale_stride + n // block_n
    return tl.load(scale_ptr + at, mask=(n < d_out) & (first < d_in), other=0.0).to(tl.float32)[None, :]


@triton.jit
def _finish(total, scale_ptr, bias_ptr, y_ptr, part_ptr, row, n, rows, d_out, block_n, SCALED: tl.constexpr):
    """Writes sums (rows, columns): to y, or to the part of this program's rows of the weight."""
    if not SCALED:
        total *= tl.load(scale_ptr + n // block_n, mask=n < d_out, other=0.0).to(tl.float32)[None, :]
    held = (row < rows)[:, None] & (n < d_out)[None, :]
    at = row.to(tl.int64)[:, None] * d_out + n[None, :]
    if part_ptr is not None:
        tl.store(part_ptr + tl.program_id(1).to(tl.int64) * rows * d_out + at, total, mask=held)
    else:
        if bias_ptr is not None:
            total += tl.load(bias_ptr + n, mask=n < d_out, other=0.0).to(tl.float32)[None, :]
        tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=held)


@triton.jit
def one_row(
    x_ptr, code_ptr, scale_ptr, bias_ptr, y_ptr, part_ptr, rows, d_in, d_out, words, part_k, x_stride,
    scale_stride, block_k, block_n, frame, BITS: tl.constexpr, PER: tl.constexpr, SCALES: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_K: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr, LEADS: tl.constexpr,
):  # fmt: skip
    """One row of x, in registers."""
    COLUMNS: tl.constexpr = WORDS * PER
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    begin = tl.program_id(1) * part_k
    end = tl.minimum(begin + part_k, d_in)
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, BLOCK_K)
    at = inner[:, None] * words + word[None, :]
    total = tl.zeros((BLOCK_K, COLUMNS), tl.float32)
    code_ptr += begin.to(tl.int64) * words
    for first in tl.range(begin, end, BLOCK_K, num_stages=STAGES):
        k = first + inner
        packed = _load_words(code_ptr, at, k, word, end, words, EVEN)
        code_ptr += BLOCK_K * words
        x = tl.load(x_ptr + k, mask=k < end, other=0.0).to(tl.float32)
        codes = _decode(packed, frame, BITS, PER)
        if SCALES == 2:
            codes *= _scales(scale_ptr, k, n, d_in, d_out, scale_stride, block_k, block_n)
        if SCALES == 1:
            codes *= _step_scales(scale_ptr, first, n, d_in, d_out, scale_stride, block_k, block_n)
        total += codes * x[:, None]
    if LEADS:
        let_next_begin()
    y, row = tl.sum(total, 0)[None, :], tl.arange(0, 1)
    _finish(y, scale_ptr, bias_ptr, y_ptr, part_ptr, row, n, rows, d_out, block_n=block_n, SCALED=SCALES > 0)


@triton.jit
def few_rows(
    x_ptr, code_ptr, scale_ptr, bias_ptr, y_ptr, part_ptr, rows, d_in, d_out, words, part_k, x_stride,
    scale_stride, block_k, block_n, frame, BITS: tl.constexpr, PER: tl.constexpr, SCALES: tl.constexpr,
    EVEN: tl.constexpr,
    NATIVE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr,
    LEADS: tl.constexpr,
):  # fmt: skip
    """A product for each code of a word, whose columns are interleaved at the end.  SCALES 0 or 1."""
    COLUMNS: tl.constexpr = WORDS * PER
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(1) * part_k
    end = tl.minimum(begin + part_k, d_in)
    inner = tl.arange(0, BLOCK_K)
    x_at = row.to(tl.int64)[:, None] * x_stride + inner[None, :]
    at = inner[:, None] * words + word[None, :]
    FIELDS: tl.constexpr = _fields(BITS)
    ones = tl.full((BLOCK_K, WORDS), 1.0, x_ptr.dtype.element_ty)
    totals = (tl.zeros((BLOCK_M, WORDS), tl.float32),)
    for _ in tl.static_range(1, PER):
        totals = joined(totals, (tl.zeros((BLOCK_M, WORDS), tl.float32),))
    x_ptr += begin
    code_ptr += begin.to(tl.int64) * words
    for first in tl.range(begin, end, BLOCK_K, num_stages=STAGES):
        k = first + inner
        x = _load_x(x_ptr, x_at, row, k, rows, end, EVEN)
        packed = _load_words(code_ptr, at, k, word, end, words, EVEN)
        x_ptr += BLOCK_K
        code_ptr += BLOCK_K * words
        word_bits = packed.to(tl.uint32, bitcast=True)
        # what fields have in excess is taken off each step, so that sums do not grow by it
        excess = tl.dot(x, ones, input_precision="ieee")
        lower, sums = excess, ()
        for number in tl.static_range(PER):
            if FIELDS == 2 * PER:
                low, OVER_LOW = _field(word_bits, 2 * number, BITS, x.dtype, NATIVE)
                high, OVER = _field(word_bits, 2 * number + 1, BITS, x.dtype, NATIVE)
                lower = tl.dot(x, low, excess * -OVER_LOW, input_precision="ieee")
            else:
                high, OVER = _field(word_bits, number, BITS, x.dtype, NATIVE)
            y = tl.dot(x, high, excess * -OVER, input_precision="ieee")
            if FIELDS == 2 * PER:
                y = y * 16 + lower
            if SCALES == 1:
                n = word * PER + number
                y *= _step_scales(scale_ptr, first, n, d_in, d_out, scale_stride, block_k, block_n)
            sums = joined(sums, (totals[number] + y,))
        totals = sums  # type: ignore[assignment]  # it began empty
    if LEADS:
        let_next_begin()
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = _interleave(totals, PER)
    _finish(total, scale_ptr, bias_ptr, y_ptr, part_ptr, row, n, rows, d_out, block_n=block_n, SCALED=SCALES > 0)


@triton.jit
def tiles(
    x_ptr, code_ptr, scale_ptr, bias_ptr, y_ptr, part_ptr, rows, d_in, d_out, words, part_k, x_stride,
    scale_stride, block_k, block_n, frame, BITS: tl.constexpr, PER: tl.constexpr, SCALES: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WORDS: tl.constexpr, STAGES: tl.constexpr, LEADS: tl.constexpr,
):  # fmt: skip
    """Tiles of the weight are decoded and scaled on the way in."""
    COLUMNS: tl.constexpr = WORDS * PER
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    begin = tl.program_id(1) * part_k
    end = tl.minimum(begin + part_k, d_in)
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, BLOCK_K)
    x_at = row.to(tl.int64)[:, None] * x_stride + inner[None, :]
    at = inner[:, None] * words + word[None, :]
    total = tl.zeros((BLOCK_M, COLUMNS), tl.float32)
    if SCALES == 1:
        scale = _step_scales(scale_ptr, begin, n, d_in, d_out, scale_stride, block_k, block_n)
    x_ptr += begin
    code_ptr += begin.to(tl.int64) * words
    for first in tl.range(begin, end, BLOCK_K, num_stages=STAGES):
        k = first + inner
        x = _load_x(x_ptr, x_at, row, k, rows, end, EVEN)
        x_ptr += BLOCK_K
        packed = _load_words(code_ptr, at, k, word, end, words, EVEN)
        code_ptr += BLOCK_K * words
        codes = _decode(packed, frame, BITS, PER)
        if SCALES == 2:
            codes *= _scales(scale_ptr, k, n, d_in, d_out, scale_stride, block_k, block_n)
        if SCALES == 1:
            # those of the next step are asked for while this one is multiplied
            after = _step_scales(scale_ptr, first + BLOCK_K, n, d_in, d_out, scale_stride, block_k, block_n)
            codes *= scale
            scale = after
        total = add_product(x, codes.to(x.dtype), total, "ieee")
    if LEADS:
        let_next_begin()
    _finish(total, scale_ptr, bias_ptr, y_ptr, part_ptr, row, n, rows, d_out, block_n=block_n, SCALED=SCALES > 0)


@triton.jit
def gather(part_ptr, bias_ptr, y_ptr, parts, count, d_out, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """The sums of the parts, in order; EARLY where what wrote them may not have ended."""
    if EARLY:
        wait_for_last()
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    place = part_ptr + at
    for _ in tl.range(0, parts, num_stages=4):
        total += tl.load(place, mask=at < count, other=0.0)
        place += count
    if bias_ptr is not None:
        total += tl.load(bias_ptr + at % d_out, mask=at < count, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < count)


KERNELS = (
    one_row, few_rows, tiles, gather, _code, _field, _turn_signs, _interleave, _interleave_halves, _decode, _load_words,
    _load_x, _scales, _step_scales, _finish,
)  # fmt: skip
"""All of them: timings are worth something for these."""
