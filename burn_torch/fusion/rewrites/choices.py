"""Questions that planning cannot answer: which of several ways is faster here.  A backend's leaf answers.

    plan_of(graph, Choices(product=lambda size, around: ProductTiles(64, 64, 32, 8, 4, 3)))

A plan is a function of its arguments: the graph and these.  If a question has no answerer, or the answer is None, a
library's function computes as it does without fusion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from burn_torch.fusion.triton.configs import Tiles
from burn_torch.fusion.triton.convolutions import Convolution, ConvolutionTiles
from burn_torch.fusion.triton.products import Product, ProductTiles

__all__ = ["LIBRARIES", "Asked", "Choices"]


@final
@dataclass(frozen=True)
class Asked:
    """A product, and what a library may do with it beside computing it as usual.

    ending  "none", "bias", "gelu_kept" (z and its GELU) or "gelu_slope_and_sums" (times GELU's slope, and sums of rows)
    turned  whether each operand is read across: the transpose of what lies in memory
    """

    product: Product
    ending: str
    bias: bool
    turned: tuple[bool, bool]


@final
@dataclass(frozen=True)
class Choices:
    """Who answers each question; None for a question that nothing answers.

    product      (product, what comes with it: words of "before", "after" and "kept") -> tiles that beat the library's
    convolution  the same of a convolution, after which alone something comes
    ending       (product and ending) -> the library's algorithm, counted from 0, that beats the usual one and a kernel
    tiles        (name of a kernel) -> the tiles that it ran with last, and who chose them: locked, measured, shipped,
                 model, default
    """

    product: Callable[[Product, str], ProductTiles | None] | None = None
    convolution: Callable[[Convolution, str], ConvolutionTiles | None] | None = None
    ending: Callable[[Asked], int | None] | None = None
    tiles: Callable[[str], tuple[Tiles, str] | None] | None = None


LIBRARIES: Final = Choices()
"""Nothing is asked: libraries compute products and convolutions."""
