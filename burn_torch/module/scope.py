"""The scope of a step: where random layers get their numbers and running statistics leave theirs.

    with StepScope(fold(fold(seed, epoch), step), model) as scope:
        loss = model.forward(batch)...
    model = model.with_states(scope.states)

Inside it a random layer draws from (key, its path in the model, how often it was called), so its numbers are the same
whether the step runs eagerly, is traced, is computed again or is resumed, and on whatever thread.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from burn_torch.core import ambient
from burn_torch.core.errors import ArgumentError
from burn_torch.core.philox import stream_of
from burn_torch.core.share import Share

if TYPE_CHECKING:
    from burn_torch.module.running_state import RunningState

__all__ = ["HasChildren", "StepScope", "class_name", "current_scope", "draw", "paths_below"]


class HasChildren(Protocol):
    """Holds what a scope walks: a node of the module tree.  Lists, tuples and dicts of nodes are walked too."""

    def _children(self) -> Iterator[tuple[str, Any]]:
        """Names and children, in a fixed order."""


class StepScope:
    """The random key and the new states of one step, on the thread that entered it.

    key     a 64-bit integer, or one that is known only at run time (under a trace); `fold` makes one for each step
    roots   the module that the step calls, or several by name: {"generator": g, "critic": c}.  Their layers are named
            by path; a layer that is none of theirs is named by its class and its order of use.
    share   which items of a larger batch the step has; random layers then draw what they would draw for these items
            in a step with the whole batch (see `Share`)

    Scopes nest: the innermost one counts, and sees nothing of the others.  One scope, one `with`.
    """

    def __init__(
        self, key: Any, roots: HasChildren | Mapping[str, HasChildren] | None = None, share: Share | None = None
    ) -> None:
        self.key: Final = key
        self.share: Final = share
        self._roots: Final = roots  # held, so that no other object takes the identity of one of its nodes
        self._paths: Mapping[int, str] | None = None
        self._held: Final[list[object]] = []
        self._uses: Final[Counter[str]] = Counter()
        self._pending: Final[dict[Any, tuple[RunningState, Any]]] = {}
        self._installed: AbstractContextManager[None] | None = None

    # -- numbers ---------------------------------------------------------------------------------
    def draw(self, layer: object) -> tuple[Any, int]:
        """The (key, stream) of the next draw of a layer, or of what a string names."""
        if isinstance(layer, str):
            return self.draw_named(f"name:{layer}")
        return self.draw_named(self.path_of(layer) or class_name(layer))

    def path_of(self, node: object) -> str | None:
        """How the scope names a node of its roots, "module:.conv1"; None for any other object."""
        return self.named(id(node))

    def named(self, identity: int) -> str | None:
        """`path_of` the node of this identity."""
        if self._paths is None:  # walked at the first draw: a model without random layers never is
            self._paths = _paths_of_roots(self._roots)
        return self._paths.get(identity)

    def stand_in(self, copies: Mapping[int, object]) -> None:
        """Lets layers draw under the names of others, whose identities are the keys."""
        named = {id(copy): path for node, copy in copies.items() if (path := self.named(node)) is not None}
        if named:
            self._paths = {**self._paths, **named}  # type: ignore[dict-item]  # `named` has walked them
            self._held.append(copies)  # so that no other object takes the identity of one

    def draw_named(self, name: str) -> tuple[Any, int]:
        """The (key, stream) of the next draw under a name."""
        count = self._uses[name]
        self._uses[name] = count + 1
        return self.key, stream_of(f"{name}#{count}")

    def next_key(self) -> tuple[Any, int]:
        """The (key, stream) of the next draw that is no layer's, such as `Tensor.random` in a step."""
        return self.draw("random")

    # -- states ----------------------------------------------------------------------------------
    @property
    def states(self) -> dict[Any, Any]:
        """The new values that running states were given in this scope, by id: for `module.with_states`."""
        return {id: value for id, (_, value) in self._pending.items()}

    def pending(self, state: RunningState, otherwise: object) -> Any:
        """The value that `state` was given in this scope, else `otherwise`."""
        entry = self._pending.get(state.id)
        return otherwise if entry is None or entry[0] is not state else entry[1]

    def hand_in(self, state: RunningState, value: object) -> None:
        """Keeps the next value of a running state.

        Raises: ArgumentError where another cell of the same id has handed in one: two copies of a module, such as a
        student and its teacher, would overwrite each other's statistics.
        """
        entry = self._pending.get(state.id)
        if entry is not None and entry[0] is not state:
            raise ArgumentError(
                "StepScope: two running states with one id were updated in one step",
                given=f"id {state.id!s}, held by two modules, one a copy of the other",
                expected="one module with these statistics in training mode",
                mend="call .valid() on the copy, or run it in a StepScope of its own and keep that one's states",
            )
        self._pending[state.id] = (state, value)

    # -- being the scope -------------------------------------------------------------------------
    def __enter__(self) -> Self:
        if self._installed is not None:
            raise ArgumentError(
                "StepScope: this scope was entered before",
                given="a second `with` of one scope",
                expected="one `with` a scope: its draws are counted from 0 and its states are those of one step",
                mend="make a new one: with StepScope(key, model) as scope: ...",
            )
        self._installed = ambient.installed(self)
        self._installed.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._installed is not None
        self._installed.__exit__(kind, error, trace)


def class_name(layer: object) -> str:
    """How a scope names a layer that none of its roots holds."""
    return f"class:{type(layer).__qualname__}"


def current_scope() -> StepScope | None:
    """The scope that this thread is in; None in eager code outside any."""
    source = ambient.innermost()
    return source if isinstance(source, StepScope) else None


def draw(layer: object) -> tuple[Any, int]:
    """The (key, stream) for a random layer: of the scope, else of the thread's default, which `seed` starts again."""
    scope = current_scope()
    return ambient.next_key() if scope is None else scope.draw(layer)


# -- paths --------------------------------------------------------------------------------------------
def _paths_of_roots(roots: HasChildren | Mapping[str, HasChildren] | None) -> Mapping[int, str]:
    if roots is None:
        return {}
    if isinstance(roots, Mapping):
        paths: dict[int, str] = {}
        for name, root in roots.items():
            for node, path in paths_below(root).items():
                paths.setdefault(node, f"module:{name}{path.removeprefix('module:')}")
        return paths
    return paths_below(roots)


def paths_below(root: HasChildren) -> Mapping[int, str]:
    """The path of each node under a root, by identity; the first of several.  A module never changes: walked once."""
    walked = _walked.get(id(root))
    if walked is not None and walked[0]() is root:
        return walked[1]
    paths: dict[int, str] = {}
    _walk(root, "module:", paths)

    def forget(reference: weakref.ref[HasChildren], key: int = id(root)) -> None:
        with _lock:
            held = _walked.get(key)
            if held is not None and held[0] is reference:
                del _walked[key]

    with _lock:
        _walked[id(root)] = (weakref.ref(root, forget), paths)
    return paths


# The identities in a map are valid as long as its root lives, since the root holds all of them.
_walked: Final[dict[int, tuple[weakref.ref[HasChildren], Mapping[int, str]]]] = {}
_lock: Final = threading.RLock()  # a root may be collected, and `forget` run, while this thread holds it


def _walk(node: object, path: str, paths: dict[int, str]) -> None:
    if id(node) in paths:
        return
    if isinstance(node, Mapping):
        children: Any = ((str(name), child) for name, child in node.items())
    elif isinstance(node, tuple | list):
        children = ((str(i), child) for i, child in enumerate(node))
    elif hasattr(node, "_children"):
        paths[id(node)] = path
        children = node._children()
    else:
        return
    for name, child in children:
        _walk(child, f"{path}.{name}", paths)
