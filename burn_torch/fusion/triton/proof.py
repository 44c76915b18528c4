"""Walks a kernel in Triton: all its programs at once, as arrays, so that each access is the list of its elements."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.fusion.body.kernel_proof import MOST_STEPS, Access, KernelFault, Kernels, Loops, judge
from burn_torch.fusion.body.loops import Kernel
from burn_torch.fusion.triton.products import ProductKernel
from burn_torch.ops.value import Primitive

__all__ = [
    "UNPROVED",
    "Pointer",
    "Values",
    "Walk",
    "functions_of",
    "left_alone",
    "prove_product",
    "prove_triton",
    "source_of",
]

Values = dict[str, Any]
UNPROVED: Final[Counter[str]] = Counter()
"""How many kernels of this process were left alone, by the reason."""

_TILE: Final = 8
"""Rows, columns and steps of a product's tile."""
_WIDEST: Final = 4
"""Rows of a tile: what holds of a small one holds of every other, since indexes are computed lane by lane."""


def prove_triton(kernel: Kernel, sizes: Mapping[int, int], over: Iterable[tuple[int, int]] = ()) -> bool:
    """Shows of a kernel that `lower` wrote, at whole sizes, what `kernel_proof` says; whether its form is known.

    sizes  elements that each input of the body reaches, by its position
    over   (output, position of the body's input) that lie over each other

    Kernels side by side in one launch are walked with the tiles that their calls name, any other with small ones.
    Those with more than `MOST_STEPS` steps are left alone.
    Raises: KernelFault.
    """
    functions = functions_of(kernel.source)
    tree = functions[kernel.name]
    names = [argument.arg for argument in tree.args.args]
    domain = kernel.domain
    if any(name not in ("XB", "RB", "STAGES") and name[0] not in "pqns" for name in names):
        return left_alone("a parameter")
    steps = domain.rows * domain.length
    if not isinstance(steps, int) or steps > MOST_STEPS:
        return left_alone("too many steps")
    if "tl.program_id(0)" not in kernel.source:
        return left_alone("no programs")
    known: Values = {name: np.asarray(int(value)) for name, value in zip(_of(names, "s"), kernel.sizes, strict=True)}
    beside = len(functions) > 1
    known |= {"XB": np.asarray(_WIDEST), "RB": np.asarray(1 if beside else _tile(kernel)), "STAGES": np.asarray(1)}
    count = domain.rows if beside else domain.parts or -(-domain.rows // _WIDEST)
    under = {f"q{output}": f"p{kernel.inputs.index(position)}" for output, position in over}
    _prove(kernel, functions, known, count, sizes, _of(names, "p"), under)
    return True


def prove_product(kernel: ProductKernel, sizes: Mapping[int, int]) -> bool:
    """The same of a kernel around a product, with small tiles.  Raises: KernelFault."""
    functions = functions_of(kernel.source)
    rows, cols, inner = kernel.product.rows, kernel.product.cols, kernel.product.inner
    if rows * cols * max(inner // _TILE, 1) * 2 > MOST_STEPS:
        return left_alone("too many steps")
    known: Values = {name: np.asarray(_TILE) for name in ("XB", "RB", "KB")} | {"GROUP": np.asarray(2)}
    pointers = [argument.arg for argument in functions[kernel.name].args.args][: len(kernel.inputs)]
    functions["place"] = functions_of(source_of("burn_kernels.matmul.ways"))["place"]
    _prove(kernel, functions, known, -(-rows // _TILE) * -(-cols // _TILE), sizes, pointers, {})
    return True


def _prove(
    kernel: Kernel | ProductKernel,
    functions: Mapping[str, ast.FunctionDef],
    known: Values,
    count: int,
    sizes: Mapping[int, int],
    inputs: Sequence[str],
    over: Mapping[str, str],
) -> None:
    reach = {name: sizes[position] for name, position in zip(inputs, kernel.inputs, strict=True)}
    reach |= {f"q{n}": int(spec.numel) for n, spec in enumerate(kernel.outputs)}
    known |= {name: Pointer(((None, name),)) for name in reach}
    walk = Walk(Kernels(kernel.name), functions, np.arange(count))
    walk.function(functions[kernel.name], known, Loops((0,), ("parallel",), (0, 0)), ())
    judge(walk.found, reach, kernel.outputs, {})
    for output, under in over.items():
        judge(walk.found, reach, kernel.outputs, {output: under})


def functions_of(source: str) -> dict[str, ast.FunctionDef]:
    """The functions of a source by name."""
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


@functools.cache
def source_of(module: str) -> str:
    """The source of a module."""
    return inspect.getsource(importlib.import_module(module))


def left_alone(reason: str) -> bool:
    """Counts a kernel that nothing is shown of; False."""
    UNPROVED[reason] += 1
    return False


def _of(names: Sequence[str], letter: str) -> list[str]:
    return [name for name in names if name[0] == letter and name[1:].isdigit()]


def _tile(kernel: Kernel) -> int:
    """Elements of a row in a tile: all where a program holds whole rows, else a few steps for each row."""
    longest = 1 << max(kernel.domain.length - 1, 0).bit_length()
    return longest if kernel.whole_rows else max(longest // 4, 16)


@final
@dataclass(frozen=True)
class Pointer:
    """A pointer: to the buffer of the first mask of programs that holds; None is all others."""

    choices: tuple[tuple[Any, str], ...]


class Walk:
    """Values are arrays (programs, lanes) or (programs, lanes of x, lanes of r), or None where no index needs them."""

    def __init__(self, kernels: Kernels, functions: Mapping[str, ast.FunctionDef], programs: Any) -> None:
        self.found: Final = kernels
        self.functions: Final = functions
        self.programs = programs
        """Those that run what is being walked."""
        self.rank = 2
        self.loops = 0
        self.across: int | None = None
        """Programs of the first axis, where there are two."""
        self.width = 1.0
        """The width of the place of a statement, for those within it."""

    @property
    def program(self) -> Any:
        """The number of each program, beside its lanes."""
        return self.programs.reshape(-1, *[1] * (self.rank - 1))

    def function(self, tree: ast.FunctionDef, known: Values, loops: Loops, steps: tuple[int, ...]) -> Any:
        """Walks a function for the programs at hand; what it returns."""
        before, text = self.rank, ast.unparse(tree)
        tiles = any(isinstance(x, np.ndarray) and x.ndim == 3 and x.size > len(self.programs) for x in known.values())
        self.rank = 3 if tiles or "[:, None]" in text or "[None, :]" in text else 2
        known = {name: self._as_ranked(value) for name, value in known.items()}
        result = self.statements(tree.body, known, loops, steps)
        self.rank = before
        return [self._as_ranked(value) for value in result] if isinstance(result, list) else self._as_ranked(result)

    def _as_ranked(self, value: Primitive) -> object:
        """A value of programs alone, as arrays of this rank have it."""
        if (
            isinstance(value, np.ndarray)
            and value.ndim > 1
            and value.shape == (len(self.programs), *[1] * (value.ndim - 1))
        ):
            return value.reshape(-1, *[1] * (self.rank - 1))
        return value

    def statements(self, body: Sequence[ast.stmt], known: Values, loops: Loops, steps: tuple[int, ...]) -> Any:
        """Walks statements; what they return.  Those inside of a branch or a call stand between their neighbours."""
        begin = loops.places[-1]
        width = self.width
        self.width = width / (len(body) + 1)
        result = None
        for nth, statement in enumerate(body):
            here = Loops(loops.names, loops.kinds, (*loops.places[:-1], begin + nth * self.width))
            if isinstance(statement, ast.For):
                self.loop(statement, known, here, steps)
            elif isinstance(statement, ast.If):
                self.branch(statement, known, here, steps)
            elif isinstance(statement, ast.Assign | ast.AugAssign):
                value = self.evaluated(statement.value, known, here, steps)
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                if isinstance(target, ast.Name):
                    known[target.id] = None if isinstance(statement, ast.AugAssign) else value
                elif isinstance(target, ast.Tuple):
                    for name, part in zip(target.elts, value or [None] * len(target.elts), strict=True):
                        known[ast.unparse(name)] = part
            elif isinstance(statement, ast.Expr):
                self.evaluated(statement.value, known, here, steps)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                self.accesses(statement.value, known, here, steps)
                parts = statement.value.elts if isinstance(statement.value, ast.Tuple) else None
                result = self.value(statement.value, known) if parts is None else [self.value(x, known) for x in parts]
        self.width = width
        return result

    def evaluated(self, x: ast.expr, known: Values, loops: Loops, steps: tuple[int, ...]) -> Any:
        """An expression's value, after its accesses, and those of a function of this kernel that it calls."""
        if not (isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id in self.functions):
            self.accesses(x, known, loops, steps)
            return self.value(x, known)
        tree = self.functions[x.func.id]
        names = [argument.arg for argument in tree.args.args]
        return self.function(tree, dict(zip(names, (self.value(a, known) for a in x.args), strict=True)), loops, steps)

    def branch(self, statement: ast.If, known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        """Each side for its programs, where the test says which; else for all: programs that leave it out load less."""
        test = self.value(statement.test, known)
        if test is None or np.ndim(test) < 1 or test.size != len(self.programs):
            self.statements(statement.body, known, loops, steps)
            self.statements(statement.orelse, known, loops, steps)
            return
        all_programs, chosen = self.programs, np.asarray(test, bool).reshape(-1)
        for side, kept in ((statement.body, chosen), (statement.orelse, ~chosen)):
            self.programs = all_programs[kept]
            if side and kept.any():
                inner = {name: self._keep_where(value, kept) for name, value in known.items()}
                self.statements(side, inner, loops, steps)
        self.programs = all_programs

    def _keep_where(self, value: Primitive, kept: Any) -> Any:
        if isinstance(value, Pointer):
            return Pointer(tuple((mask if mask is None else mask[kept], name) for mask, name in value.choices))
        if isinstance(value, np.ndarray) and value.ndim > 1 and value.shape[0] == kept.size:
            return value[kept]
        return value

    def loop(self, loop: ast.For, known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        """Walks each step of a loop."""
        assert isinstance(loop.iter, ast.Call)
        assert isinstance(loop.target, ast.Name)
        bounds = [int(self.value(x, known)) for x in loop.iter.args[:3]]
        self.loops += 1
        inside = Loops((*loops.names, self.loops), (*loops.kinds, ""), (*loops.places, 0))
        width, self.width = self.width, 1.0
        for nth, at in enumerate(range(*bounds)):
            known[loop.target.id] = np.asarray(at)
            self.statements(loop.body, known, inside, (*steps, nth))
        self.width = width

    # -- accesses ------------------------------------------------------------------------------------
    def accesses(self, x: ast.expr, known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        """Collects the loads and stores of an expression."""
        for call in (node for node in ast.walk(x) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            if name not in ("tl.load", "tl.store"):
                continue
            pointer = call.args[0]
            if isinstance(pointer, ast.Name) and not isinstance(known.get(pointer.id), Pointer):
                continue  # a number on the device
            if not (isinstance(pointer, ast.BinOp) and isinstance(pointer.left, ast.Name)):
                raise KernelFault(f"{self.found.name}: no pointer and elements: {ast.unparse(pointer)}")
            masks = [keyword.value for keyword in call.keywords if keyword.arg == "mask"]
            parts = [self.value(part, known) for part in (pointer.right, *masks)]
            if any(value is None for value in parts):
                raise KernelFault(f"{self.found.name}: not made of loops: {ast.unparse(call)}")
            buffer = known.get(pointer.left.id)
            if not isinstance(buffer, Pointer):
                raise KernelFault(f"{self.found.name}: no pointer: {ast.unparse(pointer)}")
            elements, *mask = np.broadcast_arrays(*parts, self.program)[: len(parts)]
            kept = mask[0].astype(bool) if mask else np.ones(elements.shape, bool)
            into = self.found.loads if name == "tl.load" else self.found.stores
            programs = np.broadcast_to(self.program, elements.shape)
            for chosen, which in buffer.choices:
                own = kept if chosen is None else kept & chosen.reshape(-1, *[1] * (kept.ndim - 1))
                kept = kept & ~own
                at = (programs[own], *(np.full(int(own.sum()), step) for step in steps))
                into.append(Access(which, ast.unparse(call), loops, at, elements[own]))

    # -- values -----------------------------------------------------------------------------------------
    def value(self, x: ast.expr, known: Values) -> Any:
        """Returns the value of an expression for each program and lane; None if it has more than indexes."""
        if isinstance(x, ast.Constant):
            return np.asarray(x.value) if isinstance(x.value, int) else None
        if isinstance(x, ast.Name):
            return known.get(x.id)
        if isinstance(x, ast.Subscript):
            of = self.value(x.value, known)
            return None if of is None else of[:, None] if "[:, None]" in ast.unparse(x) else of[None, :]
        if isinstance(x, ast.Tuple):
            parts = tuple(self.value(part, known) for part in x.elts)
            return tuple(map(int, parts)) if all(np.ndim(part) == 0 and part is not None for part in parts) else parts
        if isinstance(x, ast.Call):
            return self._evaluate_call(x, known)
        operands = [self.value(part, known) for part in ast.iter_child_nodes(x) if isinstance(part, ast.expr)]
        if any(value is None or isinstance(value, Pointer) for value in operands):
            return None
        if isinstance(x, ast.BinOp):
            return _OPERATORS[type(x.op)](*operands)
        if isinstance(x, ast.Compare):
            return _OPERATORS[type(x.ops[0])](*operands)
        return -operands[0] if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub) else None

    def _evaluate_call(self, call: ast.Call, known: Values) -> Any:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
            return self.value(call.func.value, known)
        name = ast.unparse(call.func)
        if name == "tl.program_id":
            axis = ast.literal_eval(call.args[0])
            return self.program if self.across is None else divmod(self.program, self.across)[1 - axis]
        if name not in ("tl.arange", "tl.zeros", "tl.full", "tl.where", "tl.cdiv", "tl.minimum"):
            return None
        all_given = name in ("tl.where", "tl.cdiv", "tl.minimum")
        operands = [self.value(part, known) for part in (call.args if all_given else call.args[:2])]
        if name == "tl.zeros":
            return np.zeros(operands[0], np.int64)
        if any(value is None for value in operands):
            return None
        if isinstance(operands[-1], Pointer):  # one of several, by the program
            mask = np.broadcast_to(np.asarray(operands[0], bool), self.program.shape).reshape(-1)
            return Pointer((*((mask if m is None else mask & m, which) for m, which in operands[1].choices),
                             *operands[2].choices))  # fmt: skip
        if name == "tl.full":
            return np.full(operands[0], operands[1])
        if name == "tl.cdiv":
            return -(-operands[0] // operands[1])
        if name == "tl.minimum":
            return np.minimum(*operands)
        return np.where(*operands) if name == "tl.where" else np.arange(int(operands[0]), int(operands[1]))


_OPERATORS: Final[Mapping[type[ast.AST], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
