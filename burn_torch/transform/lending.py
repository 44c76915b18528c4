"""Memory of recorded programs that is lent to results.

A recorded program keeps its state at one address.  The trees it returns hold that very memory, and hand it back at the
next call.  A caller that comes with another state instead would overwrite what such a tree holds; so the trees that are
still alive get copies first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final, final

from burn_torch.module.tree import Tree
from burn_torch.transform.unflatten import evacuate

__all__ = ["Lender", "save_holders"]


@final
class Lender:
    """The trees of one program's last call.  Those of the call before were handed back, or have copies."""

    __slots__ = ("__weakref__", "_trees")

    def __init__(self) -> None:
        self._trees: list[weakref.ref[Tree]] = []
        with _lock:
            _lenders.add(self)

    def lend(self, trees: Sequence[Tree]) -> None:
        """Notes that these trees hold the program's memory."""
        self._trees = [weakref.ref(tree) for tree in trees]

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


def save_holders(buffers: Sequence[Any]) -> None:
    """Gives copies to all living trees that hold one of these buffers."""
    about = {id(buffer) for buffer in buffers}
    with _lock:
        for lender in _lenders:
            lender.save(about)
