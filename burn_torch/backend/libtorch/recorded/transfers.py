"""Transfers between processes, made ready for recording: all but the transfer itself is recorded.

    mean_start(w, *xs)      mean_pack(w, *xs)    recorded: [xs, 1] * w in one row of numbers
                            mean_send            launched plainly: the same memory, which is being summed from then on
    mean_wait(flat)         mean_arrive          launched plainly: the same memory, once it holds the sum
                            mean_share           recorded: the sum by the sum of the weights

So a transfer works on memory of a recording, at an address that stays, and nothing is copied to get it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from burn_torch.backend.libtorch.forms.numbers import RUN_TIME, DeviceForm
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.view import GraphView
from burn_torch.ops.collectives import arriving, mean_of, mean_start, mean_wait, packing, sending
from burn_torch.ops.op import Call, Op, PerCall, unlisted
from burn_torch.ops.signature import Operand
from burn_torch.ops.value import Primitive

__all__ = ["is_in_place", "with_transfers_apart"]


def with_transfers_apart(graph: Graph) -> Graph:
    """The graph with `mean_start` and `mean_wait` in two rows each; the graph itself where it has neither.

    Waits that follow each other stay together, so that what they bring is divided in one recorded part.
    """
    if not any(_is_half(node.call) for node in graph.nodes):
        return graph
    view = GraphView(graph)
    nodes: list[Node] = []
    shares: list[Node] = []
    for node in graph.nodes:
        begins = node.call.op is mean_start
        if shares and node.call.op is not mean_wait:
            nodes += shares
            shares = []
        if not _is_half(node.call):
            nodes.append(node)
            continue
        first, second = _START if begins else _WAIT
        between = node.call.result if begins else node.call.specs[0]
        assert isinstance(between, TensorSpec)
        flat = view.fresh()
        nodes.append(Node(_half_call(first, node.call, node.call.specs, between), node.inputs, (flat,), node.origin))
        rest = Node(_half_call(second, node.call, (between,), node.call.result), (flat,), node.outputs, node.origin)
        (nodes if begins else shares).append(rest)
    return Graph(graph.inputs, nodes + shares, graph.outputs)


def is_in_place(call: Call) -> bool:
    """Asks whether the result is input 0 itself, changed by other processes."""
    return call.op in (_START[1], _WAIT[0])


def _is_half(call: Call) -> bool:
    return call.op is mean_start or call.op is mean_wait


def _half_call(row: Op, half: Call, specs: Sequence[Primitive], result: TensorSpec) -> Call:
    known: Call | None = half.memo.get(row)
    if known is None:  # one for each half: that a recorder refused it is known by the Call
        known = half.memo[row] = Call(row, tuple(specs), {}, (result,), False)
        known.memo["half"] = half
    return known


def _of_half(build: Callable[[Call], Callable[..., object]]) -> PerCall:
    return PerCall(lambda call: build(call.memo["half"]))


def _put_weight_on_device(call: Call, known: Sequence[object]) -> DeviceForm | None:
    """A weight that changes from call to call lies on the device."""
    kind = call.result.dtype
    assert known[0] is RUN_TIME
    return DeviceForm((kind if kind is DType.F64 else DType.F32,), lambda weight: (weight,), packing(call.memo["half"]))


def mean_pack(weight: Operand, *xs: TensorSpec) -> TensorSpec:  # type: ignore[empty-body]  # it is bound by hand
    """[xs, 1] * weight, in one row of numbers."""


def mean_send(flat: TensorSpec) -> TensorSpec:  # type: ignore[empty-body]  # it is bound by hand
    """The same memory, which is being summed over the processes."""


def mean_arrive(flat: TensorSpec) -> TensorSpec:  # type: ignore[empty-body]  # it is bound by hand
    """The same memory, which holds the sum."""


def mean_share(flat: TensorSpec) -> TensorSpec:  # type: ignore[empty-body]  # it is bound by hand
    """The sum by the sum of the weights."""


_START: Final = (
    unlisted(mean_pack, torch=_of_half(packing), device_numbers=_put_weight_on_device),
    unlisted(mean_send, torch=_of_half(sending), collective="starts"),
)
_WAIT: Final = (
    unlisted(mean_arrive, torch=_of_half(arriving), collective="blocks"),
    unlisted(mean_share, torch=_of_half(lambda _: mean_of)),
)
