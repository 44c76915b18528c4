"""Kernels in Triton: tiles of x, or of x by r, whose lanes beyond the edge are masked."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec
from burn_torch.fusion.body import steps
from burn_torch.fusion.body.dialect import Dialect, Expression, indent, title_of
from burn_torch.fusion.body.index import Index
from burn_torch.fusion.body.loops import Argument, tensor
from burn_torch.fusion.body.needs import Needs
from burn_torch.fusion.body.numbers import LEAST_NORMAL, held_single
from burn_torch.fusion.body.steps import Place, Value, Words
from burn_torch.fusion.body.templates import read_template
from burn_torch.fusion.body.tiles import FOURTH, ONE_EACH
from burn_torch.ops.elementary import ELEMENTARY, Elementary, Forms
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size

__all__ = ["TYPES", "Triton", "decorator", "header", "number_text"]

TYPES: Final[Mapping[DType, str]] = {
    DType.F64: "tl.float64",
    DType.F32: "tl.float32",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I64: "tl.int64",
    DType.I32: "tl.int32",
    DType.I16: "tl.int16",
    DType.I8: "tl.int8",
    DType.U8: "tl.uint8",
    DType.BOOL: "tl.int1",
}

_HELPER: Final = re.compile(r"(?<![\w.])(?:(prims_apart)\.)?(\w+)\(")
"""A function of ours that a form calls, and the module before it."""

_APART: Final = {
    name for known in ELEMENTARY.values() for form in known.triton for at, name in _HELPER.findall(form) if at
}
"""Helpers of `burn_kernels.prims_apart`; all others are in `burn_kernels.prims`, those that draw words in `random`."""

_WORDS: Final = {Words.BLOCK: "draw", Words.ROW: "row_words", Words.FOURS: "fours_at", Words.EACH: "word_at"}

_SLOW: Final = [form.partition("(")[0] for known in ELEMENTARY.values() if known.costly for form in known.triton]
_COSTLY: Final = re.compile(rf"(?<![\w.])(?:{'|'.join(_SLOW)})\(")


# -- what all kernels begin with -----------------------------------------------------------------------------
def header(title: str, helpers: Collection[str], *imports: str) -> list[str]:
    """The first lines of a file: its title, and what it imports of `burn_kernels`.  imports: lines of its own"""
    random = {name for name in helpers if name in _WORDS.values()}
    apart = _APART & set(helpers)
    modules = {"prims": set(helpers) - apart - random, "prims_apart": apart, "random": random}
    taken = [f"from burn_kernels.{module} import {', '.join(sorted(own))}" for module, own in modules.items() if own]
    return [f'"""{title}"""', "", "from burn_kernels._triton import tl, triton", *imports, *taken]


def decorator(numbers: Sequence[str]) -> str:
    """The line above a kernel: one for each number, or each place of one, would be compiled again and again."""
    return f"@triton.jit(do_not_specialize={list(numbers)!r})" if numbers else "@triton.jit"


def number_text(value: Primitive) -> str:
    """A number as source, exact."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


class Triton(Dialect):
    """Writes a kernel in Triton.

    held   numbers lie on the device, and the kernel takes pointers to them
    lines  what is written so far, by where it stands
    sums   the tiles that sums of columns are kept in, by their outputs
    """

    costly_words: ClassVar[frozenset[Words]] = frozenset({Words.EACH})

    def __init__(self, needs: Needs, *, held: bool = False) -> None:
        super().__init__(needs)
        self.held: Final = held
        self.lines: Final[dict[Place, list[str]]] = {place: [] for place in Place}
        self.sums: Final[dict[int, str]] = {}
        self._ones: Final = "(1, 1)" if needs.reduces else "(1,)"

    # -- what Triton can say -----------------------------------------------------------------------------------
    @classmethod
    def forms(cls, function: Elementary) -> Forms:
        """The texts of a function."""
        return function.triton

    @classmethod
    @functools.cache
    def is_slow(cls, form: str) -> bool:
        """Tells if a text takes more than the test whether a program lies in a region."""
        return _COSTLY.search(form) is not None

    @classmethod
    def refuses(cls, value: Primitive, kind: DType, *, is_constant: bool = False) -> bool:
        """Tells if a number cannot stand beside values of a type."""
        return isinstance(value, float) and not kind.is_float and not is_constant

    # -- texts of expressions ----------------------------------------------------------------------------------
    def constant(self, value: Primitive, kind: DType) -> str:
        """A number of a template."""
        return number_text(value)

    def literal(self, value: Primitive, kind: DType) -> str:
        """A number that is known; Triton takes one that is no normal float32 for a float64, and any other for none."""
        if kind is DType.F64:
            return f"tl.full((), {number_text(float(value))}, tl.float64)"
        if not kind.is_float:
            return number_text(value)
        held = held_single(float(value))
        return f"tl.full((), {held}, tl.float32)" if 0.0 < abs(held) < LEAST_NORMAL else number_text(held)

    def argument(self, argument: Argument) -> str:
        """A number of run time; the interpreter passes an integer in 32 bits if they hold it, the bits of 0.0 too."""
        if self.held:
            return f"tl.load({argument.name})"
        if argument.kind == "f64":
            return f"tl.full((), {argument.name}, tl.int64).to(tl.float64, bitcast=True)"
        return argument.name

    def unary(self, sign: str, operand: str, kind: DType, *, is_literal: bool) -> str:
        """An operator before its operand; Triton's -x is 0 - x, which makes 0 of 0, not -0."""
        if sign == "-" and kind.is_float and not is_literal:
            return f"({operand} * -1.0)"
        return f"({sign}{operand})"

    def shifted(self, value: str, by: str, kind: DType, *, to_left: bool) -> str:
        """As torch has it; the GPU takes the number of places modulo 32."""
        bits = 8 * kind.itemsize
        sign = "<<" if to_left else ">>"
        if by.isdecimal() and int(by) < bits:  # a literal
            return f"({value} {sign} {by})"
        beyond, within = f"(({by}) < 0) | (({by}) >= {bits})", f"(({by}) & {bits - 1})"
        if to_left or kind is DType.U8:
            return f"tl.where({beyond}, 0, {value} {sign} {within})"
        return f"({value} >> tl.where({beyond}, {bits - 1}, {within}))"

    def divided(self, expression: Expression, left: str, by: ast.expr) -> str:
        """A quotient: of float32 what `/` gives is two units in the last place off, and takes ten multiplications."""
        known = expression.divisors.get(by.id) if isinstance(by, ast.Name) else None
        single = expression.kind is DType.F32
        if single and known is not None:
            if expression.rounded is not None:
                return f"({left} * {known[1]()})"
            self.helpers.add("divided_by")
            return f"divided_by({left}, {', '.join(known[0]())})"
        right = expression.write(by)
        if single and expression.rounded is None:
            self.helpers.add("divided")
            return f"divided({left}, {right})"
        return f"({left} / {right})"

    def chosen(self, tests: Iterable[str], yes: str, no: str) -> str:
        """One of two values."""
        return f"tl.where({' & '.join(tests)}, {yes}, {no})"

    def call(self, form: str, operands: Sequence[str]) -> str:
        """The text of a function of operands; the kernel imports what it calls."""
        self.helpers.update(helper for _, helper in _HELPER.findall(form))
        return form.replace("prims_apart.", "").format(*operands)

    def typed(self, text: str, dtype: DType) -> str:
        """A value in a type."""
        return f"{text}.to({TYPES[dtype]})"

    # -- lines -------------------------------------------------------------------------------------------------
    def define(self, value: Value, place: Place, text: str, hint: str = "v") -> str:
        """Writes a line that computes a value; gives its name."""
        name = self.names[value] = self.name(hint)
        self.lines[place].append(f"{name} = {text}")
        return name

    def lanes(self, block: str) -> str:
        """The numbers from 0 on, below a block."""
        return f"tl.arange(0, {block}).to(tl.int64)" if self.needs.wide else f"tl.arange(0, {block})"

    def offset(self, flat: Index) -> str:
        """The offset of an index from its pointer."""
        text = flat.written()
        if not flat.variables():  # a pointer to one element, as a tile
            return f"tl.full({self._ones}, {text}, {'tl.int64' if self.needs.wide else 'tl.int32'})"
        return text if "+" not in text and " " not in text else f"({text})"

    def _mask(self, flat: Index, value: Value) -> str:
        rows, length = self.needs.domain.rows, self.needs.domain.length
        if not self.needs.reduces:
            conditions = ["inside"] * value.x
        elif value.x and value.r:
            conditions = ["inside"]
        else:
            conditions = [f"x < {rows}"] * value.x + [f"r < {length}"] * value.r
        if tests := flat.tests():
            conditions = [f"({condition})" for condition in conditions] + tests
        return f", mask={' & '.join(conditions)}, other=0" if conditions else ""

    # -- steps: memory -----------------------------------------------------------------------------------------
    def load(self, step: steps.Load) -> str:
        """An element of an input."""
        stored, value = tensor(self.needs.specs[step.input]).dtype, step.into
        text = f"tl.load({self.pointers[step.input]} + {self.offset(step.at)}{self._mask(step.at, value)})"
        if value.dtype is not stored and not step.raw:
            text = self.typed(text, value.dtype)
        return f"({text} != 0)" if value.dtype.is_bool else text

    def store(self, step: steps.Store) -> None:
        """An element of an output."""
        flat, value, full = step.at, step.of, step.full
        shape, mask, at = "(XB,)", "inside", flat.written()
        if self.needs.reduces:
            shape = "(XB, RB)" if full else "(XB, 1)"
            mask = "inside" if full else f"x < {self.needs.domain.rows}"
        if self.needs.reduces or not flat.variables():
            at = f"{at} + tl.zeros({shape}, tl.int32)"
        name = self.names[value]
        text = name if value.x and (value.r or not full) else f"tl.broadcast_to({name}, {shape})"
        q = f"q{step.number}"
        self.lines[step.place].append(f"tl.store({q} + ({at}), {text}.to({q}.dtype.element_ty), mask={mask})")

    def barrier(self, step: steps.Barrier) -> None:
        """Threads that hold an element twice, or hold a row together, have all read it before one of them writes."""
        small = [f"if XB * RB < {ONE_EACH}:", "    tl.debug_barrier()"]
        self.lines[step.place] += small if step.small else ["tl.debug_barrier()"]

    # -- steps: values -----------------------------------------------------------------------------------------
    def compute(self, step: steps.Compute) -> str:
        """An element-wise row."""
        node, dtype = step.node, step.into.dtype
        assert node.call.op.pointwise is not None

        def operand(name: str) -> str:
            value = step.operands[int(name[1:])]
            return self.numbers.operand(node, int(name[1:]), step.kind) if value is None else self.names[value]

        divisors = {
            f"_{n}": (partial(self.numbers.divisor, i), partial(self.numbers.inverse, i))
            for n, (i, spec) in enumerate(zip(node.inputs, node.call.specs, strict=True))
            if isinstance(spec, NumberSpec)
        }
        line = partial(self.define_single, step)
        expression = Expression(self, operand, step.kind, step.rounded, line, divisors)
        text = bracketed(expression.write(read_template(node.call.op.pointwise).tree))
        return text if dtype.is_bool else self.typed(text, dtype)

    def cast(self, step: steps.Cast) -> str:
        """A value in another type."""
        name, dtype = self.names[step.of], step.into.dtype
        return f"({name} != 0)" if dtype.is_bool else self.typed(name, dtype)

    def round(self, step: steps.Round) -> str:
        """A value as a half type holds it."""
        return f"{self.names[step.of]}.to({TYPES[step.dtype]}).to(tl.float32)"

    def full(self, step: steps.Full) -> str:
        """A number everywhere."""
        dtype = step.into.dtype
        number = self.numbers.operand(step.node, step.position, dtype)
        return f"tl.full({self._ones}, {number}, {TYPES[dtype]})"

    def only(self, step: steps.Only) -> None:
        """Writes costly steps only where a program has an element in a region."""
        lines = self.lines[step.place]
        begin = len(lines)
        self.write(step.steps)
        inner, lines[begin:] = lines[begin:], []
        name = self.define(step.into, step.place, f"tl.zeros((XB,), {TYPES[step.into.dtype]})")
        lines.append(f"if tl.max(({' & '.join(step.region.tests)}).to(tl.int32), 0) > 0:")
        lines += [*indent(inner), f"    {name} = {self.names[step.of]}"]

    def draw(self, step: steps.Draw) -> str:
        """A random value, made of a word of its element."""
        value, names, keys = self.numbers_of(step)
        helper, begin = _WORDS[step.words], self.offset(step.first)
        if step.words is Words.BLOCK:
            begin = "tl.program_id(0).to(tl.int64) * (XB // 4), XB // 4"
        elif step.words is Words.ROW:
            begin = f"{begin}, RB" if self.needs.whole_rows else f"{begin} + r0, RB"
        elif step.words is Words.FOURS:
            fourth = f"({'' if self.needs.whole_rows else 'r0 + '}4 * {self.lanes('RB // 4')}[None, :])"
            begin = begin.replace(FOURTH, fourth)
        self.helpers.add(helper)
        word = Value(DType.I64, step.into.x, step.into.r)
        names["word"] = self.define(word, step.place, f"{helper}({keys}, {begin}).to(tl.int64)", hint="w")
        names["where"] = "tl.where"
        text = re.sub(r"[a-z]+", lambda match: names.get(match[0], match[0]), value)
        return text if step.into.dtype.is_bool else self.typed(text, step.into.dtype)

    # -- steps: reductions and passes ----------------------------------------------------------------------------
    def begin_pass(self, step: steps.BeginPass) -> None:
        """A loop over r begins."""
        self.lines[Place.LOOP] = []

    def end_pass(self, step: steps.EndPass) -> None:
        """Its lines, in the loop."""
        domain = self.needs.domain
        self.lines[Place.EACH] += [
            f"for r0 in tl.range(0, {domain.length}, RB, num_stages=STAGES):",
            f"    r = r0 + {self.lanes('RB')}[None, :]",
            f"    inside = (x < {domain.rows}) & (r < {domain.length})",
            *indent(self.lines[Place.LOOP]),
        ]

    def _gather(self, kind: str, kept_in: DType, value: Value) -> str:
        """A value as a reduction takes it: neutral where a lane lies beyond the edge."""
        name = self.names[value]
        text = name if value.dtype is kept_in else self.typed(name, kept_in)
        if kind in ("any", "all"):
            text = f"({name} != 0).to(tl.int32)"
        return f"tl.where(inside, {text}, {neutral(kind, kept_in)})"

    def gather(self, step: steps.Gather) -> None:
        """Adds a value to what a reduction gathers."""
        kind, kept_in = step.kind, step.total.dtype
        begin = f"tl.full((XB, RB), {neutral(kind, kept_in)}, {TYPES[kept_in]})"
        total = self.define(step.total, Place.EACH, begin, "total")
        text = self._gather(kind, kept_in, step.of)
        if kind in ("sum", "mean", "prod"):
            self.lines[Place.LOOP].append(f"{total} {'*' if kind == 'prod' else '+'}= {text}")
            return
        quiet = ", propagate_nan=tl.PropagateNan.ALL" if kept_in.is_float else ""
        less = "minimum" if kind in ("min", "all") else "maximum"
        self.lines[Place.LOOP].append(f"{total} = tl.{less}({total}, {text}{quiet})")

    def join(self, step: steps.Join) -> None:
        """Joins the lanes of a tile along r."""
        kind, kept_in, dtype = step.kind, step.kept_in, step.into.dtype
        total = self.names[step.of] if step.gathered else self._gather(kind, kept_in, step.of)
        if kind in ("sum", "mean"):
            text = f"tl.sum({total}, 1)[:, None]"
        elif kind == "prod":
            self.helpers.add("product")
            text = f"product({total}, 1)[:, None]"
        elif kind in ("any", "all"):
            text = f"tl.{'max' if kind == 'any' else 'min'}({total}, 1)[:, None] != 0"
        elif not kept_in.is_float:
            text = f"tl.{kind}({total}, 1)[:, None]"
        else:
            self.helpers.add("peak")
            text = f"peak({total}, 1)[:, None]" if kind == "max" else f"-peak(-{total}, 1)[:, None]"
        if kind == "mean":
            text = f"{text} * {self._inverse_of(self.needs.domain.length, kept_in)}"
        name = self.define(step.into, step.place, text)
        if dtype is not kept_in and not dtype.is_bool:
            self.lines[step.place].append(f"{name} = {self.typed(name, dtype)}")

    def _inverse_of(self, length: int | Size, kept_in: DType) -> str:
        """One divided by a number of elements."""
        if not isinstance(length, Size):
            return repr(1.0 / length) if length else "float('nan')"
        if kept_in is DType.F64:
            return f"(1.0 / {length}.to(tl.float64))"
        self.helpers.add("divided")
        return f"divided(1.0, {length}.to(tl.float32))"

    def sum_column(self, step: steps.SumColumn) -> None:
        """Adds a value to the sum of its column."""
        name = self.sums[step.number] = f"columns{step.number}"
        self.lines[Place.HEAD].append(f"{name} = tl.full((XB, RB), 0, {TYPES[step.kept_in]})")
        self.lines[Place.EACH].append(f"{name} += {self._gather('sum', step.kept_in, step.of)}")

    def increase_sums(self, step: steps.IncreaseSums) -> None:
        """Adds a value to the sums of a product."""
        self.lines[Place.EACH].append(f"product += {self.names[step.of]}")

    def round_sums(self, step: steps.RoundSums) -> None:
        """Rounds the sums of a product or a convolution."""
        name = self.names[step.sums]
        self.lines[Place.EACH].append(f"{name} = {name}.to({TYPES[step.dtype]}).to(tl.float32)")

    # -- the whole ---------------------------------------------------------------------------------------------
    def body(self) -> list[str]:
        """The lines of the kernel's function."""
        needs, domain = self.needs, self.needs.domain
        start = "tl.program_id(0).to(tl.int64)" if needs.wide else "tl.program_id(0)"
        if needs.columns is not None:
            return self._parts(start)
        if not needs.reduces:
            return [f"x = {start} * XB + tl.arange(0, XB)", f"inside = x < {domain.rows}", *self.lines[Place.EACH]]
        lines = [f"x = {start} * XB + tl.arange(0, XB)[:, None]"]
        if needs.whole_rows:
            lines.append(f"r = {self.lanes('RB')}[None, :]")
            lines.append(f"inside = (x < {domain.rows}) & (r < {domain.length})")
        return [*lines, *self.lines[Place.EACH]]

    def _parts(self, start: str) -> list[str]:
        """The rows of a part one after the other, and then the sums of their columns."""
        columns = self.needs.columns
        assert columns is not None
        per, length = columns.rows // columns.parts, columns.length
        at = ".to(tl.int64)" if self.needs.wide else ""
        lines = [f"part = {start}", f"r = {self.lanes('RB')}[None, :]", *self.lines[Place.HEAD]]
        lines.append(f"for x0 in tl.range(0, {per}, XB, num_stages=STAGES):")
        lines += indent(
            [
                "of_part = x0 + tl.arange(0, XB)[:, None]",
                f"x = tl.where(of_part < {per}, part * {per} + of_part, {columns.rows}){at}",
                f"inside = (x < {columns.rows}) & (r < {length})",
                *self.lines[Place.EACH],
            ]
        )
        for number, name in self.sums.items():
            value = f"tl.sum({name}, 0)[None, :].to(q{number}.dtype.element_ty)"
            lines.append(f"tl.store(q{number} + (part * {length} + r), {value}, mask=r < {length})")
        return lines

    def source(self) -> str:
        """The kernel, by the name KERNEL."""
        needs, numbers = self.needs, [argument.name for argument in self.numbers.arguments.values()]
        in_loop = needs.reduces and (needs.columns is not None or not needs.whole_rows)
        names = [
            *self.pointers.values(),
            *(f"q{n}" for n in range(len(needs.results))),
            *(self._parameter(argument) for argument in self.numbers.arguments.values()),
            "SIZES",
            "XB: tl.constexpr",
            *["RB: tl.constexpr"] * needs.reduces,
            *["STAGES: tl.constexpr"] * in_loop,
        ]
        lines = [*header(title_of(needs.body), self.helpers), "", "", decorator(numbers)]
        return "\n".join([*lines, f"def KERNEL({', '.join(names)}):", *indent(self.body())]) + "\n"

    def with_symbols(self, head: str, names: Sequence[str], body: str) -> str:
        """The source with arguments for symbols, which are as wide as indexes."""
        if self.needs.wide:
            first, rest = body.split("\n", 1)
            body = "\n".join([first, *(f"    {name} = {name}.to(tl.int64)" for name in names), rest])
        return f"{head}{''.join(f'{name}, ' for name in names)}{body}"

    def _parameter(self, argument: Argument) -> str:
        # else an integer that 32 bits hold is passed in 32, and one that they do not is compiled for anew
        return argument.name if self.held or argument.kind == "f32" else f"{argument.name}: tl.int64"


def bracketed(text: str) -> str:
    """An expression to which a method may be appended."""
    return text if text.startswith("(") else f"({text})" if text[:1] == "-" else text


def neutral(kind: str, kept_in: DType) -> str:
    """The number that a reduction starts from."""
    if kind in ("any", "all"):
        return "0" if kind == "any" else "1"
    if kind in ("sum", "mean", "prod"):
        return ("1" if kind == "prod" else "0") + (".0" if kept_in.is_float else "")
    if kept_in.is_float:
        return 'float("-inf")' if kind == "max" else 'float("inf")'
    edge = (1 << (8 * kept_in.itemsize - 1)) - 1
    return str(-edge - 1 if kind == "max" else edge)
