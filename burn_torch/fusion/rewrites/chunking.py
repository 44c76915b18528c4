"""The head of a language model: a product, its cross entropy and their gradients, in chunks of rows.

    logits = x w^T     losses = cross_entropy(logits, targets)     d = cross_entropy_backward(g, logits, targets)
    dx = d w           dw = d^T x

16,384 tokens of a vocabulary of 50,304 are 1.5 GiB of bf16 logits and as much of d, while all that the backward of the
layers below needs is held too.  If forward and backward are one graph and g is known before the losses (1/items of a
mean), one row computes losses, dx and dw of some rows after the other, and no more logits exist than of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.properties import is_product_alone, is_transposition, keeps_order, permutes
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.view import GraphView, positions_behind
from burn_torch.ops.laws import Converts, EndsHead
from burn_torch.ops.op import REGISTRY, Call, Op
from burn_torch.ops.selection import cast
from burn_torch.ops.shapes import permute, reshape
from burn_torch.ops.value import Primitive

__all__ = ["chunk_losses"]

LEAST_BYTES: Final = 512 << 20
"""The least size of logits: below, one product of all rows is quicker, and memory is elsewhere."""


def chunk_losses(graph: Graph, *, least_bytes: int = LEAST_BYTES) -> Graph:
    """The graph with one row in place of each such head whose logits take `least_bytes` at least.

    Left alone: logits that somebody else reads, a bias, weights of classes, smoothing, a g that is made of the losses,
    and a head of which only one gradient is needed.
    """
    return _Finder(graph, least_bytes).run()


@final
@dataclass(frozen=True)
class _Matrix:
    """A value as a matrix of what it is a view of: `base` seen as rows, or that transposed."""

    base: int
    turned: bool


_Gradients = tuple[Node, Node, Sequence[Node]]
"""The products that give dx and dw, and all nodes between them and the backward."""


@final
class _Finder:
    def __init__(self, graph: Graph, least_bytes: int) -> None:
        self.view: Final = GraphView(graph)
        self.least_bytes: Final = least_bytes

    def run(self) -> Graph:
        """The graph with all heads replaced; itself where there is none."""
        for node in self.view.graph.nodes:
            law = node.call.op.law(EndsHead)
            head = None if law is None else self._head(node, law)
            if head is not None:
                self.view.replace(*head, at=node)
        return self.view.done()

    # -- looking ---------------------------------------------------------------------------------------
    def _head(self, backward: Node, law: EndsHead) -> tuple[list[Node], list[Node]] | None:
        """The nodes of the head around a backward, and what stands in their place."""
        g, logits, targets, *rest = backward.inputs
        pads = backward.call.attrs["pad_tokens"]
        if not isinstance(logits, int) or not isinstance(g, int) or rest != [None, None] or len(pads) > 1:
            return None
        spec = self.view.specs[logits]
        assert isinstance(spec, TensorSpec)
        if spec.numel * spec.dtype.itemsize < self.least_bytes:
            return None
        product, between = self._product(logits)
        if product is None:
            return None
        forward = [n for n in self.view.read_by(logits) if n.call.op is REGISTRY[law.loss]]
        if len(forward) != 1 or list(forward[0].inputs[1:]) != [targets, None, None]:
            return None
        if forward[0].call.attrs != backward.call.attrs or self._needs(g, forward[0]):
            return None
        x, w = self._matrix(product.inputs[0]), self._matrix(product.inputs[1])
        grads = self._gradients(backward, x, w)
        members = [product, *between, forward[0], backward]
        results = [i for node in (product, *between) for i in node.outputs if i is not None]
        alone = not any(self.view.is_read_outside(i, members) for i in results)
        if grads is None or not alone or x is None or w is None or x.turned:
            return None
        nodes, widening = self._write_head(REGISTRY[law.row], backward, forward[0], x, w, grads, spec)
        return [*members, *grads[2], *widening], nodes

    def _product(self, logits: int) -> tuple[Node | None, list[Node]]:
        """The product that makes logits, and the reshapes after it."""
        between: list[Node] = []
        while (node := self.view.made_by(logits)) is not None and keeps_order(node):
            between.append(node)
            logits = node.inputs[0]  # type: ignore[assignment]  # a reshape is of a value
        if node is None or not is_product_alone(node):
            return None, between
        weight = node.call.specs[1]
        return (node if isinstance(weight, TensorSpec) and weight.ndim == 2 else None), between

    def _matrix(self, i: Input) -> _Matrix | None:
        """Returns the matrix that a value views, through reshapes that keep the last axis and transpositions."""
        turned = False
        while (node := self.view.made_by(i)) is not None and node.inputs:
            spec, result = node.call.specs[0], node.call.result
            if is_transposition(node):
                turned = not turned
            elif not keeps_order(node) or spec.shape[-1:] != result.shape[-1:]:  # type: ignore[union-attr]  # reshape takes a tensor
                break
            i = node.inputs[0]
        return _Matrix(i, turned) if isinstance(i, int) else None

    def _gradients(self, backward: Node, x: _Matrix | None, w: _Matrix | None) -> _Gradients | None:
        """The products that give dx and dw, with all between them and the backward; None where others read it."""
        if x is None or w is None:
            return None
        dlogits = backward.outputs[0]
        views: list[Node] = []
        products: list[Node] = []
        waiting = [dlogits]
        while waiting:
            value = waiting.pop()
            assert isinstance(value, int)
            if value in self.view.returned:
                return None
            for node in self.view.read_by(value):
                if keeps_order(node) or permutes(node):
                    views.append(node)
                    waiting.append(node.outputs[0])
                elif is_product_alone(node) and node not in products:
                    products.append(node)
                else:
                    return None
        if len(products) != 2:
            return None
        by_name: dict[str, Node] = {}
        for node in products:
            left, right = self._matrix(node.inputs[0]), self._matrix(node.inputs[1])
            d, d_turned = _Matrix(dlogits, False), _Matrix(dlogits, True)  # type: ignore[arg-type]  # made by the backward
            if node.call.result.ndim != 2:
                return None
            if left == d and right == _Matrix(w.base, not w.turned):
                by_name["dx"] = node
            elif (left, right) in ((_Matrix(x.base, not x.turned), d), (d_turned, x)):
                by_name["dw"] = node
        return (by_name["dx"], by_name["dw"], [*views, *products]) if len(by_name) == 2 else None

    def _needs(self, value: int, node: Node) -> bool:
        """Asks whether a value is made of what a node makes."""
        nodes = self.view.graph.nodes
        return any(nodes[n] is node for n in positions_behind([value], self.view.maker, nodes))

    # -- writing ---------------------------------------------------------------------------------------
    def _write_head(
        self, whole: Op, backward: Node, forward: Node, x: _Matrix, w: _Matrix, grads: _Gradients, logits: TensorSpec
    ) -> tuple[list[Node], list[Node]]:
        """Returns the nodes in the place of the head, and the casts of dw to the type of its sum, which go."""
        dx, dw, _ = grads
        items = logits.shape[0]
        nodes: list[Node] = []
        origin = forward.origin

        def add(op: Any, inputs: Sequence[int], attrs: dict[str, Any], outputs: Sequence[int] | None = None) -> int:
            call: Call = op.bind([specs[i] for i in inputs], attrs)
            if outputs is None:
                outputs = [self.view.fresh()]
            specs.update(zip(outputs, call.results, strict=True))
            nodes.append(Node(call, tuple(inputs), tuple(outputs), origin))
            return outputs[0]

        specs: dict[int, Primitive] = dict(self.view.specs)
        rows = add(reshape, [x.base], {"shape": (items, specs[x.base].shape[-1])})
        # the product has w^T (cols, classes): one that is not turned lies as (classes, cols)
        weight = w.base if w.turned else add(permute, [w.base], {"axes": (1, 0)})
        sums = self.view.fresh()
        g, targets = backward.read(0), backward.read(2)
        results = [forward.outputs[0], dx.outputs[0], sums]
        add(whole, [g, rows, weight, targets], dict(backward.call.attrs), results)  # type: ignore[arg-type]  # all are made
        turned = self._matrix(dw.inputs[1]) == _Matrix(backward.outputs[0], False)  # type: ignore[arg-type]  # it is made
        wide = add(permute, [sums], {"axes": (1, 0)}) if turned else sums
        name, before = dw.outputs[0], dw.call.result
        assert isinstance(name, int)
        if specs[wide] is before:
            self.view.rename(name, wide)
            return nodes, []
        readers = self.view.read_by(name)
        widening = [n for n in readers if n.call.op.law(Converts) and n.call.result is specs[wide]]
        for node in widening:
            self.view.rename(node.outputs[0], wide)
        if len(widening) < len(readers) or name in self.view.returned:
            add(cast, [wide], {"dtype": before.dtype}, [name])
        return nodes, widening
