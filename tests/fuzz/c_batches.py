"""Builds the C kernels of many programs at once: one translation unit, one run of the compiler.

Programs run in threads side by side.  Each waits where it needs a kernel; when all of them wait, what they ask for is
compiled together.  The compiler's start costs more than a kernel of a small program does.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from burn_torch.backend.libtorch.generated import c_kernels, c_libraries
from burn_torch.fusion.c import lowering as c_lowering

__all__ = ["Builder", "compiled_together"]

THOROUGH: Final = 4
"""One batch of so many is compiled with -O3, as a user's kernels are; -O1 takes half the time."""
PATIENCE_S: Final = 0.5
"""After so long without a new kernel the waiting ones are built, though a program computes still."""


class _Library(Future[Path]):
    """A library that is built with others, as soon as it is waited for."""

    def __init__(self, builder: Builder) -> None:
        super().__init__()
        self._builder = builder

    def result(self, timeout: float | None = None) -> Path:
        if not self.done():
            self._builder.wait_for(self)
        return super().result(timeout)


class Builder:
    """Gathers kernels, and builds them when every program waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches = 0
        self.kernels = 0
        self.refused: Exception | None = None
        self._pending: dict[str, tuple[str, list[_Library]]] = {}
        self._built: dict[str, Path | Exception] = {}
        self._changed = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._last = time.monotonic()
        self._building = False

    # -- what programs call ------------------------------------------------------------------------
    def build_apart(self, name: str, source: str, *, lines: Sequence[str] = ()) -> Future[Path]:
        """Takes the place of `c_kernels.build_apart`."""
        library = _Library(self)
        with self._changed:
            self._last = time.monotonic()
            known = self._built.get(name)
            if known is not None:
                _settle(library, known)
            else:
                self._pending.setdefault(name, (source, []))[1].append(library)
        return library

    def wait_for(self, library: _Library) -> None:
        """Returns when the library is there."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            while not library.done():
                patience = time.monotonic() - self._last > PATIENCE_S
                if self._pending and not self._building and (self._waiting >= self._running or patience):
                    self._build()
                else:
                    self._changed.wait(0.1)
            self._waiting -= 1

    def run_all(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """`work` of each item, in threads."""

        def counted(item: Any) -> Any:
            try:
                return work(item)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        with ThreadPoolExecutor(len(items) or 1) as pool:
            with self._changed:
                self._running += len(items)
            results = list(pool.map(counted, items))
        if self.refused is not None:  # the programs ran a plainer way, and no kernel was compared
            raise self.refused
        return results

    # -- building ------------------------------------------------------------------------------------
    def _build(self) -> None:
        """Builds what is pending; the caller holds the lock, and gives it back meanwhile."""
        pending, self._pending = self._pending, {}
        self._building = True
        self._changed.release()
        outcome: Path | Exception = RuntimeError("was not built")
        try:
            outcome = self._compile([source for source, _ in pending.values()])
        finally:
            self._changed.acquire()
            self._building = False
            for name, (_, waiting) in pending.items():
                self._built[name] = outcome
                for library in waiting:
                    _settle(library, outcome)
            self._changed.notify_all()

    def _compile(self, sources: Sequence[str]) -> Path | Exception:
        self.batches += 1
        self.kernels += len(sources)
        path = self.folder / f"batch{self.batches}.c"
        path.write_text(one_unit(sources), encoding="utf-8")
        library = path.with_suffix(".so")
        level = "-O3" if self.batches % THOROUGH == 0 else "-O1"
        flags = [level if flag == "-O3" else flag for flag in c_libraries._FLAGS]
        command = [c_libraries.compiler(), *flags, "-march=native", "-o", library, path]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            self.refused = c_libraries.CompilerError(f"the compiler refused {path}: {done.stderr[:2000]}")
            return self.refused
        return library


def _settle(library: _Library, outcome: Path | Exception) -> None:
    if isinstance(outcome, Exception):
        library.set_exception(outcome)
    else:
        library.set_result(outcome)


def one_unit(sources: Sequence[str]) -> str:
    """Many kernels' sources as one; helper functions that several have stand there once."""
    helpers: dict[str, None] = {}
    kernels: list[str] = []
    for source in sources:
        before, name, after = re.split(r"(?m)^(?=void )()", source, maxsplit=1)
        for part in re.findall(r"(?ms)^(?:static|typedef|#define)[^\n]*?(?:\{[^\n{}]*$.*?^\}|$)", before):
            helpers[part] = None
        kernels.append(name + after)
    return "\n".join(["#include <stdint.h>", *helpers, *kernels])


@contextmanager
def compiled_together(folder: Path) -> Iterator[Builder]:
    """A block in which kernels of the CPU are built by a Builder, and every body of two operations is a kernel."""
    builder = Builder(folder)
    before = c_kernels.build_apart, c_lowering.FEW
    c_kernels.build_apart = builder.build_apart
    c_lowering.FEW = 1  # type: ignore[misc]  # small bodies are kernels too: here they show faults
    c_kernels.c_function.cache_clear()
    try:
        yield builder
    finally:
        c_kernels.build_apart, c_lowering.FEW = before  # type: ignore[misc]
        c_kernels.c_function.cache_clear()
