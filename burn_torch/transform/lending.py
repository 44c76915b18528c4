"""Memory of recorded programs that is lent to results.

A recorded program keeps its state at one address.  The trees it returns hold that very memory, and hand it back at the
next call.  A caller that comes with another state instead would overwrite what such a tree holds; so the trees that are
still alive get copies first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final

from burn_torch.module.tree import Tree
from burn_torch.transform.unflatten import evacuate

__all__ = ["lend", "save_holders"]

_lent: Final[weakref.WeakSet[Tree]] = weakref.WeakSet()
_lock: Final = threading.Lock()


def lend(trees: Iterable[Tree]) -> None:
    """Notes that these trees hold memory of a recorded program."""
    with _lock:
        _lent.update(trees)


def save_holders(buffers: Sequence[Any]) -> None:
    """Gives copies to the living trees that hold one of these buffers."""
    about = {id(buffer) for buffer in buffers}
    with _lock:
        holders = [
            tree for tree in _lent if tree._flat is not None and not about.isdisjoint(map(id, tree._flat.leaves))
        ]
        for tree in holders:
            evacuate(tree)
            _lent.discard(tree)
