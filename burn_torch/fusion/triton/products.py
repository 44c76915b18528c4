"""Kernels around a matrix product: element-wise work before it and after it, in the product's own tiles.

    matmul(cast(x), w) -> + bias -> gelu -> + residual        one kernel, if this is its body

The body is a Graph with one product.  The kernel is three functions and a loop over what the product sums: `left` and
`right` make tiles of its operands from memory, `ending` takes the sums to the results.  Each is written as any kernel
is (`dialect.py`), over rows x and columns r of its tile; the sums stand for the product at the tile's own place.

Sums are float32.  Elements beyond an edge of an operand are 0 whatever is computed of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final, Unpack, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body import steps
from burn_torch.fusion.body.dialect import title_of
from burn_torch.fusion.body.index import Index, constant, flat_index, split_index
from burn_torch.fusion.body.loops import Argument, Domain, Lowered, Text, tensor
from burn_torch.fusion.body.needs import MOST_TENSORS, Terms
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.steps import Place, Value, Words
from burn_torch.fusion.body.tiles import TileNeeds
from burn_torch.fusion.triton.dialect import TYPES, Triton, decorator, header
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.laws import Draws, Fill, Moves
from burn_torch.ops.op import Call
from burn_torch.ops.products import linear, matmul

__all__ = [
    "PartNeeds",
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
class ProductKernel(Lowered):
    """A body as a kernel around a product."""

    product: Product


def is_product(call: Call) -> bool:
    """Tells if a kernel can be made of what lies around this operation: a product of matrices with one right side."""
    return _sizes(call) is not None


def may_be_product(call: Call) -> bool:
    """Tells if it is one at some sizes; asks no size, which may be symbols."""
    return call.op in (matmul, linear) and isinstance(call.result, TensorSpec) and call.result.dtype in _FLOATS


def product_in(body: Graph) -> tuple[Node, Product]:
    """The product of a body.  Raises: Unfusible where there is not exactly one, or none that kernels compute."""
    products = [(node, size) for node in body.nodes if (size := _sizes(node.call)) is not None]
    if len(products) != 1:
        raise Unfusible(Reason.UNSUPPORTED, f"{len(products)} products in one kernel")
    return products[0]


def _sizes(call: Call) -> Product | None:
    if call.op is not matmul and call.op is not linear:
        return None
    left, right, spec = call.tensor(0), call.tensor(1), call.result
    if spec.dtype not in _FLOATS or not spec.numel or not left.numel or left.ndim < 2:
        return None
    if math.prod(right.shape[:-2]) != 1 or left.ndim < right.ndim:
        return None
    inner, cols = right.shape[-2:]
    return Product(spec.numel // cols, cols, inner, spec.dtype, spec.place)


# -- lowering ------------------------------------------------------------------------------------------
def lower_product(body: Graph, *, held: bool = False, **terms: Unpack[Terms]) -> ProductKernel:
    """The kernel of a body with one product; arguments as of `lowering.lower`.  Raises: Unfusible, with the reason."""
    node, product = product_in(body)
    for other in body.nodes:
        require_elementwise(other, node)
    rows, cols, inner = product.rows, product.cols, product.inner
    left, right, ending = (PartNeeds(body, sides, **terms) for sides in ((rows, inner), (inner, cols), (rows, cols)))
    answers = (
        left.decide_operand(node.read(0), lambda shape: (*split_index(left.x, shape[:-1]), left.r)),
        right.decide_operand(node.read(1), lambda shape: (*(constant(0) for _ in shape[:-2]), right.x, right.r)),
    )
    flat = flat_index((ending.x, ending.r), (rows, cols))
    bias = node.inputs[2] if node.call.op is linear else None
    sums = ending.decide_ending(node, flat, bias if isinstance(bias, int) else None)
    needs = (left, right, ending)
    tensors = sum(len(part.read) for part in needs) + len(ending.results)
    if tensors > MOST_TENSORS:
        raise Unfusible(Reason.LIMIT, f"{tensors} tensors")

    def write() -> tuple[str, list[Argument], tuple[()]]:
        parts = [_Part(name, part, held=held) for name, part in zip(("left", "right", "ending"), needs, strict=True)]
        parts[2].names[sums] = "product"
        for part in parts:
            part.write(part.needs.steps)
        source = _source(body, parts, [part.answer(each) for part, each in zip(parts, answers, strict=False)], product)
        return source, [argument for part in parts for argument in part.own_arguments()], ()

    inputs = tuple(position for part in needs for position in part.inputs)
    return ProductKernel(Text(write), inputs, ending.results, product)


def require_elementwise(node: Node, product: Node) -> None:
    """Raises: Unfusible for a node that is neither the product nor element by element."""
    call = node.call
    law = call.op.law(Moves) or call.op.law(Fill) or call.op.law(Draws)
    if node is not product and law is None and call.op.pointwise is None and not call.is_input:
        raise Unfusible(Reason.UNSUPPORTED, f"{call.op.name} in the tiles of a product")


@final
class PartNeeds(TileNeeds):
    """The steps of a function of a kernel, over elements, or over rows and columns of a tile that begins anywhere."""

    def __init__(self, body: Graph, shape: tuple[int, ...], **terms: Unpack[Terms]) -> None:
        rows, *cols = shape
        domain = Domain((rows,), tuple(cols), shape, (1,)) if cols else Domain((rows,), None, shape)
        super().__init__(body, domain, Triton, **terms)

    def words_of(self, flat: Index) -> tuple[Words, Index]:
        """Each word by itself, since a tile may begin in the midst of a block."""
        return Words.EACH, flat

    def decide_operand(self, i: int, at: Callable[[tuple[int, ...]], tuple[Index, ...]]) -> tuple[Value, TensorSpec]:
        """Makes a tile of an operand of a product; one that is read and nothing else stays as it lies in memory."""
        spec = tensor(self.specs[i])
        index = at(spec.shape)
        self.level(i, index)
        value = self.value(i, index)
        alone = [tensor(self.specs[source]).dtype for source in self.read] == [spec.dtype]
        if alone and len(self.steps) == 1 and value.x and value.r and isinstance(self.steps[0], steps.Load):
            self.steps = [self.steps[0]._replace(raw=True)]
        return value, spec

    def decide_ending(self, node: Node, flat: Index, bias: int | None = None) -> Value:
        """Takes the sums of a tile, float32, to the results; gives the value that stands for the sums."""
        (result,) = (i for i in node.outputs if i is not None)
        spec, sums = tensor(self.specs[result]), Value(DType.F32, True, self.reduces)
        if bias is not None:
            self.level(bias, (self.r,))
            self.steps.append(steps.IncreaseSums(self.value(bias, (self.r,))))
        if self.strict and spec.dtype is not DType.F32:
            self.steps.append(steps.RoundSums(sums, spec.dtype))
        self.tell(result, split_index(flat, spec.shape), sums)
        sizes = {output.numel for output in self.results} - {spec.numel}
        if sizes:
            raise Unfusible(Reason.SHAPE, f"results of {' and '.join(map(str, sorted(sizes)))} elements")
        for number, i in enumerate(self.made):
            index = split_index(flat, tensor(self.specs[i]).shape)
            self.level(i, index)
            value = self.value(i, index)
            self.store(number, value, flat_index(index, tensor(self.specs[i]).shape), self.reduces)
        return sums


@final
class _Part(Triton):
    """One of the three functions; its name stands before the names of what it takes."""

    def __init__(self, short: str, needs: PartNeeds, *, held: bool) -> None:
        super().__init__(needs, held=held)
        self.short: Final = short

    def parameters(self, before: str = "") -> list[str]:
        """The pointers that the function reads, and its numbers."""
        names = [*self.pointers.values(), *(argument.name for argument in self.numbers.arguments.values())]
        return [f"{before}{name}" for name in names]

    def own_arguments(self) -> list[Argument]:
        """Its numbers, as the kernel calls them."""
        return [replace(each, name=f"{self.short}_{each.name}") for each in self.numbers.arguments.values()]

    def called(self, *rest: str) -> str:
        """A call of it."""
        return f"{self.short}({', '.join([*self.parameters(f'{self.short}_'), *rest])})"

    def answer(self, operand: tuple[Value, TensorSpec]) -> str:
        """The value that a function that makes an operand returns: 0 beyond the edge."""
        value, spec = operand
        name = self.names[value]
        if isinstance(step := self.needs.steps[0], steps.Load) and step.raw:
            return name
        text = name if value.x and value.r else f"tl.broadcast_to({name}, (XB, RB))"
        return f"tl.where(inside, {text}, 0.0).to({TYPES[spec.dtype]})"


# -- source --------------------------------------------------------------------------------------------
def _source(body: Graph, parts: Sequence[_Part], answers: Sequence[str], product: Product) -> str:
    rows, cols, inner = product.rows, product.cols, product.inner
    left, right, ending = parts
    outputs = [f"q{n}" for n in range(len(ending.needs.results))]
    numbers = [argument.name for part in parts for argument in part.own_arguments()]
    helpers = {name for part in parts for name in part.helpers}
    lines = header(title_of(body), helpers, "from burn_kernels.matmul import place")
    for part, answer in zip(parts, [*answers, ""], strict=True):
        more = ["product", *outputs] if part is ending else []
        names = [*part.parameters(), *more, "x", "r", "inside", "XB: tl.constexpr", "RB: tl.constexpr"]
        lines += ["", "", "@triton.jit", f"def {part.short}({', '.join(names)}):"]
        lines += [f"    {line}" for line in [*part.lines[Place.EACH], *([f"return {answer}"] if answer else [])]]
    blocks = [f"{name}: tl.constexpr" for name in ("PRECISION", "XB", "RB", "KB", "GROUP")]
    pointers = [f"{part.short}_{name}" for part in parts for name in part.pointers.values()]
    wide = ".to(tl.int64)" if any(part.needs.wide for part in parts) else ""
    lines += ["", "", decorator([] if left.held else numbers)]
    lines += [
        f"def KERNEL({', '.join([*pointers, *outputs, *numbers, *blocks])}):",
        f"    down, across = place(tl.program_id(0), {rows}, {cols}, XB, RB, GROUP)",
        f"    x = down{wide} * XB + tl.arange(0, XB)[:, None]",
        f"    r = across{wide} * RB + tl.arange(0, RB)[None, :]",
        "    total = tl.zeros((XB, RB), tl.float32)",
        f"    for begin in range(0, {inner}, KB):",
        f"        k = begin + tl.arange(0, KB){wide}",
        f"        in_left = (x < {rows}) & (k[None, :] < {inner})",
        f"        in_right = (k[:, None] < {inner}) & (r < {cols})",
        f"        a = {left.called('x', 'k[None, :]', 'in_left', 'XB', 'KB')}",
        f"        b = {right.called('k[:, None]', 'r', 'in_right', 'KB', 'RB')}",
        "        total = tl.dot(a, b, total, input_precision=PRECISION)",
        f"    inside = (x < {rows}) & (r < {cols})",
        f"    {ending.called('total', *outputs, 'x', 'r', 'inside', 'XB', 'RB')}",
    ]
    return "\n".join(lines) + "\n"
