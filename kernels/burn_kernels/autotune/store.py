"""Timings on disk: SQLite in a cache folder, safe for several processes and threads, and never a reason to fail.

One row for each (kernel hash, key, candidate, device, software), written as measured and never changed: a second
process that measures the same inserts nothing.  What a candidate did wrong is a row of a second table.  Values are text
and numbers; reading them executes nothing.

A file that cannot be opened or written leaves a store in memory and one warning.  One that is no database, or is
damaged, is moved aside and a new one is begun.  Another schema than this one's is built anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from burn_kernels.autotune.errors import AutotuneWarning

__all__ = ["Fault", "Place", "Store", "Timing", "cache_folder"]

SCHEMA = 1
BUSY_S = 5.0
FOLDER_VARIABLE = "BURN_KERNELS_CACHE"
FILE = "autotune.sqlite"

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE timings (
    kernel TEXT NOT NULL, key TEXT NOT NULL, candidate TEXT NOT NULL, device TEXT NOT NULL, software TEXT NOT NULL,
    config TEXT NOT NULL, samples_ms TEXT NOT NULL, median_ms REAL NOT NULL, eliminated INTEGER NOT NULL,
    measured_at TEXT NOT NULL,
    PRIMARY KEY (kernel, key, candidate, device, software)
) WITHOUT ROWID;
CREATE TABLE faults (
    kernel TEXT NOT NULL, key TEXT NOT NULL, candidate TEXT NOT NULL, device TEXT NOT NULL, software TEXT NOT NULL,
    kind TEXT NOT NULL, reason TEXT NOT NULL, seen_at TEXT NOT NULL,
    PRIMARY KEY (kernel, key, candidate, device, software, kind)
) WITHOUT ROWID;
"""
_PLACE = "kernel = ? AND key = ? AND device = ? AND software = ?"
Result = TypeVar("Result")


# -- rows --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Place:
    """The place where timings hold: for which source, for which key, on which device, under which software."""

    kernel: str
    key: str
    device: str
    software: str


@dataclass(frozen=True)
class Timing:
    """The measurement of one candidate."""

    place: Place
    candidate: str
    config: dict[str, int]
    samples_ms: tuple[float, ...]
    """Every sample that counts, in order: the first, in which a kernel is compiled, is not among them."""
    median_ms: float
    eliminated: bool = False
    """True if it was left out before the last round, being far behind."""
    measured_at: str = ""


@dataclass(frozen=True)
class Fault:
    """Why a candidate may not be chosen."""

    place: Place
    candidate: str
    kind: str
    """`disqualified`: raised, or computed something else, when tried.  `quarantined`: failed when it was used."""
    reason: str
    seen_at: str = ""


# -- places ------------------------------------------------------------------------------------------
def cache_folder() -> Path:
    """`$BURN_KERNELS_CACHE`, or burn_kernels in the folder where this platform keeps caches.

    Raises: RuntimeError where there is no home folder.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "burn_kernels"


def now_text() -> str:
    """The time as ISO 8601, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keeps other processes out while a file beside `path` is replaced; without fcntl (Windows) it keeps nobody out."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.with_name(path.name + ".guard").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def count_rows(path: Path) -> int:
    """How many timings and faults a file has; 0 for one that is damaged or of another version.  Changes nothing."""
    for immutable in (False, True):  # a folder that cannot be written has no room for what a reader of WAL writes
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_read_only(path, immutable=immutable)) as db:
            if _schema_of(db) != SCHEMA:
                return 0
            return sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("timings", "faults"))
    return 0


# -- the store ---------------------------------------------------------------------------------------
class Store:
    """Timings and faults, in a file if there is a path and it can be opened, else in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._warned = False

    @property
    def in_memory(self) -> bool:
        """Tells if writes are lost with the process."""
        with self._guard:
            self._open()
            return self.path is None

    @property
    def there(self) -> bool:
        """Tells if there is anything to read, so that a process that only reads makes no file."""
        return self._connection is not None or self.path is None or self.path.exists()

    def timings(self, place: Place) -> list[Timing]:
        """The timings of one place."""
        sql = f"SELECT {_TIMING} FROM timings WHERE {_PLACE}"
        return self._run(lambda db: [_timing(row) for row in db.execute(sql, _place(place))])

    def faults(self, place: Place) -> list[Fault]:
        """The faults of candidates at one place."""
        sql = f"SELECT {_FAULT} FROM faults WHERE {_PLACE}"
        return self._run(lambda db: [_fault(row) for row in db.execute(sql, _place(place))])

    def all_timings(self) -> list[Timing]:
        """Every timing, in order of key and candidate."""
        sql = f"SELECT {_TIMING} FROM timings ORDER BY device, key, median_ms, candidate"
        return self._run(lambda db: [_timing(row) for row in db.execute(sql)])

    def all_faults(self) -> list[Fault]:
        """Every fault, in order of key and candidate."""
        sql = f"SELECT {_FAULT} FROM faults ORDER BY device, key, candidate"
        return self._run(lambda db: [_fault(row) for row in db.execute(sql)])

    def add(self, timings: Sequence[Timing] = (), faults: Sequence[Fault] = ()) -> int:
        """Inserts rows, all or none; those that are there already stay as they are.  Returns how many are new.

        A timing that is not finite, or negative, is left out, with a warning: whoever read it would take the file for
        damaged.
        """
        stamp = now_text()
        wrong = [t for t in timings if not _are_times(t)]
        if wrong:
            words = "; ".join(f"{t.candidate} of {t.place.key}: {[*t.samples_ms, t.median_ms]} ms" for t in wrong[:3])
            message = f"autotune: timings that are no times are not kept, {len(wrong)} of {len(timings)}: {words}"
            warnings.warn(message, AutotuneWarning, stacklevel=2)
        kept = [t for t in timings if _are_times(t)]
        timing_rows = [_timing_row(replace(t, measured_at=t.measured_at or stamp)) for t in kept]
        fault_rows = [_fault_row(replace(f, seen_at=f.seen_at or stamp)) for f in faults]

        def insert(db: sqlite3.Connection) -> int:
            before = db.total_changes
            with _transaction(db):
                db.executemany(f"INSERT OR IGNORE INTO timings ({_TIMING}) VALUES ({_marks(10)})", timing_rows)
                db.executemany(f"INSERT OR IGNORE INTO faults ({_FAULT}) VALUES ({_marks(8)})", fault_rows)
            return db.total_changes - before

        return self._run(insert)

    def forget(self, place: Place) -> None:
        """Takes away what is known of one place, so that it can be measured again."""

        def delete(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.execute(f"DELETE FROM timings WHERE {_PLACE}", _place(place))
                db.execute(f"DELETE FROM faults WHERE {_PLACE}", _place(place))

        self._run(delete)

    def clear(self) -> None:
        """Takes away every timing and every fault."""

        def delete(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.execute("DELETE FROM timings")
                db.execute("DELETE FROM faults")
            db.execute("VACUUM")  # else the file keeps its size

        self._run(delete)

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._guard:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    # -- opening and failing ---------------------------------------------------------------------
    def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._guard:
            for attempt in range(3):
                try:
                    return work(self._open())
                except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: a row of another program
                    self._retreat(error, last=attempt == 2)
            return work(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner == os.getpid():
            return self._connection
        self._connection, self._owner = None, os.getpid()  # a connection may not cross a fork
        for attempt in range(3):  # a damaged file is moved aside, and the second attempt makes a new one
            if self.path is None or self._connection is not None:
                break
            try:
                self._connection = _connect(self.path)
            except (sqlite3.Error, OSError) as error:
                self._retreat(error, last=attempt == 2)
        if self._connection is None:
            self._connection = _in_memory()
        return self._connection

    def _retreat(self, error: Exception, *, last: bool = False) -> None:
        """Moves a damaged file aside, or goes on in memory with what can be read; the latter if it is the last time."""
        path, old = self.path, self._connection
        if path is None:
            raise error
        if _is_damage(error) and not last:
            if old is not None:
                old.close()
            self._connection = None
            try:
                moved = _move_aside(path)
            except OSError as second:
                self._warn(f"{error}; it could not be moved aside either ({second})", "timings stay in memory")
                self.path = None
                return
            if moved is not None:
                self._warn(f"{error}; it is {moved.name} now", "a new file is begun")
            return
        memory = _in_memory()
        source = _read_only(path) if old is None else old
        with contextlib.closing(source), contextlib.suppress(sqlite3.Error):  # what cannot be read is measured again
            if _schema_of(source) == SCHEMA and not _forbids_writing(path):
                source.backup(memory)
        self.path, self._connection = None, memory
        self._warn(str(error), "timings stay in memory, so another process will measure again")

    def _warn(self, what: str, then: str) -> None:
        if not self._warned:
            self._warned = True
            message = f"autotune: the store cannot be used: {what}; {then} (BURN_KERNELS_CACHE names another folder)"
            warnings.warn(message, AutotuneWarning, stacklevel=2)


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return _prepare(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False))


def _in_memory() -> sqlite3.Connection:
    return _prepare(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def _read_only(path: Path, *, immutable: bool = True) -> sqlite3.Connection:
    # immutable: a folder that cannot be written has no room for the files beside a WAL database
    options = "mode=ro&immutable=1" if immutable else "mode=ro"
    address = f"{path.absolute().as_uri()}?{options}" if path.is_file() else "file::memory:"
    return sqlite3.connect(address, uri=True, check_same_thread=False)


def _prepare(db: sqlite3.Connection) -> sqlite3.Connection:
    db.text_factory = lambda text: text.decode(errors="replace")  # then it is no JSON, and the file is damaged
    try:
        db.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_S)}")
        db.execute("PRAGMA trusted_schema = OFF")
        _go_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        if _schema_of(db) != SCHEMA:
            with _transaction(db):
                if _schema_of(db) != SCHEMA:  # another process may have been quicker
                    for kind, name in db.execute(
                        "SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL"
                    ).fetchall():
                        if kind != "table":
                            raise sqlite3.DatabaseError(f"it has a {kind}, which no version of ours has")
                        db.execute(f"DROP TABLE {_quote(name)}")
                    for statement in _TABLES.split(";"):
                        db.execute(statement)
                    db.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
    except BaseException:
        db.close()
        raise
    return db


def _go_wal(db: sqlite3.Connection) -> None:
    # SQLite does not wait where two connections change a new file's mode at once, so this does
    until = time.monotonic() + BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _schema_of(db: sqlite3.Connection) -> int:
    if _statements(db) != _OWN:  # a view under the name of a table may run without end
        return 0
    try:
        row = db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise
        return 0
    return int(row[0]) if row is not None and str(row[0]).isdigit() else 0


def _statements(db: sqlite3.Connection) -> set[str]:
    return {" ".join(sql.split()) for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


_OWN = {" ".join(statement.split()) for statement in _TABLES.split(";") if statement.strip()}


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")  # takes the write lock at once, so that waiting for it is SQLite's affair
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _forbids_writing(path: Path) -> bool:
    """Tells if a header is damaged, by the version of the format for writing: a copy in memory would forbid it too."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return max(file.read(20)[18:], default=0) > 2
    return False


def _is_damage(error: Exception) -> bool:
    if isinstance(error, ValueError):
        return True
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, (sqlite3.OperationalError, sqlite3.ProgrammingError)
    )


def _move_aside(path: Path) -> Path | None:
    """Renames a damaged file; None if another process has put a sound one in its place meanwhile."""
    with alone(path):
        try:
            probe = _connect(path)
            (answer,) = probe.execute("PRAGMA quick_check(1)").fetchone()
            rows = probe.execute(f"SELECT {_TIMING} FROM timings").fetchall()
            notes = probe.execute(f"SELECT {_FAULT} FROM faults").fetchall()
            probe.close()
            if answer == "ok" and all(_timing(row) for row in rows) and all(_fault(row) for row in notes):
                return None
        except (sqlite3.DatabaseError, ValueError):
            pass
        number = 1
        while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
            number += 1
        path.replace(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside


# -- rows as SQLite holds them -----------------------------------------------------------------------
_TIMING = "kernel, key, device, software, candidate, config, samples_ms, median_ms, eliminated, measured_at"
_FAULT = "kernel, key, device, software, candidate, kind, reason, seen_at"


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _place(place: Place) -> tuple[str, str, str, str]:
    return place.kernel, place.key, place.device, place.software


def _timing_row(t: Timing) -> tuple[object, ...]:
    config, samples = json.dumps(t.config, sort_keys=True), json.dumps([round(ms, 6) for ms in t.samples_ms])
    return *_place(t.place), t.candidate, config, samples, t.median_ms, int(t.eliminated), t.measured_at


def _fault_row(f: Fault) -> tuple[object, ...]:
    return *_place(f.place), f.candidate, f.kind, f.reason, f.seen_at


def _require_text(row: Sequence[object]) -> None:
    if not all(isinstance(value, str) for value in row):  # a file of somebody else's, where anything may be NULL
        raise ValueError(f"a row holds {row!r} where there are texts")


def _timing(row: Sequence[Any]) -> Timing:
    _require_text((*row[:7], row[9]))
    try:
        config, samples = json.loads(row[5]), json.loads(row[6])
    except RecursionError as error:
        raise ValueError("a row of timings is nested without end") from error
    if not is_config(config) or not is_numbers(samples) or not is_numbers([row[7]]):
        raise ValueError(f"a row of timings holds config {row[5]!r} and samples {row[6]!r}")
    return Timing(Place(*row[:4]), row[4], config, tuple(samples), float(row[7]), bool(row[8]), row[9])


def _fault(row: Sequence[Any]) -> Fault:
    _require_text(row)
    return Fault(Place(*row[:4]), *row[4:])


def _are_times(t: Timing) -> bool:
    return is_numbers([float(ms) for ms in (*t.samples_ms, t.median_ms)])


def is_config(value: object) -> bool:
    """Tells if a config may be this: names with whole numbers."""
    return isinstance(value, dict) and all(type(v) is int and isinstance(k, str) for k, v in value.items())


def is_numbers(value: object) -> bool:
    """Tells if this is a list of times: finite and not negative."""
    return isinstance(value, list) and all(type(v) in (int, float) and 0.0 <= v < 1e12 for v in value)


def merged(timings: Iterable[Timing]) -> dict[str, Timing]:
    """Timings by candidate."""
    return {timing.candidate: timing for timing in timings}
