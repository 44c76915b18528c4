"""What burn_kernels keeps: choices and timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.fuzz_files.mutations import json_changed, words_changed
from tests.fuzz_files.reader import Reader, either

__all__ = ["READERS"]


_LOCK: Final = json.dumps(
    {
        "format": "burn_kernels.lock",
        "version": 1,
        "choices": [{"key": "softmax rows=4", "device": "H200", "kernel": "abc", "config": {"block": 128, "warps": 4}}],
    }
).encode()


def read_lock(path: Path) -> None:
    """The lockfile of choices."""
    from burn_kernels.autotune import lockfile

    lockfile._read(path)


def read_bundle(path: Path) -> None:
    """A file of timings, into a store in memory."""
    from burn_kernels.autotune.bundle import import_bundle

    class Kept:
        def add(self, timings: Any, faults: Any) -> int:
            return len(timings)

    import_bundle(Kept(), path)  # type: ignore[arg-type]


_BUNDLE: Final = json.dumps(
    {
        "format": "burn_kernels.timings",
        "version": 1,
        "faults": [],
        "timings": [
            {
                "kernel": "softmax",
                "key": "k",
                "device": "H200",
                "software": "s",
                "candidate": "c",
                "config": {"block": 128},
                "samples_ms": [0.1, 0.2],
                "median_ms": 0.15,
                "eliminated": False,
                "measured_at": "2026-11-22T10:00:00+00:00",
            }
        ],
    }
).encode()


def read_reply(path: Path) -> None:
    """What a run says of where it takes commands, and its reply."""
    from burn_torch.monitor.control import ControlClient

    ControlClient(path.parent)


READERS: Final[dict[str, Reader]] = {
    "lockfile": Reader("m.json", lambda: [_LOCK], read_lock, either(words_changed, json_changed)),
    "timings": Reader("m.json", lambda: [_BUNDLE], read_bundle, either(words_changed, json_changed)),
}
