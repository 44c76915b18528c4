"""Donation: arguments whose memory a program may write over.

A tree that a program returned holds private tensors, which nobody has seen: they are taken as they are.  Other values
may be held in part elsewhere (a parameter, a view, the torch tensor it was adopted from), so the program gets copies
and those keep their values.  Either way the argument is moved: using it again is an error, not a surprise.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection
from typing import Final

import torch

from burn_torch.core.errors import TraceError
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.tensor import Tensor
from burn_torch.transform.flatten import Flat, Walk
from burn_torch.transform.moved import Moved
from burn_torch.transform.unflatten import copies_of

__all__ = ["move", "refuse_shared", "take_over"]

_set: Final = object.__setattr__


def take_over(walk: Walk, donated: Collection[int], by: str) -> None:
    """Makes the donated leaves the program's own, and marks what held them as moved to the function `by`."""
    moved = Moved(by)
    times = Counter(id(tree) for _, tree, _ in walk.roots) if len(walk.roots) > 1 else {}
    for number, (at, tree, flat) in enumerate(walk.roots):
        if at not in donated:
            continue
        if not flat.private or times.get(id(tree), 1) > 1:  # one tree in two places: the program counts them as two
            end = at + flat.root.size
            walk.leaves[at:end] = copies_of(flat.root, walk.leaves[at:end])
            # theirs go with the tree, unless somebody holds them: before the program needs memory of its own
            walk.roots[number] = (at, tree, Flat(flat.root, (), private=False))
        move(tree, moved)
    loose = [(at, tensor) for at, tensor in walk.loose if at in donated]
    for at, tensor in loose:
        if not _is_exclusive(tensor, walk.leaves[at]):
            walk.leaves[at] = tensor.backend.copy(tensor.primitive)
    for _, tensor in loose:
        tensor.primitive = moved


def move(tree: Tree, moved: Moved) -> None:
    """Takes the fields of a tree away."""
    tree.__dict__.clear()
    _set(tree, "_flat", None)
    _set(tree, "_unread", moved)


def _is_exclusive(tensor: Tensor, primitive: object) -> bool:
    """Returns whether this Tensor alone holds its memory."""
    if not isinstance(primitive, torch.Tensor) or tensor.primitive is not primitive:
        return False
    storage = primitive.untyped_storage()
    uses: int = torch._C._storage_Use_Count(storage._cdata)
    # two users: the tensor and `storage`; memory that is not resizable belongs to numpy or another library
    return sys.getrefcount(primitive) <= _OWN_REFERENCES and uses == 2 and storage.resizable()


class _Holder:
    """A stand-in for a Tensor, to count references with."""

    def __init__(self, primitive: torch.Tensor) -> None:
        self.primitive = primitive


def _count_own_references() -> int:
    holder = _Holder(torch.zeros(1))
    leaves = [holder.primitive]

    def count(tensor: object, primitive: Primitive) -> int:
        return sys.getrefcount(primitive)

    return count(holder, leaves[0])


_OWN_REFERENCES: Final = _count_own_references()


def refuse_shared(walk: Walk, name: str) -> None:
    """Raises: TraceError where one tensor that asks for gradients reached a function under two arguments.

    Eagerly its gradient would be the sum over both; a program sees two inputs.
    """
    seen: set[int] = set()
    for _, _, flat in walk.roots:
        if flat.private or not flat.asked:
            continue
        if not seen.isdisjoint(flat.asked):
            raise _shared_error(name)
        seen |= flat.asked
    for _, tensor in walk.loose:
        if getattr(tensor.primitive, "node", None) is not None:
            if id(tensor.primitive) in seen:
                raise _shared_error(name)
            seen.add(id(tensor.primitive))


def _shared_error(name: str) -> TraceError:
    return TraceError(
        f"{name}: one tensor that asks for gradients is an argument twice",
        given="the same parameter in two arguments",
        expected="each trained tensor once",
        mend="pass it once, or freeze one of the two: model.no_grad(), tensor.detach()",
    )
