"""TableLeaf: the base of a leaf that brings a table of its own, from rows to functions.

A leaf writes where its data is (`from_data`, `into_data`, `spec`, `copy`, `sync`) and the rows that it computes.  All
other rows are computed as what they are made of: their decompositions, or else their expansions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from burn_torch.backend.base import Backend, run_graph
from burn_torch.core.errors import DeviceError
from burn_torch.graph.decomposition import decomposed, expanded
from burn_torch.ops.held_numbers import bind_candidate
from burn_torch.ops.op import Call, PerCall

__all__ = ["TableLeaf"]


class TableLeaf(Backend):
    """A leaf that computes rows by its own table.

        class Lists(TableLeaf):
            name = "Lists"
            table = {"neg": lambda x: [-v for v in x], "reshape": PerCall(build_reshape), ...}

    A function takes the inputs of a Call, its static arguments by name, and gives one primitive for each output; a
    `PerCall` builds such a function for one Call, whose specs it may read.
    """

    table: Mapping[str, Callable[..., Any] | PerCall]
    """The functions by the names of their rows; rows of users are "namespace::name"."""

    def execute(self, call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
        """Computes with the table's function, or with what the row is made of.  Raises: DeviceError without either."""
        plan = call.plans.get(type(self))
        if plan is None:
            plan = call.plans[type(self)] = self.plan(call)
        outputs: Any = plan(*inputs)
        return outputs if call.multiple else (outputs,)

    def plan(self, call: Call) -> Callable[..., Any]:
        """Makes the function that computes a Call.  Raises: DeviceError for a row that the leaf cannot compute."""
        function = self.table.get(call.op.name)
        if function is not None:
            return bind_candidate(call, function)
        graph = decomposed(call) if call.op.decomposition is not None else expanded(call)
        if graph is None:
            raise DeviceError(
                f"{self.name} cannot compute {call.op.name}",
                given=f"{call!r}, a row without a decomposition",
                expected=f"one of the {len(self.table)} rows of its table, or a row made of them",
                mend=f'add "{call.op.name}" to the table of {type(self).__name__}, or move the values to a device'
                " that computes it: x.to_device(Device.cpu())",
            )
        return run_graph(self.compile(graph), call)
