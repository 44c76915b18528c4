"""Shared libraries of generated C: built beside the caller, kept in the cache folder, checked before they are loaded.

A library is named for its source, the compiler and the processor, so that folders which several machines share stay
right.  Behind its last byte stands a digest of its bytes and of its name, which loaders do not read: a file that was
cut, changed or exchanged is built again, never loaded.  So is one that an older version of ours wrote without a digest.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from burn_torch.backend.libtorch.source_file import kernel_folders, prune
from burn_torch.fusion.body.lines import commented

__all__ = ["CompilerError", "build_apart", "compiler", "loaded"]

_FLAGS: Final = (
    "-O3",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-std=gnu11",
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
)
"""Comparisons may set no floating-point flags, overflow of integers wraps; NaN, infinity and -0 keep their meaning.

No product is contracted into a sum: in x * 1.2 - max(x * 1.2) both are one rounded number, and the difference at the
maximum is 0.  Contracted it is the rounding of the product, and exp of that overflows where x is large.
"""

_DIGEST_BYTES: Final = 16


class CompilerError(RuntimeError):
    """The C compiler refused a generated kernel."""


# -- the compiler ------------------------------------------------------------------------------------
@functools.cache
def compiler() -> str | None:
    """The C compiler: $CC, cc, gcc or clang, if it makes vectors and knows OpenMP; None where there is none."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path is not None and _works(path):
            return path
    return None


def _works(path: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <omp.h>\nint probe(void) { return omp_get_max_threads(); }\n", encoding="utf-8")
        try:
            _compile(path, source, Path(folder) / "probe.so")
        except (CompilerError, OSError, subprocess.TimeoutExpired):
            return False
        return True


def _compile(path: str, source: Path, library: Path) -> None:
    native = "-mcpu=native" if platform.machine().startswith(("arm", "aarch")) else "-march=native"
    done = subprocess.run(
        [path, *_FLAGS, native, "-o", str(library), str(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise CompilerError(f"{path} refused {source.name}: {done.stderr.strip()[:800]}")


@functools.cache
def _machine(path: str) -> str:
    """The compiler and the processor that a library is for."""
    version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return f"{version} {platform.machine()} {flags}"


# -- building ----------------------------------------------------------------------------------------
@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(os.cpu_count() or 1, 1), thread_name_prefix="burn-torch-cc")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of the pool's threads


@functools.cache
def loaded(library: Path) -> ctypes.CDLL:
    """The library, loaded once."""
    return ctypes.CDLL(str(library))


def build_apart(name: str, source: str, *, lines: Sequence[str] = ()) -> Future[Path]:
    """The library of a C source, built beside the caller where it is not there yet.  Raises, later: CompilerError.

    lines  of the user's, which its file has as comments
    """
    return _pool().submit(_build, name, source, lines=lines)


def _build(name: str, text: str, *, lines: Sequence[str]) -> Path:
    path = compiler()
    if path is None:
        raise CompilerError("no C compiler was found: install gcc or clang, or name one in CC")
    key = hashlib.blake2b(f"{_machine(path)} {_FLAGS} {text}".encode(), digest_size=8).hexdigest()
    faults: list[str] = []
    for folder in kernel_folders():
        library = folder / f"{name}-{key}.so"
        try:
            if not _is_sound(library):
                _build_at(library, path, f"{name}.c", commented(text, lines, "//"))
            return library
        except OSError as fault:  # a full disk
            faults.append(str(fault))
    raise OSError("; ".join(faults))


def _build_at(library: Path, path: str, source_name: str, text: str) -> None:
    folder = library.parent
    with tempfile.TemporaryDirectory(dir=folder) as scratch:  # another process may build and rename it too
        source, output = Path(scratch) / source_name, Path(scratch) / library.name
        source.write_text(text, encoding="utf-8")
        _compile(path, source, output)
        with output.open("r+b") as file:
            file.write(_digest(file.read(), library.name))
        source.replace(folder / source_name)
        output.replace(library)
    with suppress(OSError):
        for old in prune(folder, ".so"):  # a process that has loaded one keeps it
            old.with_name(f"{old.stem.rpartition('-')[0]}.c").unlink(missing_ok=True)


def _digest(content: bytes, name: str) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=hashlib.sha256(name.encode()).digest()).digest()


def _is_sound(library: Path) -> bool:
    """Asks whether a library is there, and as it was built."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    return _digest(content[:-_DIGEST_BYTES], library.name) == content[-_DIGEST_BYTES:]
