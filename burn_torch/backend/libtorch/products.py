"""Runs generated kernels around products of matrices, and says where they beat the library's product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.fused import generates, in_device_form, launched_with, module_of
from burn_torch.fusion.anchors import set_chooser
from burn_torch.fusion.product_row import tiles_in
from burn_torch.fusion.products import Product, ProductKernel, ProductTiles, lower_product
from burn_torch.fusion.row import body_of
from burn_torch.graph.ir import Graph
from burn_torch.ops.device_numbers import DeviceForm
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["chosen", "product_form", "product_kernel"]


def product_kernel(call: Call) -> Callable[..., Any] | None:
    """What runs a `fusion::product`; None where no kernel runs at its place."""
    if not generates(call.results[0].place):
        return None
    return _Run(body_of(call.attrs["body"]), tiles_in(call.attrs), strict=call.attrs["strict"], held=False)


def product_form(call: Call, known: Sequence[Any]) -> DeviceForm | None:
    """How a kernel around a product reads its numbers from the device; None where no kernel runs."""
    if not generates(call.results[0].place):
        return None
    body, strict = body_of(call.attrs["body"]), call.attrs["strict"]
    held = _Run(body, tiles_in(call.attrs), strict=strict, held=True)
    return in_device_form(known, lower_product(body, strict=strict).numbers, held.run)


@final
class _Run:
    """A body as a function of its inputs; a kernel for each set of strides that they come with."""

    def __init__(self, body: Graph, tiles: ProductTiles, *, strict: bool, held: bool) -> None:
        self.body: Final = body
        self.tiles: Final = tiles
        self.strict: Final = strict
        self.held: Final = held
        self.variants: Final[dict[Any, tuple[ProductKernel, Any]]] = {}

    def __call__(self, *inputs: Any) -> list[torch.Tensor]:
        return self.run(inputs, None)

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs; with `slots`, numbers are read from there."""
        from burn_kernels.launch import launch
        from burn_kernels.matmul import in_tf32

        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        found = self.variants.get(layouts)
        if found is None:
            kernel = lower_product(self.body, strict=self.strict, layouts=layouts, held=self.held)
            found = self.variants[layouts] = kernel, getattr(module_of(kernel.name, kernel.source), kernel.name)
        kernel, function = found
        tensors = [inputs[position] for position in kernel.inputs]
        device = tensors[0].device
        outputs = [torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=device) for spec in kernel.outputs]
        numbers = [launched_with(argument, inputs) for argument in kernel.numbers] if slots is None else slots
        tiles, like = self.tiles, torch.empty(0, dtype=TO_TORCH[kernel.product.dtype], device=device)
        blocks = {"XB": tiles.x, "RB": tiles.r, "KB": tiles.k, "GROUP": tiles.group}
        launch(
            function, (tiles.programs(kernel.product),), outputs[0], *tensors, *outputs, *numbers,
            warps=tiles.warps, stages=tiles.stages, PRECISION="tf32" if in_tf32(like) else "ieee", **blocks,
        )  # fmt: skip
        return outputs


# -- choosing ------------------------------------------------------------------------------------------
def chosen(product: Product, around: str) -> ProductTiles | None:
    """The tiles that a lockfile or timings of linear layers of this size put before the library's product.

    A layer with GELU stands for any element-wise work after a product, one that keeps z where the product is written
    too.  Work on an operand is done once for each tile that reads it, and nothing was timed for that: such kernels are
    never chosen.  Without timings, and in deterministic mode, it is the library.
    """
    from burn_kernels import AVAILABLE, matmul
    from burn_kernels.autotune import levels, selection

    if not product.place.startswith("cuda") or not AVAILABLE or "before" in around.split():
        return None
    flags = f"gelu bias{' kept' if 'kept' in around.split() else ''}"
    dtype = TO_TORCH[product.dtype]
    facts = matmul.facts(dtype, product.rows, product.cols, product.inner, (product.inner, product.cols), 0, flags)
    index = torch.device(product.place).index or 0
    decision = selection.current().decide(matmul.FORWARD, index, facts, levels.is_deterministic())
    if decision.source not in ("locked", "measured", "shipped") or decision.config.way != matmul.TILES:
        return None
    c = decision.config
    return ProductTiles(c.rows, c.features, c.inner, c.group, c.warps, c.stages)


set_chooser(chosen)
