"""The choices between kernel configs of one run, pinned in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from burn_torch.core.files import write_atomic

__all__ = ["pinned"]


@contextmanager
def pinned(path: Path, text: str | None) -> Iterator[Callable[[], str | None]]:
    """See `Backend.pinned`.

    If measuring was asked for (levels `on` and `full`) a run without a text pins nothing: under a lockfile nothing is
    measured.
    Raises: LockfileError of `burn_kernels` for a text that is no lockfile.
    """
    from burn_kernels import AVAILABLE

    if not AVAILABLE:
        yield lambda: None
        return
    from burn_kernels import autotune
    from burn_kernels.autotune.selection import current

    held = current().lockfile
    if held is not None:  # the user's own, by BURN_KERNELS_LOCK or autotune.lock
        yield lambda: _text(held.path)
        return
    if text is not None:
        write_atomic(path, text.encode())
    elif autotune.level() in ("on", "full"):
        yield lambda: None
        return
    with autotune.lock(path):
        yield lambda: _text(path)


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
