"""Caches of keys and values with fixed sizes: one of a capacity, and one of pages that sequences share.

    cache = StaticCache.new(batch, heads, 2048, d_head, device)
    step = compile(lambda attention, x, cache: attention.decode(x, cache))
    y, cache = step(attention, x, cache)                # for each token; no size changes, so one program serves all

They are values: `append` gives the cache that holds more.  `burn_torch.compile` may write into one that is donated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.tensor import Device, IndexingUpdateOp, Tensor, flex

__all__ = ["PagePool", "PagedCache", "StaticCache"]


class StaticCache(NamedTuple):
    """Keys and values of up to `capacity` positions for each sequence of a batch, and how many each holds.

    Shapes: key (batch, heads, capacity, d_head), value (batch, heads, capacity, d_value), length (batch,) i32.
    """

    key: Tensor
    value: Tensor
    length: Tensor

    @staticmethod
    def new(
        batch: int, heads: int, capacity: int, d_head: int, device: Device, dtype: DType | str | None = None
    ) -> StaticCache:
        """Holds nothing yet."""
        empty = Tensor.zeros((batch, heads, capacity, d_head), device)
        empty = empty if dtype is None else empty.cast(dtype)
        return StaticCache(empty, empty, Tensor.zeros((batch,), device).cast(DType.I32))

    def append(self, key: Tensor, value: Tensor) -> StaticCache:
        """The cache with new positions behind those that each sequence holds.

        Shapes: key (batch, heads, new, d_head), value (batch, heads, new, d_value).
        Raises: ShapeError where they do not fit; BoundsError past the capacity, on a CPU: a GPU does not look.
        """
        _require("key", key, (*self.key.shape[:2], key.shape[2], self.key.shape[3]))
        _require("value", value, (*self.value.shape[:2], key.shape[2], self.value.shape[3]))
        if key.shape[2] > self.key.shape[2]:
            raise told(
                ShapeError,
                "more positions than the cache can hold",
                given=f"{key.shape[2]} new positions, a capacity of {self.key.shape[2]}",
                expected="as many as are free, or fewer",
                mend="make it with a larger capacity",
            )
        places = _places(self.length, key.shape[2]).reshape((key.shape[0], 1, key.shape[2], 1))
        parts = [
            held.scatter(2, places.expand(new.shape), new, IndexingUpdateOp.Assign)
            for held, new in ((self.key, key), (self.value, value))
        ]
        return StaticCache(parts[0], parts[1], self.length + key.shape[2])

    def attend(
        self,
        query: Tensor,
        score: Callable[..., Tensor] | None = None,
        *,
        sinks: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """Returns what the last positions read of all that are held up to their own; see `flex.flex_attention`.

        Shapes: query (batch, heads of queries, new, d_head) -> (batch, heads of queries, new, d_value).
        """
        return _attend(query, self.key, self.value, self.length, score, sinks, scale)


class PagedCache(NamedTuple):
    """Keys and values in pages that sequences of unlike lengths share: a table says which pages a sequence has.

    Memory is that of the pages, whatever the longest sequence; a sequence that ends gives its pages back (`PagePool`).

    Shapes: key (pages, page_size, heads, d_head), value (pages, page_size, heads, d_value), table (batch, most pages of
    a sequence) and length (batch,) i32; entries of the table that no position needs may be any number.
    """

    key: Tensor
    value: Tensor
    table: Tensor
    length: Tensor

    @staticmethod
    def new(
        pages: int,
        page_size: int,
        heads: int,
        d_head: int,
        device: Device,
        *,
        batch: int,
        most_pages: int,
        dtype: DType | str | None = None,
    ) -> PagedCache:
        """Holds nothing yet, and no sequence has a page."""
        empty = Tensor.zeros((pages, page_size, heads, d_head), device)
        empty = empty if dtype is None else empty.cast(dtype)
        table, length = Tensor.zeros((batch, most_pages), device), Tensor.zeros((batch,), device)
        return PagedCache(empty, empty, table.cast(DType.I32), length.cast(DType.I32))

    def with_table(self, table: Tensor, length: Tensor | None = None) -> PagedCache:
        """The cache of other sequences: the pages that each has, and how many positions it holds."""
        _require("table", table, self.table.shape)
        held = self.length if length is None else length.cast(DType.I32)
        _require("length", held, self.length.shape)
        return PagedCache(self.key, self.value, table.cast(DType.I32), held)

    def append(self, key: Tensor, value: Tensor) -> PagedCache:
        """The cache with new positions behind those that each sequence holds, in the pages that the table says.

        Shapes: key (batch, heads, new, d_head), value (batch, heads, new, d_value).
        Raises: ShapeError where they do not fit.
        """
        pages, size, heads, d_head = self.key.shape
        batch, most = self.table.shape
        new = key.shape[2]
        _require("key", key, (batch, heads, new, d_head))
        _require("value", value, (batch, heads, new, self.value.shape[3]))
        places = _places(self.length, new)
        slot = places % size
        page = self.table.cast(DType.I64).gather(1, ((places - slot) / size).clamp(0, most - 1))
        at = (page * size + slot).reshape((batch * new,))
        parts = []
        for held, fresh in ((self.key, key), (self.value, value)):
            width = held.shape[3]
            rows = fresh.swap_dims(1, 2).reshape((batch * new, heads, width))
            flat = held.reshape((pages * size, heads, width)).select_assign(0, at, rows, IndexingUpdateOp.Assign)
            parts.append(flat.reshape(held.shape))
        return PagedCache(parts[0], parts[1], self.table, self.length + new)

    def attend(
        self,
        query: Tensor,
        score: Callable[..., Tensor] | None = None,
        *,
        sinks: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """As `StaticCache.attend`; the pages of each sequence are read side by side first."""
        pages, size, heads, _ = self.key.shape
        batch, most = self.table.shape
        table = self.table.clamp(0, pages - 1).reshape((batch * most,))
        key, value = (
            held.select(0, table).reshape((batch, most * size, heads, held.shape[3])).swap_dims(1, 2)
            for held in (self.key, self.value)
        )
        return _attend(query, key, value, self.length, score, sinks, scale)


DecodingCache = StaticCache | PagedCache
"""A cache of fixed size."""


@final
class PagePool:
    """Hands out pages of a `PagedCache` to sequences, on the host, and takes them back."""

    def __init__(self, pages: int, page_size: int, most_pages: int) -> None:
        self.page_size = page_size
        self.most_pages = most_pages
        self._free = list(range(pages))[::-1]
        self._held: dict[object, list[int]] = {}

    @property
    def free(self) -> int:
        """Pages that no sequence has."""
        return len(self._free)

    def reserve(self, sequence: object, positions: int) -> list[int]:
        """The pages of a sequence, enough for so many positions.

        Raises: ArgumentError where no page is free, or a sequence would have more than a table holds; nothing changes.
        """
        held = self._held.get(sequence, [])
        wanted = -(-positions // self.page_size) - len(held)
        if wanted > len(self._free) or len(held) + max(wanted, 0) > self.most_pages:
            raise ArgumentError(
                "the pool has no pages for this sequence",
                given=f"{positions} positions of sequence {sequence!r}: {wanted} more pages",
                expected=f"up to {len(self._free)} pages, which are free, and {self.most_pages} for a sequence",
                mend="release(sequence) those that have ended, or make the cache with more pages",
            )
        taken = [self._free.pop() for _ in range(max(wanted, 0))]
        self._held[sequence] = [*held, *taken]
        return list(self._held[sequence])

    def release(self, sequence: object) -> None:
        """Takes the pages of a sequence back."""
        self._free += self._held.pop(sequence, [])[::-1]

    def table(self, sequences: list[object], device: Device) -> Tensor:
        """The table of these sequences, for `PagedCache.with_table`.  Shapes: -> (sequences, most_pages) i32."""
        rows = [self._held.get(sequence, []) for sequence in sequences]
        filled = [[*row, *[0] * (self.most_pages - len(row))] for row in rows]
        return Tensor.from_data(filled, device).cast(DType.I32).reshape((len(sequences), self.most_pages))


def _places(length: Tensor, new: int) -> Tensor:
    """The positions of new keys.  Shapes: length (batch,) -> (batch, new), i64."""
    steps = Tensor.arange(new, length.device).cast(DType.I64)
    return length.cast(DType.I64).reshape((length.shape[0], 1)) + steps.reshape((1, new))


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    length: Tensor,
    score: Callable[..., Tensor] | None,
    sinks: Tensor | None,
    scale: float | None,
) -> Tensor:
    before = length.cast(DType.I32) - query.shape[2]
    return flex.flex_attention(
        query, key, value, score, lambda b, h, q, k: k <= q + before[b], sinks=sinks, scale=scale
    )


def _require(name: str, x: Tensor, shape: Shape) -> None:
    if x.shape != shape:
        raise told(
            ShapeError,
            f"{name} does not fit the cache",
            given=f"{name} {x.spec}",
            expected=f"{name} {tuple(shape)}",
            mend="make the cache for these heads and sequences",
        )
