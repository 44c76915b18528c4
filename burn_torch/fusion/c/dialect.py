"""Kernels in C: loops over lanes of vectors, in parallel over rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body import steps
from burn_torch.fusion.body.dialect import Dialect, Expression, indent, title_of
from burn_torch.fusion.body.index import Index
from burn_torch.fusion.body.loops import Argument, tensor
from burn_torch.fusion.body.steps import Place, Value, Words
from burn_torch.fusion.body.templates import read_template
from burn_torch.fusion.c.lanes import LaneNeeds, stretches_in
from burn_torch.fusion.c.numbers import C_TYPES, COLUMNS, Total, c_number
from burn_torch.fusion.c.prims import helpers_for
from burn_torch.ops.elementary import ELEMENTARY, Elementary, Forms
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import same_size, size_hint

__all__ = ["C"]

CHUNK: Final = 1024
"""Elements of a row that are added in float32; chunks are added in float64."""

_FEW_ROWS: Final = 64
"""With fewer of them, threads share a row of element-wise work instead."""

_PARALLEL: Final = "#pragma omp parallel for num_threads(threads) if(parallel: threads > 1) schedule(static)"

_NUMBERS: Final = {"f32": "float", "f64": "double", "i64": "int64_t"}

_HELPER: Final = re.compile(r"\b([a-z]\w*)_\(")
"""A function of `fusion/c/prims.py` that a form calls."""

_SLOW: Final = {
    name for known in ELEMENTARY.values() if known.costly for form in known.c for name in _HELPER.findall(form)
}


@final
@dataclass(frozen=True)
class _Lanes:
    """A line that runs for each of the columns side by side."""

    line: str


@final
@dataclass(frozen=True)
class _Pass:
    """A loop over r: what each element loads and computes, what is gathered of it, and what it stores.

    words  lines that draw the words of a chunk
    """

    reads: list[str] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@final
class C(Dialect):
    """Writes a kernel in C.

    each      what runs for each x, in order: lines, lines for each column, and passes over r
    ends      stores once for each x, after all else
    declared  arrays of a row, or of the columns; where columns are reduced, each of them has its own values
    """

    costly_words: ClassVar[frozenset[Words]] = frozenset(Words)
    needs: LaneNeeds

    def __init__(self, needs: LaneNeeds) -> None:
        super().__init__(needs)
        self.each: Final[list[str | _Lanes | _Pass]] = []
        self.ends: Final[list[str | _Lanes]] = []
        self.declared: Final[list[str]] = []
        self.passes: Final[list[_Pass]] = []
        self.totals: Final[dict[Value, Total]] = {}
        self.sums: Final[dict[int, tuple[str, str]]] = {}
        """Sums of columns beside rows, by output: the array and its type."""

    # -- what C can say ----------------------------------------------------------------------------------------
    @classmethod
    def forms(cls, function: Elementary) -> Forms:
        """The texts of a function."""
        return function.c

    @classmethod
    @functools.cache
    def is_slow(cls, form: str) -> bool:
        """Tells if a text takes more than a pass over memory."""
        return not _SLOW.isdisjoint(_HELPER.findall(form))

    @classmethod
    def refuses(cls, value: Primitive, kind: DType, *, is_constant: bool = False) -> bool:
        """Tells if a number cannot stand beside values of a type."""
        return isinstance(value, float) and not kind.is_float and not value.is_integer()

    # -- texts of expressions ----------------------------------------------------------------------------------
    def constant(self, value: Primitive, kind: DType) -> str:
        """A number of a template."""
        return c_number(value, kind)

    def literal(self, value: Primitive, kind: DType) -> str:
        """A number that is known."""
        return c_number(float(value) if kind.is_float and not isinstance(value, bool) else value, kind)

    def argument(self, argument: Argument) -> str:
        """A number of run time."""
        return argument.name

    def unary(self, sign: str, operand: str, kind: DType, *, is_literal: bool) -> str:
        """An operator before its operand."""
        return f"({'!' if sign == '~' and kind.is_bool else sign}{operand})"

    def shifted(self, value: str, by: str, kind: DType, *, to_left: bool) -> str:
        """As torch has it; a literal is an int, of 32 bits."""
        bits = 8 * kind.itemsize
        beyond = f"({by}) < 0 || ({by}) >= {bits}"
        value = f"({C_TYPES[kind]}){value}"
        if to_left or kind is DType.U8:
            return f"({beyond} ? 0 : {value} {'<<' if to_left else '>>'} {by})"
        return f"({value} >> ({beyond} ? {bits - 1} : {by}))"

    def chosen(self, tests: Iterable[str], yes: str, no: str) -> str:
        """One of two values."""
        return f"(({' & '.join(tests).replace('//', '/')}) ? {yes} : {no})"

    def call(self, form: str, operands: Sequence[str]) -> str:
        """The text of a function of operands; the kernel takes the functions of ours along."""
        self.helpers.update(_HELPER.findall(form))
        return form.format(*operands)

    def _from_bf16(self, text: str) -> str:
        self.helpers.add("bf16")
        return f"from_bf16({text})"

    def _as_stored(self, text: str, dtype: DType) -> str:
        if dtype is DType.BF16:
            self.helpers.add("bf16")
            return f"to_bf16({text})"
        return text

    # -- lines -------------------------------------------------------------------------------------------------
    def define(self, value: Value, place: Place, text: str) -> str:
        """Writes a line that computes a value, or one of each column, kept for the passes over r; gives its name."""
        name, kind = self.name("v"), C_TYPES[value.dtype]
        if self.needs.by_columns and value.x and place is Place.EACH:
            self.declared.append(f"{kind} {name}[{COLUMNS}];")
            name = f"{name}[l]"
            self.each.append(_Lanes(f"{name} = ({kind})({text});"))
        else:
            lines = self.passes[-1].reads if place is Place.LOOP else self.each
            lines.append(f"{kind} {name} = ({kind})({text});")
        self.names[value] = name
        return name

    # -- steps: memory -----------------------------------------------------------------------------------------
    def load(self, step: steps.Load) -> str:
        """An element of an input."""
        text = f"{self.pointers[step.input]}[{_c(step.at)}]"
        if tests := step.at.tests():
            text = self.chosen(tests, text, "0")
        if tensor(self.needs.specs[step.input]).dtype is DType.BF16:
            text = self._from_bf16(text)
        return text

    def store(self, step: steps.Store) -> None:
        """An element of an output."""
        dtype = self.needs.results[step.number].dtype
        value = self._as_stored(self.names[step.of], dtype)
        line = f"q{step.number}[{_c(step.at)}] = ({C_TYPES[dtype]})({value});"
        if step.full:
            self.passes[-1].stores.append(line)
        else:
            self.ends.append(_Lanes(line) if self.needs.by_columns else line)

    def keep(self, step: steps.Keep) -> None:
        """Puts a value into a buffer of a row, in the pass that computes it."""
        name = self.names[step.buffer] = self.name("row")
        self.declared.append(f"{C_TYPES[step.of.dtype]} {name}[{self.needs.domain.length}];")
        self.passes[step.in_pass].reads.append(f"{name}[{_c(self.needs.r)}] = {self.names[step.of]};")

    def recall(self, step: steps.Recall) -> None:
        """Takes a value from a buffer."""
        name = self.names[step.into] = self.name("v")
        text = f"{C_TYPES[step.into.dtype]} {name} = {self.names[step.buffer]}[{_c(self.needs.r)}];"
        self.passes[-1].reads.append(text)

    # -- steps: values -----------------------------------------------------------------------------------------
    def _expression(self, text: str, operands: Mapping[str, str], step: steps.Compute | steps.Draw, kind: DType) -> str:
        line = partial(self.define_single, step)
        return Expression(self, operands.__getitem__, kind, None, line, {}).write(read_template(text).tree)

    def compute(self, step: steps.Compute) -> str:
        """An element-wise row."""
        assert step.node.call.op.pointwise is not None
        operands = {
            f"_{n}": self.numbers.operand(step.node, n, step.kind) if value is None else self.names[value]
            for n, value in enumerate(step.operands)
        }
        return self._expression(step.node.call.op.pointwise, operands, step, step.kind)

    def cast(self, step: steps.Cast) -> str:
        """A value in another type."""
        return f"{self.names[step.of]} != 0" if step.into.dtype.is_bool else self.names[step.of]

    def round(self, step: steps.Round) -> str:
        """A value as a half type holds it."""
        if step.dtype is DType.BF16:
            return self._from_bf16(self._as_stored(self.names[step.of], step.dtype))
        return f"(float)(_Float16){self.names[step.of]}"

    def full(self, step: steps.Full) -> str:
        """A number everywhere."""
        return self.numbers.operand(step.node, step.position, step.into.dtype)

    def draw(self, step: steps.Draw) -> str:
        """A random value, made of a word of its element."""
        value, names, keys = self.numbers_of(step)
        if step.words is Words.EACH:
            self.helpers.add("word_at")
            names["word"] = f"(int64_t)word_at_({keys}, {_c(step.first)})"
        else:
            self.helpers.add("words")
            name = self.name("words")
            first = f"({_c(step.first)} + part) / 4"
            self.passes[-1].words.append(f"uint32_t {name}[{CHUNK}];")
            self.passes[-1].words.append(f"words_({name}, {keys}, {first}, (end - part) / 4);")
            names["word"] = f"(int64_t){name}[ri - part]"
        return self._expression(value, names, step, step.into.dtype)

    # -- steps: reductions and passes --------------------------------------------------------------------------
    def begin_pass(self, step: steps.BeginPass) -> None:
        """A loop over r begins."""
        self.passes.append(_Pass())

    def end_pass(self, step: steps.EndPass) -> None:
        """It stands behind all that came before it."""
        self.each.append(self.passes[-1])

    def gather(self, step: steps.Gather) -> None:
        """Adds a value to what a reduction gathers."""
        total = Total(self.name("total"), step.kind, step.total.dtype, self.needs.by_columns)
        self.totals[step.total] = total
        self.passes[-1].reads.extend(total.step(self.names[step.of]))
        self.passes[-1].totals.append(total)

    def join(self, step: steps.Join) -> str:
        """Returns the result that a pass gathered."""
        return self.totals[step.of].result(self.needs.domain.length)

    def sum_column(self, step: steps.SumColumn) -> None:
        """Adds a value to the sum of its column in the part of the rows that a thread is at."""
        name = f"columns{step.number}"
        self.sums[step.number] = (name, C_TYPES[DType.F64 if step.of.dtype.is_float else DType.I64])
        self.passes[-1].reads.append(f"{name}[{_c(self.needs.r)}] += {self.names[step.of]};")

    # -- the whole ---------------------------------------------------------------------------------------------
    def source(self) -> str:
        """The kernel, by the name KERNEL."""
        needs = self.needs
        nest = self._column_nest() if needs.by_columns else self._nest()  # first: it may need helpers
        arguments = [
            *(f"const {C_TYPES[tensor(needs.specs[i]).dtype]} *{name}" for i, name in self.pointers.items()),
            *(f"{C_TYPES[spec.dtype]} *q{n}" for n, spec in enumerate(needs.results)),
            *(f"{_NUMBERS[a.kind]} {a.name}" for a in self.numbers.arguments.values()),
            "SIZES",
            "int threads",
        ]
        lines = [f"/* {title_of(needs.body)} */", "#include <stdint.h>", "", helpers_for(self.helpers)]
        return "\n".join([*lines, f"void KERNEL({', '.join(arguments)}) {{", *indent(nest), "}", ""])

    def with_symbols(self, head: str, names: Sequence[str], body: str) -> str:
        """The source with arguments for symbols."""
        return f"{head}{''.join(f'int64_t {name}, ' for name in names)}{body}"

    def _nest(self) -> list[str]:
        needs, domain = self.needs, self.needs.domain
        rows = domain.rows // (domain.parts or 1) if needs.reduces else stretches_in(domain.rows, needs.inner)
        share_row = not needs.reduces and size_hint(rows) < _FEW_ROWS
        begin, end = ("0", str(rows)) if not self.sums else (f"part_of_rows * {rows}", f"(part_of_rows + 1) * {rows}")
        lines = [] if share_row or self.sums else [_PARALLEL]
        lines += [f"for (int64_t x = {begin}; x < {end}; ++x) {{", *indent(self.declared)]
        for step in (*self.each, *self.ends):
            assert not isinstance(step, _Lanes)
            lines += indent([step] if isinstance(step, str) else self._row_pass(step, share_row))
        lines.append("}")
        return self._in_parts(lines) if self.sums else lines

    def _in_parts(self, lines: list[str]) -> list[str]:
        """The loop over the rows of each part, and what their columns sum to."""
        length = self.needs.domain.length
        nest = [
            _PARALLEL,
            f"for (int64_t part_of_rows = 0; part_of_rows < {self.needs.domain.parts}; ++part_of_rows) {{",
        ]
        for name, kind in self.sums.values():
            nest.append(f"    {kind} {name}[{length}];")
            nest.append(f"    for (int64_t r = 0; r < {length}; ++r) {name}[r] = 0;")
        nest += indent(lines)
        for number, (name, _) in self.sums.items():
            dtype = self.needs.results[number].dtype
            value = self._as_stored(f"(float){name}[r]" if dtype is DType.BF16 else f"{name}[r]", dtype)
            store = f"q{number}[part_of_rows * {length} + r] = ({C_TYPES[dtype]}){value};"
            nest.append(f"    for (int64_t r = 0; r < {length}; ++r) {store}")
        return [*nest, "}"]

    def _row_pass(self, step: _Pass, share_row: bool) -> list[str]:
        needs, totals = self.needs, step.totals
        lines = [total.declared() for total in totals]
        if needs.reduces and not same_size(needs.domain.length, needs.inner):
            lines.append(f"for (int64_t ro = 0; ro < {stretches_in(needs.domain.length, needs.inner)}; ++ro)")
        lines += [_PARALLEL] if share_row else []
        clauses = "".join(clause for total in totals for clause in total.clauses())
        inside = [
            f"int64_t end = part + {CHUNK} < {needs.inner} ? part + {CHUNK} : {needs.inner};",
            *(total.part_declared() for total in totals),
            *step.words,
            f"#pragma omp simd{clauses}",
            "for (int64_t ri = part; ri < end; ++ri) {",
            *indent([*step.reads, *step.stores]),
            "}",
            *(line for total in totals for line in total.joined()),
        ]
        return [*lines, f"for (int64_t part = 0; part < {needs.inner}; part += {CHUNK}) {{", *indent(inside), "}"]

    def _column_nest(self) -> list[str]:
        needs = self.needs
        each = ["#pragma omp simd", "for (int64_t l = 0; l < lanes; ++l) {", "    int64_t xi = part + l; (void)xi;"]
        inside = [
            f"int64_t lanes = part + {COLUMNS} < {needs.inner} ? {COLUMNS} : {needs.inner} - part;",
            *self.declared,
        ]
        for step in (*self.each, *self.ends):
            if isinstance(step, str):
                inside.append(step)
            elif isinstance(step, _Lanes):
                inside += [*each, f"    {step.line}", "}"]
            else:
                inside += [total.declared() for total in step.totals]
                if step.totals:
                    inside += [*each, *(f"    {total.cleared()}" for total in step.totals), "}"]
                lanes = [*each, *indent([*step.reads, *step.stores]), "}"]
                inside += [f"for (int64_t r = 0; r < {needs.domain.length}; ++r) {{", *indent(lanes), "}"]
        return [
            _PARALLEL.replace("schedule", "collapse(2) schedule"),
            f"for (int64_t xo = 0; xo < {stretches_in(needs.domain.rows, needs.inner)}; ++xo)",
            f"for (int64_t part = 0; part < {needs.inner}; part += {COLUMNS}) {{",
            *indent(inside),
            "}",
        ]


def _c(index: Index) -> str:
    return index.written().replace("//", "/")
