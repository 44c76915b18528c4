"""Whole programs on LibTorch: a Graph as straight-line Python over torch's functions, in a file of its own.

    v9 = addmm(v2, v0, v1)          # (16, 32) f32      model.py:12 in forward, layers.0
    v10 = relu_(v9)                 # (16, 32) f32      over v9

Each node is one call of what eager execution calls, in the same order, so results agree in every bit.  Results take
the memory of operands that nobody reads any more, as the memory plan allows (`graph/passes/memory.py`); other
intermediate values are freed at their last use, and the next ones get their memory, which the process keeps from call
to call (`allocator.py`).  A program has no state: any number of threads may run it.

If a program fails, what was donated to it may be overwritten in part: it is gone, as if the program had succeeded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch

from burn_torch.backend.capabilities import Program
from burn_torch.backend.libtorch.plain import plain_candidate
from burn_torch.backend.libtorch.programs.memory import InPlace, in_place_writes
from burn_torch.backend.libtorch.source_file import compiled
from burn_torch.backend.libtorch.tensors.allocator import keep_memory
from burn_torch.backend.libtorch.tensors.modes import is_cast_by_autocast, refused
from burn_torch.core.dtype import DType
from burn_torch.core.source import Source
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes.invariants import check_overwrites
from burn_torch.graph.passes.memory import MemoryPlan, memory_plan
from burn_torch.graph.verifying import is_proving
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_code import TorchCode, code_of, importable
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["write_program"]

_COMMENT_COLUMN: Final = 56


Writes = Callable[[Graph, MemoryPlan], Mapping[int, InPlace]]
Finish = Callable[[Candidate, Graph, Sequence[Primitive]], Candidate]


def write_program(
    graph: Graph,
    donate: Collection[int] = (),
    title: str = "",
    *,
    candidate: Callable[[Call], Candidate] = plain_candidate,
    writes: Writes = in_place_writes,
    finish: Finish | None = None,
) -> Program:
    """Writes, compiles and loads the program of a graph; without kernels, unless they are handed over.

    candidate  gives the function that computes a Call in eager
    writes     the in-place forms that a memory plan allows, by node
    finish     makes what is run of the program that was written, its graph, and what computes each node
    """
    writer = _Writer(graph, donate, candidate, writes)
    if is_proving():
        writer.check()
    keep_memory(sum(size for (_, place), size in writer.memory.arena_bytes.items() if place == "cpu"))
    source = writer.source(title)
    code, path = compiled(source)
    namespace: dict[str, Any] = dict(writer.opaque)
    exec(code, namespace)
    run = namespace["run"]
    namespace["told"] = functools.partial(_note_failure, run.__code__, writer.nodes_by_line)
    if finish is not None:
        run = finish(run, graph, writer.functions)
    return Program(run, source, path, writer.reused, writer.memory.peak_bytes)


class _Writer:
    """The source of one graph, line by line."""

    def __init__(
        self, graph: Graph, donate: Collection[int], candidate: Callable[[Call], Candidate], writes: Writes
    ) -> None:
        self.graph: Final = graph
        self.donate: Final = set(donate)
        self.candidate: Final = candidate
        self.memory: Final = memory_plan(graph, donate)
        self.in_place: Final = writes(graph, self.memory)
        self.last_use: Final = {i: n for n, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
        self.imports: Final[dict[str, str]] = {}
        """Names of the program that stand for functions of torch, and how those are written."""
        self.opaque: Final[dict[str, object]] = {}
        """Names whose objects are no functions of torch; the loader hands them in."""
        self.comments: Final[dict[str, str]] = {}
        self.nodes_by_line: Final[dict[int, Node]] = {}
        self.reused: Final[list[tuple[int, int]]] = []
        self.functions: Final[list[Any]] = []
        """The functions that compute nodes; None where one works on copies."""
        outputs = {i for i in graph.outputs if i is not None}
        self._kept_to_the_end: Final = outputs | {
            i for position, (i, _) in enumerate(graph.inputs) if position not in self.donate
        }
        self._names: Final[dict[object, str]] = {}
        self._kept: Final[list[object]] = []

    def check(self) -> None:
        """Raises: GraphError where the program would write over what is still read."""
        writes = {
            number: {j: k for j, (k, legal) in enumerate(zip(form.over, form.legal, strict=True)) if legal}
            for number, form in self.in_place.items()
        }
        check_overwrites(self.graph, self.donate, writes)

    # -- the file --------------------------------------------------------------------------
    def source(self, title: str) -> str:
        """The whole file; fills `opaque` and `nodes_by_line`."""
        body = [(self._line(number, node), node) for number, node in enumerate(self.graph.nodes)]
        returned = "".join("None, " if i is None else f"v{i}, " for i in self.graph.outputs)
        head = [f'"""{self._title(title)}', "", f"Written by burn_torch for torch {torch.__version__}.", '"""', ""]
        if self.imports:
            head += ["import torch", ""]
        cast = any(not node.call.is_number and is_cast_by_autocast(node.call) for node in self.graph.nodes)
        modes = ["in_autocast", "in_inference", "outside"] if cast else ["in_inference", "outside"]
        head += [f"from burn_torch.backend.libtorch.tensors.modes import {', '.join(modes)}", ""]
        head += [f"{name} = {path}" for name, path in self.imports.items()]
        head += [f"# {name}: {self.comments[name]}" for name in self.opaque]
        source = Source(title)
        source.add(*head, "", "", "def run(")
        for position, (i, spec) in enumerate(self.graph.inputs):
            gift = "  donated" if position in self.donate else ""
            source.add(_with_comment(f"    v{i},", f"{spec}{gift}"))
        tests = "in_inference() or in_autocast()" if cast else "in_inference()"
        values = "".join(f"v{i}, " for i, _ in self.graph.inputs)
        with source.block("):"):
            source.add(f"if {tests}:", f"    return outside(run, ({values}))")
            with source.block("try:"):
                for text, node in body:
                    source.add(text)
                    self.nodes_by_line[len(source)] = node
                source.add(f"return ({returned})")
            source.add("except Exception as fault:", "    told(fault)", "    raise")
        return source.text

    def _title(self, title: str) -> str:
        count = len(self.graph.nodes)
        words = f"{len(self.graph.inputs)} inputs, {count} operations, {len(self.in_place)} of them in place."
        return f"{title}: {words}" if title else words

    # -- one node -------------------------------------------------------------------------------
    def _line(self, number: int, node: Node) -> str:
        in_place = self.in_place.get(number)
        expression = self._expression(node, in_place)
        names = ["_" if i is None else f"v{i}" for i in node.outputs]
        target = names[0] if not node.call.multiple else f"{', '.join(names)},"
        if not names:
            target = "()"
        text = f"{target} = {expression}"
        ended = {i for i in node.inputs if isinstance(i, int) and self.last_use[i] == number} - self._kept_to_the_end
        unread = {i for i in node.outputs if i is not None and i not in self.last_use} - self._kept_to_the_end
        if gone := sorted(ended | unread):
            text += f"; del {', '.join(f'v{i}' for i in gone)}"
        return _with_comment(text, self._comment(node, in_place))

    def _expression(self, node: Node, in_place: InPlace | None) -> str:
        call = node.call
        if call.is_number:
            self.functions.append(None)
            return self._call(call.op.scalar, node, call)
        if in_place is None:
            self.functions.append(self.candidate(call))
            return self._call(self.functions[-1], node, call)
        copied = {position for position, legal in zip(in_place.over, in_place.legal, strict=True) if not legal}
        self.reused.extend(in_place.taken(node).items())
        self.functions.append(None if copied else in_place.function)
        return self._call(in_place.function, node, call, copied=copied)

    def _call(self, function: object, node: Node, call: Call, *, copied: Collection[int] = ()) -> str:
        # a plan has its attributes bound already
        code = code_of(function, {})
        inputs = [self._input(i, call, code) for i in node.inputs]
        if copied:
            clone = self._name("clone", torch.clone)
            inputs = [f"{clone}({x})" if position in copied else x for position, x in enumerate(inputs)]
        if code is not None:
            return code.write(inputs, self._name)
        return f"{self._name(call.op.__name__, function, comment=_shorten(repr(call)))}({', '.join(inputs)})"

    def _input(self, i: Input, call: Call, code: TorchCode | None) -> str:
        if isinstance(i, int):
            return f"v{i}"
        if i is None:
            return "None"
        spec = call.result
        if (
            code is not None
            and code.numbers == "tensors"
            and isinstance(spec, TensorSpec)
            and spec.dtype in (DType.F32, DType.F64)
            and spec.place == "cpu"
        ):
            return self._constant_tensor(i, spec.dtype)
        return self._name("number", i.value)

    def _constant_tensor(self, number: Literal, dtype: DType) -> str:
        # torch rounds a number to the element type of the tensor beside it; done once, an operation costs 1.3 us
        # instead of 2.9
        key = (number, dtype)
        if key not in self._names:
            constant = torch.tensor(float(number.value), dtype=torch.float64, device="cpu").to(TO_TORCH[dtype])
            self._names[key] = self._name("constant", constant, comment=f"{number} as {dtype}")
        return self._names[key]

    # -- names -----------------------------------------------------------------------------------
    def _name(self, hint: str, constant: object, comment: str = "") -> str:
        """How the source writes a constant: its digits, or a name at the top of the file."""
        if _is_plain(constant):
            text = repr(constant)
            return f"({text})" if text.startswith("-") else text
        if id(constant) in self._names:
            return self._names[id(constant)]
        path = str(constant) if isinstance(constant, torch.dtype) else importable(constant)
        hint = hint.replace("::", "_") if not isinstance(constant, torch.dtype) else path.removeprefix("torch.")  # type: ignore[union-attr]  # a constant of torch has a path
        name, taken = hint, 1
        while name in self.imports or name in self.opaque or name in _TAKEN:
            taken += 1
            name = f"{hint}_{taken}"
        if path is None:
            self.opaque[name] = constant
            self.comments[name] = comment or _describe_constant(constant)
        else:
            self.imports[name] = path
        self._names[id(constant)] = name
        self._kept.append(constant)  # an id names an object as long as it lives
        return name

    def _comment(self, node: Node, in_place: InPlace | None) -> str:
        specs = ", ".join("_" if spec is None or i is None else _show_spec(spec)
                          for i, spec in zip(node.outputs, node.call.results, strict=True))  # fmt: skip
        origin = getattr(node, "origin", None)
        words = [specs] if len(specs) <= 200 else [f"{specs[:200]}..."]
        if origin is not None:
            words.append(str(origin))
        if in_place is not None:
            words.append("in place" if all(in_place.legal) else "in place in part")
        return "  ".join(words)


_TAKEN: Final = {
    "torch", "run", "told", "fault", "None", "True", "False", "in_inference", "in_autocast", "outside"
}  # fmt: skip


def _is_plain(constant: object) -> bool:
    if isinstance(constant, float):
        return math.isfinite(constant)
    if isinstance(constant, tuple):
        return all(map(_is_plain, constant))
    return constant is None or (isinstance(constant, int | str) and not hasattr(constant, "__torch_function__"))


def _describe_constant(constant: object) -> str:
    # the same in every process, so that equal programs have one name: no addresses
    if isinstance(constant, torch.Tensor):
        return f"a constant {tuple(constant.shape)} {constant.dtype}"
    return f"a constant of type {type(constant).__name__}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}..."


def _show_spec(spec: TensorSpec | NumberSpec) -> str:
    return repr(spec) if isinstance(spec, NumberSpec) else f"{spec.shape} {spec.dtype}"


def _with_comment(text: str, comment: str) -> str:
    return f"{text:<{_COMMENT_COLUMN}}  # {comment}"


# -- faults ------------------------------------------------------------------------------------------
def _note_failure(code: object, nodes: dict[int, Node], fault: Exception) -> None:
    """Adds to an error which operation failed, and the user's line that asked for it."""
    traceback = fault.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not code:
        traceback = traceback.tb_next
    node = None if traceback is None else nodes.get(traceback.tb_lineno)
    if node is None or traceback is None:
        return
    values = traceback.tb_frame.f_locals
    operands = [values.get(f"v{i}") if isinstance(i, int) else i and i.value for i in node.inputs]
    error = refused(fault, node.call, operands)
    if error is not None:
        _add_notes(error, node)
        raise error from None
    _add_notes(fault, node)


def _add_notes(fault: Exception, node: Node) -> None:
    origin = getattr(node, "origin", None)
    if origin is not None:
        fault.add_note(f"at {origin}")
    fault.add_note(f"in {node.call!r} of a compiled program")
