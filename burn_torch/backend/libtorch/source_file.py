"""Generated programs and kernels as files: what a traceback shows, what a reader can open."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Final

from burn_torch.core.files import make_folder, write_atomic
from burn_torch.core.frames import mark_generated
from burn_torch.core.source import compile_file

__all__ = ["cache_folder", "compiled", "kernel_folders", "prune", "spare_kernel_folder"]

_KEPT: Final = 500
"""Files kept; the oldest are removed when there are twice as many."""


def cache_folder() -> Path:
    """Returns the folder of written programs: `programs` in $BURN_TORCH_CACHE, else in ~/.cache/burn_torch."""
    named = os.environ.get("BURN_TORCH_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "burn_torch") / "programs"


def kernel_folders() -> Iterator[Path]:
    """Folders that kernels may be written to: `kernels` beside `programs`, then one of this user's for temporary files.

    Raises: OSError at the end, where the last one cannot be used either.
    """
    try:
        folder = cache_folder().parent / "kernels"
        make_folder(folder)
        if os.access(folder, os.W_OK):
            yield folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        pass
    folder = spare_kernel_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{folder} can be written by others; BURN_TORCH_CACHE names another folder")
    yield folder


def spare_kernel_folder() -> Path:
    """Returns this user's folder of kernels among temporary files, used where the cache cannot be written."""
    return Path(tempfile.gettempdir()) / f"burn_torch_kernels_{os.getuid()}"


def compiled(source: str) -> tuple[CodeType, Path | None]:
    """The code object of a source, and its file; None where no file could be written, which stops nothing.

    The file is named for its content, so equal programs share one and nothing is ever changed in place.
    """
    name = blake2b(source.encode(), digest_size=10).hexdigest()
    path = _write_file(f"{name}.py", source)
    filename = f"<burn_torch program {name}>" if path is None else str(path)
    return compile(source, filename, "exec") if path is not None else compile_file(source, filename), path


def _write_file(name: str, source: str) -> Path | None:
    try:
        path = cache_folder() / name
        mark_generated(str(path.parent))
        if not (path.exists() and path.read_bytes() == source.encode()):  # a power cut may have emptied it
            make_folder(path.parent)
            write_atomic(path, source.encode(), durable=False)
            list(prune(path.parent, ".py"))
    except (OSError, RuntimeError, UnicodeError):  # RuntimeError: there is no home folder
        return None
    return path


def prune(folder: Path, ending: str) -> Iterator[Path]:
    """Removes the oldest files where there are many; gives each that is gone."""
    names = [name for name in os.listdir(folder) if name.endswith(ending)]  # noqa: PTH208  # glob takes 30 times as long
    if len(names) > 2 * _KEPT:
        with suppress(OSError):  # another process prunes too
            for old in sorted((folder / name for name in names), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
                old.unlink()
                yield old
