"""Functions of float32 that generated C shares: plain arithmetic, so that a compiler makes vectors of them.

Each takes and returns a float.  Largest errors against float64, in units in the last place, over the whole range
(tests/fusion/test_c_prims.py holds them): exp 1, expm1 2, log 1, log1p 4, tanh 3, erf 2, sigmoid 4; fmod and remainder,
which float64 has too, are exact.  The polynomials
are those of `burn_kernels.prims`, whose comments say how they were fitted; that of `log_` was fitted likewise and
leaves 6.4e-9 of log(x) from sqrt(1/2) to sqrt(2).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["helpers_for"]

_BITS: Final = """\
typedef union { float f; int32_t i; } bits_;
static inline float madd_(float a, float b, float c) {  /* kernels are compiled without contraction */
#if defined(__FP_FAST_FMAF) || defined(__FMA__)  /* gcc and clang */
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
static inline float power_(int32_t n) { bits_ b; b.i = (int32_t)((uint32_t)(n + 127) << 23); return b.f; }
static inline float near_one_(float r) {
    float p = madd_(0.00019993183377664536f, r, 0.0013997446512803435f);
    p = madd_(p, r, 0.008333072066307068f);
    p = madd_(p, r, 0.04166531562805176f);
    p = madd_(p, r, 0.1666666865348816f);
    return madd_(p, r, 0.5f);
}
"""

_PRIMS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "bits": ((), _BITS),
    "exp": (
        ("bits",),
        """\
static inline float exp_(float x) {
    float y = x < -104.0f ? -104.0f : x;
    y = y > 89.0f ? 89.0f : y;  /* NaN stays: both comparisons are false */
    float shifted = madd_(y, 1.4426950408889634f, 12582912.0f);
    float n = shifted - 12582912.0f;
    float r = madd_(n, 0.00021219444005469057f, madd_(n, -0.693359375f, y));
    float near = 1.0f + r;
    float lost = r - (near - 1.0f);
    bits_ b; b.f = shifted;
    int32_t k = (int32_t)((uint32_t)b.i << 9) >> 9;  /* the low bits are those of the whole number */
    int32_t half = k >> 1;
    return (near + madd_(near_one_(r) * r, r, lost)) * power_(half) * power_(k - half);
}
""",
    ),
    "expm1": (
        ("exp",),
        """\
static inline float expm1_(float x) {
    float small = madd_(near_one_(x) * x, x, x), large = exp_(x) - 1.0f;
    return __builtin_copysignf(__builtin_fabsf(x) < 0.5f ? small : large, x);  /* a sum loses the sign of -0 */
}
""",
    ),
    "log": (
        ("bits",),
        """\
static inline float log_(float x) {
    int tiny = x < 1.17549435e-38f;
    bits_ b; b.f = tiny ? x * 16777216.0f : x;
    int32_t k = (b.i - 0x3f3504f3) >> 23;  /* so that the rest lies from sqrt(1/2) to sqrt(2) */
    bits_ m; m.i = b.i - (int32_t)((uint32_t)k << 23);
    float n = (float)(k - (tiny ? 24 : 0));
    float t = m.f - 1.0f;
    float p = madd_(-0.07634492963552475f, t, 0.12761574983596802f);
    p = madd_(p, t, -0.13160182535648346f);
    p = madd_(p, t, 0.14201758801937103f);
    p = madd_(p, t, -0.16623356938362122f);
    p = madd_(p, t, 0.20001226663589478f);
    p = madd_(p, t, -0.2500081956386566f);
    p = madd_(p, t, 0.3333333134651184f);
    float rest = madd_(n, -0.00021219444005469057f, t * t * madd_(t, p, -0.5f));
    float y = madd_(n, 0.693359375f, t + rest);
    y = x < __builtin_inff() ? y : x;  /* infinity and NaN */
    y = x == 0.0f ? -__builtin_inff() : y;
    return x < 0.0f ? __builtin_nanf("") : y;
}
""",
    ),
    "log1p": (
        ("log",),
        """\
static inline float log1p_(float x) {
    float u = 1.0f + x, kept = u - 1.0f;
    float scaled = log_(u) * (x / (kept == 0.0f ? 1.0f : kept));
    float y = u < __builtin_inff() ? scaled : u;
    return kept == 0.0f ? x : y;
}
""",
    ),
    "tanh": (
        ("exp",),
        """\
static inline float tanh_(float x) {
    float a = __builtin_fabsf(x), s = x * x;
    float p = madd_(-0.005717044696211815f, s, 0.020650586113333702f);
    p = madd_(p, s, -0.05374349653720856f);
    p = madd_(p, s, 0.13331490755081177f);
    p = madd_(p, s, -0.3333328366279602f);
    float near = madd_(p * s, a, a);
    float far = 1.0f - 2.0f / (exp_(2.0f * a) + 1.0f);
    return __builtin_copysignf(a < 0.625f ? near : far, x);
}
""",
    ),
    "erf": (
        ("exp",),
        """\
static inline float erf_(float x) {
    float a = __builtin_fabsf(x);
    a = a > 4.0f ? 4.0f : a;
    float s = x * x;
    float p = madd_(7.853857823647559e-05f, s, -0.0008010192541405559f);
    p = madd_(p, s, 0.005188327748328447f);
    p = madd_(p, s, -0.026853810995817184f);
    p = madd_(p, s, 0.1128358542919159f);
    p = madd_(p, s, -0.3761262595653534f);
    p = madd_(p, s, 0.12837916612625122f);
    float q = madd_(-0.00026772680575959384f, a, 0.0042409575544297695f);
    q = madd_(q, a, -0.031458426266908646f);
    q = madd_(q, a, 0.14865151047706604f);
    q = madd_(q, a, 0.9207649827003479f);
    q = madd_(q, a, 1.6259751319885254f);
    q = madd_(q, a, 0.0005103083094581962f);
    float near = madd_(p, x, x), far = 1.0f - exp_(q * -0.6931471805599453f);
    far = x < 0.0f ? -far : far;
    return a < 1.0f ? near : far;
}
""",
    ),
    "sigmoid": (
        ("exp",),
        """\
static inline float sigmoid_(float x) {
    float small = exp_(-__builtin_fabsf(x));  /* of exp(-x) one over it would be 0 where the result is small */
    return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}
""",
    ),
    "sigmoid64": (
        (),
        """\
static inline double sigmoid64_(double x) {
    double small = __builtin_exp(-__builtin_fabs(x));
    return (x < 0.0 ? small : 1.0) / (1.0 + small);
}
""",
    ),
    "fmod": (
        (),
        """\
static inline double less_multiples_(double a, double b, double inverse, double power) {
    double n = __builtin_rint(a * (inverse * (1.0 / power)));
    return __builtin_fma(-n, b * power, a);  /* exact: few more digits than a float has */
}
static inline float fmod_(float x, float y) {
    double a = __builtin_fabs((double)x), b = __builtin_fabs((double)y);
    b = b == __builtin_inf() ? 0x1p200 : b;
    double inverse = 1.0 / b;
    a = less_multiples_(a, b, inverse, 0x1p250);  /* quotients reach 2^277: fifty digits of one at a time */
    a = less_multiples_(a, b, inverse, 0x1p200);
    a = less_multiples_(a, b, inverse, 0x1p150);
    a = less_multiples_(a, b, inverse, 0x1p100);
    a = less_multiples_(a, b, inverse, 0x1p50);
    a = less_multiples_(a, b, inverse, 1.0);
    return __builtin_copysignf((float)(a < 0.0 ? a + b : a), x);
}
""",
    ),
    "remainder": (
        ("fmod",),
        """\
static inline float remainder_(float x, float y) {
    float r = fmod_(x, y);
    return (r != 0.0f) & ((r < 0.0f) != (y < 0.0f)) ? r + y : r;
}
""",
    ),
    "fmod64": (
        (),
        """\
static inline double fmod64_(double x, double y) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y), times = b;
    if (!(a < __builtin_inf()) || !(b > 0.0)) return __builtin_nan("");
    if (a < b) return x;
    while (times * 0x1p50 <= a) times *= 0x1p50;
    for (;;) {
        a = __builtin_fma(-__builtin_trunc(a / times), times, a);
        a = a < 0.0 ? a + times : a;  /* the quotient was rounded up */
        if (times == b) return __builtin_copysign(a, x);
        times *= 0x1p-50;
    }
}
""",
    ),
    "remainder64": (
        ("fmod64",),
        """\
static inline double remainder64_(double x, double y) {
    double r = fmod64_(x, y);
    return (r != 0.0) & ((r < 0.0) != (y < 0.0)) ? r + y : r;
}
""",
    ),
    "bf16": (
        (),
        """\
static inline float from_bf16(uint16_t x) {
    union { float f; uint32_t i; } b; b.i = (uint32_t)x << 16; return b.f;
}
static inline uint16_t to_bf16(float x) {
    union { float f; uint32_t i; } b; b.f = x;
    uint32_t even = (b.i + 0x7fffu + ((b.i >> 16) & 1u)) >> 16;  /* to nearest, of two the even one */
    return (uint16_t)(x == x ? even : 0x7fc0u);
}
""",
    ),
    "cipher": (
        (),
        """\
typedef struct { uint32_t w0, w1, w2, w3; } block_;
static inline __attribute__((always_inline)) block_ cipher_(int64_t key, int64_t stream, int64_t number) {
    uint32_t c0 = (uint32_t)number, c1 = (uint32_t)((uint64_t)number >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)((uint64_t)stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)((uint64_t)key >> 32);
    #pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {  /* Philox 4x32-10, Salmon and others 2011 */
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (block_){c0, c1, c2, c3};
}
""",
    ),
    "word_at": (
        ("cipher",),
        """\
static inline uint32_t word_at_(int64_t key, int64_t stream, int64_t element) {
    block_ made = cipher_(key, stream, element >> 2);
    uint32_t low = element & 1 ? made.w1 : made.w0, high = element & 1 ? made.w3 : made.w2;
    return element & 2 ? high : low;
}
""",
    ),
    "words": (
        ("cipher",),
        """\
static inline void words_(uint32_t *restrict words, int64_t key, int64_t stream, int64_t first, int64_t blocks) {
    #pragma omp simd
    for (int64_t b = 0; b < blocks; ++b) {
        block_ made = cipher_(key, stream, first + b);
        words[4 * b] = made.w0;
        words[4 * b + 1] = made.w1;
        words[4 * b + 2] = made.w2;
        words[4 * b + 3] = made.w3;
    }
}
""",
    ),
}


def helpers_for(names: Collection[str]) -> str:
    """The source of these functions and of what they call, each once."""
    needed: dict[str, None] = {}

    def add(name: str) -> None:
        needs, _ = _PRIMS[name]
        for other in needs:
            add(other)
        needed[name] = None

    for name in sorted(names):
        add(name)
    return "\n".join(_PRIMS[name][1] for name in needed)
