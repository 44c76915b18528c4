"""Needs of a body, decided without text: at which indexes it reads, in which passes, and which steps it takes.

A result asks for its operands at the index where it needs them, an operand for its own.  Views are therefore index
arithmetic, and a value that is needed at two indexes is computed at both.  The outcome is a list of steps, which a
`Dialect` writes as source.  Whether a body is a kernel at all is asked here.

A kernel has one loop, over `x`, the elements of a result, or two: `x` over what is kept of a reduction and `r` over
what is reduced.  A reduction is a pass over `r`, and there is one more for each that needs the result of another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.fusion.body import steps
from burn_torch.fusion.body.columns import Columns, of_rows
from burn_torch.fusion.body.index import Index, Var, constant, flat_index, index_of, split_index, strided_index
from burn_torch.fusion.body.loops import Domain, tensor
from burn_torch.fusion.body.numbers import require_number
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.regions import Region, regions_at
from burn_torch.fusion.body.steps import Place, Step, Value, Words
from burn_torch.fusion.body.templates import Template, computed_in, read_template
from burn_torch.graph.ir import Graph, Node
from burn_torch.graph.view import GraphView
from burn_torch.ops.elementary import ELEMENTARY
from burn_torch.ops.laws import Draws, Fill, Folds, Moves, Regions
from burn_torch.ops.op import Call
from burn_torch.symbolic.sizes import Size, largest_sizes, same_shape, same_size, sizes_in

if TYPE_CHECKING:
    from burn_torch.fusion.body.dialect import Dialect

__all__ = ["LONGEST_ROW", "MOST_TENSORS", "Key", "Needs", "Output", "Terms"]

Key = tuple[int, tuple[Index, ...]]

MOST_TENSORS: Final = 24
"""More arguments make launches slow and registers scarce."""

MOST_OPERATIONS: Final = 96

LONGEST_ROW: Final = 16384
"""Elements of a row that a program holds at once."""

_MOST_NARROW: Final = (1 << 31) - (1 << 16)
"""Elements that indexes of 32 bits reach; the last program's tile goes beyond the last element."""

_DIFFERENCE: Final = "({0} - {1})"
_HALF: Final = (DType.F16, DType.BF16)


@final
class Output(NamedTuple):
    """A result: the value at an index, or the sum of its column; full: an element for each step of both loops."""

    number: int
    value: int
    at: tuple[Index, ...]
    full: bool
    is_sum: bool


Layouts = Sequence[tuple[Any, ...] | None] | None


class Terms(TypedDict, total=False):
    """The terms on which a body is a kernel; see `triton/lowering.py`.  in_steps: no program holds whole rows."""

    strict: bool
    layouts: Layouts
    in_steps: bool


class Needs(ABC):
    """The steps of one kernel.

    made        the values that it gives
    x, r        the indexes that its two loops run over
    whole_rows  whether a program holds whole rows: there is no loop over `r`
    read        inputs that are loaded, in the order of their first loads
    steps       what is decided so far
    phases      passes over a row: a reduction that needs the result of another comes after it
    """

    def __init__(
        self, body: Graph, domain: Domain, dialect: type[Dialect], *, strict: bool = False, layouts: Layouts = None,
        in_steps: bool = False,
    ) -> None:  # fmt: skip
        self.body: Final = body
        self.domain: Final = domain
        self.dialect: Final = dialect
        self.strict: Final = strict
        self.layouts: Final = layouts
        self.reduces: Final = domain.reduced is not None
        self.whole_rows: Final = not in_steps and domain.length <= LONGEST_ROW
        self._view: Final = GraphView(body)
        self.specs: Final = self._view.specs
        self.made: Final = [i for i in body.outputs if i is not None]
        self.position: Final = {i: position for position, (i, _) in enumerate(body.inputs)}
        self.x_var: Final = Var("x", domain.rows)
        self.r_var: Final = Var("r", domain.length)
        self.x = index_of(self.x_var)
        self.r = index_of(self.r_var)
        self.columns: Final = Columns(domain.parts, domain.rows, domain.length) if domain.parts else None
        self.wide: Final = self._is_wide()
        self.read: Final[dict[int, None]] = {}
        self.steps: list[Step] = []
        self.in_pass = False
        self.phases = 1
        self.known: Final[dict[Key, Value]] = {}
        self.known_in_pass: dict[Key, Value] = {}
        self._levels: Final[dict[Key, int]] = {}
        self.folds: Final[dict[Key, tuple[int, Key]]] = {}
        if len(body.nodes) > MOST_OPERATIONS:
            raise Unfusible(Reason.LIMIT, f"{len(body.nodes)} operations")
        tensors = sum(isinstance(spec, TensorSpec) for _, spec in body.inputs) + len(body.outputs)
        if tensors > MOST_TENSORS:
            raise Unfusible(Reason.LIMIT, f"{tensors} tensors")

    def _is_wide(self) -> bool:
        """Tells if indexes need 64 bits."""
        reached = [spec.numel for spec in self.specs.values() if isinstance(spec, TensorSpec)]
        for (_, spec), layout in zip(self.body.inputs, self.layouts or (), strict=bool(self.layouts)):
            if layout is not None and isinstance(spec, TensorSpec):
                reached.append(1 + sum((n - 1) * step for n, step in zip(spec.shape, layout, strict=True)))
        return any(count >= _MOST_NARROW for count in largest_sizes(reached))

    def _maker(self, i: int) -> Node:
        node = self._view.made_by(i)
        assert node is not None
        return node

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """The results that the kernel writes."""
        return tuple(tensor(self.specs[i]) for i in self.made)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Positions of the body's inputs that the kernel reads, in the order of its arguments."""
        return tuple(self.position[i] for i in self.read)

    @property
    def is_symbolic(self) -> bool:
        """Tells if sizes of the body are symbols."""
        shapes = [spec.shape for spec in self.specs.values() if isinstance(spec, TensorSpec)]
        return next(sizes_in(tuple(shapes)), None) is not None

    # -- what a way to run loops decides -----------------------------------------------------------------
    @abstractmethod
    def place_of(self, x: bool, r: bool) -> Place:
        """Returns the place of a step that varies with these loops."""

    @abstractmethod
    def store(self, number: int, value: Value, at: Index, full: bool) -> None:
        """Writes an element of an output."""

    @abstractmethod
    def words_of(self, flat: Index) -> tuple[Words, Index]:
        """How the words of a random tile are drawn, and where they begin."""

    @abstractmethod
    def note_load(self, i: int, flat: Index, *, row_major: bool) -> None:
        """Notes that an element of an input is loaded."""

    def varies(self, flat: Index) -> tuple[bool, bool]:
        """Tells if an index depends on x and on r."""
        variables = flat.variables()
        return self.x_var in variables, self.reduces and self.r_var in variables

    # -- results and passes ------------------------------------------------------------------------------
    def outputs(self) -> list[Output]:
        """The results, and where each is computed; finds all reductions on the way."""
        summed = {} if self.columns is None else self._sums_of_columns()
        outputs = []
        for number, i in enumerate(self.made):
            index, full = (summed[i][1], True) if i in summed else self._index_of(tensor(self.specs[i]))
            outputs.append(Output(number, summed[i][0] if i in summed else i, index, full, i in summed))
        for output in outputs:
            level = self.level(output.value, output.at)
            self.phases = max(self.phases, level + 1 if output.full else level)
        self.phases = max([self.phases, *(level + 1 for level, _ in self.folds.values())])
        return outputs

    def _sums_of_columns(self) -> dict[int, Key]:
        """For each sum of columns its operand, and where that lies."""
        assert self.columns is not None
        operands: dict[int, Key] = {}
        for i in self.made:
            node = self._view.made_by(i)
            if node is not None and node.call.op.law(Folds) is not None and of_rows(node) is None:
                operands[i] = node.read(0), self.columns.operand_at(node, self.x, self.r)
        if not self.whole_rows:
            raise Unfusible(Reason.LIMIT, f"rows of {self.domain.length} do not fit a program")
        return operands

    def _index_of(self, spec: TensorSpec) -> tuple[tuple[Index, ...], bool]:
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

    def run_passes(self, outputs: Sequence[Output]) -> None:
        """One pass over `r` for the reductions of each level, and for the results that wait for no other."""
        levels = [self.level(output.value, output.at) for output in outputs]
        rows = {key: level for key, (level, _) in self.folds.items()}
        for phase in range(self.phases):
            folds = [key for key, level in rows.items() if level == phase]
            stores = [output for output in outputs if output.full and levels[output.number] == phase]
            if not folds and not stores:
                continue
            self.begin_pass()
            totals = [self._gather(key) for key in folds]
            for output in stores:
                self.write(output)
            self.end_pass()
            for key, total in zip(folds, totals, strict=True):
                node = self._maker(key[0])
                self.known[key] = self._join(node, total, gathered=True)
        for output in outputs:
            if not output.full:
                self.write(output)

    def begin_pass(self) -> None:
        """Values that vary with r are those of this pass from here on."""
        self.in_pass, self.known_in_pass = True, {}
        self.steps.append(steps.BeginPass())

    def end_pass(self) -> None:
        """Ends a pass."""
        self.in_pass = False
        self.steps.append(steps.EndPass())

    def write(self, output: Output) -> None:
        """Stores a result, or adds it to the sum of its column."""
        i = self.made[output.number]
        if not output.is_sum:
            value = self.value(i, output.at)
            self.store(output.number, value, flat_index(output.at, tensor(self.specs[i]).shape), output.full)
            return
        _, kept_in = self._fold(self._maker(i))
        value = self.value(output.value, output.at)
        self.steps.append(steps.SumColumn(output.number, value, kept_in))

    # -- reductions --------------------------------------------------------------------------------------
    def _fold(self, node: Node) -> tuple[str, DType]:
        """Returns the kind of a reduction, and the type in which it gathers."""
        law = node.call.op.law(Folds)
        assert law is not None
        dtype = computed_in(tensor(node.call.specs[0]).dtype)
        if law.kind in ("any", "all"):
            return law.kind, DType.I32
        if dtype.is_bool:
            raise Unfusible(Reason.DTYPE, f"{node.call.op.name} of {dtype}")
        return law.kind, DType.I32 if dtype in (DType.I8, DType.I16, DType.U8) else dtype

    def _gather(self, key: Key) -> Value:
        """Adds to a pass what a reduction gathers in it; gives the total."""
        kind, kept_in = self._fold(self._maker(key[0]))
        value = self.value(*self.folds[key][1])
        total = Value(kept_in, True, False)
        self.steps.append(steps.Gather(total, kind, value))
        return total

    def _join(self, node: Node, value: Value, *, gathered: bool) -> Value:
        kind, kept_in = self._fold(node)
        spec = tensor(node.call.result)
        joined = Value(computed_in(spec.dtype), True, False)
        self.steps.append(steps.Join(joined, Place.EACH, value, kind, kept_in, gathered))
        return self._round(joined, spec)

    # -- what depends on what ----------------------------------------------------------------------------
    def level(self, i: int, index: tuple[Index, ...]) -> int:
        """How many reductions lie one after the other before a value at an index; finds all reductions on the way.

        Raises: Unfusible for what no kernel computes.
        """
        key = (i, index)
        known = self._levels.get(key)
        if known is not None:
            return known
        self._levels[key] = 0
        level = 0
        if i not in self.position:
            node = self._maker(i)
            if node.call.op.law(Folds) is not None and node.call.attrs["dims"]:
                operand = self._folded_from(node, index)
                level = self.level(*operand)
                self._fold(node)
                self.folds[key] = (level, operand)
                level += 1
            else:
                for needed in self._operands(node, i, index):
                    if needed is not None:
                        level = max(level, self.level(*needed))
        self._levels[key] = level
        return level

    def _folded_from(self, node: Node, index: tuple[Index, ...]) -> Key:
        shape, axes = tensor(node.call.specs[0]).shape, tuple(sorted(node.call.attrs["dims"]))
        sizes = tuple(shape[axis] for axis in axes)
        if not same_size(math.prod(sizes), self.domain.length):
            raise Unfusible(
                Reason.REDUCTION_ORDER,
                f"{node.call.op.name} over {math.prod(sizes)} beside one over {self.domain.length}",
            )
        if any(self.varies(i)[1] for i in index):
            raise Unfusible(
                Reason.REDUCTION_ORDER, f"{node.call.op.name} over axes {axes} is needed along what is reduced"
            )
        reduced = dict(zip(axes, split_index(self.r, sizes), strict=True))
        return node.read(0), tuple(reduced.get(axis, at) for axis, at in enumerate(index))

    def _operands(self, node: Node, i: int, index: tuple[Index, ...]) -> list[Key | None]:
        """For each input of a node, at which index it is needed; None for numbers and for what is absent."""
        call = node.call
        if call.op.pointwise is not None or call.is_input:
            return [
                (i, _align(index, tensor(spec).shape)) if isinstance(i, int) and isinstance(spec, TensorSpec) else None
                for i, spec in zip(node.inputs, call.specs, strict=True)
            ]
        moves = call.op.law(Moves)
        if moves is not None:
            source = moves.source(call, node.outputs.index(i), index)
            return [(node.read(0), tuple(constant(at) if isinstance(at, int) else at for at in source))]
        if call.op.law(Regions) is not None:
            places = [(node.inputs[region.input], region.index) for region in regions_at(call, index)]
            return [
                (i, at) if isinstance(i, int) and isinstance(self.specs[i], TensorSpec) else None for i, at in places
            ]
        if call.op.law(Draws) is not None and call.attrs["start"]:
            raise Unfusible(Reason.UNSUPPORTED, f"{call.op.name} begins inside of its stream")
        if call.op.law(Fill) is not None or call.op.law(Draws) is not None:
            return []
        raise Unfusible(Reason.UNSUPPORTED, f"no kernel is generated for {call.op.name}")

    # -- values ------------------------------------------------------------------------------------------
    def value(self, i: int, index: tuple[Index, ...]) -> Value:
        """A value at an index, computed where it is not known yet."""
        key = (i, index)
        known = self.known.get(key) or self.known_in_pass.get(key)
        if known is not None:
            return known
        value = self._load(i, index) if i in self.position else self._compute(self._maker(i), i, index)
        (self.known_in_pass if self.in_pass and value.r else self.known)[key] = value
        return value

    def tell(self, i: int, index: tuple[Index, ...], value: Value) -> None:
        """Says that a value at an index is there already."""
        self.known[i, index] = value
        self._levels[i, index] = 0

    def _load(self, i: int, index: tuple[Index, ...]) -> Value:
        spec = tensor(self.specs[i])
        dtype = computed_in(spec.dtype)
        self.read.setdefault(i)
        layout = None if self.layouts is None else self.layouts[self.position[i]]
        flat = flat_index(index, spec.shape) if layout is None else strided_index(index, layout)
        value = Value(dtype, *self.varies(flat))
        self.note_load(i, flat, row_major=layout is None)
        self.steps.append(steps.Load(value, self.place_of(value.x, value.r), i, flat))
        return value

    def _compute(self, node: Node, i: int, index: tuple[Index, ...]) -> Value:
        call = node.call
        if call.op.law(Folds) is not None and call.attrs["dims"]:
            assert self.whole_rows, "rows in steps know their reductions beforehand"
            return self._join(node, self.value(*self._folded_from(node, index)), gathered=False)
        operands = self._operands(node, i, index)
        if call.is_input or call.op.law(Moves) is not None:
            assert operands[0] is not None
            return self.value(*operands[0])
        spec = tensor(call.result)
        if call.op.law(Fill) is not None:
            return self._full(node, 0, spec)
        if call.op.law(Draws) is not None:
            flat = flat_index(index, spec.shape)
            value, place = self._new_value(spec, *self.varies(flat))
            self.steps.append(steps.Draw(value, place, node, flat, *self.words_of(flat)))
            return self._round(value, spec)
        if call.op.law(Regions) is not None:
            return self._choose(node, operands, index)
        return self._pointwise(node, operands)

    def _new_value(self, spec: TensorSpec, x: bool, r: bool) -> tuple[Value, Place]:
        return Value(computed_in(spec.dtype), x, r), self.place_of(x, r)

    def _full(self, node: Node, position: int, spec: TensorSpec) -> Value:
        """A number everywhere."""
        value, place = self._new_value(spec, False, False)
        require_number(node, position, value.dtype, self.dialect)
        self.steps.append(steps.Full(value, place, node, position))
        return self._round(value, spec)

    def _choose(self, node: Node, operands: Sequence[Key | None], index: tuple[Index, ...]) -> Value:
        """The value of the region that an element is in."""
        spec, regions = tensor(node.call.result), regions_at(node.call, index)
        values = [
            None if key is None else self.value_in(region, key) for key, region in zip(operands, regions, strict=True)
        ]
        if len(regions) == 1:  # all others are empty
            return values[0] or self._full(node, regions[0].input, spec)
        for value, region in zip(values, regions, strict=True):
            if value is None:
                require_number(node, region.input, computed_in(spec.dtype), self.dialect)
        flags = [(value.x, value.r) for value in values if value is not None]
        flags += [self.varies(part.of) for region in regions[:-1] for part in region.parts]
        chosen, place = self._new_value(spec, any(x for x, _ in flags), any(r for _, r in flags))
        self.steps.append(steps.Choose(chosen, place, node, regions, values))
        return self._round(chosen, spec)

    def value_in(self, region: Region, key: Key) -> Value:
        """A value that is wanted in a region."""
        return self.value(*key)

    def is_costly(self, step: Step) -> bool:
        """Tells if a step takes more than the test whether a program lies in a region."""
        if isinstance(step, steps.Compute):
            template = read_template(step.node.call.op.pointwise or "0")
            return any(self.dialect.is_costly(name, step.kind, step.rounded) for name in template.functions)
        return isinstance(step, steps.Only) or (
            isinstance(step, steps.Draw) and step.words in self.dialect.costly_words
        )

    def _pointwise(self, node: Node, operands: Sequence[Key | None]) -> Value:
        call, spec = node.call, tensor(node.call.result)
        values = self._values(call, operands)
        tensors = [value for value in values if value is not None]
        result, place = self._new_value(spec, any(value.x for value in tensors), any(value.r for value in tensors))
        if "dtype" in call.attrs:
            (value,) = tensors  # a cast
            if value.dtype is result.dtype:
                return self._round(value, spec)
            self.steps.append(steps.Cast(result, place, value))
            return self._round(result, spec)
        assert call.op.pointwise is not None
        template = read_template(call.op.pointwise)
        kind = next((value.dtype for value in tensors if not value.dtype.is_bool), result.dtype)
        rounded = spec.dtype if not self.strict and spec.dtype in _HALF and not template.jumps else None
        self._require(template, kind, rounded, node)
        self.steps.append(steps.Compute(result, place, node, values, kind, rounded))
        return self._round(result, spec)

    def _require(self, template: Template, kind: DType, rounded: DType | None, node: Node | None) -> None:
        """Raises: Unfusible where kernels do not compute a template in a type, of the numbers that a node has."""
        for what, which in template.demands:
            if what == "division":
                if not kind.is_float:
                    raise Unfusible(Reason.DTYPE, f"kernels do not divide {kind}")
            elif what == "function":
                elementary = ELEMENTARY.get(which)
                if kind is DType.F32 and elementary is not None and elementary.steps:
                    for step in elementary.steps:
                        self._require(read_template(step), kind, rounded, None)
                else:
                    self.dialect.form(which, kind, rounded)
            elif what == "constant":
                if self.dialect.refuses(which, kind, is_constant=True):
                    raise Unfusible(Reason.DTYPE, f"the number {which} beside {kind}")
            elif what == "divisor" and kind is DType.F32:
                continue  # of floats any number is one
            elif node is not None and isinstance(node.call.specs[which], NumberSpec):
                require_number(node, which, kind, self.dialect)

    def _values(self, call: Call, operands: Sequence[Key | None]) -> list[Value | None]:
        """The operands of a Call; as they would be stored where a digit decides: in comparisons, for whole numbers, and
        where one is subtracted from the other, which may be its maximum that another kernel wrote.
        """
        values = [None if key is None else self.value(*key) for key in operands]
        text = call.op.pointwise or "0"
        template = read_template(text)
        decides = (
            not tensor(call.result).dtype.is_float if "dtype" in call.attrs else template.compares or template.jumps
        )
        decides = decides or (text == _DIFFERENCE and len(values) - values.count(None) == 2)
        if self.strict or not decides:
            return values
        return [
            value if value is None or key is None else self._round(value, tensor(self.specs[key[0]]), always=True)
            for key, value in zip(operands, values, strict=True)
        ]

    def _round(self, value: Value, spec: TensorSpec, *, always: bool = False) -> Value:
        """The value, rounded to the type of its spec if that is asked for."""
        if not (self.strict or always) or spec.dtype not in _HALF:
            return value
        rounded = Value(value.dtype, value.x, value.r)
        self.steps.append(steps.Round(rounded, self.place_of(value.x, value.r), value, spec.dtype))
        return rounded


def _align(index: tuple[Index, ...], shape: tuple[int | Size, ...]) -> tuple[Index, ...]:
    """The index of an operand that is broadcast to a result."""
    return tuple(
        at if size != 1 else constant(0) for at, size in zip(index[len(index) - len(shape) :], shape, strict=True)
    )
