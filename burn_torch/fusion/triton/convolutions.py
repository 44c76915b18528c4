"""Kernels around a convolution of few channels: element-wise work on its sums, before they leave the registers.

    conv(x, w, b) -> * scale + shift -> relu -> + residual        one kernel, if this is its body

The body is a Graph with one convolution over two axes.  The sums are those of `burn_kernels.convolution`, pixels by
channels; `ending` takes them to the results, and is written as any kernel is (`dialect.py`), over the elements of the
convolution's result.  Sums are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final, Unpack, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.dialect import title_of
from burn_torch.fusion.body.loops import Argument, Lowered, Text, packed_strides, tensor
from burn_torch.fusion.body.needs import MOST_TENSORS, Terms
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.steps import Place
from burn_torch.fusion.triton.dialect import Triton, decorator, header
from burn_torch.fusion.triton.products import PartNeeds, require_elementwise
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.convolution import conv
from burn_torch.ops.op import Call

__all__ = [
    "Convolution",
    "ConvolutionKernel",
    "ConvolutionTiles",
    "convolution_in",
    "is_convolution",
    "lower_convolution",
]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)


@final
@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution over two axes, its type and place; `sizes` are those of `burn_kernels`' Geometry."""

    sizes: tuple[int, ...]
    bias: bool
    dtype: DType
    place: str


@final
@dataclass(frozen=True)
class ConvolutionTiles:
    """`outs` channels of `pixels` pixels a program, `warps` of 32 threads."""

    outs: int
    pixels: int
    warps: int

    def numbers(self) -> tuple[int, ...]:
        """As an attribute."""
        return astuple(self)


@final
@dataclass(frozen=True)
class ConvolutionKernel(Lowered):
    """A body as a kernel around a convolution.

    inputs  positions in the body of x, w, and b if there is one, then of what the ending reads
    """

    convolution: Convolution
    pixels: int
    channels: int
    groups: int

    def grid(self, tiles: ConvolutionTiles) -> tuple[int, int]:
        """How many programs run."""
        return -(-self.pixels // tiles.pixels), self.groups * -(-(self.channels // self.groups) // tiles.outs)


def is_convolution(call: Call) -> bool:
    """Asks whether a kernel can be made of the operations around this one."""
    return _sizes(call) is not None


def convolution_in(body: Graph) -> tuple[Node, Convolution]:
    """The convolution of a body.  Raises: Unfusible where there is not exactly one."""
    sized = [(node, size) for node in body.nodes if (size := _sizes(node.call)) is not None]
    if len(sized) != 1:
        raise Unfusible(Reason.UNSUPPORTED, f"{len(sized)} convolutions in one kernel")
    return sized[0]


def _sizes(call: Call) -> Convolution | None:
    if call.op is not conv:
        return None
    x, w, y, attrs = call.tensor(0), call.tensor(1), call.result, call.attrs
    padding = attrs["padding"]
    if x.ndim != 4 or x.dtype not in _FLOATS or not y.numel or any(a != b or a < 0 for a, b in padding):
        return None
    sizes = (*x.shape, w.shape[0], *w.shape[2:], *attrs["stride"], *(a for a, _ in padding), *attrs["dilation"])
    return Convolution((*sizes, attrs["groups"]), call.specs[2] is not None, x.dtype, y.place)


# -- lowering ------------------------------------------------------------------------------------------
def lower_convolution(body: Graph, *, held: bool = False, **terms: Unpack[Terms]) -> ConvolutionKernel:
    """The kernel of a body with one convolution; arguments as of `lowering.lower`.  Raises: Unfusible."""
    node, size = convolution_in(body)
    for other in body.nodes:
        require_elementwise(other, node)
    operands = [i for i in node.inputs if i is not None]
    result = tensor(node.call.result)
    ending = PartNeeds(body, (result.numel,), **terms)
    if any(not isinstance(i, int) or i not in ending.position for i in operands):
        raise Unfusible(Reason.UNSUPPORTED, "work on what a convolution reads")
    sums = ending.decide_ending(node, ending.x)
    tensors = len(operands) + len(ending.read) + len(ending.results)
    if tensors > MOST_TENSORS:
        raise Unfusible(Reason.LIMIT, f"{tensors} tensors")
    read = [ending.position[i] for i in operands if isinstance(i, int)]
    strides = (None if ending.layouts is None else ending.layouts[read[0]]) or packed_strides(size.sizes[:4])

    def write() -> tuple[str, list[Argument], tuple[()]]:
        dialect = Triton(ending, held=held)
        dialect.names[sums] = "made"
        dialect.write(ending.steps)
        return _source(dialect, size, strides, result), list(dialect.numbers.arguments.values()), ()

    batch, channels, rows, cols = result.shape
    inputs = (*read, *ending.inputs)
    return ConvolutionKernel(Text(write), inputs, ending.results, size, batch * rows * cols, channels, size.sizes[-1])


# -- source --------------------------------------------------------------------------------------------
_IMPORT: Final = (
    "from burn_kernels.convolution.kernels import Form, ImageStrides, Pixels, Sizes, Steps, WeightStrides, sums_at"
)


def _group(name: str, *values: int) -> str:
    """The text of a named tuple of numbers."""
    return f"{name}({', '.join(map(str, values))})"


def _source(ending: Triton, size: Convolution, strides: Sequence[int], result: TensorSpec) -> str:
    _, channels, height, width, outs, kernel_h, kernel_w, *steps, groups = size.sizes
    batch, _, rows, cols = result.shape
    sources, targets, area = channels // groups, outs // groups, rows * cols
    pointers, outputs = list(ending.pointers.values()), [f"q{n}" for n in range(len(ending.needs.results))]
    numbers = [argument.name for argument in ending.numbers.arguments.values()]
    own = ["x_ptr", "w_ptr", *(["b_ptr"] if size.bias else [])]
    lines = header(title_of(ending.needs.body), ending.helpers, _IMPORT)
    names = [*pointers, *outputs, *numbers, "made", "x", "inside", "XB: tl.constexpr"]
    lines += ["", "", "@triton.jit", f"def ending({', '.join(names)}):"]
    lines += [f"    {line}" for line in ending.lines[Place.EACH]]
    names = [*own, *pointers, *outputs, *numbers, "OUTS: tl.constexpr", "PIXELS: tl.constexpr"]
    lines += ["", "", decorator([] if ending.held else numbers), f"def KERNEL({', '.join(names)}):"]
    masked = any(steps[2:4])
    weights = (targets * sources * kernel_h * kernel_w, sources * kernel_h * kernel_w, kernel_h * kernel_w)
    arguments = [
        *own[:2], "b_ptr" if size.bias else "None", f"Pixels(n, place // {cols}, place % {cols}, valid)", "group",
        "out", _group("ImageStrides", *strides), _group("WeightStrides", *weights),
        _group("Sizes", height, width, rows, cols, sources, targets, groups), _group("Steps", *steps),
        _group("Form", False, False, masked, kernel_h, kernel_w), "OUTS", "PIXELS",
        "False",  # one sum of all channels, as the forward of burn_kernels
    ]  # fmt: skip
    passed = ", ".join([*pointers, *outputs, *numbers, "total[o]", "x", "inside", "PIXELS"])
    lines += [
        f"    blocks = tl.cdiv({targets}, OUTS)",
        "    group, out = tl.program_id(1) // blocks, (tl.program_id(1) % blocks) * OUTS",
        "    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)",
        f"    valid = p < {batch * area}",
        f"    n, place = (p // {area}).to(tl.int64), p % {area}",
        f"    total = sums_at({', '.join(arguments)})",
        "    for o in tl.static_range(OUTS):",
        f"        x = ((n * {groups} + group) * {targets} + out + o) * {area} + place",
        *([] if ending.needs.wide else ["        x = x.to(tl.int32)"]),
        f"        inside = valid & (out + o < {targets})",
        f"        ending({passed})",
    ]
    return "\n".join(lines) + "\n"
