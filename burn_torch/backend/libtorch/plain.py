"""Rows by their own candidates, no kernel attached: what computes where a kernel failed or is judged.

Nothing here knows a kernel, so the fallback of a kernel never runs another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from burn_torch.backend.base import run_decomposed
from burn_torch.backend.libtorch.tensors.modes import (
    in_inference,
    is_cast_by_autocast,
    outside,
    refused,
    without_autocast,
)
from burn_torch.graph.ir import Graph
from burn_torch.graph.source import calls_of_execute
from burn_torch.ops.held_numbers import bind_candidate
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_code import TorchCode
from burn_torch.ops.unsigned import unsigned_candidate
from burn_torch.ops.value import Primitive

__all__ = ["compile_plain", "execute_plain", "plain_candidate", "plan_of_candidate", "row_candidate"]


def row_candidate(call: Call) -> Candidate | None:
    """The row's torch candidate for a Call, a TorchCode where its source is known; None where the row has none."""
    return None if call.op.torch is None else unsigned_candidate(call) or bind_candidate(call, call.op.torch)


def plain_candidate(call: Call) -> Candidate:
    """The row's torch candidate, or its decomposition by theirs."""
    candidate: Candidate | None = call.memo.get(plain_candidate)
    if candidate is None:
        candidate = row_candidate(call) or run_decomposed(compile_plain, call)
        call.memo[plain_candidate] = candidate
    return candidate


def plan_of_candidate(call: Call, candidate: Candidate) -> Candidate:
    """A candidate as a function that computes the Call, in the types of its specs whatever torch's autocast says."""
    function = candidate.function if isinstance(candidate, TorchCode) else candidate
    return without_autocast(function) if is_cast_by_autocast(call) else function


def execute_plain(call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
    """Computes a Call.  Raises: as `LibTorch.execute`."""
    plan = call.plans.get(plain_candidate)
    if plan is None:
        plan = call.plans[plain_candidate] = plan_of_candidate(call, plain_candidate(call))
    try:
        results = outside(plan, inputs) if in_inference() else plan(*inputs)
    except (OverflowError, RuntimeError, MemoryError, AssertionError) as err:
        raise refused(err, call, inputs) or err from None
    return results if call.multiple else (results,)


def compile_plain(graph: Graph) -> Callable[..., Sequence[Primitive]]:
    """A function from the graph's inputs to its outputs, operation by operation."""
    return calls_of_execute(graph, execute_plain)
