"""Kernels around a convolution of few channels: element-wise work on its sums, before they leave the registers.

    conv(x, w, b) -> * scale + shift -> relu -> + residual        one kernel, if this is its body

The body is a Graph with one convolution over two axes.  The sums are those of `burn_kernels.convolution`, pixels by
channels; `ending` takes them to the results, and is written as any kernel is (`lowering.py`), over the elements of the
convolution's result.  Sums are float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.index import Index, split_index
from burn_torch.fusion.body.loops import Argument, Domain, tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.expressions import TYPES, import_lines
from burn_torch.fusion.triton.lowering import MOST_TENSORS, Writer
from burn_torch.fusion.triton.products import require_elementwise
from burn_torch.fusion.triton.values import Tile
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
class ConvolutionKernel:
    """A lowered body: as `loops.Kernel`, around a convolution.

    inputs  positions in the body of x, w, and b if there is one, then of what the ending reads
    """

    name: str
    source: str
    inputs: tuple[int, ...]
    outputs: tuple[TensorSpec, ...]
    numbers: tuple[Argument, ...]
    convolution: Convolution
    pixels: int
    channels: int
    groups: int

    def grid(self, tiles: ConvolutionTiles) -> tuple[int, int]:
        """How many programs run."""
        return -(-self.pixels // tiles.pixels), self.groups * -(-(self.channels // self.groups) // tiles.outs)


def is_convolution(call: Call) -> bool:
    """Whether a kernel can be made of what lies around this operation."""
    return _sizes(call) is not None


def convolution_in(body: Graph) -> tuple[Node, Convolution]:
    """The convolution of a body.  Raises: Unfusible where there is not exactly one."""
    found = [(node, size) for node in body.nodes if (size := _sizes(node.call)) is not None]
    if len(found) != 1:
        raise Unfusible(Reason.UNSUPPORTED, f"{len(found)} convolutions in one kernel")
    return found[0]


def _sizes(call: Call) -> Convolution | None:
    if call.op is not conv:
        return None
    (x, w), y, attrs = call.specs[:2], call.result, call.attrs
    assert isinstance(x, TensorSpec)
    assert isinstance(w, TensorSpec)
    padding = attrs["padding"]
    if x.ndim != 4 or x.dtype not in _FLOATS or not y.numel or any(a != b or a < 0 for a, b in padding):
        return None
    sizes = (*x.shape, w.shape[0], *w.shape[2:], *attrs["stride"], *(a for a, _ in padding), *attrs["dilation"])
    return Convolution((*sizes, attrs["groups"]), call.specs[2] is not None, x.dtype, y.place)


# -- lowering ------------------------------------------------------------------------------------------
def lower_convolution(
    body: Graph,
    *,
    strict: bool = False,
    layouts: Sequence[tuple[int, ...] | None] | None = None,
    held: bool = False,
) -> ConvolutionKernel:
    """The kernel of a body with one convolution; arguments as of `lowering.lower`.  Raises: Unfusible."""
    node, size = convolution_in(body)
    for other in body.nodes:
        require_elementwise(other, node)
    given = [i for i in node.inputs if i is not None]
    ending = _Ending(body, tensor(node.call.result), strict=strict, layouts=layouts, held=held)
    if any(not isinstance(i, int) or i not in ending.position for i in given):
        raise Unfusible(Reason.UNSUPPORTED, "work on what a convolution reads")
    (result,) = (i for i in node.outputs if i is not None)
    ending.write(result)
    if len(given) + len(ending.read) + len(ending.outputs) > MOST_TENSORS:
        raise Unfusible(Reason.LIMIT, f"{len(given) + len(ending.read) + len(ending.outputs)} tensors")
    read = [ending.position[i] for i in given if isinstance(i, int)]
    layout = None if layouts is None else layouts[read[0]]
    source = _source(body, ending, size, layout or _row_major(size.sizes[:4]), tensor(node.call.result), held)
    name = "fused_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    batch, channels, rows, cols = node.call.result.shape
    return ConvolutionKernel(
        name,
        source.replace("KERNEL", name),
        (*read, *(ending.position[i] for i in ending.read)),
        ending.outputs,
        tuple(ending.numbers.arguments.values()),
        size,
        batch * rows * cols,
        channels,
        size.sizes[-1],
    )


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * size)
    return tuple(reversed(steps))


@final
class _Ending(Writer):
    """Takes the sums to the results: at elements x of the convolution's result, in any order."""

    def __init__(self, body: Graph, spec: TensorSpec, **options: Any) -> None:
        super().__init__(body, Domain((spec.numel,), None, spec.shape), over=False, **options)
        self.spec: Final = spec
        self.outputs: tuple[TensorSpec, ...] = ()

    def _place_of_words(self, flat: Index) -> tuple[str, str]:
        return "word_at", self._offset(flat)

    def write(self, result: int) -> None:
        """Writes the lines; `made` holds the sums."""
        if self.strict and self.spec.dtype is not DType.F32:
            self.outer.append(f"made = made.to({TYPES[self.spec.dtype]}).to(tl.float32)")
        at = split_index(self.x, self.spec.shape)
        self.known[result, at] = Tile("made", DType.F32, True, False)
        self.levels[result, at] = 0
        outputs = [(i, tensor(self.specs[i])) for i in self.body.outputs if i is not None]
        sizes = {spec.numel for _, spec in outputs} - {self.spec.numel}
        if sizes:
            raise Unfusible(Reason.SHAPE, f"results of {' and '.join(map(str, sorted(sizes)))} elements")
        for number, (i, output) in enumerate(outputs):
            index = split_index(self.x, output.shape)
            self._level(i, index)
            self._store(number, i, index, False)
        self.outputs = tuple(spec for _, spec in outputs)


# -- source --------------------------------------------------------------------------------------------
def _source(
    body: Graph, ending: _Ending, size: Convolution, strides: Sequence[int], result: TensorSpec, held: bool
) -> str:
    _, channels, height, width, outs, kernel_h, kernel_w, *steps, groups = size.sizes
    batch, _, rows, cols = result.shape
    sources, targets, area = channels // groups, outs // groups, rows * cols
    pointers, outputs = list(ending.read.values()), [f"q{n}" for n in range(len(ending.outputs))]
    numbers = [argument.name for argument in ending.numbers.arguments.values()]
    own = ["x_ptr", "w_ptr", *(["b_ptr"] if size.bias else [])]
    names = ", ".join(node.call.op.name for node in body.nodes[:12])
    lines = [f'"""{names}, in one kernel."""', "", "from burn_kernels._triton import tl, triton"]
    lines += ["from burn_kernels.convolution.kernels import sums_at"]
    lines += import_lines(ending.helpers, ending.random_helpers)
    given = [*pointers, *outputs, *numbers, "made", "x", "inside", "XB: tl.constexpr"]
    lines += ["", "", "@triton.jit", f"def ending({', '.join(given)}):", *(f"    {line}" for line in ending.outer)]
    special = bool(numbers) and not held
    lines += ["", "", f"@triton.jit(do_not_specialize={numbers!r})" if special else "@triton.jit"]
    lines += [
        f"def KERNEL({', '.join([*own, *pointers, *outputs, *numbers])}, OUTS: tl.constexpr, PIXELS: tl.constexpr):"
    ]
    masked = any(steps[2:4])
    arguments = [
        *own[:2], "b_ptr" if size.bias else "None", "n", f"place // {cols}", f"place % {cols}", "valid", "group", "out",
        *map(str, strides), str(targets * sources * kernel_h * kernel_w), str(sources * kernel_h * kernel_w),
        str(kernel_h * kernel_w), str(height), str(width), str(sources), str(targets), *map(str, steps), "False",
        "False", str(masked), str(kernel_h), str(kernel_w), "OUTS", "PIXELS",
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
        *([] if ending.wide else ["        x = x.to(tl.int32)"]),
        f"        inside = valid & (out + o < {targets})",
        f"        ending({passed})",
    ]
    return "\n".join(lines) + "\n"
