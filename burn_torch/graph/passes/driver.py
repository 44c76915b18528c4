"""The passes in their order, and what each of them did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final, overload

from burn_torch.core.errors import ConfigError, explain
from burn_torch.core.verifying import is_proving
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.passes.casting import Precision, dtype_policy
from burn_torch.graph.passes.constants import fold_constants
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.grouping import group_updates
from burn_torch.graph.passes.identities import algebra
from burn_torch.graph.passes.invariants import check_isolated, check_transfers, rewritten
from burn_torch.graph.passes.isolation import isolate_outputs
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.passes.narrowing import narrow_gradients
from burn_torch.graph.passes.overlapping import launch_early
from burn_torch.graph.passes.recomputing import recompute
from burn_torch.graph.passes.rewrite import Numerics
from burn_torch.graph.passes.subexpressions import common_subexpressions
from burn_torch.graph.passes.view_chains import fold_views

__all__ = ["PassReport", "PassReports", "pipeline"]

_NUMERICS: Final = ("eager", "fast")


@final
@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did: nodes and planned peak of memory before and after it."""

    name: str
    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        """'dead_code: 70 -> 66 nodes, 1.20 -> 1.10 MB'."""
        nodes = f"{self.nodes_before} -> {self.nodes_after} nodes"
        return f"{self.name}: {nodes}, {self.bytes_before / 1e6:.2f} -> {self.bytes_after / 1e6:.2f} MB"


@final
class PassReports(Sequence[PassReport]):
    """The reports of one run of the passes; peaks are planned when the first is read, as few programs are explained."""

    __slots__ = ("_donated", "_reports", "_steps")

    def __init__(self, steps: list[tuple[str, Graph, Graph]], donated: Collection[int]) -> None:
        self._steps = steps
        self._donated: Final = donated
        self._reports: list[PassReport] = []

    @overload
    def __getitem__(self, at: int) -> PassReport: ...
    @overload
    def __getitem__(self, at: slice) -> list[PassReport]: ...
    def __getitem__(self, at: int | slice) -> PassReport | list[PassReport]:
        """A report, or some of them."""
        return self._measured()[at]

    def __len__(self) -> int:
        """One for each pass."""
        return len(self._reports or self._steps)

    def _measured(self) -> list[PassReport]:
        if self._steps:
            size = peak_bytes(self._steps[0][1], self._donated)
            for name, before, after in self._steps:
                bytes_after = size if after is before else peak_bytes(after, self._donated)
                self._reports.append(PassReport(name, len(before.nodes), len(after.nodes), size, bytes_after))
                size = bytes_after
            self._steps = []  # the graphs between the passes are needed no more
        return self._reports


def pipeline(
    graph: Graph,
    *,
    numerics: Numerics = "eager",
    precision: Precision = "float32",
    donated: Collection[int] = (),
    memory_limit_bytes: int | None = None,
    fuse: Callable[[Graph], Graph] | None = None,
    body: Callable[[Node], Graph | None] | None = None,
) -> tuple[Graph, PassReports]:
    """Runs all passes.  The same graph gives the same result, whatever ran before.

    numerics             "eager" changes no bit of any output; "fast" may round otherwise
    precision            "bfloat16" computes products in bf16, see `dtype_policy`; it changes bits by intent
    donated              positions of inputs whose memory the program may keep and overwrite
    memory_limit_bytes   recompute cheap values until the planned peak fits; None keeps them, which is faster
    fuse                 puts generated kernels in place of what they compute, see `burn_torch/fusion`; it looks after
                         the limit by itself
    body                 the graph that a generated kernel stands for, so that what it draws is checked

    The outputs of the result share memory with nothing but donated inputs.  With BURN_TORCH_VERIFY the graph is
    verified after each pass.
    Raises: ConfigError for unknown numerics or precision; GraphError, where it is verified, for a pass that breaks it,
    and always for an order of transfers that is not the graph's.
    """
    if numerics not in _NUMERICS:
        raise ConfigError(
            explain(
                "pipeline: there are no such numerics",
                given=f"numerics {numerics!r}",
                expected=", ".join(repr(n) for n in _NUMERICS),
                mend='use "eager" for the bits of eager execution, "fast" for speed',
            )
        )
    steps: list[tuple[str, Callable[[Graph], Graph]]] = [
        ("dead_code", dead_code),
        ("dtype_policy", lambda g: dtype_policy(g, precision)),
        ("common_subexpressions", lambda g: common_subexpressions(g, numerics)),
        ("fold_constants", lambda g: fold_constants(g, numerics)),
        ("algebra", lambda g: algebra(g, numerics)),
        ("fold_views", lambda g: fold_views(g, numerics)),
        ("common_subexpressions", lambda g: common_subexpressions(g, numerics)),
        ("dead_code", dead_code),
        ("group_updates", group_updates),
        ("narrow_gradients", narrow_gradients),
        ("launch_early", launch_early),
    ]
    if memory_limit_bytes is not None and fuse is None:
        steps.append(("recompute", lambda g: recompute(g, donated, target_bytes=memory_limit_bytes)))
    if fuse is not None:
        steps += [("fuse", fuse), ("fold_views", lambda g: fold_views(g, "fast")), ("dead_code", dead_code)]
        steps.append(("launch_early", launch_early))  # what was fused is in an order of its own
    steps.append(("isolate_outputs", lambda g: isolate_outputs(g, donated)))
    done: list[tuple[str, Graph, Graph]] = []
    traced = graph
    for name, step in steps:
        after = rewritten(name, step, graph, body)
        done.append((name, graph, after))
        graph = after
    check_transfers(traced, graph)  # always: a process that sends in another order is waited for, for ever
    if is_proving():
        check_isolated(graph, donated)
    return graph, PassReports(done, donated)
