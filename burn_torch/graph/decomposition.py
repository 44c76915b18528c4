"""The decompositions of rows and expansions as Graphs, derived once for each Call."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.laws import Expands
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.value import Value
from burn_torch.symbolic.sizes import same_size

__all__ = ["decomposed", "expanded"]


def decomposed(call: Call) -> Graph:
    """Returns a Call written with other rows; its inputs are those that are not None.  Derived once for each Call.

    Raises: TypeError where the row has no decomposition.
    """
    graph: Graph | None = call.memo.get("decomposition")
    if graph is None:
        if call.op.decomposition is None:
            raise TypeError(f"{call.op.name} has no decomposition")
        graph = call.memo["decomposition"] = _trace_body(call, call.op.decomposition)
        assert graph is not None, f"the decomposition of {call.op.name} gives nothing"
    return graph


def expanded(call: Call) -> Graph | None:
    """Returns the expansion of a Call, else its decomposition; None where it has neither.

    A collective is not opened: half of a transfer, in other rows, would wait for nothing.  Nor is a Call of a tensor
    without elements: there is nothing to gain, and the rows inside may refuse it, as one_hot refuses 0 classes.
    """
    if call.op.collective is not None or _of_nothing(call):
        return None
    law = call.op.law(Expands)
    if law is None:
        return None if call.op.decomposition is None else decomposed(call)
    if "expansion" not in call.memo:
        call.memo["expansion"] = _trace_body(call, law.body)
    return call.memo["expansion"]


def _of_nothing(call: Call) -> bool:
    return any(isinstance(spec, TensorSpec) and same_size(spec.numel, 0) for spec in call.specs)


def _trace_body(call: Call, body: Candidate) -> Graph | None:
    trace = Trace()
    inputs = [None if spec is None else trace.input(spec) for spec in call.specs]
    outputs = body(*inputs, **call.attrs)
    if outputs is None:
        return None
    values: Sequence[Value | None] = outputs if call.multiple else (outputs,)
    for value, spec in zip(values, call.results, strict=True):
        assert value is None or value.spec is spec, f"what {call} is made of gives {value.spec}, not {spec}"
    return trace.graph(values)
