"""The values of a kernel, pulled from the results down to the tensors in memory, as lines of Triton source.

A result asks for its operands at the index where it needs them, an operand for its own.  Views are therefore index
arithmetic, and a value that is needed at two indexes is computed at both.  What a value is called, and which loops it
varies with, is a `Tile`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.fusion.body.columns import Columns
from burn_torch.fusion.body.index import (
    Index,
    Var,
    constant,
    flat_index,
    in_fours,
    index_of,
    split_index,
    strided_index,
)
from burn_torch.fusion.body.loops import Domain, tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.regions import Region, regions_at
from burn_torch.fusion.triton.expressions import COSTLY, TYPES, compares, computed_in, expression, jumps
from burn_torch.fusion.triton.numbers import Numbers
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.laws import Draws, Fill, Folds, Moves, Regions
from burn_torch.ops.op import Call
from burn_torch.symbolic.sizes import Size, known_multiple, largest_sizes, same_size

__all__ = ["Key", "Tile", "Values"]

Key = tuple[int, tuple[Index, ...]]


@final
@dataclass(frozen=True)
class Tile:
    """A value in the kernel: what it is called, its type, and which loops it varies with."""

    name: str
    dtype: DType
    x: bool
    r: bool


_MOST_NARROW: Final = (1 << 31) - (1 << 16)
"""Elements that indexes of 32 bits reach; the last program's tile goes beyond the last element."""


_DIFFERENCE: Final = "({0} - {1})"


class Values:
    """What a kernel reads and computes, and the lines written so far.

    whole_rows  whether a program holds whole rows: there is no loop over `r`
    """

    def __init__(
        self,
        body: Graph,
        domain: Domain,
        *,
        strict: bool,
        layouts: Sequence[tuple[Any, ...] | None] | None,
        held: bool,
        over: bool,
        whole_rows: bool,
    ) -> None:
        self.body: Final = body
        self.domain: Final = domain
        self.strict: Final = strict
        self.layouts: Final = layouts
        self.held: Final = held
        self.later: Final[list[str] | None] = [] if over else None
        """Stores that wait until all is read."""
        self.read_at: Final[dict[int, set[Index | None]]] = {}
        self.stored: list[str] = []
        """Of a step of a loop, where they wait for what the step reads."""
        self.written_at: Final[dict[int, Index]] = {}
        self.full: Final[set[int]] = set()
        """Outputs that have an element for each step of both loops."""
        self.specs: Final = body.specs()
        self.maker: Final = {i: (node, k) for node in body.nodes for k, i in enumerate(node.outputs) if i is not None}
        self.position: Final = {i: position for position, (i, _) in enumerate(body.inputs)}
        self.x = index_of(Var("x", domain.rows))
        self.r = index_of(Var("r", domain.length))
        self.x_var: Final = Var("x", domain.rows)
        self.r_var: Final = Var("r", domain.length)
        self.reduces: Final = domain.reduced is not None
        self.whole_rows: Final = whole_rows
        self.read: Final[dict[int, str]] = {}
        self.numbers: Numbers = Numbers(body, held=held)
        self.helpers: Final[set[str]] = set()
        self.random_helpers: Final[set[str]] = set()
        self.outer: Final[list[str]] = []
        self.loop: list[str] | None = None
        self.known: Final[dict[Any, Tile]] = {}
        self.in_loop: dict[Any, Tile] = {}
        self.count = 0
        self.levels: Final[dict[object, int]] = {}
        self.folds: Final[dict[Key, tuple[int, Key]]] = {}
        self.loads = 0
        self.flat: Final[set[Index]] = set()
        """Where all lies that is read or written."""
        self.along_x = 0
        self.along_r = 0
        """Bytes of an element of all that lies side by side along a loop, of what is read or written in both."""
        self.streamed = 0
        """Bytes for each step of both loops, of all that is read."""
        self.phases = 1
        """Passes over a row: a reduction that needs the result of another comes after it."""
        self.columns: Final = Columns(domain.parts, domain.rows, domain.length) if domain.parts else None
        reached = [spec.numel for spec in self.specs.values() if isinstance(spec, TensorSpec)]
        for (_, spec), layout in zip(body.inputs, layouts or (), strict=bool(layouts)):
            if layout is not None and isinstance(spec, TensorSpec):
                reached.append(1 + sum((n - 1) * step for n, step in zip(spec.shape, layout, strict=True)))
        self.wide: Final = any(count >= _MOST_NARROW for count in largest_sizes(reached))

    # -- reductions -----------------------------------------------------------------------------------
    def _fold(self, node: Node) -> tuple[str, DType, str]:
        """What a reduction gathers: its kind, in which type, starting from which number."""
        law = node.call.op.law(Folds)
        assert law is not None
        dtype = computed_in(tensor(node.call.specs[0]).dtype)
        if law.kind in ("any", "all"):
            return law.kind, DType.I32, "0" if law.kind == "any" else "1"
        if dtype.is_bool:
            raise Unfusible(Reason.DTYPE, f"{node.call.op.name} of {dtype}")
        if dtype in (DType.I8, DType.I16, DType.U8):
            dtype = DType.I32
        if law.kind in ("sum", "mean"):
            return law.kind, dtype, "0.0" if dtype.is_float else "0"
        if law.kind == "prod":
            return law.kind, dtype, "1.0" if dtype.is_float else "1"
        if dtype.is_float:
            return law.kind, dtype, 'float("-inf")' if law.kind == "max" else 'float("inf")'
        edge = (1 << (8 * dtype.itemsize - 1)) - 1
        return law.kind, dtype, str(-edge - 1 if law.kind == "max" else edge)

    def _folded(self, node: Node, kind: str, kept_in: DType, total: str) -> Tile:
        """Joins the lanes of a tile (x, r) along r; written outside of loops."""
        spec = tensor(node.call.result)
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
            text = f"{text} * {self._one_of(self.domain.length, kept_in)}"
        name = self._name("v")
        self.outer.append(f"{name} = {text}")
        made = computed_in(spec.dtype)
        if made is not kept_in and not made.is_bool:
            self.outer.append(f"{name} = {name}.to({TYPES[made]})")
        return self._rounded(Tile(name, made, True, False), spec)

    def _one_of(self, length: int | Size, kept_in: DType) -> str:
        """One divided by a number of elements, as source."""
        if not isinstance(length, Size):
            return repr(1.0 / length) if length else "float('nan')"
        if kept_in is DType.F64:
            return f"(1.0 / {length}.to(tl.float64))"
        self.helpers.add("divided")
        return f"divided(1.0, {length}.to(tl.float32))"

    # -- what depends on what ----------------------------------------------------------------------------
    def _level(self, i: int, index: tuple[Index, ...]) -> int:
        """How many reductions lie one after the other before a value at an index; finds all reductions on the way.

        Raises: Unfusible for what no kernel computes.
        """
        key = (i, index)
        found = self.levels.get(key)
        if found is not None:
            return found
        self.levels[key] = 0
        level = 0
        if i not in self.position:
            node, output = self.maker[i]
            if node.call.op.law(Folds) is not None and node.call.attrs["dims"]:
                operand = self._folded_from(node, index)
                level = self._level(*operand)
                self._fold(node)
                self.folds[key] = (level, operand)
                level += 1
            else:
                for needed in self._operands(node, output, index):
                    if needed is not None:
                        level = max(level, self._level(*needed))
        self.levels[key] = level
        return level

    def _folded_from(self, node: Node, index: tuple[Index, ...]) -> Key:
        shape, axes = tensor(node.call.specs[0]).shape, tuple(sorted(node.call.attrs["dims"]))
        sizes = tuple(shape[axis] for axis in axes)
        if not same_size(math.prod(sizes), self.domain.length):
            raise Unfusible(
                Reason.REDUCTION_ORDER,
                f"{node.call.op.name} over {math.prod(sizes)} beside one over {self.domain.length}",
            )
        if any(self._varies(i)[1] for i in index):
            raise Unfusible(
                Reason.REDUCTION_ORDER, f"{node.call.op.name} over axes {axes} is needed along what is reduced"
            )
        reduced = dict(zip(axes, split_index(self.r, sizes), strict=True))
        i = node.inputs[0]
        assert isinstance(i, int)
        return i, tuple(reduced.get(axis, at) for axis, at in enumerate(index))

    def _operands(self, node: Node, output: int, index: tuple[Index, ...]) -> list[Key | None]:
        """For each input of a node, at which index it is needed; None for numbers and for what is absent."""
        call = node.call
        if call.op.pointwise is not None or call.is_input:
            return [
                (i, _aligned(index, tensor(spec).shape))
                if isinstance(i, int) and isinstance(spec, TensorSpec)
                else None
                for i, spec in zip(node.inputs, call.specs, strict=True)
            ]
        moves = call.op.law(Moves)
        if moves is not None:
            i = node.inputs[0]
            assert isinstance(i, int)
            return [(i, tuple(_as_index(at) for at in moves.source(call, output, index)))]
        if call.op.law(Regions) is not None:
            given = [(node.inputs[region.input], region.index) for region in regions_at(call, index)]
            return [
                (i, at) if isinstance(i, int) and isinstance(self.specs[i], TensorSpec) else None for i, at in given
            ]
        if call.op.law(Draws) is not None and call.attrs["start"]:
            raise Unfusible(Reason.UNSUPPORTED, f"{call.op.name} begins inside of its stream")
        if call.op.law(Fill) is not None or call.op.law(Draws) is not None:
            return []
        raise Unfusible(Reason.UNSUPPORTED, f"no kernel is generated for {call.op.name}")

    # -- values -----------------------------------------------------------------------------------------
    def _value(self, i: int, index: tuple[Index, ...]) -> Tile:
        """The name of a value at an index, computed where it is not known yet."""
        key = (i, index)
        found = self.known.get(key) or self.in_loop.get(key)
        if found is not None:
            return found
        if i in self.position:
            made = self._load(i, index)
        else:
            node, output = self.maker[i]
            made = self._computed(node, output, index)
        (self.in_loop if self.loop is not None and made.r else self.known)[key] = made
        return made

    def _computed(self, node: Node, output: int, index: tuple[Index, ...]) -> Tile:
        call = node.call
        if call.op.law(Folds) is not None and call.attrs["dims"]:
            assert self.whole_rows, "rows in steps know their reductions beforehand"
            kind, kept_in, neutral = self._fold(node)
            value = self._value(*self._folded_from(node, index))
            given = value.name if value.dtype is kept_in else f"{value.name}.to({TYPES[kept_in]})"
            if kind in ("any", "all"):
                given = f"({value.name} != 0).to(tl.int32)"
            return self._folded(node, kind, kept_in, f"tl.where(inside, {given}, {neutral})")
        operands = self._operands(node, output, index)
        if call.is_input or call.op.law(Moves) is not None:
            assert operands[0] is not None
            return self._value(*operands[0])
        if call.op.law(Fill) is not None:
            return self._filled(node)
        if call.op.law(Draws) is not None:
            return self._drawn(node, index)
        if call.op.law(Regions) is not None:
            return self._chosen(node, operands, index)
        return self._pointwise(node, operands)

    def _chosen(self, node: Node, operands: Sequence[Key | None], index: tuple[Index, ...]) -> Tile:
        """The value of the region that an element is in."""
        spec, regions = tensor(node.call.result), regions_at(node.call, index)
        made = computed_in(spec.dtype)
        tiles = [
            None if key is None else self._value_in(region, key) for key, region in zip(operands, regions, strict=True)
        ]
        if len(regions) == 1:  # all others are empty
            return tiles[0] or self._full(self.numbers.operand(node, regions[0].input, made), spec)
        names = [
            self._number(self.numbers.operand(node, region.input, made), made) if tile is None else tile.name
            for tile, region in zip(tiles, regions, strict=True)
        ]
        flags = [(tile.x, tile.r) for tile in tiles if tile is not None]
        flags += [self._varies(part.of) for region in regions[:-1] for part in region.parts]
        text = names[-1]
        for name, region in reversed(list(zip(names[:-1], regions[:-1], strict=True))):
            text = self._either(" & ".join(region.tests), name, text)
        return self._emit(self._typed(text, made), spec, any(x for x, _ in flags), any(r for _, r in flags))

    def _value_in(self, region: Region, key: Key) -> Tile:
        """A value that is wanted in a region: where it costs much, programs that lie outside leave it out."""
        if self.reduces or not region.parts or key in self.known:
            return self._value(*key)
        begin, before = len(self.outer), set(self.known)
        tile = self._value(*key)
        lines = self.outer[begin:]
        if not tile.x or not any(map(COSTLY.search, lines)):
            return tile
        for made in set(self.known) - before:
            del self.known[made]
        name = self._name("v")
        self.outer[begin:] = [
            f"{name} = tl.zeros((XB,), {TYPES[tile.dtype]})",
            f"if tl.max(({' & '.join(region.tests)}).to(tl.int32), 0) > 0:",
            *(f"    {line}" for line in lines),
            f"    {name} = {tile.name}",
        ]
        return Tile(name, tile.dtype, True, False)

    def _number(self, text: str, made: DType) -> str:
        return f"({text} != 0)" if made.is_bool else text

    def _either(self, test: str, yes: str, no: str) -> str:
        return f"tl.where({test}, {yes}, {no})"

    def _typed(self, text: str, made: DType) -> str:
        return text if made.is_bool else f"{text}.to({TYPES[made]})"

    def _filled(self, node: Node) -> Tile:
        spec = tensor(node.call.result)
        return self._full(self.numbers.operand(node, 0, computed_in(spec.dtype)), spec)

    def _full(self, number: str, spec: TensorSpec) -> Tile:
        """A number everywhere."""
        made = computed_in(spec.dtype)
        one = "(1, 1)" if self.reduces else "(1,)"
        return self._emit(f"tl.full({one}, {number}, {TYPES[made]})", spec, False, False)

    def _pointwise(self, node: Node, operands: Sequence[Key | None]) -> Tile:
        call = node.call
        spec = tensor(call.result)
        tiles = self._tiles(call, operands)
        made = computed_in(spec.dtype)
        kinds = [tile.dtype for tile in tiles if tile is not None and not tile.dtype.is_bool]
        x = any(tile.x for tile in tiles if tile is not None)
        r = any(tile.r for tile in tiles if tile is not None)
        if "dtype" not in call.attrs:
            line = partial(self._line, x=x, r=r)
            return self._emit(self._expressed(node, tiles, kinds[0] if kinds else made, line), spec, x, r)
        (tile,) = tiles  # a cast
        assert tile is not None
        return self._rounded(tile, spec) if tile.dtype is made else self._emit(self._cast(tile, made), spec, x, r)

    def _cast(self, tile: Tile, made: DType) -> str:
        """A value in another type."""
        return f"({tile.name} != 0)" if made.is_bool else f"{tile.name}.to({TYPES[made]})"

    def _expressed(self, node: Node, tiles: Sequence[Tile | None], kind: DType, line: Callable[[str], str]) -> str:
        """What an element-wise row makes of values, and of numbers as `kind`."""
        call, spec = node.call, tensor(node.call.result)
        assert call.op.pointwise is not None
        names = [
            partial(self.numbers.operand, node, n, kind) if tile is None else tile.name for n, tile in enumerate(tiles)
        ]
        divisors = {
            n: (partial(self.numbers.divisor, i), partial(self.numbers.inverse, i))
            for n, (i, given) in enumerate(zip(node.inputs, call.specs, strict=True))
            if isinstance(given, NumberSpec)
        }
        rounded = spec.dtype if not self.strict and spec.dtype in (DType.F16, DType.BF16) else None
        text = expression(
            call.op.pointwise, names, kind, rounded=rounded, used=self.helpers, line=line, divisors=divisors
        )
        made = computed_in(spec.dtype)
        return text if made.is_bool else f"{text}.to({TYPES[made]})"

    def _emit(self, text: str, spec: TensorSpec, x: bool, r: bool) -> Tile:
        return self._rounded(Tile(self._line(text, x=x, r=r), computed_in(spec.dtype), x, r), spec)

    def _line(self, text: str, *, x: bool, r: bool) -> str:
        """Writes a line with a value; its name."""
        name = self._name("v")
        self._lines(x, r).append(f"{name} = {text}")
        return name

    def _tiles(self, call: Call, operands: Sequence[Key | None]) -> list[Tile | None]:
        """The operands of a Call; as they would be stored where a digit decides: in comparisons, for whole numbers, and
        where one is subtracted from the other, which may be its maximum that another kernel wrote.
        """
        tiles = [None if key is None else self._value(*key) for key in operands]
        result = tensor(call.result).dtype
        template = call.op.pointwise or "0"
        decides = not result.is_float if "dtype" in call.attrs else compares(template) or jumps(template)
        decides = decides or (template == _DIFFERENCE and len(tiles) - tiles.count(None) == 2)
        if self.strict or not decides:
            return tiles
        return [
            tile if tile is None or key is None else self._rounded(tile, tensor(self.specs[key[0]]), always=True)
            for key, tile in zip(operands, tiles, strict=True)
        ]

    def _rounded(self, tile: Tile, spec: TensorSpec, *, always: bool = False) -> Tile:
        """The tile, rounded to the type of its spec if that is asked for."""
        if (self.strict or always) and spec.dtype in (DType.F16, DType.BF16):
            name = self._name("v")
            text = f"{tile.name}.to({TYPES[spec.dtype]}).to(tl.float32)"
            self._lines(tile.x, tile.r).append(f"{name} = {text}")
            return Tile(name, tile.dtype, tile.x, tile.r)
        return tile

    def _lines(self, x: bool, r: bool) -> list[str]:
        if self.columns is not None and not x:
            return self.columns.head
        return self.loop if self.loop is not None and r else self.outer

    def _lanes(self, block: str) -> str:
        return f"tl.arange(0, {block}).to(tl.int64)" if self.wide else f"tl.arange(0, {block})"

    def _name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    # -- memory -------------------------------------------------------------------------------------------
    def _load(self, i: int, index: tuple[Index, ...]) -> Tile:
        spec = tensor(self.specs[i])
        made = computed_in(spec.dtype)
        pointer = self.read.setdefault(i, f"p{len(self.read)}")
        layout = None if self.layouts is None else self.layouts[self.position[i]]
        flat = flat_index(index, spec.shape) if layout is None else strided_index(index, layout)
        x, r = self._varies(flat)
        self.loads += 1
        self.read_at.setdefault(i, set()).add(flat if layout is None else None)
        self._count_bytes(flat, spec)
        self.streamed += spec.dtype.itemsize if x and r else 0
        name = self._name("v")
        text = f"tl.load({pointer} + {self._offset(flat)}{self._masked(flat, x, r)})"
        if made is not spec.dtype:
            text += f".to({TYPES[made]})"
        if made.is_bool:
            text = f"({text} != 0)"
        self._lines(x, r).append(f"{name} = {text}")
        return Tile(name, made, x, r)

    def _count_bytes(self, flat: Index, spec: TensorSpec) -> None:
        """Adds to what lies side by side along a loop what is read or written at an index."""
        self.flat.add(flat)
        if all(self._varies(flat)):
            self.along_x += spec.dtype.itemsize if same_size(flat.stride(self.x_var), 1) else 0
            self.along_r += spec.dtype.itemsize if same_size(flat.stride(self.r_var), 1) else 0

    def _varies(self, flat: Index) -> tuple[bool, bool]:
        variables = flat.variables()
        return self.x_var in variables, self.reduces and self.r_var in variables

    def _offset(self, flat: Index) -> str:
        text = flat.written()
        if not flat.variables():  # a pointer to one element, as a tile
            shape = "(1, 1)" if self.reduces else "(1,)"
            return f"tl.full({shape}, {text}, {'tl.int64' if self.wide else 'tl.int32'})"
        return text if "+" not in text and " " not in text else f"({text})"

    def _masked(self, flat: Index, x: bool, r: bool) -> str:
        if not self.reduces:
            conditions = ["inside"] * x
        elif x and r:
            conditions = ["inside"]
        else:
            conditions = [f"x < {self.domain.rows}"] * x + [f"r < {self.domain.length}"] * r
        tests = dict.fromkeys(test for part in flat.parts() for test in part.tests())
        if tests:
            conditions = [f"({condition})" for condition in conditions] + list(tests)
        return f", mask={' & '.join(conditions)}, other=0" if conditions else ""

    def _store(self, number: int, i: int, index: tuple[Index, ...], full: bool) -> None:
        spec = tensor(self.specs[i])
        tile = self._value(i, index)
        flat = flat_index(index, spec.shape)
        if self.reduces:
            shape = "(XB, RB)" if full else "(XB, 1)"
            mask = "inside" if full else f"x < {self.domain.rows}"
            at = f"{flat.written()} + tl.zeros({shape}, tl.int32)"
        else:
            shape, mask = "(XB,)", "inside"
            at = flat.written() if flat.variables() else f"{flat.written()} + tl.zeros({shape}, tl.int32)"
        value = tile.name if (tile.x and (tile.r or not full)) else f"tl.broadcast_to({tile.name}, {shape})"
        self.written_at[number] = flat
        self._count_bytes(flat, spec)
        self.full.update([number] * full)
        lines = self.outer if self.later is None else self.later
        if self.loop is not None and full:
            lines = self.loop if self.later is None else self.stored
        lines.append(f"tl.store(q{number} + ({at}), {value}.to(q{number}.dtype.element_ty), mask={mask})")

    # -- random values -----------------------------------------------------------------------------------
    def _drawn(self, node: Node, index: tuple[Index, ...]) -> Tile:
        law, spec = node.call.op.law(Draws), tensor(node.call.result)
        assert law is not None
        flat = flat_index(index, spec.shape)
        x, r = self._varies(flat)
        *parameters, key, stream = node.inputs
        made = self.numbers.made_of(node.call.op.name, parameters, law.numbers, spec.dtype)
        word = self._name("w")
        helper, place = self._place_of_words(flat)
        self.random_helpers.add(helper)
        given = f"{self.numbers.key(key)}, {self.numbers.key(stream)}, {place}"
        self._lines(x, r).append(f"{word} = {helper}({given}).to(tl.int64)")
        names = {"word": word, "where": "tl.where", **dict(zip("abc", made, strict=False))}
        text = re.sub(r"[a-z]+", lambda found: names.get(found[0], found[0]), law.value)
        kind = computed_in(spec.dtype)
        return self._emit(text if kind.is_bool else f"{text}.to({TYPES[kind]})", spec, x, r)

    def _place_of_words(self, flat: Index) -> tuple[str, str]:
        """The function that draws the words of a tile, and where they lie: neighbours share a cipher where they can."""
        if not self.reduces and flat == self.x and self.domain.rows >= 4:
            return "draw", "tl.program_id(0).to(tl.int64) * (XB // 4), XB // 4"
        rest = flat + self.r * -1
        along = self.reduces and self.r_var not in rest.variables()
        fours = along and all(known_multiple(count, 4) for count in (*rest.terms.values(), rest.constant))
        if fours and self.domain.length >= 4:
            begin = self._offset(rest)
            return "row_words", f"{begin}, RB" if self.whole_rows else f"{begin} + r0, RB"
        if self.reduces and self.columns is None and self.domain.length >= 4 and in_fours(flat, self.r_var):
            # every fourth place of the loop, as the number of its first word
            lanes = f"{'' if self.whole_rows else 'r0 + '}4 * {self._lanes('RB // 4')}[None, :]"
            first = Var(f"({lanes})", self.r_var.size)
            return "fours_at", self._offset(flat.replaced({self.r_var: index_of(first)}))
        return "word_at", self._offset(flat)


def _aligned(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The index of an operand that is broadcast to a result."""
    return tuple(
        at if size != 1 else constant(0) for at, size in zip(index[len(index) - len(shape) :], shape, strict=True)
    )


def _as_index(at: Index | int) -> Index:
    return constant(at) if isinstance(at, int) else at
