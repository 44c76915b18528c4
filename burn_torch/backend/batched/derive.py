"""A Call on many samples is derived, not interpreted: for the inputs that have samples, once, as a Graph.

In this order: the row's own rule; for element-wise rows the row itself; its decomposition; a loop over the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.ir import Graph, Literal
from burn_torch.graph.passes import dead_code
from burn_torch.graph.trace import Trace
from burn_torch.ops.batching import aligned, beside, is_tensor
from burn_torch.ops.op import REGISTRY, Call
from burn_torch.ops.value import Primitive, Value

__all__ = ["Vectorised", "vectorised"]


@final
class Vectorised:
    """A Call on `n` samples: a graph of its inputs that are not None, and the rows that it computes in a loop."""

    __slots__ = ("graph", "looped")

    def __init__(self, graph: Graph, looped: Sequence[str]) -> None:
        self.graph: Final = graph
        self.looped: Final = tuple(looped)


def vectorised(call: Call, many: Sequence[bool], n: int, *, draws: bool = True) -> Vectorised:
    """`call` with the samples on a further axis in front of the inputs in `many`, and of all outputs.

    draws  whether random rows draw for each sample; else all samples have the same numbers
    """
    trace = Trace()
    inputs: list[Primitive] = []
    for spec, each in zip(call.specs, many, strict=True):
        if each:
            assert isinstance(spec, TensorSpec)
            spec = spec.with_shape((n, *spec.shape))
        inputs.append(None if spec is None else trace.input(spec))
    looped: dict[str, None] = {}
    outputs = _Samples(n, draws, looped, trace).compute(call, tuple(many), inputs)
    for output, spec in zip(outputs, call.results, strict=True):
        assert output is None or output.spec is spec.with_shape((n, *spec.shape)), (
            f"the batch rule of {call} gives {output.spec} for {n} samples of {spec}"
        )
    return Vectorised(dead_code(trace.graph(outputs)), list(looped))


class _Samples(NamedTuple):
    """Holds how a Call on many samples is written.

    n       how many samples there are
    draws   whether random rows draw for each of them
    looped  takes the names of rows that are computed in a loop
    """

    n: int
    draws: bool
    looped: dict[str, None]
    trace: Trace

    def compute(self, call: Call, many: tuple[bool, ...], inputs: Sequence[object]) -> Sequence[Primitive]:
        """The outputs of a Call, with the samples in front."""
        row, n = call.op, self.n
        if row.batch_rule is not None and (self.draws or not row.random):
            output = row.batch_rule(n, many, *inputs, **call.attrs)
            if output is not NotImplemented:
                return _outputs(call, output)
        if row.pointwise is not None:
            return _outputs(call, _element_wise(call, many, n, inputs))
        if row.decomposition is not None:
            return self._through(decomposed(call), many, inputs)
        self.looped[row.name] = None
        return _loop(call, many, n, inputs, self.trace)

    def _through(self, graph: Graph, many: tuple[bool, ...], inputs: Sequence[object]) -> Sequence[object]:
        pairs = [(x, m) for x, m in zip(inputs, many, strict=True) if x is not None]
        values: dict[int, tuple[object, bool]] = {i: pair for (i, _), pair in zip(graph.inputs, pairs, strict=True)}
        for node in graph.nodes:
            read = [values[i] if isinstance(i, int) else (_literal_value(i), False) for i in node.inputs]
            arguments, flags = [x for x, _ in read], tuple(m for _, m in read)
            samples = any(flags) or (self.draws and node.call.op.random)
            if samples:
                outputs = self.compute(node.call, flags, arguments)
            else:
                outputs = _outputs(node.call, node.call.op.run(self.trace, Value, arguments, node.call.attrs))
            for i, x in zip(node.outputs, outputs, strict=True):
                if i is not None:
                    values[i] = (x, samples)
        return [None if i is None else beside(self.n, values[i][1], values[i][0]) for i in graph.outputs]


def _outputs(call: Call, output: Any) -> Sequence[Primitive]:
    return output if call.multiple else (output,)


def _element_wise(call: Call, many: tuple[bool, ...], n: int, inputs: Sequence[object]) -> object:
    specs = [spec for spec in call.specs if isinstance(spec, TensorSpec)]
    if all(spec.shape == specs[0].shape for spec in specs):
        return call.op(*[beside(n, m, x) for m, x in zip(many, inputs, strict=True)], **call.attrs)
    ndim = max(spec.ndim for spec in specs)
    return call.op(*[aligned(m, x, ndim) for m, x in zip(many, inputs, strict=True)], **call.attrs)


def _literal_value(i: Literal | None) -> object:
    return None if i is None else i.value


def _loop(call: Call, many: tuple[bool, ...], n: int, inputs: Sequence[Primitive], trace: Trace) -> Sequence[Primitive]:
    columns: list[list[Any]] = [[] for _ in call.results]
    for sample in range(n):
        arguments = [_pick_sample(x, sample) if m else x for m, x in zip(many, inputs, strict=True)]
        results = _outputs(call, call.op.run(trace, Value, arguments, call.attrs))
        for column, y in zip(columns, results, strict=True):
            column.append(None if y is None else REGISTRY["reshape"](y, shape=(1, *y.shape)))
    return [REGISTRY["cat"](*column, dim=0) if is_tensor(column[0]) else None for column in columns]


def _pick_sample(x: Value, sample: int) -> Value:
    ranges = ((sample, sample + 1, 1), *((0, size, 1) for size in x.shape[1:]))
    return REGISTRY["reshape"](REGISTRY["slice"](x, ranges=ranges), shape=x.shape[1:])
