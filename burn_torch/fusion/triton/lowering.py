"""From a body, a Graph whose operations become one kernel, to Triton source.

A kernel has one loop, over `x`, the elements of a result, or two: `x` over what is kept of a reduction and `r` over
what is reduced.  Values are pulled (`values.py`).  A reduction is a loop over `r`; where its row does not fit a
program, the loop runs in steps, and once more for each reduction that needs the result of another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.columns import of_rows
from burn_torch.fusion.body.index import Index, constant, flat_index, split_index
from burn_torch.fusion.body.loops import Argument, Domain, Kernel, domain_of, tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.expressions import TYPES, import_lines
from burn_torch.fusion.triton.side_by_side import lowered_beside
from burn_torch.fusion.triton.two_loops import rows_of, tiles_of_turned
from burn_torch.fusion.triton.values import Key, Values
from burn_torch.graph.ir import Graph
from burn_torch.ops.laws import Folds
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, known_below, same_shape, same_size, sizes_in

__all__ = ["Writer", "lower"]

MOST_TENSORS: Final = 24
"""More arguments make launches slow and registers scarce."""

MOST_OPERATIONS: Final = 96


# -- lowering ------------------------------------------------------------------------------------------
def lower(
    body: Graph,
    *,
    strict: bool = False,
    layouts: Sequence[tuple[Any, ...] | None] | None = None,
    held: bool = False,
    over: bool = False,
    beside: bool = True,
) -> Kernel:
    """The kernel of a body.

    strict    rounds after each operation, as unfused execution does
    layouts   strides of the body's inputs in elements, None for row-major ones; symbolic ones where sizes are
    held      numbers lie on the device and the kernel takes pointers to them: a recorded launch is replayed with others
    over      results may lie over inputs, as `Kernel.over` says: all is read before anything is written
    beside    parts that share no operation, nor the loops of one kernel, may be kernels side by side in one launch

    Raises: Unfusible, with the reason.
    """

    def whole(body: Graph, layouts: Sequence[tuple[int, ...] | None] | None) -> Kernel:
        how: Any = {"strict": strict, "layouts": layouts, "held": held, "over": over}
        writer = Writer(body, domain_of(body), **how)
        kernel = writer.kernel()
        if writer.steps_are_better(kernel):
            return Writer(body, domain_of(body), in_steps=True, **how).kernel()
        return writer.in_two_loops(how) or kernel

    try:
        return whole(body, layouts)
    except Unfusible:
        apart = lowered_beside(body, layouts, whole, held=held) if beside else None
        if apart is None:
            raise
        return apart


_ONE_EACH: Final = 1024
"""Elements of a tile of which each thread has its own."""

LONGEST_ROW: Final = 16384
"""Elements of a row that a program holds at once."""

LONGEST_COLUMN: Final = 512
"""Elements of each column that a program holds, which holds 32 of them side by side: less is not 64 bytes of a row."""

SHORT_COLUMN: Final = 64
"""Elements of columns that are held though one pass over them would do: they are a step anyway."""


class Writer(Values):
    """Writes one kernel, in Triton; `c_writer` writes the same in C."""

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        *,
        strict: bool,
        layouts: Sequence[tuple[Any, ...] | None] | None,
        held: bool,
        over: bool,
        in_steps: bool = False,
    ) -> None:
        whole_rows = not in_steps and domain.length <= LONGEST_ROW
        super().__init__(body, domain, strict=strict, layouts=layouts, held=held, over=over, whole_rows=whole_rows)
        if len(body.nodes) > MOST_OPERATIONS:
            raise Unfusible(Reason.LIMIT, f"{len(body.nodes)} operations")
        tensors = sum(isinstance(spec, TensorSpec) for _, spec in body.inputs) + len(body.outputs)
        if tensors > MOST_TENSORS:
            raise Unfusible(Reason.LIMIT, f"{tensors} tensors")

    # -- the whole ---------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        """Source and arguments.  Raises: Unfusible, with the reason."""
        summed = {} if self.columns is None else self._sums_of_columns()
        outputs = [
            (i, tensor(self.specs[i]), summed.get(i) or self._at(tensor(self.specs[i])))
            for i in self.body.outputs
            if i is not None
        ]
        for i, _, (index, full) in outputs:
            level = self._level(self._summed(i) if i in summed else i, index)
            self.phases = max(self.phases, level + 1 if full else level)
        self.phases = max([self.phases, *(level + 1 for level, _ in self.folds.values())])
        if self.whole_rows or not self.reduces:
            for number, (i, _, (index, full)) in enumerate(outputs):
                if i in summed:
                    self._sum_columns(number, i, index)
                else:
                    self._store(number, i, index, full)
        else:
            self._in_steps(outputs)
        if self.later:
            self.outer.extend([*self._barrier(step=self.columns is not None), *self.later])
        source, sizes = self._with_sizes(self._source(len(outputs)))
        name = "fused_" + hashlib.sha256(source.encode()).hexdigest()[:16]
        return Kernel(
            name,
            source.replace("KERNEL", name),
            tuple(self.position[i] for i in self.read),
            tuple(spec for _, spec, _ in outputs),
            tuple(self.numbers.arguments.values()),
            self.domain,
            self.reduces and self.along_x > self.along_r,
            self.whole_rows,
            self.loads,
            self.wide,
            self._over(),
            self.held,
            sizes,
            self.streamed,
            not self.whole_rows and not self.folds and bool(self.along_x and self.along_r),
        )

    def steps_are_better(self, kernel: Kernel) -> bool:
        """Whether columns are reduced that are too long to be held, by many at a time, without need."""
        if not (kernel.rows_together and self.whole_rows) or self.columns is not None:
            return False
        if self.phases == 1:
            return not known_below(self.domain.length, SHORT_COLUMN + 1)
        return bool(self.domain.length > LONGEST_COLUMN)

    def in_two_loops(self, how: dict[str, Any]) -> Kernel | None:
        """Element-wise work in tiles or by rows, where that is better."""
        turned = tiles_of_turned(self.domain, self.x_var, self.flat)
        domain = turned or rows_of(self.domain, self.x_var, self.flat)
        if domain is None:
            return None
        try:
            return Writer(self.body, domain, in_steps=turned is not None, **how).kernel()
        except Unfusible:
            return None

    def _at(self, spec: TensorSpec) -> tuple[tuple[Index, ...], bool]:
        """The index at which an output is computed, and whether it has an element for each step of both loops."""
        domain = self.domain
        if domain.reduced is None:
            return split_index(self.x, spec.shape), False
        kept, reduced = iter(split_index(self.x, domain.kept)), iter(split_index(self.r, domain.reduced))
        if same_size(spec.numel, domain.rows * domain.length):
            full = tuple(next(reduced) if axis in domain.axes else next(kept) for axis in range(len(domain.shape)))
            if not same_shape(spec.shape, domain.shape):
                full = split_index(flat_index(full, domain.shape), spec.shape)
            return full, True
        if not same_size(spec.numel, domain.rows):
            raise Unfusible(
                Reason.SHAPE, f"a result of {spec.numel} elements beside {domain.rows} rows of {domain.length}"
            )
        ones = tuple(1 if axis in domain.axes else size for axis, size in enumerate(domain.shape))
        if same_shape(spec.shape, ones):
            return tuple(constant(0) if axis in domain.axes else next(kept) for axis in range(len(ones))), False
        return split_index(self.x, spec.shape), False

    # -- columns beside rows --------------------------------------------------------------------------
    def _sums_of_columns(self) -> dict[int, tuple[tuple[Index, ...], bool]]:
        """For each sum of columns, where its operand lies."""
        assert self.columns is not None
        found: dict[int, tuple[tuple[Index, ...], bool]] = {}
        for i in self.body.outputs:
            node = None if i is None or i not in self.maker else self.maker[i][0]
            if node is not None and node.call.op.law(Folds) is not None and of_rows(node) is None:
                assert i is not None
                found[i] = self.columns.operand_at(node, self.x, self.r), True
        if not self.whole_rows:
            raise Unfusible(Reason.LIMIT, f"rows of {self.domain.length} do not fit a program")
        return found

    def _summed(self, i: int) -> int:
        operand = self.maker[i][0].inputs[0]
        assert isinstance(operand, int)
        return operand

    def _sum_columns(self, number: int, i: int, index: tuple[Index, ...]) -> None:
        assert self.columns is not None
        _, kept_in, neutral = self._fold(self.maker[i][0])
        value = self._value(self._summed(i), index)
        total = self.columns.begin(number, TYPES[kept_in])
        given = value.name if value.dtype is kept_in else f"{value.name}.to({TYPES[kept_in]})"
        self.outer.append(f"{total} += tl.where(inside, {given}, {neutral})")

    # -- rows in steps ------------------------------------------------------------------------------
    def _in_steps(self, outputs: Sequence[Primitive]) -> None:
        rows = {key: level for key, (level, _) in self.folds.items()}
        level_of = {number: self._level(i, index) for number, (i, _, (index, _)) in enumerate(outputs)}
        full = {number for number, (_, _, (_, whole)) in enumerate(outputs) if whole}
        for phase in range(self.phases):
            folds = [key for key, level in rows.items() if level == phase]
            stores = [number for number in sorted(full) if level_of[number] == phase]
            if not folds and not stores:
                continue
            self.loop, self.in_loop, self.stored = [], {}, []
            finished: list[Callable[[], None]] = [self._accumulate(key) for key in folds]
            for number in stores:
                i, _, (index, whole) = outputs[number]
                self._store(number, i, index, whole)
            body, self.loop = self.loop, None
            if self.stored:
                body += [*self._barrier(step=True), *self.stored]
            self.outer.append(f"for r0 in tl.range(0, {self.domain.length}, RB, num_stages=STAGES):")
            self.outer.append(f"    r = r0 + {self._lanes('RB')}[None, :]")
            self.outer.append(f"    inside = (x < {self.domain.rows}) & (r < {self.domain.length})")
            self.outer.extend(f"    {line}" for line in body)
            for finish in finished:
                finish()
        for number, (i, _, (index, whole)) in enumerate(outputs):
            if not whole:
                self._store(number, i, index, whole)

    def _accumulate(self, key: Key) -> Callable[[], None]:
        """Adds to a loop what a reduction gathers in it; gives what is to be done after the loop."""
        node, _ = self.maker[key[0]]
        kind, kept_in, neutral = self._fold(node)
        _, operand = self.folds[key]
        value = self._value(*operand)
        total = self._name("total")
        self.outer.append(f"{total} = tl.full((XB, RB), {neutral}, {TYPES[kept_in]})")
        given = value.name if value.dtype is kept_in else f"{value.name}.to({TYPES[kept_in]})"
        if kind in ("any", "all"):
            given = f"({value.name} != 0).to(tl.int32)"
        assert self.loop is not None
        if kind in ("sum", "mean"):
            self.loop.append(f"{total} += tl.where(inside, {given}, {neutral})")
        elif kind == "prod":
            self.loop.append(f"{total} *= tl.where(inside, {given}, {neutral})")
        else:
            quiet = ", propagate_nan=tl.PropagateNan.ALL" if kept_in.is_float else ""
            less = "minimum" if kind in ("min", "all") else "maximum"
            self.loop.append(f"{total} = tl.{less}({total}, tl.where(inside, {given}, {neutral}){quiet})")

        def finish() -> None:
            self.known[key] = self._folded(node, kind, kept_in, total)

        return finish

    # -- over inputs ------------------------------------------------------------------------------------
    def _over(self) -> tuple[tuple[int, int], ...]:
        """Which outputs may be written over which inputs: every element is read where it is written, and nowhere else.

        Not where a row is read in steps more than once; in a loop, not what each step has one of: nothing there waits
        for all threads.
        """
        if self.reduces and not self.whole_rows and self.phases > 1:
            return ()
        outputs = [i for i in self.body.outputs if i is not None]
        return tuple(
            (number, self.position[i])
            for number, at in self.written_at.items()
            for i in self.read
            if self.read_at[i] == {at} and self.specs[i] is self.specs[outputs[number]]
            if self.columns is None or number in self.full
        )

    def _barrier(self, *, step: bool = False) -> list[str]:
        """Threads that hold an element twice, or hold a row together, have all read it before one of them writes.

        In a step of a loop tiles with an element for each thread do without: before a barrier nothing of later steps
        would be on its way.
        """
        if step:
            return [f"if XB * RB < {_ONE_EACH}:", "    tl.debug_barrier()"]
        return ["tl.debug_barrier()"] if self.reduces or not known_below(_ONE_EACH - 1, self.domain.rows) else []

    # -- source ---------------------------------------------------------------------------------------------
    def _source(self, outputs: int) -> str:
        names = [
            *self.read.values(),
            *(f"q{n}" for n in range(outputs)),
            *(self._parameter(a) for a in self.numbers.arguments.values()),
            "SIZES",
        ]
        names += ["XB: tl.constexpr", *["RB: tl.constexpr"] * self.reduces]
        if self.reduces and (self.columns is not None or not self.whole_rows):
            names.append("STAGES: tl.constexpr")
        lines = [f'"""{self._title()}"""', "", "from burn_kernels._triton import tl, triton"]
        lines += import_lines(self.helpers, self.random_helpers)
        # a kernel for each number, or for each place of one on the device, would be compiled again and again
        numbers = [argument.name for argument in self.numbers.arguments.values()]
        lines += ["", "", f"@triton.jit(do_not_specialize={numbers!r})" if numbers else "@triton.jit"]
        lines += [f"def KERNEL({', '.join(names)}):"]
        start = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"
        if self.columns is not None:
            at = ".to(tl.int64)" if self.wide else ""
            inner = self.columns.source(start, self._lanes("RB"), self.outer, at)
            return "\n".join([*lines, *(f"    {line}" for line in inner)]) + "\n"
        if self.reduces:
            lines.append(f"    x = {start} * XB + tl.arange(0, XB)[:, None]")
            if self.whole_rows:
                lines.append(f"    r = {self._lanes('RB')}[None, :]")
                lines.append(f"    inside = (x < {self.domain.rows}) & (r < {self.domain.length})")
        else:
            lines.append(f"    x = {start} * XB + tl.arange(0, XB)")
            lines.append(f"    inside = x < {self.domain.rows}")
        lines += [f"    {line}" for line in self.outer]
        return "\n".join(lines) + "\n"

    def _with_sizes(self, source: str) -> tuple[str, tuple[Size, ...]]:
        """The source with an argument for each symbol in it, and what these are; named in the order of their use, so
        that equal kernels of two programs are one.
        """
        scope = next((size.scope for spec in self.specs.values() for size in sizes_in(_shape_of(spec))), None)
        if scope is None:
            return source.replace("SIZES, ", ""), ()
        head, body = source.split("SIZES, ")
        names = dict.fromkeys(re.findall(r"\b[sd]\d+\b", body))
        new = {name: f"s{n}" for n, name in enumerate(names)}
        body = re.sub(r"\b[sd]\d+\b", lambda found: new[found[0]], body)
        if self.wide:
            first, rest = body.split("\n", 1)
            body = "\n".join([first, *(f"    {name} = {name}.to(tl.int64)" for name in new.values()), rest])
        return f"{head}{''.join(f'{name}, ' for name in new.values())}{body}", tuple(map(scope.factor, names))

    def _parameter(self, argument: Argument) -> str:
        # else an integer that 32 bits hold is passed in 32, and one that they do not is compiled for anew
        return argument.name if self.held or argument.kind == "f32" else f"{argument.name}: tl.int64"

    def _title(self) -> str:
        ops = ", ".join(node.call.op.name for node in self.body.nodes[:12])
        more = f" and {len(self.body.nodes) - 12} more" if len(self.body.nodes) > 12 else ""
        return f"{ops}{more}, in one kernel."


def _shape_of(spec: object) -> tuple[object, ...]:
    return spec.shape if isinstance(spec, TensorSpec) else ()
