"""Kernels around a matrix product: element-wise work before it and after it, in the product's own tiles.

    matmul(cast(x), w) -> + bias -> gelu -> + residual        one kernel, if this is its body

The body is a Graph with one product.  The kernel is three functions and a loop over what the product sums: `left` and
`right` make tiles of its operands from memory, `ending` takes the sums to the results.  Each is written as any kernel
is (`lowering.py`), over rows x and columns r of its tile; the sums stand for the product at the tile's own place.

Sums are float32.  What lies beyond an edge of an operand is 0 whatever is computed of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.index import Index, constant, flat_index, split_index
from burn_torch.fusion.body.loops import Argument, Domain, tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.expressions import TYPES, import_lines
from burn_torch.fusion.triton.lowering import MOST_TENSORS, Writer
from burn_torch.fusion.triton.values import Tile
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.laws import Draws, Fill, Moves
from burn_torch.ops.op import Call
from burn_torch.ops.products import linear, matmul

__all__ = [
    "Product",
    "ProductKernel",
    "ProductTiles",
    "is_product",
    "lower_product",
    "may_be_product",
    "product_in",
    "require_elementwise",
]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)


# -- what is known of a product ------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class Product:
    """The sizes of a product: (rows, inner) by (inner, cols), of numbers of one type, at a place."""

    rows: int
    cols: int
    inner: int
    dtype: DType
    place: str


@final
@dataclass(frozen=True)
class ProductTiles:
    """`x` rows and `r` columns a program, in steps of `k`; `group` rows of tiles together; `warps` of 32 threads."""

    x: int
    r: int
    k: int
    group: int
    warps: int
    stages: int

    def numbers(self) -> tuple[int, ...]:
        """As an attribute."""
        return astuple(self)

    def programs(self, product: Product) -> int:
        """How many programs run."""
        return -(-product.rows // self.x) * -(-product.cols // self.r)


@final
@dataclass(frozen=True)
class ProductKernel:
    """A lowered body: as `loops.Kernel`, around a product."""

    name: str
    source: str
    inputs: tuple[int, ...]
    outputs: tuple[TensorSpec, ...]
    numbers: tuple[Argument, ...]
    product: Product


def is_product(call: Call) -> bool:
    """Whether a kernel can be made of what lies around this operation: a product of matrices with one right side."""
    return _sizes(call) is not None


def may_be_product(call: Call) -> bool:
    """Whether it is one at some sizes; asks no size, which may be symbols."""
    return call.op in (matmul, linear) and isinstance(call.result, TensorSpec) and call.result.dtype in _FLOATS


def product_in(body: Graph) -> tuple[Node, Product]:
    """The product of a body.  Raises: Unfusible where there is not exactly one, or none that kernels compute."""
    found = [(node, size) for node in body.nodes if (size := _sizes(node.call)) is not None]
    if len(found) != 1:
        raise Unfusible(Reason.UNSUPPORTED, f"{len(found)} products in one kernel")
    return found[0]


def _sizes(call: Call) -> Product | None:
    if call.op is not matmul and call.op is not linear:
        return None
    left, right = call.specs[0], call.specs[1]
    assert isinstance(left, TensorSpec)
    assert isinstance(right, TensorSpec)
    spec = call.result
    if spec.dtype not in _FLOATS or not spec.numel or not left.numel or left.ndim < 2:
        return None
    if math.prod(right.shape[:-2]) != 1 or left.ndim < right.ndim:
        return None
    inner, cols = right.shape[-2:]
    return Product(spec.numel // cols, cols, inner, spec.dtype, spec.place)


# -- lowering ------------------------------------------------------------------------------------------
def lower_product(
    body: Graph,
    *,
    strict: bool = False,
    layouts: Sequence[tuple[int, ...] | None] | None = None,
    held: bool = False,
) -> ProductKernel:
    """The kernel of a body with one product; arguments as of `lowering.lower`.  Raises: Unfusible, with the reason."""
    node, product = product_in(body)
    for other in body.nodes:
        require_elementwise(other, node)
    (result,) = (i for i in node.outputs if i is not None)
    options: dict[str, Any] = {"strict": strict, "layouts": layouts, "held": held}
    rows, cols, inner = product.rows, product.cols, product.inner
    left = _Operand(body, rows, inner, **options)
    left.write(_id(node, 0), lambda spec: (*split_index(left.x, spec.shape[:-1]), left.r))
    right = _Operand(body, inner, cols, **options)
    right.write(_id(node, 1), lambda spec: (*(constant(0) for _ in spec.shape[:-2]), right.x, right.r))
    ending = _Ending(body, rows, cols, **options)
    ending.write(result, node)
    parts: list[tuple[str, _Part]] = [("left", left), ("right", right), ("ending", ending)]
    tensors = sum(len(part.read) for _, part in parts) + len(ending.outputs)
    if tensors > MOST_TENSORS:
        raise Unfusible(Reason.LIMIT, f"{tensors} tensors")
    source = _source(body, parts, product, held)
    name = "fused_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    return ProductKernel(
        name,
        source.replace("KERNEL", name),
        tuple(part.position[i] for _, part in parts for i in part.read),
        ending.outputs,
        tuple(argument for short, part in parts for argument in _arguments(short, part)),
        product,
    )


def require_elementwise(node: Node, product: Node) -> None:
    """Raises: Unfusible for a node that is neither the product nor element by element."""
    call = node.call
    law = call.op.law(Moves) or call.op.law(Fill) or call.op.law(Draws)
    if node is not product and law is None and call.op.pointwise is None and not call.is_input:
        raise Unfusible(Reason.UNSUPPORTED, f"{call.op.name} in the tiles of a product")


def _id(node: Node, position: int) -> int:
    i = node.inputs[position]
    assert isinstance(i, int)
    return i


class _Part(Writer):
    """One of the three functions: over rows x and columns r of a tile that begins anywhere."""

    def __init__(self, body: Graph, rows: int, cols: int, **options: Any) -> None:
        super().__init__(body, Domain((rows,), (cols,), (rows, cols), (1,)), over=False, **options)
        self.answer = ""
        self.outputs: tuple[TensorSpec, ...] = ()

    def _place_of_words(self, flat: Index) -> tuple[str, str]:
        return "word_at", self._offset(flat)

    def parameters(self) -> list[str]:
        """What the function reads, and its numbers."""
        return [*self.read.values(), *(argument.name for argument in self.numbers.arguments.values())]


@final
class _Operand(_Part):
    """Makes a tile of an operand."""

    def write(self, i: int, at: Any) -> None:
        """Writes the lines, and what is to be returned."""
        spec = tensor(self.specs[i])
        index = at(spec)
        self._level(i, index)
        tile = self._value(i, index)
        alone = [tensor(self.specs[source]).dtype for source in self.read] == [spec.dtype]
        if alone and len(self.outer) == 1 and tile.x and tile.r:  # it goes to the matrix units as it lies in memory
            self.outer[0] = self.outer[0].removesuffix(".to(tl.float32)")
            self.answer = tile.name
            return
        text = tile.name if tile.x and tile.r else f"tl.broadcast_to({tile.name}, (XB, RB))"
        self.answer = f"tl.where(inside, {text}, 0.0).to({TYPES[spec.dtype]})"


@final
class _Ending(_Part):
    """Takes the sums of a tile to the results."""

    def write(self, result: int, node: Node) -> None:
        """Writes the lines; `product` holds the sums."""
        spec = tensor(self.specs[result])
        flat = flat_index((self.x, self.r), (self.domain.rows, self.domain.length))
        bias = node.inputs[2] if node.call.op is linear else None
        if isinstance(bias, int):
            self._level(bias, (self.r,))
            self.outer.append(f"product += {self._value(bias, (self.r,)).name}")
        if self.strict and spec.dtype is not DType.F32:
            self.outer.append(f"product = product.to({TYPES[spec.dtype]}).to(tl.float32)")
        made = Tile("product", DType.F32, True, True)
        self.known[result, split_index(flat, spec.shape)] = made
        self.levels[result, split_index(flat, spec.shape)] = 0
        outputs = [(i, tensor(self.specs[i])) for i in self.body.outputs if i is not None]
        sizes = {spec.numel for _, spec in outputs} - {self.domain.rows * self.domain.length}
        if sizes:
            raise Unfusible(Reason.SHAPE, f"results of {' and '.join(map(str, sorted(sizes)))} elements")
        for number, (i, output) in enumerate(outputs):
            index = split_index(flat, output.shape)
            self._level(i, index)
            self._store(number, i, index, True)
        self.outputs = tuple(spec for _, spec in outputs)


# -- source --------------------------------------------------------------------------------------------
def _arguments(short: str, part: _Part) -> Iterable[Argument]:
    return [replace(argument, name=f"{short}_{argument.name}") for argument in part.numbers.arguments.values()]


def _source(body: Graph, parts: Sequence[tuple[str, _Part]], product: Product, held: bool) -> str:
    rows, cols, inner = product.rows, product.cols, product.inner
    wide = any(part.wide for _, part in parts)
    pointers = [f"{short}_{name}" for short, part in parts for name in part.read.values()]
    outputs = [f"q{n}" for n in range(len(parts[-1][1].outputs))]
    numbers = [argument.name for short, part in parts for argument in _arguments(short, part)]
    names = [node.call.op.name for node in body.nodes[:12]]
    more = f" and {len(body.nodes) - 12} more" if len(body.nodes) > 12 else ""
    lines = [f'"""{", ".join(names)}{more}, in one kernel."""', "", "from burn_kernels._triton import tl, triton"]
    lines += ["from burn_kernels.matmul import place"]
    helpers = {name for _, part in parts for name in part.helpers}
    lines += import_lines(helpers, {name for _, part in parts for name in part.random_helpers})
    for short, part in parts:
        more_given = ["product", *outputs] if short == "ending" else []
        given = [*part.parameters(), *more_given, "x", "r", "inside", "XB: tl.constexpr", "RB: tl.constexpr"]
        lines += ["", "", "@triton.jit", f"def {short}({', '.join(given)}):"]
        lines += [f"    {line}" for line in part.outer]
        lines += [f"    return {part.answer}"] if part.answer else []
    special = bool(numbers) and not held
    blocks = ["PRECISION", "XB", "RB", "KB", "GROUP"]
    kernel = [*pointers, *outputs, *numbers, *(f"{name}: tl.constexpr" for name in blocks)]
    start = ".to(tl.int64)" if wide else ""

    def called(short: str, part: _Part, *rest: str) -> str:
        return f"{short}({', '.join([*(f'{short}_{name}' for name in part.parameters()), *rest])})"

    left, right, ending = parts
    lines += ["", "", f"@triton.jit(do_not_specialize={numbers!r})" if special else "@triton.jit"]
    lines += [f"def KERNEL({', '.join(kernel)}):"]
    lines += [
        f"    down, across = place(tl.program_id(0), {rows}, {cols}, XB, RB, GROUP)",
        f"    x = down{start} * XB + tl.arange(0, XB)[:, None]",
        f"    r = across{start} * RB + tl.arange(0, RB)[None, :]",
        "    total = tl.zeros((XB, RB), tl.float32)",
        f"    for begin in range(0, {inner}, KB):",
        f"        k = begin + tl.arange(0, KB){start}",
        f"        in_left = (x < {rows}) & (k[None, :] < {inner})",
        f"        in_right = (k[:, None] < {inner}) & (r < {cols})",
        f"        a = {called(*left, 'x', 'k[None, :]', 'in_left', 'XB', 'KB')}",
        f"        b = {called(*right, 'k[:, None]', 'r', 'in_right', 'KB', 'RB')}",
        "        total = tl.dot(a, b, total, input_precision=PRECISION)",
        f"    inside = (x < {rows}) & (r < {cols})",
        f"    {called(*ending, 'total', *outputs, 'x', 'r', 'inside', 'XB', 'RB')}",
    ]
    return "\n".join(lines) + "\n"
