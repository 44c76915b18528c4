"""The passes of every door in their one order, and what each of them did.

    compile  a compiled function's graph
    stream   what a lazy stream has recorded, where kernels are generated
    plan     what either of them hands to the planner of kernels, and what `plan_of` is given from outside
    body     what a kernel of its own is made of
    export   what is written to a file

Fusion hands its own passes down by their names: what is not handed down does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, TypeAlias, final, overload

from burn_torch.core.errors import ConfigError
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.casting import Precision, dtype_policy
from burn_torch.graph.passes.constants import fold_constants
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.grouping import group_updates
from burn_torch.graph.passes.identities import algebra
from burn_torch.graph.passes.invariants import Body, check_isolated, check_transfers, rewritten
from burn_torch.graph.passes.isolation import isolate_outputs
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.passes.narrowing import narrow_gradients
from burn_torch.graph.passes.overlapping import launch_early
from burn_torch.graph.passes.recomputing import recompute
from burn_torch.graph.passes.rewrite import Numerics
from burn_torch.graph.passes.subexpressions import common_subexpressions
from burn_torch.graph.passes.view_chains import fold_views
from burn_torch.graph.verifying import is_proving

__all__ = ["PASSES", "Pass", "PassReport", "PassReports", "Profile", "Settings", "pipeline"]

_NUMERICS: Final = ("eager", "fast")


@final
@dataclass(frozen=True, slots=True)
class PassReport:
    """A report of one pass: nodes and planned peak of memory before and after it."""

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
        return self._measure()[at]

    def __len__(self) -> int:
        """One for each pass."""
        return len(self._reports or self._steps)

    def _measure(self) -> list[PassReport]:
        if self._steps:
            size = peak_bytes(self._steps[0][1], self._donated)
            for name, before, after in self._steps:
                bytes_after = size if after is before else peak_bytes(after, self._donated)
                self._reports.append(PassReport(name, len(before.nodes), len(after.nodes), size, bytes_after))
                size = bytes_after
            self._steps = []  # the graphs between the passes are needed no more
        return self._reports


Profile: TypeAlias = Literal["compile", "stream", "plan", "body", "export"]

Rewrite: TypeAlias = Callable[[Graph], Graph]

Attempt: TypeAlias = Callable[[str, Rewrite, Graph], Graph]
"""Runs a pass that is not needed: (its name, the pass, the graph) -> the graph after it, or as it was."""


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """Wishes that passes fulfil, see `pipeline`."""

    numerics: Numerics = "eager"
    precision: Precision = "float32"
    donated: Collection[int] = ()
    target_bytes: int | None = None
    handed: Mapping[str, Rewrite] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Pass:
    """A pass in the list: in which profiles it runs, and when.

    run     None where it is handed down from above
    when    whether these settings ask for it
    needed  without it the result would not be what was asked for: where it fails, the pipeline does
    """

    name: str
    profiles: str
    run: Callable[[Settings, Graph], Graph] | None = None
    when: Callable[[Settings], bool] = lambda s: True
    needed: bool = False

    def takes_part(self, profile: Profile, settings: Settings) -> bool:
        """Says whether it runs in a profile with these settings."""
        known = self.run is not None or self.name in settings.handed
        return known and profile in self.profiles.split() and self.when(settings)


def _fuses(settings: Settings) -> bool:
    return "fuse" in settings.handed


PASSES: Final = (
    Pass("dead_code", "compile stream plan export", lambda s, g: dead_code(g)),
    Pass("patterns", "compile stream plan"),
    Pass("dead_code", "compile plan", lambda s, g: dead_code(g), when=lambda s: "patterns" in s.handed),
    Pass("dtype_policy", "compile", lambda s, g: dtype_policy(g, s.precision), needed=True),
    Pass("common_subexpressions", "compile stream export", lambda s, g: common_subexpressions(g, s.numerics)),
    Pass("fold_constants", "compile stream export", lambda s, g: fold_constants(g, s.numerics)),
    Pass("algebra", "compile stream export", lambda s, g: algebra(g, s.numerics)),
    Pass("fold_views", "compile stream body export", lambda s, g: fold_views(g, s.numerics)),
    Pass("common_subexpressions", "compile stream export", lambda s, g: common_subexpressions(g, s.numerics)),
    Pass("dead_code", "compile stream body export", lambda s, g: dead_code(g)),
    Pass("group_updates", "compile stream", lambda s, g: group_updates(g)),
    Pass("narrow_gradients", "compile", lambda s, g: narrow_gradients(g)),
    Pass("launch_early", "compile", lambda s, g: launch_early(g)),
    Pass(
        "recompute",
        "compile",
        lambda s, g: recompute(g, s.donated, target_bytes=s.target_bytes or 0),
        when=lambda s: s.target_bytes is not None,
    ),
    Pass("losses in chunks", "compile"),
    Pass("gradients of tables by rows", "compile"),
    Pass("endings of products", "compile"),
    Pass("open composites", "plan"),
    Pass("group", "plan", needed=True),
    Pass("anchors", "plan"),
    Pass("fuse", "compile stream", needed=True),
    Pass("values made again", "compile"),
    Pass("fold_views", "compile stream", lambda s, g: fold_views(g, "fast"), when=_fuses),
    Pass("dead_code", "compile stream", lambda s, g: dead_code(g), when=_fuses),
    Pass("launch_early", "compile", lambda s, g: launch_early(g), when=_fuses),  # kernels are in an order of their own
    Pass("isolate_outputs", "compile", lambda s, g: isolate_outputs(g, s.donated), needed=True),
)
"""Every pass of every door.  The profile "plan" runs within "fuse", perhaps with sizes that are symbols."""


def pipeline(
    graph: Graph,
    *,
    profile: Profile = "compile",
    numerics: Numerics = "eager",
    precision: Precision = "float32",
    donated: Collection[int] = (),
    memory_limit_bytes: int | None = None,
    handed: Mapping[str, Rewrite] | None = None,
    attempt: Attempt | None = None,
    body: Body | None = None,
) -> tuple[Graph, PassReports]:
    """Runs all passes of a profile.  The same graph gives the same result, whatever ran before.

    numerics             "eager" changes no bit of any output; "fast" may round otherwise
    precision            "bfloat16" computes products in bf16, see `dtype_policy`; it changes bits by intent
    donated              positions of inputs whose memory the program may keep and overwrite
    memory_limit_bytes   recompute cheap values until the planned peak fits; None keeps them, which is faster
    handed               passes that are handed down from above, by their names in `PASSES`
    attempt              runs a pass that is not needed, and leaves it out where it fails; without it, faults are raised
    body                 the graph that a generated kernel stands for, so that what it draws is checked

    The outputs of what "compile" gives share memory with nothing but donated inputs.  With BURN_TORCH_VERIFY the graph
    is verified after each pass.
    Raises: ConfigError for unknown numerics or precision; GraphError, where it is verified, for a pass that breaks it,
    and always for an order of transfers that is not the graph's.
    """
    if numerics not in _NUMERICS:
        raise ConfigError(
            "pipeline: there are no such numerics",
            given=f"numerics {numerics!r}",
            expected=", ".join(repr(n) for n in _NUMERICS),
            mend='use "eager" for the bits of eager execution, "fast" for speed',
        )
    settings = Settings(numerics, precision, donated, memory_limit_bytes, handed or {})
    assert not settings.handed.keys() - {each.name for each in PASSES if each.run is None}, "a pass without a place"
    done: list[tuple[str, Graph, Graph]] = []
    traced = graph
    for each in PASSES:
        if not each.takes_part(profile, settings):
            continue
        run = settings.handed[each.name] if each.run is None else partial(each.run, settings)
        whole = partial(rewritten, each.name, run, body=body)
        after = whole(graph) if each.needed or attempt is None else attempt(each.name, whole, graph)
        done.append((each.name, graph, after))
        graph = after
    check_transfers(traced, graph)  # always: a process that sends in another order is waited for, for ever
    if is_proving() and profile == "compile":
        check_isolated(graph, donated)
    return graph, PassReports(done, donated)
