"""Products with codes beside the same in float64: drawn sizes, blocks, words and configs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from burn_kernels import quantized_linear
from burn_kernels.launch import H200, ceil_div
from burn_kernels.quantized_linear import kernels


def drawn(draw: random.Random, few: bool) -> tuple[tuple[torch.Tensor, ...], dict[str, object], int]:
    torch.manual_seed(draw.randrange(1 << 30))
    rows = 1 if few else draw.choice([2, 5, 17, 70])
    d_in, size, bits, word = draw.randint(1, 140), draw.randint(1, 90), draw.choice([8, 4, 2]), draw.choice([8, 32])
    block = draw.choice([(0, 0), (0, 1), (32, 1), (64, 1), (16, 8), (5, 3), (1, 0), (48, 1)])
    counts = [ceil_div(n, b) if b else 1 for n, b in zip((d_in, size), block, strict=True)]
    codes = torch.randint(-(2 ** (word - 1)), 2 ** (word - 1), (d_in, ceil_div(size * bits, word)))
    dtype = draw.choice([torch.float32, torch.float32, torch.float16])
    x = torch.randn(rows, 2 * d_in).to(dtype)[:, :: draw.choice([1, 2])][:, :d_in]
    bias = draw.choice([None, torch.randn(size).to(dtype)])
    scale = torch.rand(counts).to(draw.choice([torch.float32, torch.float16])) / 100
    whole = codes.to(torch.int8 if word == 8 else torch.int32)
    return (x, whole, scale, bias), {"bits": bits, "size": size, "block": block}, rows


@pytest.mark.parametrize("few", [True, False], ids=["one row", "rows"])
def test_every_config_gives_the_product_in_float64(few: bool) -> None:
    draw = random.Random(2)
    for _ in range(8):
        inputs, options, rows = drawn(draw, few)
        wide = [None if t is None else t.double() if t.is_floating_point() else t for t in inputs]
        expected = quantized_linear.reference(*wide, **options)  # type: ignore[arg-type]  # drawn
        sizes = (rows, inputs[0].shape[1], options["size"], options["bits"], draw.choice([2, 4]))
        configs = quantized_linear.candidates(*sizes, H200)  # type: ignore[arg-type]  # drawn
        bound = float((wide[0].abs() @ torch.ones_like(wide[0]).T).max()) * float(inputs[2].max()) * 128
        unit = 1e-6 if inputs[0].dtype == torch.float32 else 2e-3
        for config in draw.sample(configs, 2):
            y = quantized_linear.forward(*inputs, **options, config=config)  # type: ignore[arg-type]  # drawn
            torch.testing.assert_close(y.double(), expected, rtol=unit, atol=unit * bound)


def halves(words: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(words.astype(np.uint32).view(np.int16)).view(dtype).double().reshape(-1, 2)


def run(text: str, first: np.ndarray, second: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The contents of $0 after lines of PTX, as two halves; prmt, shr, mov, lop3 (and, then xor) and add are known."""
    held = {"$1": first, "$2": second}
    for line in text[text.index(";") + 1 : -1].split(";"):
        name, *rest = line.replace(",", " ").split() or [""]
        if not name:
            continue
        target, *parts = rest
        operands = [held[p] if p in held else np.uint32(int(p, 0)) for p in parts]
        if name == "prmt.b32":
            both = operands[0].astype(np.uint64) | operands[1].astype(np.uint64) << np.uint64(32)
            picks = [(int(operands[2]) >> 4 * i) & 7 for i in range(4)]
            held[target] = sum(((both >> np.uint64(8 * p)) & np.uint64(255)) << np.uint64(8 * i)
                               for i, p in enumerate(picks)).astype(np.uint32)  # fmt: skip
        elif name == "shr.b32":
            held[target] = operands[0] >> operands[1]
        elif name == "mov.b32":
            held[target] = np.broadcast_to(operands[0], first.shape)
        elif name == "lop3.b32":
            assert int(operands[3]) == 0x6A
            held[target] = (operands[0] & operands[1]) ^ operands[2]
        else:
            assert name == "add.rn.f16x2"
            total = (halves(operands[0], dtype) + halves(operands[1], dtype)).to(dtype)
            held[target] = total.view(torch.int16).numpy().view(np.uint32).reshape(-1)
    return halves(held["$0"], dtype)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize(("half", "name"), [("bf16", "bf16"), ("f16", "fp16")])
def test_native_fields_are_codes_and_their_excess(half: str, name: str, bits: int) -> None:
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[half]
    words = np.random.default_rng(1).integers(0, 1 << 32, (2, 64), dtype=np.uint64).astype(np.uint32)
    codes = quantized_linear.dequantized(
        torch.from_numpy(words.view(np.int32)).reshape(2 * 64, 1),
        torch.ones(1),
        bits,
        32 // bits,
        (0, 0),
        torch.float64,
    ).reshape(2, 64, 32 // bits)
    fields = []
    for number in range(value(kernels._fields(bits))):
        field = run(value(kernels._unpacking(number, bits, half)), words[0], words[1], dtype).T
        fields.append(field - value(kernels._excess(number, bits, name, True)))
    if bits == 8:
        fields = [low + 16 * high for low, high in zip(fields[::2], fields[1::2], strict=True)]
    assert torch.equal(torch.stack(fields, -1), codes)


def value(result: object) -> Any:
    """The result of a function of constants, outside of a kernel."""
    return getattr(result, "value", result)
