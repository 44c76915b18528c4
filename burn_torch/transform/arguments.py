"""Arguments of transforms: which of their tensors are differentiated, and results of the same structure.

A tensor's derivative is a tensor, a module's is a GradientsParams, a container's the same container of derivatives;
what has none (numbers, texts, None) has None in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, final

from burn_torch.backend import Autodiff
from burn_torch.backend.autodiff.cuts import Cut
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import warn_user
from burn_torch.module import GradientsParams, Module, Param, ParamId, RunningState
from burn_torch.module.fields import UntrainedWarning
from burn_torch.module.gradients import trainable_params
from burn_torch.module.param import is_computed
from burn_torch.module.scope import current_scope
from burn_torch.module.tree import Tree, rebuild
from burn_torch.tensor import Tensor
from burn_torch.tensor.tensor import CutTensor, cut, cut_kind, cut_off
from burn_torch.transform.flatten import held_in, opened
from burn_torch.transform.structure import Argument, rebuilder
from burn_torch.transform.tapes import is_beside, settled

__all__ = [
    "Lifted",
    "SampleCount",
    "Slot",
    "below",
    "cut_all",
    "describe",
    "differentiated",
    "fits",
    "lowered",
    "mapped",
    "paired",
    "zeros_like",
]


T = TypeVar("T")


class SampleCount:
    """How many samples tensors hold along the axes that are noted."""

    def __init__(self) -> None:
        self.sizes: Final[dict[str, int | None]] = {}
        """Holds, for each tensor by its path, the size of its axis; None where it has no such axis."""

    def note(self, x: Tensor, dim: int | None, path: str) -> Tensor:
        """The tensor, whose samples lie along `dim`, if anywhere."""
        if dim is not None:
            self.sizes[f"{path} {x.spec}, axis {dim}"] = x.shape[dim] if -x.ndim <= dim < x.ndim else None
        return x

    def common(self, what: str, option: str) -> int:
        """The number that all have.  Raises: ShapeError, which names `option`, the one that gives the axes."""
        known = set(self.sizes.values())
        if len(known) == 1 and None not in known and 0 not in known:
            return int(next(iter(self.sizes.values())) or 0)
        raise ShapeError(
            f"{what}: the arguments have no common number of samples",
            given="; ".join(self.sizes) or "no tensor with an axis of samples",
            expected=f"one size on the axes that {option} names, at least 1",
            mend=f"name the axes with {option}=(0, None, ...), None for what all samples share, such as a module",
        )


# -- walks -------------------------------------------------------------------------------------------------
def mapped(value: Argument, change: Callable[[object, str], object], path: str) -> Any:
    """The same containers with `change(leaf, path)` for each leaf: tensor, parameter, module, or what is none of it."""
    if isinstance(value, Tensor | Param | RunningState | Tree):
        return change(value, path)
    parts = opened(value)
    if parts is None:
        return change(value, path)
    names, items = parts
    results = [mapped(item, change, below(path, value, name)) for name, item in zip(names, items, strict=True)]
    return value if all(a is b for a, b in zip(results, items, strict=True)) else rebuilder(type(value))(names, results)


def paired(value: object, other: object, path: str, what: str) -> Iterator[tuple[str, Any, Any]]:
    """Paths and leaves of `value`, each with what `other` has in its place; None in `other` stands for all below.

    Raises: ArgumentError where the containers differ.
    """
    parts = None if isinstance(value, Tensor | Param | RunningState | Tree) else opened(value)
    if parts is None or other is None:
        yield path, value, other
        return
    names, items = parts
    opposite = opened(other) if type(other) is type(value) else None
    if opposite is None or tuple(opposite[0]) != tuple(names):
        raise ArgumentError(
            f"{what} do not have the structure that they belong to",
            given=f"at {path} {describe(other)}",
            expected=describe(value),
            mend="give the same containers, with a tensor or None in the place of each tensor",
        )
    for name, item, beside in zip(names, items, opposite[1], strict=True):
        yield from paired(item, beside, below(path, value, name), what)


def below(path: str, container: object, name: object) -> str:
    """The path of a part of a container."""
    named = isinstance(name, str) and not isinstance(container, dict)
    return f"{path}.{name}" if named else f"{path}[{name!r}]"


def describe(value: object) -> str:
    """How errors call a value."""
    parts = opened(value)
    if isinstance(value, Tensor):
        return f"a tensor {value.spec}"
    return type(value).__name__ + ("" if parts is None else f" of {', '.join(map(str, parts[0])) or 'nothing'}")


# -- lifting -----------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True, eq=False)
class Slot:
    """One tensor that is differentiated: where it stands, its value under the tape, and its leaf on the tape."""

    path: str
    value: Tensor
    leaf: Tensor


@final
class Lifted:
    """Arguments with leaves of the transform's own in the place of tensors and parameters.

    make   the leaf on a tape for a value: `make(tensor) -> (value under the tape, leaf)`
    """

    def __init__(
        self,
        what: str,
        args: Sequence[Argument],
        chosen: Sequence[int],
        make: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> None:
        self._what: Final = what
        self._make: Final = make
        self._originals: Final = [args[i] for i in chosen]
        self.slots: Final[list[Slot]] = []
        self._faults: Final[list[tuple[str, Tensor]]] = []
        self._params: Final[dict[int, dict[ParamId, Param]]] = {}
        self._places: Final[list[tuple[int, int, int]]] = []
        """Holds each differentiated argument's position, and where its slots begin and end."""
        self._has_cut = False
        self.args: Final = list(args)
        for i in chosen:
            before = len(self.slots)
            self.args[i] = mapped(args[i], self._lift, f"argument {i}")
            if len(self.slots) == before and not self._faults:
                raise self._nothing(i, args[i])
            self._places.append((i, before, len(self.slots)))
        if self._faults:
            raise DTypeError(
                f"{what}: only floats have derivatives",
                given=", ".join(f"{path} {tensor.spec}" for path, tensor in self._faults),
                expected="float tensors in the arguments that are differentiated",
                mend="cast them with .float(), or leave the argument out of argnums and pass it beside",
            )

    def _lift(self, leaf: object, path: str) -> object:
        if isinstance(leaf, Tensor):
            return self._slot(leaf, path)
        if isinstance(leaf, Param):
            return _holding(leaf, self._slot(leaf.val(), path))
        if isinstance(leaf, Tree):
            return self._tree(leaf, path)
        return leaf

    def _slot(self, tensor: Tensor, path: str) -> Tensor:
        if not tensor.dtype.is_float:
            self._faults.append((path, tensor))
            return tensor
        self._has_cut |= isinstance(tensor, CutTensor)
        value, leaf = self._make(tensor)
        self.slots.append(Slot(path, value, leaf))
        return leaf

    def _tree(self, tree: Tree, path: str) -> Tree:
        params = self._params[id(tree)] = trainable_params(tree)
        new = {
            id(param): _holding(param, self._slot(param.val(), f"{path}, parameter {param.id}"))
            for param in params.values()
        }
        copies: dict[int, object] = {}
        lifted: Tree = rebuild(tree, lambda leaf: new.get(id(leaf), leaf), copies)
        scope = current_scope()
        if scope is not None:  # a layer that was made anew draws under its own name
            scope.stand_in({node: copy for node, copy in copies.items() if isinstance(copy, Tree) and id(copy) != node})
        return lifted

    def _nothing(self, i: int, arg: object) -> ArgumentError:
        frozen = isinstance(arg, Tree)
        return ArgumentError(
            f"{self._what}: argument {i} has nothing to differentiate",
            given=f"{type(arg).__name__}" + (" without trainable parameters" if frozen else f" {arg!r:.60}"),
            expected="a float tensor, a module with trainable parameters, or a container of them",
            mend="call .requires_grad() on the frozen module, or name another argument in argnums"
            if frozen
            else "wrap a number: Tensor.from_floats([x], device), or name another argument in argnums",
        )

    # -- derivatives ---------------------------------------------------------------------------------
    def losses(
        self, own: bool, cuts: Sequence[Cut], directions: Sequence[object] = ()
    ) -> Callable[[Tensor], Tensor] | None:
        """How results are marked of which a device's tape has lost something, see `CutTensor`; None for no loss.

        own  whether the tape is the transform's alone: then results hang on the device's, but for a part where the walk
             back has passed `cuts`, or a direction or a differentiated tensor is cut off; else they are constants there
        """
        if not own:
            params = next((params for params in self._params.values() if params), {})
            leaf = next((param.val().primitive for param in params.values()), None)
            return partial(cut_off, kind=cut_kind(None if leaf is None else leaf.node.id))
        is_partly = cuts or self._has_cut or any(isinstance(x, CutTensor) for x in directions)
        return partial(cut, kind=cut_kind(None)) if is_partly else None

    def tell_of_unread(self, gradients: Sequence[Tensor | None]) -> None:
        """Warns where `gradients`, one tensor a slot, has none for the parameters of an argument that holds modules."""
        for original, (i, first, end) in zip(self._originals, self._places, strict=True):
            if any(x is not None for x in gradients[first:end]):
                continue
            modules = [x for x in held_in([original]) if isinstance(x, Module) and self._params[id(x)]]
            if not modules:
                continue
            owner = type(modules[0]).__name__
            paths = [path for path, param in modules[0].named_params() if param.id in self._params[id(modules[0])]]
            shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            warn_user(
                UntrainedWarning,
                f"{self._what}: the result depends on no parameter of argument {i}",
                given=f"a function that computes with none of {shown} of the {owner} that it is given",
                expected="a function of its arguments: other modules that it reads, copies made by copy.deepcopy or"
                " of a record, and detached values are constants to it",
                mend="compute with the argument itself: grad(lambda model: loss(model, x))(model)",
            )

    def derivatives(
        self, tape: Autodiff, own: bool, gradients: Sequence[Tensor | None], lost: Callable[[Tensor], Tensor] | None
    ) -> list[Any]:
        """For each differentiated argument, its derivative, of one tensor a slot, where results of the tape live.

        A tensor that has none has zeros; a parameter that has none has no entry.  `lost` is what `losses` gave.
        """
        results = [x if x is None or not own else settled(tape, x) for x in gradients]
        if lost is not None:
            results = [x if x is None else lost(x) for x in results]
        left = iter(zip(self.slots, results, strict=True))

        def result(leaf: Argument, path: str) -> Any:
            if isinstance(leaf, Tensor | Param):
                slot, tensor = next(left)
                return zeros_like(settled(tape, slot.value) if own else slot.value) if tensor is None else tensor
            if isinstance(leaf, Tree):
                by_id = {ident: next(left)[1] for ident in self._params[id(leaf)]}
                return GradientsParams({ident: tensor for ident, tensor in by_id.items() if tensor is not None})
            return None

        return [mapped(arg, result, "") for arg in self._originals]

    def beside(self, others: Sequence[object], what: str) -> list[Tensor | None]:
        """One tensor a slot, or None, from `others`, which have the structure of the derivatives.

        Raises: ArgumentError, ShapeError where they have not.
        """
        if len(others) != len(self._originals):
            raise ArgumentError(
                f"{self._what}: as many {what} as arguments are needed",
                given=f"{len(others)} {what} for {len(self._originals)} arguments",
                expected="a tuple with one entry for each",
                mend=f"write them as tuples: {self._what.split('(')[0]}(fn, (x,), (v,))",
            )
        tensors: list[Tensor | None] = []
        for i, (original, other) in enumerate(zip(self._originals, others, strict=True)):
            for path, leaf, beside in paired(original, other, f"argument {i}", f"{self._what}: the {what}"):
                if isinstance(leaf, Tensor | Param):
                    tensors.append(beside)
                elif isinstance(leaf, Tree):
                    tensors += self._of_parameters(leaf, beside, path, what)
        fits(self._what, what, [(slot.path, slot.value, x) for slot, x in zip(self.slots, tensors, strict=True)])
        return tensors

    def _of_parameters(self, tree: Tree, given: Any, path: str, what: str) -> list[Tensor | None]:
        params = self._params[id(tree)]
        if given is None:
            return [None] * len(params)
        unknown = [ident for ident in given if ident not in params] if isinstance(given, GradientsParams) else None
        if unknown is None or unknown:
            raise ArgumentError(
                f"{self._what}: the {what} of a module are a GradientsParams of its parameters",
                given=f"at {path} " + (f"ids {', '.join(map(str, unknown))}" if unknown else describe(given)),
                expected=f"GradientsParams with ids of {type(tree).__name__}; those that are absent count as zeros",
                mend="take what grad gives for this module, or GradientsParams({param.id: tensor})",
            )
        return [given.get(ident) for ident in params]


def fits(owner: str, what: str, pairs: Sequence[tuple[str, Tensor, Any]]) -> None:
    """Raises: ArgumentError, ShapeError unless each third is None or a tensor of the shape and type of the second."""
    foreign = [(path, x) for path, _, x in pairs if x is not None and not isinstance(x, Tensor)]
    if foreign:
        raise ArgumentError(
            f"{owner}: the {what} are tensors",
            given=", ".join(f"at {path} {describe(x)}" for path, x in foreign),
            expected="a tensor, or None for zeros",
            mend="wrap numbers: Tensor.full(shape, number, device)",
        )
    wrong = [
        (path, like, x)
        for path, like, x in pairs
        if x is not None and (x.shape != like.shape or x.dtype is not like.dtype)
    ]
    if wrong:
        raise ShapeError(
            f"{owner}: the {what} do not fit",
            given=", ".join(f"at {path} {x.spec}" for path, _, x in wrong),
            expected=", ".join(f"{like.spec}" for _, like, _ in wrong),
            mend="give each the shape and element type of the tensor it belongs to",
        )


def zeros_like(x: Tensor) -> Tensor:
    """Zeros beside x."""
    return x.new_full(x.shape, 0.0)


def _holding(param: Param, leaf: Tensor) -> Param:
    return Param(leaf, param.id, mapper=param.mapper) if leaf is not param.val() else param


# -- results ---------------------------------------------------------------------------------------------------
def lowered(
    value: Argument, tapes: Sequence[Autodiff], *, own: bool, lost: Callable[[Tensor], Tensor] | None = None
) -> Any:
    """A result of the function without the transform's tapes, the outermost first: tensors of the backend under them.

    `own` says whether the tapes are the transform's alone; else modules stay on the device of the arguments.  `lost` is
    what `Lifted.losses` gave.
    """

    def tensor(x: Tensor) -> Tensor:
        is_tracked = False
        for tape in tapes:
            stack: Any = x.backend
            if stack is tape or (is_beside(tape, stack) and (not own or stack.trains == tape.trains)):  # it moved there
                is_tracked |= stack.is_tracked(x.primitive)
                x = x.__class__(stack.inner, stack.unwrapped(x.primitive), x.spec)
        return lost(x) if is_tracked and lost is not None else x

    def result(x: Tensor) -> Tensor:
        return settled(tapes[-1], tensor(x)) if own else tensor(x)

    def under(leaf: Argument) -> object:
        if isinstance(leaf, Tensor):
            tape: Any = leaf.backend
            tracked = tape.is_autodiff and tape.is_tracked(leaf.primitive)
            stays = leaf.backend is tapes[-1] or is_beside(tapes[-1], leaf.backend)
            return leaf if stays and not (own or tracked) else result(leaf)
        if isinstance(leaf, Param) and leaf.is_initialized():
            lower = tensor(leaf.val()) if own else _to_last(leaf.val(), tapes)
            if lower is leaf.val() and not is_computed(leaf):
                return leaf
            return Param(lower, leaf.id, require_grad=leaf.require_grad, mapper=leaf.mapper)  # a leaf again, outside
        return leaf

    def change(leaf: object, path: str) -> object:
        if isinstance(leaf, Tensor):
            return result(leaf)
        return rebuild(leaf, under) if isinstance(leaf, Tree) else under(leaf)

    return mapped(value, change, "the result")


def cut_all(value: T) -> T:
    """A result with its tensors marked as what a tape takes for constants, outside of modules."""
    kind = cut_kind(0)
    return mapped(value, lambda leaf, path: cut(leaf, kind) if isinstance(leaf, Tensor) else leaf, "")  # type: ignore[no-any-return]  # the same containers


def _to_last(x: Tensor, tapes: Sequence[Autodiff]) -> Tensor:
    for tape in tapes[:-1]:
        if x.backend is tape:
            x = Tensor(tape.inner, tape.unwrapped(x.primitive), x.spec)
    return x


# -- argnums -------------------------------------------------------------------------------------------------------
def differentiated(what: str, argnums: int | Sequence[int], count: int) -> list[int]:
    """Positions of the arguments that are differentiated.  Raises: ArgumentError for positions that are not there."""
    named = [argnums] if isinstance(argnums, int) else list(argnums)
    wrong = [i for i in named if not -count <= i < count]
    chosen = [i % count for i in named if i not in wrong]
    if wrong or not named or len(set(chosen)) < len(chosen):
        raise ArgumentError(
            f"{what}: argnums does not name arguments of this call",
            given=f"argnums {argnums!r}, {count} positional arguments",
            expected=f"distinct positions from 0 to {count - 1}" if count else "at least one positional argument",
            mend="pass what is differentiated by position, or change argnums",
        )
    return chosen
