"""Defines what is timed: for each operation that draws inputs, what draws them, the shape in words, and the options.

`SIZES` holds for the whole run; a tiny one changes it before anything is drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels import activation, optimizer

__all__ = ["SIZES", "Other", "gpt2", "gpt2_table", "operations", "random", "row_wise"]


@dataclass
class Sizes:
    """How large the cases are, and where they lie."""

    device: str = "cuda"
    rows: int = 8192
    few: int = 256
    """Rows on which errors are taken."""
    tiny: bool = False
    widths: tuple[int, ...] = (1024, 4096, 5120, 8192, 16384, 32768)


SIZES = Sizes()


def random(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return (torch.randn(shape, device=SIZES.device) * scale).to(dtype)


def gpt2(scale: float) -> list[torch.Tensor]:
    """Tensors in the shapes of GPT-2 124M's parameters: 148 tensors, 124.4 million numbers in float32."""
    shapes = [(50257, 768), (1024, 768), (768,), (768,)]
    for _ in range(12):
        shapes += [(768,)] * 4 + [(2304, 768), (2304,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,)]
    if SIZES.tiny:
        shapes = [tuple(n // 96 for n in shape) for shape in shapes]
    return [random(*shape, scale=scale, dtype=torch.float32) for shape in shapes]


def gpt2_table() -> optimizer.Table:
    """Such parameters with gradients and moments, for a step of AdamW in place."""
    return optimizer.table(gpt2(1), gpt2(1e-2), gpt2(1e-2), [x * x for x in gpt2(1e-2)], in_place=True)


Other = tuple[str, Callable[[int], tuple[Any, ...]], str, dict[str, Any]]


def _row_wise_inputs() -> dict[str, Callable[[int, int], tuple[Any, ...]]]:
    """Returns what draws the inputs of an operation from its columns and rows."""
    return {
        "softmax": lambda cols, n: (random(n, cols),),
        "layer_norm": lambda cols, n: (random(n, cols), random(cols), random(cols)),
        "rms_norm": lambda cols, n: (random(n, cols), random(cols)),
        "cross_entropy": lambda cols, n: (
            random(n, cols, scale=2.0),
            torch.randint(0, cols, (n,), device=SIZES.device),
        ),
        "swiglu": lambda cols, n: (random(n, cols), random(n, cols)),
        "geglu": lambda cols, n: (random(n, cols), random(n, cols)),
    }


def row_wise() -> Iterator[tuple[str, Callable[[int], tuple[Any, ...]], str]]:
    """Each operation on rows and width: its name, what draws inputs of so many rows, and the shape in words."""
    widths = {"softmax": (*SIZES.widths, 50257), "cross_entropy": (32000, 50257, 128256), "swiglu": (14336,)}
    widths["geglu"] = widths["swiglu"]
    for name, inputs in _row_wise_inputs().items():
        for cols in widths.get(name, SIZES.widths):
            yield name, functools.partial(inputs, cols), f"{SIZES.rows}x{cols}"


def odd_rows() -> Iterator[tuple[str, Callable[[int], tuple[Any, ...]], str]]:
    """As `row_wise`: other widths than powers of two, very narrow ones, and a few rows."""
    for name, inputs in _row_wise_inputs().items():
        if name in ("swiglu", "geglu"):
            continue
        loss = name == "cross_entropy"
        for cols in (49,) if loss else (1, 49, 2048, 6144, 11_008, *(() if name == "softmax" else (50_257,))):
            if cols not in SIZES.widths:
                yield name, functools.partial(inputs, cols), f"{SIZES.rows}x{cols}"
        for rows in (1, 7):
            cols = 128_256 if loss else 4096
            yield name, functools.partial(_of_rows, inputs, cols, rows), f"{rows}x{cols}"


def _of_rows(inputs: Callable[[int, int], tuple[Any, ...]], cols: int, rows: int, _: int) -> tuple[Any, ...]:
    return inputs(cols, rows)


def operations() -> Iterator[Other]:
    """All registered operations that are timed alike."""
    for name, make, tag in row_wise():
        yield name, make, tag, {}
    for name, make, tag in odd_rows():
        yield name, make, tag, {}
    yield from others()


def others() -> Iterator[Other]:
    """Operations with options: name, what draws inputs for so many rows, the shape in words, the options."""
    yield from rope_problems()
    yield from residual_norm_problems()
    for kind in activation.KINDS:
        yield kind, lambda n: (random(n, 8192),), f"{SIZES.rows}x8192", {}
    yield from reduce_problems()
    yield from embedding_problems()
    yield from head_problems()
    yield from layer_problems()
    yield from image_problems()
    yield "gelu", lambda n: (random(n, 8192, dtype=torch.float32),), f"{SIZES.rows}x8192 float32", {}


def image_problems() -> Iterator[Other]:
    """Norms of a residual network and a diffusion network; the Burn book's convolutions, a stem, a depthwise layer."""

    def images(batch: int, channels: int, side: int, last: bool, n: int) -> torch.Tensor:
        x = random(batch if n == SIZES.rows and not SIZES.tiny else 4, channels, side, side)
        return x.contiguous(memory_format=torch.channels_last) if last else x

    def norm_inputs(batch: int, channels: int, side: int, last: bool, n: int) -> tuple[Any, ...]:
        vectors = (random(channels, dtype=torch.float32) for _ in range(2))
        return images(batch, channels, side, last, n), *vectors

    for channels, side in ((64, 56), (128, 28), (512, 7)):
        for last in (False, True):
            make = functools.partial(norm_inputs, 256, channels, side, last)
            tag = f"256x{channels}x{side}x{side} relu{' channels last' if last else ''}"
            yield "batch_norm", make, tag, {"activation": "relu"}

    def groups(batch: int, channels: int, side: int, n: int) -> tuple[Any, ...]:
        return images(batch, channels, side, False, n), random(channels), random(channels), 32

    for batch, channels, side in ((8, 320, 64), (64, 256, 32)):
        tag = f"{batch}x{channels}x{side}x{side} silu"
        yield "group_norm", functools.partial(groups, batch, channels, side), tag, {"activation": "silu"}

    def layer(batch: int, x: tuple[int, ...], w: tuple[int, ...], dtype: torch.dtype, n: int) -> tuple[Any, ...]:
        count = batch if n == SIZES.rows and not SIZES.tiny else 4
        return random(count, *x, dtype=dtype), random(*w, scale=0.2, dtype=dtype), random(w[0], dtype=dtype)

    for batch in (64, 512):
        for x, w in (((1, 28, 28), (8, 1, 3, 3)), ((8, 26, 26), (16, 8, 3, 3))):
            make = functools.partial(layer, batch, x, w, torch.float32)
            yield "convolution", make, f"{batch}x{x[0]}x{x[1]}x{x[2]} to {w[0]} float32", {}
    second = functools.partial(layer, 64, (8, 26, 26), (16, 8, 3, 3), torch.float32)
    yield "convolution", second, "64x8x26x26 to 16 float32 relu max", {"relu": True, "pool": "max"}
    for dtype, word in ((torch.float32, " float32"), (torch.bfloat16, "")):
        stem = functools.partial(layer, 32, (3, 224, 224), (64, 3, 7, 7), dtype)
        yield "convolution", stem, f"32x3x224x224 to 64 7x7{word}", {"stride": 2, "padding": 3}
    depthwise = functools.partial(layer, 64, (96, 56, 56), (96, 1, 3, 3), torch.bfloat16)
    yield "convolution", depthwise, "64x96x56x56 depthwise", {"groups": 96, "padding": 1}


def reduce_problems() -> Iterator[Other]:
    """16384 x 16384 along each axis and over all; the sum over batch and pixels, which is a convolution's bias."""

    def square(n: int) -> tuple[Any, ...]:
        return (random(2 * n, 16_384),) if n == SIZES.rows else (random(n, 1024),)

    def images(n: int) -> tuple[Any, ...]:
        return (random(256 if n == SIZES.rows else 4, 64, 56, 56),)

    for kind in ("sum", "mean", "var", "logsumexp", "amax", "argmax"):
        for dim in (1, 0, None):
            yield kind, square, f"{2 * SIZES.rows}x16384 dim {dim}", {"dim": dim}
    for kind in ("sum", "var"):
        yield kind, images, "256x64x56x56 dim (0, 2, 3)", {"dim": (0, 2, 3)}


def embedding_problems() -> Iterator[Other]:
    """The tables of GPT-2 and Llama 3, with indices spread evenly, and as words are: the n-th as often as 1/n."""

    def draw(rows: int, cols: int, words: bool, n: int) -> tuple[Any, ...]:
        tokens = 2 * n if n == SIZES.rows else n
        indices = torch.rand(tokens, device=SIZES.device, dtype=torch.float64)
        indices = (rows**indices - 1.0).long() if words else (rows * indices).long()
        return random(tokens, cols), indices

    for rows, cols in ((50_257, 768), (128_256, 4096)):
        for words in (False, True):
            tag = f"{2 * SIZES.rows} of {rows}x{cols}{' as words' if words else ''}"
            yield "embedding_backward", functools.partial(draw, rows, cols, words), tag, {"rows": rows}


def head_problems() -> Iterator[Other]:
    """Llama 3's last layer with its loss."""
    vocab, cols = 128_256, 8 if SIZES.tiny else 4096

    def draw(n: int) -> tuple[Any, ...]:
        return random(n, cols), random(vocab, cols, scale=0.02), torch.randint(0, vocab, (n,), device=SIZES.device)

    yield "linear_cross_entropy", draw, f"{SIZES.rows}x4096x{vocab}", {}


def layer_problems() -> Iterator[Other]:
    """First layers of MLPs: of Llama's size, of GPT-2's, and one that is narrow, where what follows costs the most."""

    def draw(cols: int, features: int, n: int) -> tuple[Any, ...]:
        rows = 2 * n if n == SIZES.rows and cols < 4096 else n
        return random(rows, cols), random(features, cols, scale=0.02), random(features), None

    for cols, features, kind in ((4096, 16_384, "gelu"), (768, 3072, "gelu_tanh"), (128, 8192, "silu")):
        if SIZES.tiny:
            cols, features = 16, 64
        rows = SIZES.rows if cols >= 4096 else 2 * SIZES.rows
        yield "linear", functools.partial(draw, cols, features), f"{rows}x{cols}x{features} {kind}", {"kind": kind}


def residual_norm_problems() -> Iterator[Other]:
    """Twice the rows of the other norms, so that 4096 columns are as large as 8192 there; with dropout and without."""

    def draw(cols: int, weights: int, n: int) -> tuple[Any, ...]:
        rows = 2 * n if n == SIZES.rows else n
        return (random(rows, cols), random(rows, cols), *(random(cols) for _ in range(weights)))

    for cols in SIZES.widths:
        for name, weights in (("residual_layer_norm", 2), ("residual_rms_norm", 1)):
            for prob in (0.0, 0.1):
                if cols > 8192 and prob:
                    continue
                tag = f"{2 * SIZES.rows}x{cols}{' dropout' if prob else ''}"
                yield name, functools.partial(draw, cols, weights), tag, {"prob": prob, "key": 7, "stream": 11}


def rope_problems() -> Iterator[Other]:
    """Llama 3's heads at 4 sequences of 4096; 256 rows stand for 256 positions of one."""

    def packed(n: int) -> tuple[Any, ...]:
        batch, seq = (4, 4096) if n == SIZES.rows else (1, n)
        return random(batch, seq, 32, 128), random(batch, seq, 8, 128)

    def fused(n: int) -> tuple[Any, ...]:
        batch, seq = (4, 4096) if n == SIZES.rows else (1, n)
        qkv = random(batch, seq, 48, 128)
        return qkv[:, :, :32], qkv[:, :, 32:40]

    angle = torch.arange(4096, device=SIZES.device)[:, None] * 10_000.0 ** (-torch.arange(64, device=SIZES.device) / 64)
    for interleaved in (False, True):
        for make, kind in ((packed, "packed"), (fused, "fused qkv")):
            tag = f"4x4096x32/8x128 {kind}{' interleaved' if interleaved else ''}"
            yield "rope", make, tag, {"cos": angle.cos(), "sin": angle.sin(), "interleaved": interleaved}
