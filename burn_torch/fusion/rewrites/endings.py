"""Endings of products by a library: GELU after it, or another algorithm.

    z = linear(x, w, b); y = gelu(z)                          (z, y) = linear_gelu(x, w, b)
    d = matmul(g, w); dz = gelu_backward(d, z); sum(dz)       (dz, sum) = matmul_gelu_backward(g, w, z)
    y = linear(x, w, b)                                       y = fusion::library_product(x, w, b)

Forward, GELU costs no read of z; backward, no d is written and read, and the bias's sum costs no pass.  In the form of
tanh alone: no library ends with the exact GELU.  Whether that is ahead of a product with a kernel after it, and by
which of the library's algorithms, `Choices` says; where it does not, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.choices import Asked, Choices
from burn_torch.fusion.rewrites.properties import bias_of, is_product_alone, is_transposition, keeps_order, sums_rows
from burn_torch.fusion.rows.product_row import library_product
from burn_torch.fusion.triton.products import Product, is_product
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.view import GraphView
from burn_torch.ops.laws import EndsProduct, Multiplies
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.shapes import reshape

__all__ = ["with_endings"]


def with_endings(graph: Graph, choices: Choices) -> Graph:
    """The graph with rows in place of products, and of GELU behind them, wherever the choices say so.

    GELU's backward stays apart from a product whose result somebody else reads.  Products of more than two matrices,
    and the exact GELU, are left as they are.
    """
    if choices.ending is None:
        return graph
    return _Finder(graph, choices.ending).run()


@final
class _Finder:
    def __init__(self, graph: Graph, chooser: Callable[[Asked], int | None]) -> None:
        self.view: Final = GraphView(graph)
        self.chooser: Final = chooser

    def run(self) -> Graph:
        """The graph with all that were found replaced; itself where there is none."""
        nodes = self.view.graph.nodes
        for node in nodes:
            law = node.call.op.law(EndsProduct)
            if law is None:
                continue
            change = self._forward(node, law) if len(node.inputs) == 1 else self._backward(node, law)
            if change is not None:
                self.view.replace(*change, at=node)
        for node in nodes:
            if node.call.op.law(Multiplies) is not None and not self.view.is_gone(node):
                plain = self._plain(node)
                if plain is not None:
                    self.view.replace([], [plain], at=node)
        return self.view.done()

    # -- forward ---------------------------------------------------------------------------------------
    def _forward(self, gelu: Node, law: EndsProduct) -> tuple[list[Node], list[Node]] | None:
        """A layer and the GELU of its result."""
        layer = self.view.made_by(gelu.inputs[0])
        if layer is None or len(layer.inputs) != 3:  # a product of two has no bias that the row could take
            return None
        rank = self._rank(layer, law.ending)
        if rank is None:
            return None
        call = REGISTRY[law.row].bind(layer.call.specs, {"rank": rank})
        return [layer], [Node(call, layer.inputs, (*layer.outputs, *gelu.outputs), layer.origin)]

    def _plain(self, node: Node) -> Node | None:
        """A product by another algorithm of the library."""
        bias = bias_of(node)
        rank = self._rank(node, "none" if bias is None else "bias")
        if rank is None:
            return None
        specs = [*node.call.specs, None][:3]
        inputs = (*node.inputs[:2], bias)
        return Node(library_product.bind(specs, {"rank": rank}), inputs, node.outputs, node.origin)

    def _rank(self, node: Node, ending: str) -> int | None:
        """Returns the library's algorithm that should compute a product with this ending."""
        call = node.call
        if not is_product(call):
            return None
        right, result = call.tensor(1), call.result
        if right.ndim != 2:
            return None
        inner, cols = right.shape
        size = Product(result.numel // cols, cols, inner, result.dtype, result.place)
        bias = bias_of(node) is not None
        return self.chooser(
            Asked(size, ending, bias, (self._is_turned(node.inputs[0]), self._is_turned(node.inputs[1])))
        )

    def _is_turned(self, i: Input) -> bool:
        """Asks whether a value is the transpose of a matrix in memory."""
        maker = self.view.made_by(i)
        return maker is not None and is_transposition(maker)

    # -- backward --------------------------------------------------------------------------------------
    def _backward(self, slope: Node, law: EndsProduct) -> tuple[list[Node], list[Node]] | None:
        """The product that makes what GELU's backward takes, and the sum of its rows where somebody wants it."""
        d, z = slope.inputs
        if not isinstance(d, int) or not isinstance(z, int):
            return None
        product, between = self._alone(d)
        if product is None or not is_product_alone(product) or product.call.result.ndim != 2:
            return None
        rank = self._rank(product, law.ending)
        if rank is None:
            return None
        (dz,) = slope.outputs
        assert isinstance(dz, int)
        shape = product.call.result.shape
        flat = z if self._shape(z) == shape else self._name(z, shape)
        nodes = [] if flat == z else [self._make_reshape(z, flat, shape)]
        whole = self._shape(dz)
        flat_dz = dz if whole == shape else self._name(dz, shape)
        total = self._total(dz, shape)
        sums = self._name(dz, shape[1:]) if total is None else total.outputs[0]
        call = REGISTRY[law.row].bind([*product.call.specs[:2], self.view.specs[flat]], {"rank": rank})
        nodes.append(Node(call, (*product.inputs[:2], flat), (flat_dz, sums), slope.origin or product.origin))
        if flat_dz != dz:
            nodes.append(self._make_reshape(flat_dz, dz, whole))
        return [product, *between, *([] if total is None else [total])], nodes

    def _alone(self, i: int) -> tuple[Node | None, list[Node]]:
        """Returns the maker of a value, and the reshapes after it; None where another node reads one of them."""
        between: list[Node] = []
        while True:
            node = self.view.made_by(i)
            if node is None or i in self.view.returned or len(self.view.read_by(i)) != 1:
                return None, between
            if not keeps_order(node):
                return node, between
            between.append(node)
            i = node.inputs[0]  # type: ignore[assignment]  # a reshape is of a value

    def _total(self, dz: int, shape: tuple[int, ...]) -> Node | None:
        """The sum of all rows of a value, or of what it is after reshapes."""
        waiting = [dz]
        while waiting:
            for node in self.view.read_by(waiting.pop()):
                if node.call.result.shape == shape[1:] and sums_rows(node):
                    return node
                if keeps_order(node) and node.call.result.shape[-1:] == shape[-1:]:
                    waiting += [i for i in node.outputs if i is not None]
        return None

    # -- values ----------------------------------------------------------------------------------------
    def _shape(self, i: int) -> tuple[int, ...]:
        spec = self.view.specs[i]
        assert isinstance(spec, TensorSpec)
        return spec.shape

    def _name(self, like: int, shape: tuple[int, ...]) -> int:
        """A new value of the type of another one."""
        spec = self.view.specs[like]
        assert isinstance(spec, TensorSpec)
        return self.view.fresh(spec.with_shape(shape))

    def _make_reshape(self, i: Input, to: int, shape: tuple[int, ...]) -> Node:
        assert isinstance(i, int)
        return Node(reshape.bind([self.view.specs[i]], {"shape": shape}), (i,), (to,))
