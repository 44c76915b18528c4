"""From a body, a Graph whose operations become one kernel, to C source for a CPU.

The loops are those of `lowering`: `x` over what is kept, `r` over what is reduced.  A CPU works best on neighbours in
memory, so each loop is cut in two, and the innermost one, whose iterations are the lanes of vectors, runs over the
longest stretch of axes along which every tensor has its elements side by side:

    element-wise   for x (in parallel): for ri in lanes: ...
    rows           for x (in parallel): for each reduction in turn: for ro: for ri in lanes: ...
    columns        for xo, parts of xi (in parallel): for each reduction in turn: for r: for xi in lanes: ...

Values that one pass over a row makes and a later one needs lie in a buffer of a row's length.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.index import Index, Var, constant, flat_index, index_of, strided_index
from burn_torch.fusion.body.loops import Argument, Domain, tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.regions import Region
from burn_torch.fusion.c.expressions import C_TYPES, COSTLY, c_expression, c_number
from burn_torch.fusion.c.iteration import Iteration, Lanes, Pass
from burn_torch.fusion.c.prims import helpers_for
from burn_torch.fusion.c.totals import COLUMNS, Total
from burn_torch.fusion.triton.expressions import computed_in
from burn_torch.fusion.triton.lowering import Writer
from burn_torch.fusion.triton.numbers import Numbers
from burn_torch.fusion.triton.values import Key, Tile
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.laws import Draws
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, exact_quotient, known_multiple, same_size, size_hint, sizes_in

__all__ = ["CKernel", "CWriter", "Loops"]

CHUNK: Final = 1024
"""Elements of a row that are added in float32; chunks are added in float64."""

_LONGEST_BUFFER: Final = 16384
_LARGEST_BUFFERS: Final = 1 << 18
"""Bytes, on the stack of a thread."""

_FEW_ROWS: Final = 64
"""With fewer of them, threads share a row of element-wise work instead."""


@final
@dataclass(frozen=True)
class CKernel:
    """A body as a C function: pointers to inputs and outputs, numbers, and how many threads it may use.

    inputs   positions of the body's inputs that are tensors the kernel reads, in the order of its arguments
    outputs  specs of what it writes
    numbers  further arguments
    over     (output, position of the body's input): the first may be written over the second
    work     operations on elements, which say whether threads are worth their start
    sizes    what it takes beside, where its sizes are symbols: sizes made of these; of a kernel at some, whole numbers
    """

    name: str
    source: str
    inputs: tuple[int, ...]
    outputs: tuple[TensorSpec, ...]
    numbers: tuple[Argument, ...]
    domain: Domain
    over: tuple[tuple[int, int], ...]
    work: Any
    sizes: tuple[Any, ...] = ()


@final
@dataclass(frozen=True)
class Loops:
    """How the loops are cut: `inner` elements of `r` (or of `x`, where columns are reduced) are lanes."""

    inner: int
    columns: bool = False


def _stretches_in(count: Any, inner: Any) -> Any:
    """How many stretches of `inner` elements a loop is; it is a whole number of them."""
    found = 1 if same_size(count, inner) else exact_quotient(count, inner)
    return count // inner if found is None else found


@final
class _CNumbers(Numbers):
    """Numbers as C writes them."""

    def _literal(self, value: Primitive, kind: DType) -> str:
        return c_number(float(value) if kind.is_float and not isinstance(value, bool) else value, kind)

    def _argument(self, key: Primitive, how: str, value: Primitive) -> str:
        if key not in self.arguments:
            self.arguments[key] = Argument(f"n{len(self.arguments)}", how, value)
        return self.arguments[key].name


_NUMBERS: Final = {"f32": "float", "f64": "double", "i64": "int64_t"}


@final
class CWriter(Writer):
    """Writes one kernel in C, for one way to cut the loops.

    `iteration` holds what runs for each x: lines, lines for each column, passes over r, and stores behind what they may
    overwrite.  Where columns are reduced, a value of each column is an array over the lanes.
    """

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        loops: Loops,
        *,
        strict: bool,
        layouts: Sequence[tuple[Any, ...] | None] | None,
    ) -> None:
        super().__init__(body, domain, strict=strict, layouts=layouts, held=False, over=False)
        self.numbers = _CNumbers(body, held=False)
        self.by_columns: Final = loops.columns
        self.inner: Final = loops.inner
        self.lane: Final = Var("xi" if loops.columns else "ri", loops.inner)
        lane = index_of(self.lane)
        if domain.reduced is None:
            self.x = index_of(Var("x", _stretches_in(domain.rows, loops.inner))) * loops.inner + lane
            self.r = constant(0)
        elif loops.columns:
            self.x = index_of(Var("xo", _stretches_in(domain.rows, loops.inner))) * loops.inner + lane
            self.r = index_of(Var("r", domain.length))
        else:
            self.x = index_of(Var("x", domain.rows))
            self.r = index_of(Var("ro", _stretches_in(domain.length, loops.inner))) * loops.inner + lane
        self.sums: Final[dict[int, tuple[str, str]]] = {}
        """Sums of columns beside rows, by output: the array and its type."""
        self.iteration: Final = Iteration()
        self.within: Pass | None = None
        """The pass that is being written; `loop` are the lines that it reads and computes with."""
        self.apart = 0
        """Accesses of the innermost loop that are not side by side."""
        self.beside = 0
        self.words: Final[dict[int, list[str]]] = {}
        """By pass: the lines that draw the words of a chunk."""
        self.declared: Final[list[str]] = []
        """Arrays of a row, or of the columns."""
        self.before: Final[dict[Key, tuple[Tile, list[str]]]] = {}
        """What earlier passes over a row computed, and where."""
        self.buffers: Final[dict[Key, str]] = {}
        self.buffer_bytes = 0

    def cost(self) -> float:
        """What the accesses of the innermost loop cost, of a short one more."""
        return (self.apart * 8 + self.beside) * (1.0 + 16.0 / size_hint(self.inner))

    # -- the whole ---------------------------------------------------------------------------------
    def c_kernel(self) -> CKernel:
        """Source and arguments.  Raises: Unfusible, with the reason."""
        summed = {} if self.columns is None else self._sums_of_columns()
        outputs = [
            (self._summed(i) if i in summed else i, i in summed, summed.get(i) or self._at(tensor(self.specs[i])))
            for i in self.body.outputs
            if i is not None
        ]
        for i, _, (index, _) in outputs:
            self._level(i, index)
        if self.reduces:
            self._passes(outputs)
        else:
            self._begin_pass()
            for number, (i, _, (index, _)) in enumerate(outputs):
                self._store(number, i, index, full=True)
            self._end_pass()
        source, sizes = self._c_source(len(outputs))
        name = "fused_" + hashlib.sha256(source.encode()).hexdigest()[:16]
        return CKernel(
            name,
            source.replace("KERNEL", name),
            tuple(self.position[i] for i in self.read),
            tuple(tensor(self.specs[i]) for i in self.body.outputs if i is not None),
            tuple(self.numbers.arguments.values()),
            self.domain,
            self._over(),
            self.domain.rows * self.domain.length * max(len(self.body.nodes), 1),
            sizes,
        )

    def _passes(self, outputs: Sequence[Primitive]) -> None:
        """One pass over `r` for the reductions of each level, and for the results that wait for no other."""
        rows = {key: level for key, (level, _) in self.folds.items()}
        level_of = {number: self._level(i, index) for number, (i, _, (index, _)) in enumerate(outputs)}
        full = {number for number, (_, _, (_, whole)) in enumerate(outputs) if whole}
        last = max([*rows.values(), *(level_of[n] for n in full)], default=0)
        for phase in range(last + 1):
            folds = [key for key, level in rows.items() if level == phase]
            stores = [number for number in sorted(full) if level_of[number] == phase]
            if not folds and not stores:
                continue
            self._begin_pass()
            gathered = [self._gather(key) for key in folds]
            for number in stores:
                i, is_sum, (index, _) = outputs[number]
                if is_sum:
                    self._sum_columns(number, i, index)
                else:
                    self._store(number, i, index, full=True)
            self._end_pass()
            for key, total in zip(folds, gathered, strict=True):
                node, _ = self.maker[key[0]]
                self.known[key] = self._gathered(node, total)
        for number, (i, _, (index, whole)) in enumerate(outputs):
            if not whole:
                self._store(number, i, index, full=False)

    def _begin_pass(self) -> None:
        self.within = Pass()
        self.loop, self.in_loop = self.within.reads, {}

    def _end_pass(self) -> None:
        assert self.within is not None
        for key, tile in self.in_loop.items():
            self.before.setdefault(key, (tile, self.within.reads))
        self.iteration.add(self.within)
        self.within = self.loop = None

    def _sum_columns(self, number: int, i: int, index: tuple[Index, ...]) -> None:
        """Adds a value to the sum of its column in the part of the rows that a thread is at."""
        value = self._value(i, index)
        name = f"columns{number}"
        self.sums[number] = (name, C_TYPES[DType.F64 if value.dtype.is_float else DType.I64])
        assert self.loop is not None
        self.loop.append(f"{name}[{_c(self.r)}] += {value.name};")

    # -- reductions -----------------------------------------------------------------------------------
    def _gather(self, key: Key) -> Total:
        node, _ = self.maker[key[0]]
        kind, kept_in, _ = self._fold(node)
        value = self._value(*self.folds[key][1])
        total = Total(self._name("total"), kind, kept_in, self.by_columns)
        assert self.within is not None
        self.within.reads.extend(total.step(value.name))
        self.within.totals.append(total)
        return total

    def _gathered(self, node: Node, total: Total) -> Tile:
        spec = tensor(node.call.result)
        text = total.result(self.domain.length)
        return self._emit(text, spec, True, False)

    # -- values -----------------------------------------------------------------------------------------
    def _value(self, i: int, index: tuple[Index, ...]) -> Tile:
        key = (i, index)
        if self.loop is not None and key not in self.known and key not in self.in_loop:
            tile = self._buffered(key)
            if tile is not None:
                self.in_loop[key] = tile
                return tile
        return super()._value(i, index)

    def _buffered(self, key: Key) -> Tile | None:
        """A value that an earlier pass over the row made, from a buffer; None where there is none."""
        found = self.before.get(key)
        length = self.domain.length
        if found is None or key[0] in self.position or self.by_columns or length > _LONGEST_BUFFER:
            return None
        assert self.loop is not None
        tile, lines = found
        if key not in self.buffers:
            size = length * computed_in(tile.dtype).itemsize
            if self.buffer_bytes + size > _LARGEST_BUFFERS:
                return None
            self.buffer_bytes += size
            name = self.buffers[key] = self._name("row")
            self.declared.append(f"{C_TYPES[tile.dtype]} {name}[{length}];")
            lines.append(f"{name}[{_c(self.r)}] = {tile.name};")
        name = self._name("v")
        self.loop.append(f"{C_TYPES[tile.dtype]} {name} = {self.buffers[key]}[{_c(self.r)}];")
        return Tile(name, tile.dtype, tile.x, tile.r)

    def _full(self, number: str, spec: TensorSpec) -> Tile:
        return self._emit(number, spec, False, False)

    def _cast(self, tile: Tile, made: DType) -> str:
        return f"{tile.name} != 0" if made.is_bool else tile.name

    def _value_in(self, region: Region, key: Key) -> Tile:
        lines = self.loop if self.loop is not None else []
        begin = len(lines)
        tile = self._value(*key)
        # lanes outside of the region compute it too: 6 times slower than op by op where it is a tanh
        if region.parts and any(map(COSTLY.search, lines[begin:])):
            raise Unfusible(Reason.LIMIT, "every element would be computed in every part of what is joined")
        return tile

    def _either(self, test: str, yes: str, no: str) -> str:
        return f"(({test.replace('//', '/')}) ? {yes} : {no})"

    def _typed(self, text: str, made: DType) -> str:
        return text

    def _expressed(self, node: Node, tiles: Sequence[Tile | None], kind: DType, line: Callable[[str], str]) -> str:
        assert node.call.op.pointwise is not None
        names = [self.numbers.operand(node, n, kind) if tile is None else tile.name for n, tile in enumerate(tiles)]
        return c_expression(node.call.op.pointwise, names, kind, used=self.helpers, line=line)

    def _drawn(self, node: Node, index: tuple[Index, ...]) -> Tile:
        law, spec = node.call.op.law(Draws), tensor(node.call.result)
        assert law is not None
        flat = flat_index(index, spec.shape)
        x, r = self._varies(flat)
        *parameters, key, stream = node.inputs
        made = self.numbers.made_of(node.call.op.name, parameters, law.numbers, spec.dtype)
        names = {"word": self._word(self.numbers.key(key), self.numbers.key(stream), flat)}
        names.update(zip("abc", made, strict=False))
        kind, line = computed_in(spec.dtype), partial(self._line, x=x, r=r)
        return self._emit(c_expression(law.value, names, kind, used=self.helpers, line=line), spec, x, r)

    def _word(self, key: str, stream: str, flat: Index) -> str:
        """The word of an element; neighbours share a cipher where four of them begin a block."""
        rest = flat + index_of(self.lane) * -1
        fours = all(known_multiple(count, 4) for count in (*rest.terms.values(), rest.constant, self.inner))
        if self.by_columns or not fours or any(self.lane in atom.variables() for atom in rest.terms):
            self.helpers.add("word_at")
            return f"(int64_t)word_at_({key}, {stream}, {_c(flat)})"
        self.helpers.add("words")
        name = self._name("words")
        assert self.loop is not None
        self.words.setdefault(id(self.loop), []).extend(
            [
                f"uint32_t {name}[{CHUNK}];",
                f"words_({name}, {key}, {stream}, ({_c(rest)} + part) / 4, (end - part) / 4);",
            ]
        )
        return f"(int64_t){name}[ri - part]"

    def _emit(self, text: str, spec: TensorSpec, x: bool, r: bool) -> Tile:
        dtype = computed_in(spec.dtype)
        return self._rounded(Tile(self._line(text, dtype, x=x, r=r), dtype, x, r), spec)

    def _line(self, text: str, dtype: DType = DType.F32, *, x: bool, r: bool) -> str:
        name = self._name("v")
        self._declare(name, C_TYPES[dtype], text, x, r)
        return self._called(name, x, r)

    def _rounded(self, tile: Tile, spec: TensorSpec, *, always: bool = False) -> Tile:
        if not (self.strict or always) or spec.dtype not in (DType.F16, DType.BF16):
            return tile
        name = self._name("v")
        if spec.dtype is DType.BF16:
            self.helpers.add("bf16")
            text = f"from_bf16(to_bf16({tile.name}))"
        else:
            text = f"(float)(_Float16){tile.name}"
        self._declare(name, "float", text, tile.x, tile.r)
        return Tile(self._called(name, tile.x, tile.r), tile.dtype, tile.x, tile.r)

    def _called(self, name: str, x: bool, r: bool) -> str:
        return f"{name}[l]" if self._is_array(x, r) else name

    def _is_array(self, x: bool, r: bool) -> bool:
        """Whether a value is one of each column, kept for the passes over r."""
        return self.by_columns and x and not r

    def _declare(self, name: str, kind: str, text: str, x: bool, r: bool) -> None:
        if self._is_array(x, r):
            self.declared.append(f"{kind} {name}[{COLUMNS}];")
            self.iteration.add(Lanes(f"{name}[l] = ({kind})({text});"))
        elif r:
            assert self.loop is not None
            self.loop.append(f"{kind} {name} = ({kind})({text});")
        else:
            self.iteration.add(f"{kind} {name} = ({kind})({text});")

    # -- memory -------------------------------------------------------------------------------------------
    def _load(self, i: int, index: tuple[Index, ...]) -> Tile:
        spec = tensor(self.specs[i])
        made = computed_in(spec.dtype)
        pointer = self.read.setdefault(i, f"p{len(self.read)}")
        layout = None if self.layouts is None else self.layouts[self.position[i]]
        flat = flat_index(index, spec.shape) if layout is None else strided_index(index, layout)
        x, r = self._varies(flat)
        self._count(flat)
        self.iteration.note_load(i, flat if layout is None else None)
        text = f"{pointer}[{_c(flat)}]"
        tests = dict.fromkeys(test for part in flat.parts() for test in part.tests())
        if tests:
            text = self._either(" & ".join(tests), text, "0")
        if spec.dtype is DType.BF16:
            self.helpers.add("bf16")
            text = f"from_bf16({text})"
        name = self._name("v")
        self._declare(name, C_TYPES[made], text, x, r)
        return Tile(self._called(name, x, r), made, x, r)

    def _count(self, flat: Index) -> None:
        """Notes whether the lanes of an access lie side by side."""
        if not any(self.lane in atom.variables() for atom in flat.terms):
            return
        if flat.step(self.lane) == 1:
            self.beside += 1
        else:
            self.apart += 1

    def _varies(self, flat: Index) -> tuple[bool, bool]:
        names = {variable.name[0] for variable in flat.variables()}
        if self.domain.reduced is None:
            return "x" in names or "r" in names, "r" in names
        return "x" in names, "r" in names

    def _store(self, number: int, i: int, index: tuple[Index, ...], full: bool) -> None:
        spec = tensor(self.specs[i])
        tile = self._value(i, index)
        flat = flat_index(index, spec.shape)
        self._count(flat)
        value = tile.name
        if spec.dtype is DType.BF16:
            self.helpers.add("bf16")
            value = f"to_bf16({value})"
        line = f"q{number}[{_c(flat)}] = ({C_TYPES[spec.dtype]})({value});"
        within = self.within if full else None
        self.iteration.store(number, flat, Lanes(line) if self.by_columns and within is None else line, within)

    def _over(self) -> tuple[tuple[int, int], ...]:
        """Which outputs may be written over which inputs."""
        outputs = [i for i in self.body.outputs if i is not None]
        return tuple(
            (number, self.position[i])
            for number, j in enumerate(outputs)
            for i in self.read
            if self.specs[i] is self.specs[j] and self.iteration.may_cover(number, i)
        )

    # -- source ---------------------------------------------------------------------------------------------
    def _c_source(self, outputs: int) -> tuple[str, tuple[Size, ...]]:
        arguments = [
            *(f"const {C_TYPES[tensor(self.specs[i]).dtype]} *{name}" for i, name in self.read.items()),
            *(
                f"{C_TYPES[tensor(self.specs[i]).dtype]} *q{n}"
                for n, i in enumerate(i for i in self.body.outputs if i is not None)
            ),
            *(f"{_NUMBERS[a.kind]} {a.name}" for a in self.numbers.arguments.values()),
        ]
        nest, names, sizes = self._with_arguments(self._nest())  # first: it may need helpers
        arguments += [*(f"int64_t {name}" for name in names), "int threads"]
        lines = [f"/* {self._title()} */", "#include <stdint.h>", "", helpers_for(self.helpers)]
        lines += [f"void KERNEL({', '.join(arguments)}) {{"]
        lines += [f"    {line}" for line in nest]
        return "\n".join([*lines, "}", ""]), sizes

    def _with_arguments(self, lines: list[str]) -> tuple[list[str], list[str], tuple[Size, ...]]:
        """The lines with an argument for each symbol in them, named in the order of their use, and what these are."""
        scope = next((n.scope for s in self.specs.values() for n in sizes_in(getattr(s, "shape", ()))), None)
        if scope is None:
            return lines, [], ()
        text = "\n".join(lines)
        names = dict.fromkeys(re.findall(r"\b[sd]\d+\b", text))
        new = {name: f"s{n}" for n, name in enumerate(names)}
        text = re.sub(r"\b[sd]\d+\b", lambda found: new[found[0]], text)
        return text.split("\n"), list(new.values()), tuple(map(scope.factor, names))

    def _nest(self) -> list[str]:
        if self.by_columns:
            return self._column_nest()
        rows = (
            self.domain.rows // (self.domain.parts or 1)
            if self.reduces
            else _stretches_in(self.domain.rows, self.inner)
        )
        share_row = not self.reduces and size_hint(rows) < _FEW_ROWS
        begin, end = ("0", str(rows)) if not self.sums else (f"part_of_rows * {rows}", f"(part_of_rows + 1) * {rows}")
        lines = [] if share_row or self.sums else [_PARALLEL]
        lines += [f"for (int64_t x = {begin}; x < {end}; ++x) {{", *_indented(self.declared)]
        for step in (*self.iteration.steps, *self.iteration.ends):
            assert not isinstance(step, Lanes)
            lines += _indented([step] if isinstance(step, str) else self._row_pass(step, share_row))
        lines.append("}")
        return self._in_parts(lines) if self.sums else lines

    def _in_parts(self, lines: list[str]) -> list[str]:
        """The loop over the rows of each part, and what their columns sum to."""
        length, outputs = self.domain.length, [i for i in self.body.outputs if i is not None]
        found = [_PARALLEL, f"for (int64_t part_of_rows = 0; part_of_rows < {self.domain.parts}; ++part_of_rows) {{"]
        for name, kind in self.sums.values():
            found.append(f"    {kind} {name}[{length}];")
            found.append(f"    for (int64_t r = 0; r < {length}; ++r) {name}[r] = 0;")
        found += _indented(lines)
        for number, (name, _) in self.sums.items():
            dtype = tensor(self.specs[outputs[number]]).dtype
            value = f"{name}[r]"
            if dtype is DType.BF16:
                self.helpers.add("bf16")
                value = f"to_bf16((float){value})"
            store = f"q{number}[part_of_rows * {length} + r] = ({C_TYPES[dtype]}){value};"
            found.append(f"    for (int64_t r = 0; r < {length}; ++r) {store}")
        return [*found, "}"]

    def _row_pass(self, step: Pass, share_row: bool) -> list[str]:
        totals = step.totals
        found = [total.declared() for total in totals]
        if self.reduces and not same_size(self.domain.length, self.inner):
            found.append(f"for (int64_t ro = 0; ro < {_stretches_in(self.domain.length, self.inner)}; ++ro)")
        if share_row:
            found.append(_PARALLEL)
        found.append(f"for (int64_t part = 0; part < {self.inner}; part += {CHUNK}) {{")
        found.append(f"    int64_t end = part + {CHUNK} < {self.inner} ? part + {CHUNK} : {self.inner};")
        found += _indented([*(total.part_declared() for total in totals), *self.words.get(id(step.reads), ())])
        clauses = "".join(clause for total in totals for clause in total.clauses())
        found.append(f"    #pragma omp simd{clauses}")
        found.append("    for (int64_t ri = part; ri < end; ++ri) {")
        found += [
            *_indented(step.lines, 2),
            "    }",
            *_indented([line for total in totals for line in total.joined()]),
            "}",
        ]
        return found

    def _column_nest(self) -> list[str]:
        groups = _stretches_in(self.domain.rows, self.inner)
        lines = [
            _PARALLEL.replace("schedule", "collapse(2) schedule"),
            f"for (int64_t xo = 0; xo < {groups}; ++xo)",
            f"for (int64_t part = 0; part < {self.inner}; part += {COLUMNS}) {{",
            f"    int64_t lanes = part + {COLUMNS} < {self.inner} ? {COLUMNS} : {self.inner} - part;",
            *_indented(self.declared),
        ]
        each = ["#pragma omp simd", "for (int64_t l = 0; l < lanes; ++l) {", "    int64_t xi = part + l; (void)xi;"]
        for step in (*self.iteration.steps, *self.iteration.ends):
            if isinstance(step, str):
                lines += _indented([step])
            elif isinstance(step, Lanes):
                lines += _indented([*each, f"    {step.line}", "}"])
            else:
                lines += _indented([total.declared() for total in step.totals])
                if step.totals:
                    lines += _indented([*each, *(f"    {total.cleared()}" for total in step.totals), "}"])
                lines += [f"    for (int64_t r = 0; r < {self.domain.length}; ++r) {{", *_indented(each, 2)]
                lines += [*_indented(step.lines, 3), "        }", "    }"]
        return [*lines, "}"]


_PARALLEL: Final = "#pragma omp parallel for num_threads(threads) if(parallel: threads > 1) schedule(static)"


def _c(index: Index) -> str:
    return index.written().replace("//", "/")


def _indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return [f"{'    ' * levels}{line}" for line in lines]
