"""Batches in parts: one for each device or process."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from burn_torch.core.errors import DataError
from burn_torch.core.share import Share, shares
from burn_torch.tensor import Device, Tensor
from burn_torch.train.step import AnyBatch

__all__ = ["Part", "cut", "map_tensors", "opened", "part_of"]


@final
@dataclass(frozen=True)
class Part:
    """A batch of which this process has a share.  With no item of it, `batch` stands in: it is computed, and counts 0
    times, since the others wait for this process's gradients.
    """

    batch: AnyBatch
    share: Share


def opened(batch: object) -> tuple[Any, Share | None]:
    """The batch itself, and its share of a larger one."""
    return (batch.batch, batch.share) if isinstance(batch, Part) else (batch, None)


def map_tensors(value: object, change: Callable[[Any], object]) -> Any:
    """A value with `change(tensor)` in the place of each tensor, of ours or of torch.

    Looks into tuples, lists, dicts and dataclasses.
    """
    if isinstance(value, Tensor) or type(value).__module__.partition(".")[0] == "torch":
        return change(value)
    if isinstance(value, Mapping):
        mapped = {name: map_tensors(one, change) for name, one in value.items()}
        if not isinstance(value, defaultdict):
            return type(value)(mapped)  # type: ignore[call-arg]  # a dict or one like it
        return type(value)(value.default_factory, mapped)
    if isinstance(value, tuple | list):
        changed = [map_tensors(one, change) for one in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: map_tensors(getattr(value, f.name), change) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **fields)
    return value


def items_in(batch: object) -> int:
    """How many items a batch has: the first axis of its tensors.  Raises: DataError where they do not agree."""
    sizes: dict[int, tuple[int, ...]] = {}

    def note(x: Any) -> object:
        shape = tuple(x.shape)
        sizes.setdefault(shape[0] if shape else -1, shape)
        return x

    map_tensors(batch, note)
    if len(sizes) != 1 or -1 in sizes:
        shapes = ", ".join(str(shape) for shape in sizes.values()) or "no tensor"
        raise DataError(
            "a batch cannot be cut into parts",
            given=f"{type(batch).__name__} with {shapes}",
            expected="tensors, in a dataclass, dict, tuple or list, that have the items on their first axis",
            mend="put the items first, or use a DataLoader, whose batcher makes each part by itself",
        )
    return next(iter(sizes))


def cut(batch: AnyBatch, share: Share, device: Device | None = None) -> Any:
    """The items of a share, on a device.  A share of none has the first item, to stand in."""
    first, end = (share.first, share.first + share.count) if share.count else (0, 1)

    def part(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x[first:end]
        taken = x if (first, end) == (0, x.shape[0]) else x.narrow(0, first, end - first)
        return taken if device is None else taken.to_device(device)

    return map_tensors(batch, part)


def part_of(batch: object, rank: int, world: int) -> Part:
    """Returns what the process `rank` has of a batch that all of them have whole."""
    share = shares(items_in(batch), world)[rank]
    return Part(cut(batch, share), share)
