"""Runs generated kernels around products of matrices and convolutions, and says where they beat the library's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.forms.numbers import DeviceForm
from burn_torch.backend.libtorch.generated.kernel_files import module_of
from burn_torch.backend.libtorch.generated.quick_launch import launched_with
from burn_torch.backend.libtorch.generated.triton_kernels import generates, has_failed, in_device_form
from burn_torch.fusion.body.kernel_proof import reached
from burn_torch.fusion.body.lines import known_lines
from burn_torch.fusion.rows.product_row import product
from burn_torch.fusion.rows.row import body_of, text_of
from burn_torch.fusion.triton.convolution_proof import prove_convolution
from burn_torch.fusion.triton.convolutions import (
    Convolution,
    ConvolutionKernel,
    ConvolutionTiles,
    convolution_in,
    lower_convolution,
)
from burn_torch.fusion.triton.products import Product, ProductKernel, ProductTiles, lower_product
from burn_torch.fusion.triton.proof import prove_product
from burn_torch.graph.ir import Graph
from burn_torch.graph.verifying import is_proving
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["anchor_form", "anchor_kernel", "chosen", "chosen_convolution"]


def anchor_kernel(call: Call) -> Callable[..., object] | None:
    """Returns the kernel that runs a `fusion::product` or `fusion::convolution`; None if none runs at its place."""
    return _run_of(call, held=False) if generates(call.results[0].place) else None


def anchor_form(call: Call, known: Sequence[object]) -> DeviceForm | None:
    """How a kernel around one reads its numbers from the device; None where no kernel runs."""
    if not generates(call.results[0].place) or has_failed(call):
        return None
    body, strict = body_of(call.attrs["body"]), call.attrs["strict"]
    lower: Candidate = lower_product if call.op is product else lower_convolution
    return in_device_form(call, known, lower(body, strict=strict).numbers, _run_of(call, held=True).run)


def _run_of(call: Call, *, held: bool) -> _Run:
    tiles = (ProductTiles if call.op is product else ConvolutionTiles)(*call.attrs["tiles"])
    return _Run(body_of(call.attrs["body"]), tiles, strict=call.attrs["strict"], held=held)


@final
class _Run:
    """A body as a function of its inputs; a kernel for each set of strides that they come with."""

    def __init__(self, body: Graph, tiles: ProductTiles | ConvolutionTiles, *, strict: bool, held: bool) -> None:
        self.body: Final = body
        self.tiles: Final = tiles
        self.strict: Final = strict
        self.held: Final = held
        self.variants: Final[dict[Any, tuple[ProductKernel | ConvolutionKernel, Any]]] = {}
        self.packed: Final = () if isinstance(tiles, ProductTiles) else self._weights()
        """Inputs that the kernel reads row by row: weights and biases of a convolution."""

    def _weights(self) -> tuple[int, ...]:
        node, _ = convolution_in(self.body)
        position = {i: n for n, (i, _) in enumerate(self.body.inputs)}
        return tuple(position[i] for i in node.inputs[1:] if isinstance(i, int))

    def __call__(self, *inputs: object) -> list[torch.Tensor]:
        return self.run(inputs, None)

    def run(self, inputs: Sequence[Primitive], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs; with `slots`, numbers are read from there."""
        if self.packed:
            inputs = [x.contiguous() if n in self.packed else x for n, x in enumerate(inputs)]
        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        known = self.variants.get(layouts)
        if known is None:
            lower: Candidate = lower_product if isinstance(self.tiles, ProductTiles) else lower_convolution
            kernel = lower(self.body, strict=self.strict, layouts=layouts, held=self.held)
            if is_proving():
                prove = prove_product if isinstance(kernel, ProductKernel) else prove_convolution
                prove(kernel, reached(self.body, layouts))
            module = module_of(kernel.name, kernel.source, known_lines(text_of(self.body)))
            known = self.variants[layouts] = kernel, getattr(module, kernel.name)
        kernel, function = known
        tensors = [inputs[position] for position in kernel.inputs]
        device = tensors[0].device
        outputs = [torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=device) for spec in kernel.outputs]
        numbers = [launched_with(argument, inputs) for argument in kernel.numbers] if slots is None else slots
        self._launch_kernel(kernel, function, [*tensors, *outputs, *numbers], outputs[0])
        return outputs

    def _launch_kernel(
        self, kernel: ProductKernel | ConvolutionKernel, function: object, arguments: list[object], first: torch.Tensor
    ) -> None:
        from burn_kernels.launch import launch
        from burn_kernels.matmul import in_tf32

        tiles = self.tiles
        if isinstance(kernel, ConvolutionKernel):
            assert isinstance(tiles, ConvolutionTiles)
            launch(function, kernel.grid(tiles), first, *arguments, warps=tiles.warps, contracts=False,
                   OUTS=tiles.outs, PIXELS=tiles.pixels)  # fmt: skip
            return
        assert isinstance(tiles, ProductTiles)
        like = torch.empty(0, dtype=TO_TORCH[kernel.product.dtype], device=first.device)
        blocks = {"XB": tiles.x, "RB": tiles.r, "KB": tiles.k, "GROUP": tiles.group}
        launch(
            function, (tiles.programs(kernel.product),), first, *arguments, warps=tiles.warps, stages=tiles.stages,
            contracts=False, PRECISION="tf32" if in_tf32(like) else "ieee", **blocks,
        )  # fmt: skip


# -- choosing ------------------------------------------------------------------------------------------
def chosen(product: Product, around: str) -> ProductTiles | None:
    """The tiles that a lockfile or timings of linear layers of this size put before the library's product.

    A layer with GELU stands for any element-wise work after a product, one that keeps z where the product is written
    too.  Work on an operand is done once for each tile that reads it, and nothing was timed for that: such kernels are
    never chosen.  Without timings, and in deterministic mode, it is the library.
    """
    if not product.place.startswith("cuda") or "before" in around.split():
        return None
    from burn_kernels import AVAILABLE, matmul
    from burn_kernels.autotune import levels, selection

    if not AVAILABLE:
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


def chosen_convolution(size: Convolution, around: str) -> ConvolutionTiles | None:
    """The tiles in which a convolution would run by itself, one channel after the other, if that is how it would.

    So the work behind it costs no read and no write, and takes nothing from the convolution.  If a library or tensor
    cores compute the convolution, it stays as it is: nothing was timed that says what to give up for the rest.
    """
    if not size.place.startswith("cuda"):
        return None
    from burn_kernels import AVAILABLE, convolution
    from burn_kernels.autotune import levels, selection
    from burn_kernels.convolution import choice as convolution_choice

    geometry, dtype = convolution.Geometry(*size.sizes), TO_TORCH[size.dtype]
    if not AVAILABLE or not convolution.is_direct(geometry, dtype):
        return None
    if convolution.is_plane(geometry):  # its own kernels are faster than these by more than a write and a read
        return None
    facts = convolution_choice.facts_of(
        dtype, geometry, 0, True, convolution_choice.words_of(dtype, geometry, "b" if size.bias else "")
    )
    index = torch.device(size.place).index or 0
    config = selection.current().decide(convolution.FORWARD, index, facts, levels.is_deterministic()).config
    if config == convolution.LIBRARY or config.channels:
        return None
    return ConvolutionTiles(config.outs, config.pixels, config.warps)
