"""Generated kernels as modules: each source is a file of its own in the cache folder, from which Triton reads it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from burn_torch.backend.libtorch.source_file import kernel_folders
from burn_torch.core.files import write_atomic
from burn_torch.fusion.body.lines import commented, is_kernel

__all__ = ["PREFIX", "module_of", "write_kernel"]

PREFIX: Final = "burn_torch_"
"""Names of these modules begin with it."""

_lock: Final = threading.Lock()
_modules: Final[dict[str, ModuleType]] = {}


def module_of(name: str, source: str, lines: Sequence[str] = ()) -> ModuleType:
    """The source as a module from a file: Triton reads a kernel's source from where it was defined.

    lines  of the user's, which the file has as comments
    """
    with _lock:
        module = _modules.get(name)
        if module is None:
            path = str(write_kernel(name, source, lines))
            module = sys.modules[f"{PREFIX}{name}"] = ModuleType(f"{PREFIX}{name}")
            module.__file__ = path
            exec(compile(source, path, "exec"), vars(module))  # no file of bytecode, which could be damaged
            _modules[name] = module
        return module


def _holds(path: Path, source: str) -> bool:
    try:
        return path.exists() and is_kernel(path.read_text(encoding="utf-8"), source)
    except UnicodeError:
        return False


def write_kernel(name: str, source: str, lines: Sequence[str]) -> Path:
    """Writes the file of a kernel, unless it is there.  Raises: OSError where no folder takes it."""
    fault: OSError | None = None
    for folder in kernel_folders():
        path = folder / f"{name}.py"
        try:
            if not _holds(path, source):
                write_atomic(path, commented(source, lines).encode(), durable=False)
        except OSError as err:  # a full disk
            fault = err
        else:
            return path
    raise OSError(f"no kernel can be written: {fault}")
