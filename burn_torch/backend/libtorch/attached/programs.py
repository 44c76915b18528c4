"""Programs with kernels: those attached to rows, and generated ones, which are launched together where that pays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from burn_torch.backend.capabilities import Program
from burn_torch.backend.libtorch.attached.table import attached
from burn_torch.backend.libtorch.generated.compiling import compile_ahead
from burn_torch.backend.libtorch.generated.together import together
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel, fused_kernel
from burn_torch.backend.libtorch.programs.memory import InPlace, InPlaceForm, in_place_writes, row_in_place_form
from burn_torch.backend.libtorch.programs.program import write_program
from burn_torch.fusion.rows.row import kernel
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.memory import MemoryPlan
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.value import Primitive

__all__ = ["in_place_form", "write_with_kernels"]


def write_with_kernels(
    graph: Graph, donate: Collection[int], candidate: Callable[[Call], Candidate], title: str
) -> Program:
    """The program of a graph; `candidate` gives the function that computes a Call, which may be a kernel."""
    return write_program(graph, donate, title, candidate=candidate, writes=_writes, finish=_launch)


def in_place_form(call: Call) -> InPlaceForm | None:
    """The in-place form of a row at this Call; None where it has none, and where a kernel computes it: kernels write
    to memory of their own, but for generated ones that a memory plan lets write over their inputs."""
    return None if call.op is kernel or attached(call) is not None else row_in_place_form(call)


def _writes(graph: Graph, plan: MemoryPlan) -> Mapping[int, InPlace]:
    return in_place_writes(graph, plan, in_place_form, _kernel_over)


def _kernel_over(call: Call, over: Mapping[int, int]) -> InPlace | None:
    run = fused_kernel(call)
    if run is None:
        return None
    count = len(call.results)
    return InPlace(
        run.written_over(over), tuple(over.get(j, -1) for j in range(count)), tuple(j in over for j in range(count))
    )


def _launch(run: Candidate, graph: Graph, functions: Sequence[Primitive]) -> Candidate:
    compile_ahead([function for function in functions if isinstance(function, FusedKernel)])
    return together(run, graph, functions)
