"""A compiled call on a user's tape: one node, whose backward is a program too.

    y = compile(f)(x)           # x asks for gradients: y hangs on its tape, as f(x) does
    x.grad(y.backward())        # computes f again, and its gradient, in one program

A program keeps nothing of what it computes on the way, so its backward begins with the arguments, as that of a
checkpoint.  It draws what the call drew.  Nothing is traced for a backward before one runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from burn_torch.backend import Autodiff
from burn_torch.backend.autodiff.cuts import walk_back
from burn_torch.backend.autodiff.laid import levels
from burn_torch.backend.autodiff.tape import CONSUMED, Backward, FunctionEntry, Node, version_sum
from burn_torch.backend.decorator import leaf_primitive
from burn_torch.core.spec import TensorSpec
from burn_torch.module import Param
from burn_torch.module.tree import Tree, walk
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.tensor.gradients import warn_of_cuts
from burn_torch.transform.flatten import Walk, opened
from burn_torch.transform.structure import Argument

if TYPE_CHECKING:
    from burn_torch.transform.program import Program

__all__ = ["Call", "Connection", "connect", "connection", "pull_back", "tensors_in"]


class Connection(NamedTuple):
    """Holds what of a traced function's results hangs on its arguments.

    stack    the stack of results that do, without the trace; None where there are several, or tapes over tapes: then
             the function runs as it is
    results  leaves of the result, by position, that were computed from arguments which ask for gradients
    specs    what they are
    asking   which of the tensors among the arguments ask for gradients on this stack, each once
    """

    stack: Autodiff | None
    results: tuple[int, ...]
    specs: tuple[TensorSpec, ...]
    asking: tuple[int, ...]


def connection(arguments: Sequence[Argument], loose: Iterable[tuple[int, Tensor]], begun: int) -> Connection | None:
    """The connection of a function that was traced; None where no result hangs on an argument.

    loose   the tensors of its result that stand in no module, with their positions
    begun   the tape's number when its Python began: leaves before it are arguments

    What a backward inside has used up, such as the loss of a training step, hangs on nothing.
    """
    hanging = [(at, y) for at, y in loose if _hangs(y, begun)]
    if not hanging:
        return None
    asking: dict[int, tuple[int, Any]] = {}
    for number, x in enumerate(tensors_in(arguments)):
        stack: Any = x.backend
        if stack.is_autodiff and stack.is_leaf(x.primitive):
            asking.setdefault(x.primitive.node.id, (number, stack))
    stacks = {y.backend for _, y in hanging} | {stack for _, stack in asking.values()}
    one: Any = stacks.pop()
    return Connection(
        None if stacks or levels(one) > 1 else one.real,
        tuple(at for at, _ in hanging),
        tuple(y.spec for _, y in hanging),
        tuple(number for number, _ in asking.values()),
    )


def _hangs(y: Tensor, begun: int) -> bool:
    """Returns whether some tape leads from a result to an argument."""
    stack: Any = y.backend
    primitive = y.primitive
    while stack.is_autodiff:
        if stack.is_tracked(primitive) and not stack.is_leaf(primitive) and _leads_back(primitive.node, begun):
            return True
        stack, primitive = stack.inner, stack.unwrapped(primitive)
    return False


def _leads_back(node: Node, begun: int) -> bool:
    reached, waiting, seen = False, [node], {node.id}
    while waiting:
        node = waiting.pop()
        if node.saved is CONSUMED:
            return False
        reached |= node.entry is None and node.id < begun
        parents = [parent for parent, _ in node.edges if parent.id not in seen]
        seen.update(parent.id for parent in parents)
        waiting += parents
    return reached


def tensors_in(values: Iterable[object]) -> Iterator[Tensor]:
    """All tensors of arguments, those of parameters too, in one order for arguments of one structure."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Param):
            yield value.val()
        elif isinstance(value, Tree):
            flat = value._flat
            held = None if flat is None else flat.tensors
            if held is None:
                held = tuple(tensors_in(leaf for _, leaf in walk(value)))
                if flat is not None:
                    flat.tensors = held
            yield from held
        else:
            parts = opened(value)
            if parts is not None:
                yield from tensors_in(parts[1])


# -- a call --------------------------------------------------------------------------------------------------
def connect(
    program: Program,
    arguments: Sequence[Argument],
    leaves: Sequence[Primitive],
    extra: Sequence[Primitive],
    outputs: Sequence[Primitive],
) -> Sequence[Primitive]:
    """The outputs of a call, those that hang on its arguments as values of the tape."""
    link, entry = program.connection, program.tape_entry
    assert link is not None
    assert link.stack is not None
    tensors = list(tensors_in(arguments))
    asking = [tensors[n].primitive for n in link.asking]
    edges, saved = tuple([(x.node, x.index) for x in asking]), (leaves, extra)
    node = Node(entry, edges, saved, entry.version(saved))
    results = list(outputs)
    for index, at in enumerate(link.results):
        results[at] = link.stack.tracked(results[at], node, index)
    return results


@final
class Call(FunctionEntry):
    """Stands on the tape for the call of a program."""

    __slots__ = ("_program", "_sum_of")

    def __init__(self, program: Program) -> None:
        link = program.connection
        assert link is not None
        stack: Any = link.stack
        self._program: Final = program
        super().__init__(f"the compiled {program.name}", link.specs, stack.inner)
        specs = {"x": [spec for _, spec in program.traced.graph.inputs]}
        places = [("x", i) for i in range(len(specs["x"]) - len(program.traced.sources))]
        self._sum_of: Final = version_sum(specs, places, stack.inner)

    def version(self, saved: Any) -> int:
        """The sum of the versions of all tensors that a call was given."""
        return self._sum_of(saved[0])

    def backward(self, present: tuple[bool, ...]) -> Backward:
        """A function (gradients of the results, what the call was given) -> a gradient for each argument that asks."""

        def back(gradients: Sequence[object], saved: Any) -> Sequence[Primitive]:
            cotangents = [leaf_primitive(self.inner, g) for g, there in zip(gradients, present, strict=True) if there]
            return self._program.pulled_back(present, cotangents, *saved)

        return back


def pull_back(
    link: Connection, present: Sequence[bool], arguments: Sequence[object], cotangents: Sequence[Tensor], result: object
) -> tuple[Tensor | None, ...]:
    """In a trace: the gradients of the arguments that ask, for cotangents of those results that are `present`."""
    walk = Walk()
    walk.take(result)
    there = dict(walk.loose)
    tensors = list(tensors_in(arguments))
    stack: Any = tensors[link.asking[0]].backend
    roots = [there[at] for at, is_present in zip(link.results, present, strict=True) if is_present]
    gradients, cuts = walk_back(stack, [(y.primitive, g.primitive) for y, g in zip(roots, cotangents, strict=True)])
    if cuts:
        warn_of_cuts(cuts, gradients)
    return tuple(
        None if (g := gradients.get(tensors[n].primitive.node.id)) is None else Tensor(stack.inner, g, tensors[n].spec)
        for n in link.asking
    )
