"""The dtype policy: float32 outside, bfloat16 where rows are made of products."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, ConfigError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.passes.sharing import constant_values
from burn_torch.graph.view import GraphView
from burn_torch.ops.op import Call
from burn_torch.ops.selection import cast

__all__ = ["PRECISIONS", "Precision", "dtype_policy"]

Precision: TypeAlias = Literal["float32", "bfloat16"]

PRECISIONS: Final = ("float32", "bfloat16")


def dtype_policy(graph: Graph, precision: Precision = "float32") -> Graph:
    """Computes in bfloat16 what loses little by it; "float32" is the graph itself.

    A row says by `precision` what it does with float32 values: "low" rows (products, convolutions, attention) compute
    in bf16, "high" rows (losses, sums, norms, powers, optimizer updates) in f32, others in the type of their inputs,
    the widest if they differ; constants count for nothing there, nor do a row's `statistics`, which stay f32.  Inputs
    and outputs of the graph keep their types, so parameters and their gradients stay f32.  A value is cast once to each
    type, a weight once a step.

    Raises: ConfigError for another precision.
    """
    if precision not in PRECISIONS:
        raise ConfigError(
            "dtype policy: there is no such precision",
            given=f"precision {precision!r}",
            expected=", ".join(repr(p) for p in PRECISIONS),
            mend='use "bfloat16" for speed on GPUs, or "float32"',
        )
    if precision == "float32":
        return graph
    return _Casting(graph).run()


@final
class _Casting:
    def __init__(self, graph: Graph) -> None:
        self.graph: Final = graph
        self.nodes: Final[list[Node]] = []
        self.constant: Final = constant_values(graph)
        self.dtype: Final[dict[int, DType]] = {}
        """Each float32 value of the old graph -> the type in which it was made."""
        self.forms: Final[dict[tuple[int, DType], int]] = {}
        """(old value, type) -> the value of the new graph that is it in this type."""
        self.viewed: Final[dict[int, Node]] = {}
        """Old float32 values that are views -> the nodes that made them."""
        self.view: Final = GraphView(graph)

    def run(self) -> Graph:
        """The graph with casts."""
        for i, spec in self.graph.inputs:
            if isinstance(spec, TensorSpec) and spec.dtype is DType.F32:
                self._note(i, i, DType.F32)
        for node in self.graph.nodes:
            self._node(node)
        outputs = [
            i if i is None or i not in self.dtype else self._as(i, self.view.specs[i], DType.F32, None)
            for i in self.graph.outputs
        ]
        return Graph(self.graph.inputs, self.nodes, outputs) if len(self.nodes) != len(self.graph.nodes) else self.graph

    def _note(self, old: int, new: int, dtype: DType) -> None:
        self.dtype[old] = dtype
        self.forms[old, dtype] = new

    def _node(self, node: Node) -> None:
        call = node.call
        kept = call.op.statistics
        floats = [i for at, i in enumerate(node.inputs) if isinstance(i, int) and i in self.dtype and at not in kept]
        wanted = self._dtype_for(call, floats)
        bound = self._bind(call, wanted, node.inputs)
        if bound is None:
            wanted, bound = DType.F32, call
        inputs = [
            self._as(i, spec, DType.F32 if at in kept else wanted, node)
            if isinstance(i, int) and i in self.dtype
            else i
            for at, (i, spec) in enumerate(zip(node.inputs, call.specs, strict=True))
        ]
        same = bound is call and all(x == y for x, y in zip(inputs, node.inputs, strict=True))
        self.nodes.append(node if same else Node(bound, inputs, node.outputs, node.origin))
        for i, before, after in zip(node.outputs, call.results, bound.results, strict=True):
            if i is not None and isinstance(before, TensorSpec) and before.dtype is DType.F32:
                self._note(i, i, after.dtype)
                if call.aliases and not call.multiple:
                    self.viewed[i] = node

    def _dtype_for(self, call: Call, floats: list[int]) -> DType:
        mixed = any(
            isinstance(spec, TensorSpec) and spec.dtype.is_float and spec.dtype is not DType.F32 for spec in call.specs
        )
        if mixed or call.op.precision == "high" or not floats:
            return DType.F32
        if call.op.precision == "low":
            return DType.BF16
        led = [i for i in floats if i not in self.constant] or floats
        return DType.BF16 if all(self.dtype[i] is DType.BF16 for i in led) else DType.F32

    def _bind(self, call: Call, dtype: DType, inputs: tuple[Input, ...]) -> Call | None:
        """The Call on inputs of this type; None where the row refuses, or makes something of another shape or kind."""
        if dtype is DType.F32:
            return call
        specs = [
            spec.with_dtype(dtype)
            if isinstance(i, int) and i in self.dtype and isinstance(spec, TensorSpec) and at not in call.op.statistics
            else spec
            for at, (i, spec) in enumerate(zip(inputs, call.specs, strict=True))
        ]
        try:
            bound = call.op.bind(specs, call.attrs)
        except BurnTorchError:
            return None
        fits = all(_fits(old, new) for old, new in zip(call.results, bound.results, strict=True))
        return bound if fits else None

    def _as(self, i: int, spec: object, dtype: DType, reader: Node | None) -> int:
        """A value in a type; cast where it is first needed, from the type in which it was made.

        A view of all of a value, or of one that is in this type already, is a view of that: nothing is cast twice.
        """
        form = self.forms.get((i, dtype))
        if form is None:
            assert isinstance(spec, TensorSpec)
            view = self.viewed.get(i)
            form = None if view is None else self._as_view(view, dtype, reader)
            if form is None:
                call = cast.bind([spec.with_dtype(self.dtype[i])], {"dtype": dtype})
                form = self._add(call, (self.forms[i, self.dtype[i]],), None if reader is None else reader.origin)
            self.forms[i, dtype] = form
        return form

    def _as_view(self, node: Node, dtype: DType, reader: Node | None) -> int | None:
        base, whole = node.inputs[0], node.call.specs[0]
        if not isinstance(base, int) or base not in self.dtype or not isinstance(whole, TensorSpec):
            return None
        if (base, dtype) not in self.forms and whole.numel != node.call.result.numel:
            return None  # a part: the rest need not be cast
        form = self._as(base, whole, dtype, reader)
        call = node.call.op.bind([whole.with_dtype(dtype), *node.call.specs[1:]], node.call.attrs)
        return self._add(call, (form, *node.inputs[1:]), node.origin)

    def _add(self, call: Call, inputs: tuple[Input, ...], origin: Any) -> int:
        new = self.view.fresh()
        self.nodes.append(Node(call, inputs, (new,), origin))
        return new


def _fits(old: object, new: object) -> bool:
    if not isinstance(old, TensorSpec):
        return old is new
    floats = (DType.F32, DType.BF16)
    return (
        isinstance(new, TensorSpec)
        and old.shape == new.shape
        and (old.dtype is new.dtype or (old.dtype in floats and new.dtype in floats))
    )
