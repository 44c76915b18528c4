"""Defines what burn_kernels reads: choices, timings and settings."""

from __future__ import annotations

import contextlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz_files.mutations import json_changed, words_changed
from tests.fuzz_files.reader import Reader, WrongValueError, either

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
    from burn_kernels.autotune.store import Store

    store = Store(None)
    try:
        import_bundle(store, path)
    finally:
        store.close()


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


_SETTINGS: Final = (
    b'[autotune]\nlevel = "on"\nlock = "kernels.lock"\nlock_mode = "append"\n',
    b'# of another program\n[tool]\nkeys = [1, 2.5, 1979-05-27, { a = true }]\n\n[autotune]\nlevel = "measure"\n',
)


def read_settings(path: Path) -> None:
    """Each setting of a `burn.toml`, found from a folder inside of its own, and without variables above it."""
    from unittest.mock import patch

    from burn_kernels.autotune import settings

    inside = path.parent / "inside"
    with patch.dict(os.environ), patch.object(Path, "cwd", lambda: inside):
        for name, variable in settings._VARIABLES.items():
            os.environ.pop(variable, None)
            value, _ = settings.setting(name)
            if value is not None and value.__class__ is not str:
                raise WrongValueError(f"{name} = {value!r:.60}")


@cache
def _store() -> bytes:
    import tempfile

    from burn_kernels.autotune.store import Fault, Place, Store, Timing

    place = Place("softmax", "rows=4", "H200", "torch 2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "autotune.sqlite"
        store = Store(path)
        store.add(
            [Timing(place, f"c{i}", {"block": 128 << i}, (0.1, 0.2), 0.15) for i in range(40)],
            [Fault(place, "c9", "disqualified", "wrong values")],
        )
        store.close()
        return path.read_bytes()


def use_store(path: Path) -> None:
    """Timings are read, and one is added; where the file is damaged, in a new one or in memory."""
    from burn_kernels.autotune.store import Place, Store, Timing

    place = Place("softmax", "rows=4", "H200", "torch 2")
    store = Store(path)
    try:
        store.timings(place)
        store.faults(place)
        store.all_timings()
        store.all_faults()
        store.add([Timing(place, "new", {"block": 1}, (0.1,), 0.1)])
        store.timings(place)
    finally:
        store.close()


_SQL: Final = (
    b"CREATE VIEW timings AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    b"CREATE TRIGGER t BEFORE INSERT ON timings BEGIN DELETE FROM faults; END",
    b"CREATE INDEX i ON timings (abs(-9223372036854775808))",
    b"CREATE TABLE timings (kernel TEXT AS (zeroblob(900000000)))",
    b"CREATE VIRTUAL TABLE timings USING fts5(kernel)",
)


@cache
def _hostile_stores() -> tuple[bytes, ...]:
    """The store with another schema under its version: views without end, triggers, columns that are computed."""
    import sqlite3
    import tempfile

    stores = [_store()]
    for statement in _SQL:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(sqlite3.Error):
            path = Path(folder) / "s"
            path.write_bytes(_store())
            db = sqlite3.connect(path, isolation_level=None)
            if not statement.startswith((b"CREATE TRIGGER", b"CREATE INDEX")):  # what it makes has the table's name
                db.execute("DROP TABLE timings")
            db.execute(statement.decode())
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.close()
            stores.append(path.read_bytes())
    return tuple(stores)


_SOURCE: Final = "def program(x):\n    y = x * 2.0  # as generated\n    return y + 1.0\n"


def use_cached_source(path: Path) -> None:
    """A program whose file in the cache is damaged is written again, and is the program."""
    from burn_torch.backend.libtorch.source_file import compiled

    _, cached = compiled(_SOURCE)
    assert cached is not None
    cached.write_bytes(path.read_bytes())
    code, cached = compiled(_SOURCE)
    names: dict[str, Any] = {}
    exec(code, names)
    if names["program"](3.0) != 7.0 or cached is None or cached.read_text() != _SOURCE:
        raise WrongValueError("the program is another one")


_LIBRARY: Final = b"\x7fELF" + bytes(range(256)) * 64


def use_cached_library(path: Path) -> None:
    """A library of a kernel whose file is damaged is built again; here by a compiler that copies."""
    from unittest.mock import patch

    from burn_torch.backend.libtorch.generated import c_libraries

    def copied(compiler: str, source: Path, library: Path) -> None:
        library.write_bytes(_LIBRARY)

    with patch.multiple(c_libraries, _compile=copied, compiler=lambda: "cc", _machine=lambda path: "machine"):
        cached = c_libraries._build("fused_0", "void fused_0(void) {}", lines=())
        if not cached.read_bytes().startswith(_LIBRARY):
            raise WrongValueError("a damaged library stays")
        cached.write_bytes(path.read_bytes())
        c_libraries._build("fused_0", "void fused_0(void) {}", lines=())
    if cached.read_bytes()[:-16] != _LIBRARY:
        raise WrongValueError("a damaged library would be loaded")


READERS: Final[dict[str, Reader]] = {
    "lockfile": Reader("m.json", lambda: [_LOCK], read_lock, either(words_changed, json_changed)),
    "timings": Reader("m.json", lambda: [_BUNDLE], read_bundle, either(words_changed, json_changed)),
    "settings of selection": Reader("burn.toml", lambda: _SETTINGS, read_settings, words_changed),
    "autotune store": Reader("autotune.sqlite", _hostile_stores, use_store),
    "cached source": Reader("m.py", lambda: [_SOURCE.encode()], use_cached_source, words_changed),
    "cached library": Reader("m.so", lambda: [_LIBRARY + bytes(16)], use_cached_library),
}
