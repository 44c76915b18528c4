"""Small kernels that need nothing of each other in one launch: each takes some of the programs.

    if program < 8:            the first 8 programs sum the parts of a gradient,
        part_0(program, p0, q0)
    else:                      the others clip another one
        part_1(program - 8, p1, q1, n0)

Parts that do the same to other tensors are written once: the program says which of them it is, and takes its pointers.

A launch costs more than the work of such a kernel.  They share nothing: what two of them read is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import Argument, Domain, Kernel, Text
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.configs import tiles_of
from burn_torch.fusion.triton.dialect import decorator
from burn_torch.graph.ir import Graph
from burn_torch.graph.view import GraphView, positions_behind

__all__ = ["components", "lower_beside"]

MOST_TENSORS: Final = 96
"""Pointers, of which a launch takes some hundreds; each costs the host some 50 ns where a launch is not replayed."""

_NAME: Final = "def PART("
"""How the source of a part begins until it has a number."""

Lower = Callable[[Graph, Sequence[tuple[int, ...] | None] | None], Kernel]


@final
@dataclass(frozen=True)
class _Part:
    """A kernel of its own, and where its inputs and outputs are among those of all."""

    kernel: Kernel
    inputs: tuple[int, ...]
    wanted: tuple[int, ...]


def components(body: Graph) -> list[list[int]]:
    """The positions of the outputs of a body, those together that share an operation."""
    maker = GraphView(body).maker
    group: list[int] = list(range(len(body.nodes)))

    def root(n: int) -> int:
        while group[n] != n:
            group[n] = group[group[n]]
            n = group[n]
        return n

    for n, node in enumerate(body.nodes):
        for i in node.inputs:
            if isinstance(i, int) and i in maker:
                group[root(n)] = root(maker[i])
    positions: dict[int, list[int]] = {}
    for position, i in enumerate(body.outputs):
        if i not in maker:
            return [list(range(len(body.outputs)))]
        positions.setdefault(root(maker[i]), []).append(position)
    return list(positions.values())


def lower_beside(
    body: Graph, layouts: Sequence[tuple[int, ...] | None] | None, lower: Lower, *, held: bool
) -> Kernel | None:
    """The kernel of a body in parts that share no operation; None where it has but one.

    Raises: Unfusible where a part is no kernel, or they have too many tensors.
    """
    parts_of_body = components(body)
    if len(parts_of_body) < 2:
        return None
    parts = [_part(body, wanted, layouts, lower) for wanted in parts_of_body]
    if any(part.kernel.symbolic for part in parts):
        raise Unfusible(Reason.LIMIT, "kernels of symbolic sizes have a launch of their own")
    tensors = sum(len(part.inputs) + len(part.wanted) for part in parts)
    if tensors > MOST_TENSORS:
        raise Unfusible(Reason.LIMIT, f"{tensors} tensors")
    return _join(body, parts, held=held)


def _part(body: Graph, wanted: Sequence[int], layouts: Any, lower: Lower) -> _Part:
    outputs = [body.outputs[position] for position in wanted]
    nodes = [body.nodes[n] for n in sorted(positions_behind(outputs, GraphView(body).maker, body.nodes))]
    read = {i for node in nodes for i in node.inputs}
    positions = tuple(position for position, (i, _) in enumerate(body.inputs) if i in read)
    graph = Graph([body.inputs[position] for position in positions], nodes, outputs).dense()
    kernel = lower(graph, None if layouts is None else [layouts[position] for position in positions])
    return _Part(kernel, positions, tuple(wanted))


def _join(body: Graph, parts: Sequence[_Part], *, held: bool) -> Kernel:
    programs = sum(tiles_of(part.kernel).programs(part.kernel) for part in parts)
    outputs = {
        position: spec for part in parts for position, spec in zip(part.wanted, part.kernel.outputs, strict=True)
    }
    return Kernel(
        text=Text(lambda: _write(body, parts, held=held)),
        inputs=tuple(part.inputs[position] for part in parts for position in part.kernel.inputs),
        outputs=tuple(outputs[position] for position in range(len(outputs))),
        domain=Domain((programs,), None, (programs,), (), programs),
        rows_together=False,
        whole_rows=True,
        loads=sum(part.kernel.loads for part in parts),
        wide=any(part.kernel.wide for part in parts),
        held=held,
        over=_over(parts),
    )


def _write(body: Graph, parts: Sequence[_Part], *, held: bool) -> tuple[str, list[Argument], tuple[()]]:
    pointers = 0
    numbers: list[Argument] = []
    imports: dict[str, set[str]] = {}
    alike: dict[tuple[str, Any, int, Any], list[list[str]]] = {}
    """The arguments of each part, those together that differ in nothing else."""
    for part in parts:
        kernel, tiles = part.kernel, tiles_of(part.kernel)
        read = [f"p{pointers + k}" for k in range(len(kernel.inputs))]
        pointers += len(read)
        written = [f"q{position}" for position in part.wanted]
        values = [_moved(argument, part.inputs, f"n{len(numbers) + k}") for k, argument in enumerate(kernel.numbers)]
        numbers += values
        specs = [body.inputs[part.inputs[position]][1] for position in kernel.inputs]
        types = (*(spec.dtype for spec in (*specs, *kernel.outputs) if isinstance(spec, TensorSpec)),
                 *(argument.kind for argument in values))  # fmt: skip
        key = (_function(kernel, imports), types, tiles.programs(kernel), tuple(tiles.blocks(kernel).values()))
        alike.setdefault(key, []).append([*read, *written, *(argument.name for argument in values)])
    functions = [function.replace(_NAME, f"def part_{count}(") for count, (function, *_) in enumerate(alike)]
    calls: list[str] = []
    begin = 0
    for count, ((_, _, each, blocks), members) in enumerate(alike.items()):
        first, begin = begin, begin + each * len(members)
        if len(alike) > 1:
            head = "if" if not count else "elif" if count < len(alike) - 1 else "else"
            calls.append(f"    {head}{f' program < {begin}' if head != 'else' else ''}:")
        indent = " " * (4 if len(alike) == 1 else 8)
        calls += [indent + line for line in _write_call(f"part_{count}", first, each, members, blocks)]
    names = [argument.name for argument in numbers]
    parameters = [f"p{k}" for k in range(pointers)] + [f"q{k}" for k in range(len(body.outputs))] + names
    lines = [f'"""{len(parts)} small kernels side by side."""', ""]
    lines += [f"from {module} import {', '.join(sorted(words))}" for module, words in sorted(imports.items())]
    lines += ["", "", *"\n\n\n".join(functions).split("\n"), "", ""]
    lines += [decorator([] if held else names), f"def KERNEL({', '.join([*parameters, 'XB: tl.constexpr'])}):"]
    lines += ["    program = tl.program_id(0)", *calls]
    return "\n".join(lines) + "\n", numbers, ()


def _moved(argument: Argument, given: Sequence[int], name: str) -> Argument:
    """A part's number, made of the inputs of all."""
    return Argument(name, argument.kind, lambda inputs: argument.value([inputs[position] for position in given]))


def _write_call(
    name: str, first: int, each: int, members: Sequence[Sequence[str]], blocks: Sequence[int]
) -> Iterator[str]:
    """Lines that call a part for the program at hand.  Parts that are alike share one copy of the code: a compiler
    takes as long for one as for all, where it took 6 s for the 45 last sums of a step of GPT-2.

    each  so many programs a member has, from the program `first` on
    """
    program = f"program - {first}" if first else "program"
    words = list(members[0])
    if len(members) > 1:
        yield f"of_{name} = ({program}) // {each}"
        words = [f"{name}_{k}" for k in range(len(words))]  # of this part alone: another one's have other types
        for k, word in enumerate(words):
            yield f"{word} = {members[0][k]}"
            for m in range(1, len(members)):
                yield f"{word} = tl.where(of_{name} == {m}, {members[m][k]}, {word})"
        program = f"({program}) % {each}"
    yield f"{name}({', '.join([program, *words, *map(str, blocks)])})"


def _function(kernel: Kernel, imports: dict[str, set[str]]) -> str:
    """The source of a part as a function of its program; what it imports is added to `imports`."""
    for module, words in re.findall(r"^from (\S+) import (.+)$", kernel.source, re.MULTILINE):
        imports.setdefault(module, set()).update(words.split(", "))
    body = kernel.source[kernel.source.index("@triton.jit") :].rstrip("\n")
    _, _, function = body.partition(f"def {kernel.name}(")
    return f"@triton.jit\n{_NAME}program, {function}".replace("tl.program_id(0)", "program")


def _over(parts: Sequence[_Part]) -> tuple[tuple[int, int], ...]:
    """Returns outputs with the inputs under them that no other part reads, since any program may run first."""
    readers: dict[int, int] = {}
    for part in parts:
        for position in part.inputs:
            readers[position] = readers.get(position, 0) + 1
    return tuple(
        (part.wanted[j], part.inputs[k]) for part in parts for j, k in part.kernel.over if readers[part.inputs[k]] == 1
    )
