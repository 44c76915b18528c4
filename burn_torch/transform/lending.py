"""Memory of recorded programs that is lent to results.

A recorded program keeps its state at one address.  The trees it returns hold that very memory, and hand it back at the
next call.  A caller that comes with another state instead would overwrite what such a tree holds; so the trees that are
still alive get copies first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from operator import is_
from typing import Any, Final, final

from burn_torch.module.tree import Tree
from burn_torch.transform.unflatten import evacuate

__all__ = ["Lender", "save_holders"]


@final
class Lender:
    """The trees of one program's last call.  Those of the call before were handed back, or have copies.

    They keep it alive: other programs may have the same memory for their state when this one is gone.

    order  for each donated tree among the arguments, which tree of the result takes its memory over, leaf by leaf;
           None where one has no such tree
    """

    __slots__ = ("__weakref__", "_lent", "_order", "_trees")

    def __init__(self, order: Sequence[int] | None) -> None:
        self._order: Final = order
        self._trees: list[weakref.ref[Tree]] = []
        self._lent: list[Any] = []
        with _lock:
            _lenders.add(self)

    def lend(self, trees: Sequence[Tree]) -> None:
        """Notes that these trees hold the program's memory."""
        self._trees = [weakref.ref(tree) for tree in trees]
        for tree in trees:
            tree._flat.lender = self
        if self._order is not None:
            self._lent = [trees[i]._flat.handle for i in self._order]

    def is_handed_back(self, handles: Sequence[object]) -> bool:
        """Returns whether the leaves of the donated trees, by their handles, are those that were lent last."""
        return len(handles) == len(self._lent) and all(map(is_, handles, self._lent))

    def save(self, about: set[int]) -> None:
        """Gives copies to the living trees that hold one of the buffers with these identities."""
        for reference in self._trees:
            tree = reference()
            flat = None if tree is None else tree._flat
            if flat is not None and not about.isdisjoint(map(id, flat.leaves)):
                assert tree is not None
                evacuate(tree)


_lenders: Final[weakref.WeakSet[Lender]] = weakref.WeakSet()
_lock: Final = threading.Lock()


def save_holders(buffers: Sequence[object]) -> None:
    """Gives copies to all living trees that hold one of these buffers."""
    about = {id(buffer) for buffer in buffers}
    with _lock:
        for lender in _lenders:
            lender.save(about)
