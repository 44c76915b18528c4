"""Walks a kernel in Triton: all its programs at once, as arrays, so that each access is the list of its elements."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from burn_torch.fusion.kernel_proof import MOST_STEPS, Access, KernelFault, Kernels, Loops, judge
from burn_torch.fusion.loops import Kernel

__all__ = ["prove_triton"]

Values = dict[str, Any]
_WIDEST: Final = 4
"""Rows of a tile: what holds of a small one holds of every other, since indexes are computed lane by lane."""


def prove_triton(kernel: Kernel, sizes: Mapping[int, int], over: Iterable[tuple[int, int]] = ()) -> bool:
    """Shows of a kernel that `lower` wrote, at whole sizes, what `kernel_proof` says; whether its form is known.

    sizes  elements that each input of the body reaches, by its position
    over   (output, position of the body's input) that lie over each other

    Kernels side by side in one launch, and those with more than `MOST_STEPS` steps, are left alone.
    Raises: KernelFault.
    """
    tree, *parts = (node for node in ast.parse(kernel.source).body if isinstance(node, ast.FunctionDef))
    if parts:
        return False
    names = [argument.arg for argument in tree.args.args]
    domain = kernel.domain
    if any(name not in ("XB", "RB", "STAGES") and name[0] not in "pqns" for name in names):
        return False
    if not isinstance(domain.rows * domain.length, int) or domain.rows * domain.length > MOST_STEPS:
        return False
    if "tl.program_id(0)" not in kernel.source:
        return False
    known: Values = {name: int(value) for name, value in zip(_of(names, "s"), kernel.sizes, strict=True)}
    known |= {"XB": _WIDEST, "RB": _tile(kernel), "STAGES": 1}
    count = domain.parts or -(-domain.rows // _WIDEST)
    walk = _Walk(Kernels(kernel.name), count, 3 if "[:, None]" in kernel.source or domain.reduced is not None else 2)
    walk.statements(tree.body, known, Loops((0,), ("parallel",), (0, 0)), ())
    inputs = _of(names, "p")
    reach = {name: sizes[position] for name, position in zip(inputs, kernel.inputs, strict=True)}
    reach |= {f"q{n}": int(spec.numel) for n, spec in enumerate(kernel.outputs)}
    judge(walk.found, reach, kernel.outputs, {})
    for output, position in over:
        judge(walk.found, reach, kernel.outputs, {f"q{output}": f"p{kernel.inputs.index(position)}"})
    return True


def _of(names: Sequence[str], letter: str) -> list[str]:
    return [name for name in names if name[0] == letter and name[1:].isdigit()]


def _tile(kernel: Kernel) -> int:
    """Elements of a row in a tile: all where a program holds whole rows, else a few steps for each row."""
    longest = 1 << max(kernel.domain.length - 1, 0).bit_length()
    return longest if kernel.whole_rows else max(longest // 4, 16)


@final
class _Walk:
    """Values are arrays (programs, lanes) or (programs, lanes of x, lanes of r), or None where no index needs them."""

    def __init__(self, found: Kernels, programs: int, rank: int) -> None:
        self.found: Final = found
        self.program: Final = np.arange(programs).reshape(programs, *[1] * (rank - 1))
        self.loops = 0

    def statements(self, body: Sequence[ast.stmt], known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        for place, statement in enumerate(body):
            here = Loops(loops.names, loops.kinds, (*loops.places[:-1], place))
            if isinstance(statement, ast.For):
                self.loop(statement, known, here, steps)
            elif isinstance(statement, ast.If):  # programs that leave it out load less
                self.statements(statement.body, known, here, steps)
            elif isinstance(statement, ast.Assign | ast.AugAssign):
                self.accesses(statement.value, known, here, steps)
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                if isinstance(target, ast.Name):
                    known[target.id] = (
                        None if isinstance(statement, ast.AugAssign) else self.value(statement.value, known)
                    )
            elif isinstance(statement, ast.Expr):
                self.accesses(statement.value, known, here, steps)

    def loop(self, loop: ast.For, known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        assert isinstance(loop.iter, ast.Call)
        assert isinstance(loop.target, ast.Name)
        begin, end, step = (int(self.value(x, known)) for x in loop.iter.args[:3])
        self.loops += 1
        inside = Loops((*loops.names, self.loops), (*loops.kinds, ""), (*loops.places, 0))
        for nth, at in enumerate(range(begin, end, step)):
            known[loop.target.id] = at
            self.statements(loop.body, known, inside, (*steps, nth))

    # -- accesses ------------------------------------------------------------------------------------
    def accesses(self, x: ast.expr, known: Values, loops: Loops, steps: tuple[int, ...]) -> None:
        for call in (node for node in ast.walk(x) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            if name not in ("tl.load", "tl.store"):
                continue
            pointer = call.args[0]
            if isinstance(pointer, ast.Name) and pointer.id[0] == "n":  # a number on the device
                continue
            if not (isinstance(pointer, ast.BinOp) and isinstance(pointer.left, ast.Name)):
                raise KernelFault(f"{self.found.name}: no pointer and elements: {ast.unparse(pointer)}")
            masks = [keyword.value for keyword in call.keywords if keyword.arg == "mask"]
            given = [self.value(part, known) for part in (pointer.right, *masks)]
            if any(value is None for value in given):
                raise KernelFault(f"{self.found.name}: not made of loops: {ast.unparse(call)}")
            elements, *mask = np.broadcast_arrays(*given, self.program)[: len(given)]
            kept = mask[0].astype(bool) if mask else np.ones(elements.shape, bool)
            programs = np.broadcast_to(self.program, elements.shape)[kept]
            at = (programs, *(np.full(programs.size, step) for step in steps))
            access = Access(pointer.left.id, ast.unparse(call), loops, at, elements[kept])
            (self.found.loads if name == "tl.load" else self.found.stores).append(access)

    # -- values -----------------------------------------------------------------------------------------
    def value(self, x: ast.expr, known: Values) -> Any:
        """What an expression is for each program and lane; None for what is made of more than indexes."""
        if isinstance(x, ast.Constant):
            return np.asarray(x.value) if isinstance(x.value, int) else None
        if isinstance(x, ast.Name):
            found = known.get(x.id)
            return None if found is None else np.asarray(found)
        if isinstance(x, ast.Subscript):
            of = self.value(x.value, known)
            return None if of is None else of[:, None] if "[:, None]" in ast.unparse(x) else of[None, :]
        if isinstance(x, ast.Tuple):
            return tuple(int(self.value(part, known)) for part in x.elts)
        if isinstance(x, ast.Call):
            return self.called(x, known)
        parts = [part for part in ast.iter_child_nodes(x) if isinstance(part, ast.expr)]
        given = [self.value(part, known) for part in parts]
        if any(value is None for value in given):
            return None
        if isinstance(x, ast.BinOp):
            return _OPERATORS[type(x.op)](*given)
        if isinstance(x, ast.Compare):
            return _OPERATORS[type(x.ops[0])](*given)
        return -given[0] if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.USub) else None

    def called(self, call: ast.Call, known: Values) -> Any:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
            return self.value(call.func.value, known)
        name = ast.unparse(call.func)
        if name == "tl.program_id":
            return self.program
        if name not in ("tl.arange", "tl.zeros", "tl.full", "tl.where"):
            return None
        given = [self.value(part, known) for part in (call.args if name == "tl.where" else call.args[:2])]
        if name == "tl.zeros":
            return np.zeros(given[0], np.int64)
        if any(value is None for value in given):
            return None
        if name == "tl.full":
            return np.full(given[0], given[1])
        return np.where(*given) if name == "tl.where" else np.arange(int(given[0]), int(given[1]))


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
