"""compile: a pure function as one program, traced once for each structure of its arguments."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, final, overload, runtime_checkable

from burn_torch.backend import Backend
from burn_torch.backend.autodiff.laid import running
from burn_torch.backend.base import capabilities
from burn_torch.backend.libtorch.tensors.modes import refuse_tracers
from burn_torch.backend.samples import RUNNING
from burn_torch.backend.tracing import active
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, AutodiffError, ConfigError
from burn_torch.core.frames import user_level
from burn_torch.fusion.shapes.variants import Schedules
from burn_torch.graph import Graph
from burn_torch.graph.passes import Numerics, Precision
from burn_torch.module import Module
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import cut_all
from burn_torch.transform.closed_over import require_same
from burn_torch.transform.connected import connect, pull_back, tensors_in
from burn_torch.transform.donation import move, refuse_shared, take_over
from burn_torch.transform.explanation import Explanation, explained
from burn_torch.transform.flatten import Fault, Walk, hanging_fault
from burn_torch.transform.guard import Guard
from burn_torch.transform.moved import Moved
from burn_torch.transform.options import Arguments, Options, choice, limit, signature
from burn_torch.transform.program import Program, ProgramOptions
from burn_torch.transform.retrace import Retrace, compared
from burn_torch.transform.structure import Argument, Leaf, Root, Structure, interned, placed
from burn_torch.transform.surroundings import Surroundings, plain_function
from burn_torch.transform.tapes import is_differentiated
from burn_torch.transform.tracing import Traced, trace
from burn_torch.transform.unflatten import TURNS

__all__ = ["Compiled", "Opened", "RetraceWarning", "compile"]

P = ParamSpec("P")
R = TypeVar("R")

_LOUD: Final = 8
"""The number of programs of one function that brings a warning, and that is kept on a GPU, where each holds memory."""

_KEPT: Final = 64


class RetraceWarning(UserWarning):
    """A compiled function was traced for many different structures of arguments."""


@final
@dataclass(frozen=True)
class Opened:
    """A compiled program and the arguments of one call, as data."""

    graph: Graph
    """After all passes: what runs."""
    inputs: Sequence[Primitive]
    """Primitives of `leaf` and numbers, in the order of the graph's inputs."""
    names: Sequence[str]
    """"model.linear1.weight", "lr", ...: where each input comes from."""
    leaf: Backend


@overload
def compile(function: None = None, /, **options: Unpack[Options]) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...


@overload
def compile(function: Callable[P, R], /, **options: Unpack[Options]) -> Compiled[P, R]: ...


@checked(but=("function", "precision", "numerics", "memory_limit_bytes"))
def compile(
    function: object = None,
    /,
    *,
    donate: Arguments = (),
    static: Arguments = (),
    captures: Sequence[Argument] = (),
    numerics: Numerics | None = None,
    precision: Precision = "float32",
    fuse: bool | None = None,
    replay: bool = True,
    memory_limit_bytes: int | None = None,
    max_programs: int | None = None,
) -> Any:
    """A pure function of modules, optimizers, tensors, numbers and plain containers as one program.

        @burn_torch.compile(donate=("model", "optim"))
        def step(model, optim, batch, lr):
            loss = model.forward_loss(batch)
            grads = GradientsParams.from_grads(loss.backward(), model)
            model, optim = optim.step(lr, model, grads)
            return model, optim, loss.detach()

    Its Python runs once for each structure of arguments: shapes, element types, devices, modules, constants.  Tensors
    and numbers (ints and floats among the arguments, `Scalar` fields) are inputs of the program, so a learning rate
    that changes retraces nothing; bools, texts, plain fields of modules and `static` arguments are compiled in.

    donate        arguments, by name or position, whose memory the program may use again; they are moved by the call:
                  using them afterwards is a MovedError.  Parts of them that are held elsewhere keep their values
    static        arguments that are compiled in, by name or position
    captures      tensors and modules that the function reads besides its arguments; no gradient flows to them
    numerics      "eager": every bit as without compile (the default on the CPU); "fast": may round otherwise (on CUDA)
    precision     "float32", or "bfloat16" for matrix products, convolutions and attention, with float32 parameters
    fuse          generate kernels for element-wise operations and reductions (`docs/building-blocks/fusion.md`);
                  None does where arguments are on a fused device and generated kernels run there
    replay        whether a GPU replays the program by itself (a CUDA graph); else it is launched operation by operation
    memory_limit_bytes  compute cheap values a second time, until the planned peak of a call, its arguments included,
                  fits; a MemoryLimitWarning says if it does not.  None keeps them, which is faster
    max_programs  how many programs are kept, the least recently used dropped first; 64, or 8 on a GPU

    In a program a random layer draws what it would have drawn eagerly, and running states are handed in as usual.
    Calling a compiled function inside another one traces it as a part of that.

    Raises: TraceError where a value is read, a tensor is not among the arguments, or a container outside is changed.
    """
    compiled: Any = partial(
        Compiled,
        donate=donate,
        static=static,
        captures=captures,
        numerics=numerics,
        precision=precision,
        fuse=fuse,
        replay=replay,
        memory_limit_bytes=memory_limit_bytes,
        max_programs=max_programs,
    )
    return compiled if function is None else compiled(function)


watchers: Final[list[list[tuple[str, Program, Retrace]]]] = []
"""Lists of those who watch, see `watching.py`: each program that is traced is put into them."""


@final
class Compiled(Generic[P, R]):
    """A function that `compile` made.  `traces` counts how often its Python ran."""

    @checked(but=("function", "numerics", "precision", "fuse", "memory_limit_bytes"))
    def __init__(
        self,
        function: Callable[P, R],
        *,
        donate: Arguments = (),
        static: Arguments = (),
        captures: Sequence[Argument] = (),
        numerics: Numerics | None = None,
        precision: Precision = "float32",
        fuse: bool | None = None,
        replay: bool = True,
        memory_limit_bytes: int | None = None,
        max_programs: int | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function: Final = function
        self.name: Final[str] = getattr(plain_function(function), "__name__", type(function).__name__)
        self.traces = 0
        self.changed_readings = 0
        """How many of the traces were made because something that the function reads was another."""
        self.last_change = ""
        """Holds what that was, at the last of them."""
        self.prints: str | None = None
        """A line of the function that prints, if it has one: programs print nothing."""
        self._signature: Final = signature(function)
        self._surroundings: Final = Surroundings(function, captures)
        self._positions: Final = {name: i for i, name in enumerate(self._signature.parameters)}
        self._donate: Final = self._positions_of("donate", donate)
        self._static: Final = self._positions_of("static", static)
        self._captures: Final = tuple(captures)
        self._options: Final = ProgramOptions(
            choice("numerics", numerics, (None, "eager", "fast")),
            choice("precision", precision, ("float32", "bfloat16")),
            fuse if isinstance(fuse, bool) else choice("fuse", fuse, (None, True, False)),
            replay,
            limit(memory_limit_bytes),
        )
        self._schedules: Final = Schedules()
        if fuse and numerics == "eager":
            raise ConfigError(
                "compile: fused kernels do not give the bits of eager execution",
                given='fuse=True, numerics="eager"',
                expected='fuse=True with numerics="fast", or neither',
                mend="leave numerics out",
            )
        self._max_programs: Final = max_programs
        self._programs: Final[OrderedDict[Any, Program]] = OrderedDict()
        self._history: Final[deque[Retrace]] = deque(maxlen=64)
        self._lock: Final = threading.RLock()

    # -- calling --------------------------------------------------------------------------------------
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's results.  Raises: see `compile`."""
        if active() is not None or RUNNING.stacks or (running() and is_differentiated([*args, *kwargs.values()])):
            return self.function(*args, **kwargs)  # within a trace, or the transform around it records or maps it
        walk = Walk(apart=True)
        key = self._key(walk, args, kwargs)
        program = self._programs.get(key)
        if program is not None and program.settings is not None:
            settings = capabilities(program.traced.leaf).settings()
            if settings != program.settings:  # torch computes in another precision now
                key = (*key, settings)
                program = self._programs.get(key)
        if program is not None and program.guard is not None and not program.guard.holds():
            variant, program = self._variant(key)
            key = key if program is None else variant
        settled: Sequence[tuple[Tree, Any]] = ()
        if program is None:
            args, program, walk, settled = self._first(args, kwargs, key, walk)  # type: ignore[assignment]  # as they were, one with its state
        elif len(self._programs) > 1:
            with self._lock:
                if key in self._programs:
                    self._programs.move_to_end(key)
        if len(walk.roots) + len(walk.loose) > 1:
            refuse_shared(walk, self.name)
        if program.recorded is None or not self._donate:
            result = self._run(program, walk, settled, args, kwargs)
            return cut_all(result) if walk.has_cut else result
        with TURNS:
            if any(tree._flat is not flat for _, tree, flat in walk.roots if flat.private):
                walk = Walk(apart=True)  # another thread's call has given it copies meanwhile
                self._key(walk, args, kwargs)
            result = self._run(program, walk, settled, args, kwargs)
            return cut_all(result) if walk.has_cut else result

    def _run(
        self,
        program: Program,
        walk: Walk,
        settled: Sequence[tuple[Tree, Any]],
        args: Sequence[Argument],
        kwargs: Mapping[str, Argument],
    ) -> R:
        link = program.connection
        if link is None:
            if walk.hanging:
                raise hanging_fault().error(self._owner_of(walk.hanging[0], args, kwargs))
        elif link.stack is None:
            return self.function(*args, **kwargs)
        extra = program.beside(walk.trees)
        kept = program.is_handed_back(walk)
        if kept and program.lends_in_parts and not settled:
            moved = Moved(self.name)
            for at, tree, _ in walk.roots:
                if at in program.donated:
                    move(tree, moved)
            return program.again(walk.changing(program.donated) + extra)  # type: ignore[no-any-return]  # R, put together from its structure
        walk.complete()
        if link is not None:
            beside = partial(connect, program, [*args, *kwargs.values()], walk.leaves, extra)
            return program(walk.leaves + extra, walk.trees, kept, beside)  # type: ignore[no-any-return]  # R, put together from its structure
        if self._donate:
            take_over(walk, program.donated, self.name)
            for optimizer, moved in settled:
                move(optimizer, moved)
        return program(walk.leaves + extra if extra else walk.leaves, walk.trees, kept)  # type: ignore[no-any-return]  # R, put together from its structure

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """How the function is compiled for these arguments; traced if it was not yet, not run, nothing is donated.

        Passes with nodes and bytes, operations and launches, memory, cuts, and why each trace was made.
        """
        return explained(self.name, self._program_for(Walk(), args, kwargs)[1], tuple(self._history))

    def is_recorded(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Returns whether a device replays the program for these arguments by itself; traced if it was not yet."""
        return self._program_for(Walk(), args, kwargs)[1].recorded is not None

    def fusing(self) -> Compiled[P, R]:
        """This, if it generates kernels; else the same function compiled so, without donation."""
        if self._options.fuse:
            return self
        return Compiled(
            self.function,
            static=self._static,
            captures=self._captures,
            precision=self._options.precision,
            fuse=True,
            replay=False,
            memory_limit_bytes=self._options.memory_limit_bytes,
        )

    def opened(self, *args: P.args, **kwargs: P.kwargs) -> Opened:
        """The program for these arguments as data: its graph, its inputs and their names.

        Traced if it was not yet; it is not run, and nothing is donated.
        """
        walk = Walk()
        key, program = self._program_for(walk, args, kwargs)
        structures = [part for part in key[1:] if isinstance(part, Structure)]
        titles: list[str] = [*(self._name(i) for i in range(len(args))), *map(str, kwargs)]
        parts = [part for title, structure in zip(titles, structures, strict=True) for part in structure.parts(title)]
        names = [path for path, part in parts if part.size]
        inputs = walk.leaves + program.beside(walk.trees)
        names += [f"captured {i}" for i in range(len(inputs) - len(names))]
        return Opened(program.graph, inputs, names, program.traced.leaf)

    def _program_for(
        self, walk: Walk, args: Sequence[Argument], kwargs: Mapping[str, Argument]
    ) -> tuple[tuple[Any, ...], Program]:
        """The program for these arguments, traced if it was not yet, and its key; their leaves are in `walk`."""
        args = _settle_optimizers(args) or args
        key = self._key(walk, args, kwargs)
        return key, self._trace_missing(key, args, kwargs)

    def _key(self, walk: Walk, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
        """Returns what is compiled in: constants that the function reads by name, then the structures of the
        arguments, then the names of those that came with a name.  Their leaves are in `walk`.
        """
        structures: list[Any] = [self._surroundings.key(args)]
        structures += [self._structure_of(walk, i, arg) for i, arg in enumerate(args)]
        if kwargs:
            structures += [
                self._structure_of(walk, self._positions.get(name, name), arg) for name, arg in kwargs.items()
            ]
            structures += kwargs
        return tuple(structures)

    def _structure_of(self, walk: Walk, position: int | str, arg: object) -> Structure:
        if position in self._static:
            return walk.constant(arg, self._name(position))
        try:
            return walk.take(arg)
        except Fault as fault:
            raise fault.error(self._name(position)) from None

    def _owner_of(self, x: Tensor, args: Sequence[Argument], kwargs: Mapping[str, Argument]) -> str:
        """The name of the argument that holds a tensor."""
        named = [*((self._name(i), arg) for i, arg in enumerate(args)), *kwargs.items()]
        return next(name for name, arg in named if any(x is one for one in tensors_in([arg])))

    def _name(self, position: int | str) -> str:
        names = list(self._positions)
        return names[position] if isinstance(position, int) and position < len(names) else f"argument {position}"

    # -- tracing ---------------------------------------------------------------------------------------
    def _first(
        self, args: Sequence[Argument], kwargs: Mapping[str, Argument], key: tuple[object, ...], walk: Walk
    ) -> tuple[Sequence[Any], Program, Walk, Sequence[tuple[Tree, Moved]]]:
        """The arguments to run on, the program of a structure that is met for the first time, what it takes of them,
        and donated optimizers that were given their state: others run in their place.
        """
        settled = _settle_optimizers(args)
        if settled is None:
            return args, self._trace_missing(key, args, kwargs), walk, ()
        walk = Walk()
        program = self._trace_missing(self._key(walk, settled, kwargs), settled, kwargs)
        replaced = [
            (old, Moved(self.name))
            for i, (old, new) in enumerate(zip(args, settled, strict=True))
            if new is not old and i in self._donate
        ]
        return settled, program, walk, replaced

    def _variant(self, key: tuple[object, ...]) -> tuple[tuple[Any, ...], Program | None]:
        """The program of these structures that read what is there now, and its key; a key for it if there is none."""
        number, variant = 0, key
        while (program := self._programs.get(variant)) is not None and program.guard is not None:
            if program.guard.holds():
                break
            number += 1
            variant = (*key, number)
        return variant, program

    def _trace_missing(self, key: tuple[object, ...], args: Sequence[object], kwargs: Mapping[str, object]) -> Program:
        with self._lock:  # two threads that miss together trace once
            earlier = self._programs.get(key)
            key, program = self._variant(key)
            if program is None:
                program = self._programs[key] = self._trace(key, args, list(kwargs), earlier)
                for watched in watchers:
                    watched.append((self.name, program, self._history[-1]))
                limit = self._max_programs or (_LOUD if program.settings is not None else _KEPT)
                if len(self._programs) > limit:
                    _, dropped = self._programs.popitem(last=False)
                    if dropped.recorded is not None:
                        dropped.recorded.close()
        return program

    def _trace(
        self, key: tuple[Any, ...], args: Sequence[Argument], named: Sequence[str], earlier: Program | None
    ) -> Program:
        refuse_tracers(f"compile({self.name})")  # which would make the program's constants theirs
        surroundings, structures = key[0], [part for part in key[1:] if isinstance(part, Structure)]
        count = len(structures) - len(named)

        names = [*(self._name(i) for i in range(count)), *named]

        def call(arguments: Sequence[Argument]) -> Any:
            return self.function(*arguments[:count], **dict(zip(named, arguments[count:], strict=True)))

        traced = trace(self.function, call, structures, names, self._captures)
        require_same(self.function, surroundings, self._surroundings.key(args))
        self.traces += 1
        if earlier is None or earlier.guard is None:
            self._history.append(compared(self.traces, key, ["", *names], self._programs))
        else:
            self.changed_readings += 1
            differences = tuple(earlier.guard.differences())
            self.last_change = "; ".join(map(str, differences[:1]))
            self._history.append(Retrace(self.traces, differences))
        self.prints = traced.prints or self.prints
        if self.traces == _LOUD:
            read = f" or values outside ({self.last_change})" if self.last_change else ""
            warnings.warn(
                f"{self.name} was traced for {_LOUD} structures of arguments{read}: pad batches to one size, and pass"
                " what changes as tensors, ints or floats; burn_torch.explain(fn, *args).retraces says how they differ",
                RetraceWarning,
                stacklevel=user_level(),
            )
        program = self._program(traced, self.name, structures, self._donated_leaves(structures, named))
        if program.connection is not None:
            program.make_pullback = partial(self._pullback, program, call, structures, names)
        return program

    def _program(
        self, traced: Traced, name: str, structures: Sequence[Structure], donated: frozenset[int] = frozenset()
    ) -> Program:
        held = _tree_leaves(structures) - donated
        return Program(traced, name, structures, self._options, self._schedules, donated=donated, held=held)

    def _pullback(
        self,
        program: Program,
        call: Callable[[Sequence[object]], object],
        structures: Sequence[Structure],
        names: Sequence[str],
        present: tuple[bool, ...],
    ) -> Program:
        """The program of the gradients of a call, for gradients of those results that are `present`."""
        link = program.connection
        assert link is not None
        assert link.stack is not None
        if program.guard is not None and not program.guard.holds():
            raise _changed_since(self.name, program.guard)
        specs = [spec for spec, there in zip(link.specs, present, strict=True) if there]
        cotangent_structures: list[Structure] = [interned(Leaf, spec, link.stack.inner, 0) for spec in specs]

        def pull(arguments: Sequence[Argument]) -> Any:
            cotangents, rest = arguments[: len(cotangent_structures)], arguments[len(cotangent_structures) :]
            return pull_back(link, present, rest, cotangents, call(rest))

        with self._lock:
            every = [*cotangent_structures, *structures]
            called = [*(f"gradient {i}" for i in range(len(cotangent_structures))), *names]
            traced = trace(self.function, pull, every, called, self._captures, hand_in=False)
            return self._program(traced, f"backward of {self.name}", every)

    def _donated_leaves(self, structures: Sequence[Structure], named: Sequence[str]) -> frozenset[int]:
        """Positions among the leaves that belong to donated arguments."""
        positions: set[int] = set()
        count = len(structures) - len(named)
        for i, (at, structure) in enumerate(placed(structures)):
            position = i if i < count else self._positions.get(named[i - count], named[i - count])
            if position in self._donate:
                positions.update(range(at, at + structure.size))
        return frozenset(positions)

    def _positions_of(self, option: str, wanted: Arguments) -> frozenset[str | int]:
        """Arguments by position; by name where the function takes any."""
        wanted = (wanted,) if isinstance(wanted, str | int | Integral) else tuple(wanted)
        parameters = self._signature.parameters
        many = {p.kind: p.name for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        any_name, any_count = inspect.Parameter.VAR_KEYWORD in many, inspect.Parameter.VAR_POSITIONAL in many
        unknown = [
            name
            for name in wanted
            if (isinstance(name, str) and (name in many.values() or (name not in parameters and not any_name)))
            or (isinstance(name, int) and (name < 0 or (name >= len(parameters) and not any_count)))
        ]
        if unknown:
            raise ArgumentError(
                f"compile: {option} names arguments that {self.name} has not",
                given=", ".join(map(repr, unknown)),
                expected=f"names of single arguments of {self.name}{self._signature}, or positions from 0",
                mend=f"write the names of its parameters, for example {option}=('model', 'optim')",
            )
        return frozenset(self._positions.get(name, name) if isinstance(name, str) else name for name in wanted)

    def __get__(self, instance: Any, owner: type[object] | None = None) -> Any:
        if instance is None:
            return self
        return functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self.name}{self._signature}, {self.traces} traces>"


def _changed_since(name: str, guard: Guard) -> AutodiffError:
    return AutodiffError(
        "backward: what a compiled function read besides its arguments has changed since its forward",
        given=f"{name}: {'; '.join(map(str, guard.differences()))}",
        expected="the same values until its first backward, which traces it again",
        mend="pass what changes as an argument, or run the backward before it changes",
    )


def _tree_leaves(structures: Sequence[Structure]) -> frozenset[int]:
    """Positions among the leaves of arguments that are trees."""
    trees = [(at, structure.size) for at, structure in placed(structures) if isinstance(structure, Root)]
    return frozenset(i for at, size in trees for i in range(at, at + size))


def _settle_optimizers(args: Sequence[Argument]) -> list[Any] | None:
    """The arguments with optimizers that have their state; None if they all do, or if none could be made.

    An optimizer makes its state in its first step, so the first two steps would be two structures: two traces.
    """
    models = [arg for arg in args if isinstance(arg, Module)]
    fresh = [i for i, arg in enumerate(args) if isinstance(arg, Unsettled) and not arg.is_settled()]
    if len(models) != 1 or not fresh:
        return None
    return [arg.settled(models[0]) if i in fresh else arg for i, arg in enumerate(args)]


@runtime_checkable
class Unsettled(Protocol):
    """An argument that would get state of a model in its first step; an optimizer."""

    def is_settled(self) -> bool:
        """Returns whether it has its state."""
        ...

    def settled(self, model: Any, /) -> Any:
        """It, with the state that the first step with this model would start from."""
        ...
