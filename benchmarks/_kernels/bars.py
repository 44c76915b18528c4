"""The bars of the kernel library, and the goals beyond them, in the order in which their cases are timed.

`G2` and so on: numbers of goals; a goal is further than a bar, and what misses one may still clear the bar.
Odd widths count as much as powers of two: below 1024 columns, above 32768 and with few rows, where a launch is what
costs, a bar asks that no rival is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._kernels.judged import BARE, COMPILED, Bar

__all__ = ["BARS", "FEW", "ODD_WIDTHS", "passes_in_order"]

WIDTHS = (1024, 2048, 4096, 5120, 6144, 8192, 11_008, 16_384, 32_768)
MIDDLE = (4096, 5120, 6144, 8192, 11_008, 16_384)
ODD_WIDTHS = (1, 49, 50_257)
FEW = (1, 7)
"""Rows."""
VOCABULARIES = (32_000, 50_257, 128_256)
NORMS = ("layer_norm", "rms_norm")
HEAD = "linear_cross_entropy 8192x4096x128256"
HALF_SUMS = "ours, bf16 sums"


def _share(cols: int) -> float:
    return 0.90 if cols <= 16_384 else 0.85


_WIDE = [
    *(Bar(case=f"{name} 8192x{cols}", passed="fb", share=_share(cols), ahead=1.3)
      for cols in (*MIDDLE, 32_768) for name in NORMS),
    *(Bar(case=f"cross_entropy 8192x{cols}", passed="fb", share=0.85, ahead=1.7) for cols in VOCABULARIES),
    Bar(case=HEAD, passed="fb", variant=HALF_SUMS, ahead=1.0, against=(COMPILED,), peak_mib=1.4 * 1024),
    Bar(case="adamw 124M, clip, bf16 copy", passed="step", share=0.98),
    *(Bar(case=f"softmax 8192x{cols}", passed="f", share=0.92) for cols in WIDTHS),
    *(Bar(case=f"{kind} 16384x16384 dim {dim}", passed="f", share=0.93)
      for kind in ("argmax", "var") for dim in (1, 0, None)),
]  # fmt: skip
_ODD = [
    *(Bar(case=f"{name} 8192x{cols}", passed="f" if name == "softmax" else "fb", ahead=1.0)
      for cols in ODD_WIDTHS for name in ("softmax", *NORMS)),
    *(Bar(case=f"{name} {rows}x4096", passed="f" if name == "softmax" else "fb", ahead=1.0)
      for rows in FEW for name in ("softmax", *NORMS)),
    *(Bar(case=f"cross_entropy {rows}x128256", passed="fb", ahead=1.0) for rows in FEW),
    Bar(case="cross_entropy 8192x49", passed="fb", ahead=1.0),
]  # fmt: skip


def _two() -> list[Bar]:
    """Softmax."""
    bars = []
    for cols in (1024, *MIDDLE, 32_768):
        case, liger = f"softmax 8192x{cols}", 1.2 if cols == 32_768 else 0.98
        bars.append(Bar(goal="G2", case=case, passed="f", ahead=liger, against=("liger",)))
        bars.append(Bar(goal="G2", case=case, passed="fb", ahead=0.98, against=("liger",)))
        if cols > 1024:
            bars.append(Bar(goal="G2", case=case, passed="f", ahead=1.9, against=(COMPILED,)))
            bars.append(Bar(goal="G2", case=case, passed="fb", ahead=1.35, against=(COMPILED,)))
    return bars


def _three_four() -> list[Bar]:
    """Norms."""
    bars = [Bar(goal="G3", case="layer_norm 8192x1024", passed="fb", share=0.75)]
    bars += [Bar(goal="G4", case="rms_norm 8192x1024", passed="fb", share=0.80)]
    for cols in (*MIDDLE, 32_768):
        bars.append(Bar(goal="G3", case=f"layer_norm 8192x{cols}", passed="f", share=0.94))
        bars.append(Bar(goal="G4", case=f"rms_norm 8192x{cols}", passed="f", share=0.97))
        power = cols & (cols - 1) == 0
        share = 0.85 if cols == 32_768 else 0.92 if power else 0.90
        bars.append(Bar(goal="G4", case=f"rms_norm 8192x{cols}", passed="fb", share=share, ahead=1.35))
    case = "residual_rms_norm 16384x4096"
    return [*bars, Bar(goal="G4", case=case, passed="fb", share=0.93, ahead=1.1, against=(COMPILED,))]


def _blocks() -> list[Bar]:
    """Returns what stands between the products of a transformer, and its head."""
    dropped, rope = "residual_layer_norm 16384x4096 dropout", "rope 4x4096x32/8x128 packed"
    return [
        # y and s, each of 128 MiB, and a hundredth
        Bar(goal="G5", case=dropped, passed="f", share=0.88, ahead=2.2, peak_mib=256 * 1.01, against=(COMPILED,)),
        Bar(goal="G5", case=dropped, passed="fb", share=0.85, ahead=1.7, against=(COMPILED,)),
        *(Bar(goal="G6", case=f"{name} 8192x14336", passed="fb", ahead=0.98, peak_of_compiled=0.34, against=(COMPILED,))
          for name in ("swiglu", "geglu")),
        Bar(goal="G7", case=rope, passed="f", share=0.95),
        Bar(goal="G7", case=rope, passed="fb", share=0.92, ahead=2.2, against=(COMPILED,)),
        Bar(goal="G7", case=rope, passed="fb", ahead=0.98, against=("liger",)),
        *(bar for cols in VOCABULARIES for bar in (
            Bar(goal="G8", case=f"cross_entropy 8192x{cols}", passed="fb", ahead=1.9, against=(COMPILED,)),
            Bar(goal="G8", case=f"cross_entropy 8192x{cols}", passed="fb", ahead=1.7, against=("liger",)),
            Bar(goal="G8", case=f"cross_entropy 8192x{cols}", passed="fb", variant="ours in place", peak_mib=1.0))),
        Bar(goal="G9", case=HEAD, passed="fb", variant=HALF_SUMS, ahead=1.35, against=("liger",)),
    ]  # fmt: skip


def _products() -> list[Bar]:
    """Attention and linear layers."""
    causal, bias = "attention 8x32x4096x128 causal, 8 kv heads", "attention 4x16x2048x64 bias"
    capped = "attention 4x16x4096x128 causal, softcap, window 1024"
    return [
        Bar(goal="G10", case=causal, passed="f", ahead=1.0, against=("eager",)),
        Bar(goal="G10", case=causal, passed="fb", variant="ours, any order", ahead=1.0, against=("eager",)),
        Bar(goal="G10", case=causal, passed="f", variant="our kernel", ahead=0.8, against=("cudnn",)),
        *(Bar(goal="G10", case=case, passed=passed, ahead=1.2, against=("flex",))
          for case in (bias, capped) for passed in ("f", "fb")),
        *(bar for case in ("8192x4096x16384 gelu", "16384x768x3072 gelu_tanh", "16384x128x8192 silu") for bar in (
            Bar(goal="G12", case=f"linear {case}", passed="f", ahead=0.97, against=(BARE,)),
            Bar(goal="G12", case=f"linear {case}", passed="fb", ahead=1.0))),
    ]  # fmt: skip


def _others() -> list[Bar]:
    """Optimizers, reductions, images."""
    adamw, block = "adamw 124M", "conv_block 256x64x56x56"
    return [
        Bar(goal="G11", case=adamw, passed="step", share=0.98, ahead=1.2, against=("eager fused",)),
        Bar(goal="G11", case=adamw, passed="step", ahead=3.0, against=("eager foreach",)),
        Bar(goal="G11", case=adamw, passed="step", ahead=1.1, against=(COMPILED,)),
        Bar(goal="G11", case=f"{adamw}, clip, bf16 copy", passed="step", ahead=1.5, against=("eager fused",)),
        *(Bar(goal="G13", case=f"sum 16384x16384 dim {dim}", passed="f", share=0.93) for dim in (1, 0, None)),
        *(Bar(goal="G13", case=f"argmax 16384x16384 dim {dim}", passed="f", ahead=2.1) for dim in (1, 0, None)),
        Bar(goal="G13", case="var 16384x16384 dim 0", passed="f", ahead=1.45),
        *(Bar(goal="G14", case=f"batch_norm 256x64x56x56 relu{last}", passed="fb", share=0.88, ahead=1.3,
              against=(COMPILED,)) for last in ("", " channels last")),
        Bar(goal="G14", case=block, passed="fb", ahead=1.15, against=(COMPILED,)),
    ]  # fmt: skip


BARS: Sequence[Bar] = (*_WIDE, *_ODD, *_others(), *_blocks(), *_three_four(), *_two(), *_products())
"""The bars, then the goals."""


def passes_in_order() -> list[tuple[str, str]]:
    """The cases with the pass of each that any of them names, as they come."""
    return list(dict.fromkeys((bar.case, bar.passed) for bar in BARS))
