"""Philox words by a C loop on the CPU: the bits of `core/philox.py`, several times as fast.

Nothing waits for it: once a process has drawn a million words (`core/philox.py` counts them and names this module) the
compiler starts beside it, and numpy draws until the library is there.  If there is no compiler, or it fails, numpy goes
on drawing: the words are the same.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, final

from burn_torch.backend.libtorch.generated.c_libraries import CompilerError, build_apart, compiler, loaded
from burn_torch.fusion.c.prims import helpers_for

__all__ = ["CIPHER", "Cipher"]

_NAME: Final = "burn_torch_words"


def _source() -> str:
    return f"""/* Words of a Philox stream. */
#include <stdint.h>

{helpers_for(["words"])}
void {_NAME}(uint32_t *out, int64_t key, int64_t stream, int64_t first, int64_t blocks) {{
    words_(out, key, stream, first, blocks);
}}
"""


@final
class Cipher:
    """Starts the compiler when it is first asked, and hands its loop out when it is built."""

    def __init__(self) -> None:
        self._building: Future[Path] | None = None
        self._fill: Callable[[Any, int, int, int], None] | None = None
        self._over = False

    def __call__(self) -> Callable[[Any, int, int, int], None] | None:
        """The loop; None while there is none."""
        if self._fill is not None or self._over:
            return self._fill
        if self._building is None:
            if compiler() is None:
                self._over = True
                return None
            self._building = build_apart(_NAME, _source())
        if self._building.done():
            self._fill = self._load_filler(self._building)
            self._over = self._fill is None
        return self._fill

    def wait(self) -> bool:
        """Builds the loop now; whether it is there."""
        self()
        if self._building is not None:
            self._building.exception()
        return self() is not None

    @staticmethod
    def _load_filler(building: Future[Path]) -> Callable[[Any, int, int, int], None] | None:
        try:
            function = getattr(loaded(building.result()), _NAME)
        except (CompilerError, OSError, subprocess.TimeoutExpired):
            return None  # numpy draws the same words
        function.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 4]
        function.restype = None

        def fill(out: Any, key: int, stream: int, first: int) -> None:
            function(out.ctypes.data, _as_signed(key), _as_signed(stream), _as_signed(first), out.size // 4)

        return fill


def _as_signed(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


CIPHER: Final = Cipher()
