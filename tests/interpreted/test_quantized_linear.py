"""Products with codes beside the same in float64: drawn sizes, blocks, words and configs."""

from __future__ import annotations

import random

import pytest
import torch

from burn_kernels import quantized_linear
from burn_kernels.launch import H200, ceil_div


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
    for _ in range(14):
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
