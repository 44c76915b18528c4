"""Counts and removes what compiling and measuring leave on the disk.

Only files that have the names of ours count, and are removed: a variable may name a folder that holds other things too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from burn_torch.backend.libtorch.source_file import cache_folder, spare_kernel_folder

__all__ = ["Cache", "clear_cache", "measure_cache"]

_NAMES: Final = {
    "programs": re.compile(r"[0-9a-f]{20}\.py"),
    "kernels": re.compile(r"(fused_[0-9a-f]+|burn_torch_words)(-[0-9a-f]+)?\.(py|c|so)"),
    "timings": re.compile(r"autotune\.sqlite(-wal|-shm|\.damaged-\d+)?"),
    "triton": re.compile(r"[A-Z2-7]{52}"),
}
"""Names of files in each cache; Triton's has folders."""


class Cache(NamedTuple):
    """One cache as it is now; `entries` counts rows of timings, files elsewhere."""

    name: str
    folders: tuple[Path, ...]
    entries: int
    size_bytes: int


def measure_cache(name: str) -> Cache:
    """Counts what is in a cache.  Raises: OSError for a folder that cannot be read, RuntimeError without a home."""
    sizes = [size for path in _paths(name) for size in _sizes(path)]
    return Cache(name, _folders(name), _count_timings() if name == "timings" else len(sizes), sum(sizes))


def clear_cache(name: str) -> None:
    """Removes what is in a cache; its folders stay.  Raises: as `measure_cache`."""
    if name == "timings":
        _clear_timings()
        return
    for path in list(_paths(name)):
        with suppress(FileNotFoundError):  # a run that goes on removes old files too
            if name == "triton":
                shutil.rmtree(path)
            else:
                path.unlink()


def _folders(name: str) -> tuple[Path, ...]:
    if name == "programs":
        return (cache_folder(),)
    if name == "kernels":
        spare = spare_kernel_folder()
        return (cache_folder().parent / "kernels", *([spare] if spare.is_dir() and not spare.is_symlink() else []))
    if name == "timings":
        from burn_kernels.autotune.store import cache_folder as timings_folder

        return (timings_folder(),)
    named = os.environ.get("TRITON_CACHE_DIR")
    return (Path(named) if named else Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache",)


def _paths(name: str) -> Iterator[Path]:
    for folder in _folders(name):
        for path in folder.iterdir() if folder.exists() else ():
            is_folder = path.is_dir() and not path.is_symlink()
            if _NAMES[name].fullmatch(path.name) and is_folder == (name == "triton"):
                yield path


def _sizes(path: Path) -> Iterator[int]:
    """The sizes of a file, or of the files of a folder."""
    paths = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
    for file in paths:
        with suppress(FileNotFoundError):
            if not file.is_dir():
                yield file.lstat().st_size


def _count_timings() -> int:
    from burn_kernels.autotune.store import FILE, count_rows

    return count_rows(_folders("timings")[0] / FILE)  # a `Store` would move a damaged file, and empty an older one


def _clear_timings() -> None:
    from burn_kernels.autotune.store import FILE, Store

    path = _folders("timings")[0] / FILE
    store = Store(path)
    if store.there:
        with closing(store):
            store.clear()
    for damaged in path.parent.glob(f"{FILE}.damaged-*"):
        damaged.unlink(missing_ok=True)
