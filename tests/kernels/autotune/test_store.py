"""The store: rows stay as measured, processes and threads share it, and no file of any kind makes a run fail."""

from __future__ import annotations

import math
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from burn_kernels.autotune import store as stores
from burn_kernels.autotune.errors import AutotuneWarning
from burn_kernels.autotune.store import FILE, Fault, Place, Store, Timing, cache_folder

PLACE = Place(
    "0123456789abcdef", "softmax rows<=8192 cols=4096 bfloat16 packed align=16", "Fake 1 sm_90 x132", "torch 2"
)
KERNELS = Path(stores.__file__).parents[2]


def timing(candidate: str = "block=64", median_ms: float = 1.0, place: Place = PLACE) -> Timing:
    return Timing(place, candidate, {"block": 64}, (median_ms, 2.0), median_ms)


def fault(candidate: str = "block=128", reason: str = "too large") -> Fault:
    return Fault(PLACE, candidate, "disqualified", reason)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder" / FILE


def test_rows_come_back_as_they_were_measured(path: Path) -> None:
    first = Store(path)
    row = replace(timing(), samples_ms=(0.123456, 3.0, 1e-4), eliminated=True, measured_at="2026-11-21T10:00:00+00:00")
    assert first.add([row], [fault()]) == 2
    assert first.timings(PLACE) == [row]
    first.close()
    second = Store(path)
    assert second.timings(PLACE) == second.all_timings() == [row]
    (stored,) = second.faults(PLACE)
    assert replace(stored, seen_at="") == fault()
    assert stored.seen_at.endswith("+00:00")
    assert second.all_faults() == [stored]


@pytest.mark.parametrize("field", ["kernel", "key", "device", "software"])
def test_another_kernel_key_device_or_software_has_no_rows(path: Path, field: str) -> None:
    store = Store(path)
    store.add([timing()], [fault()])
    other = replace(PLACE, **{field: "another"})
    assert store.timings(other) == []
    assert store.faults(other) == []


def test_what_is_there_stays_as_it_is(path: Path) -> None:
    store = Store(path)
    assert store.add([timing(median_ms=1.0)]) == 1
    assert store.add([timing(median_ms=9.0), timing("block=128")]) == 1
    assert {row.candidate: row.median_ms for row in store.timings(PLACE)} == {"block=64": 1.0, "block=128": 1.0}


def test_forgetting_takes_away_one_place_only(path: Path) -> None:
    store, other = Store(path), replace(PLACE, key="another")
    store.add([timing(), timing(place=other)], [fault()])
    store.forget(PLACE)
    assert store.timings(PLACE) == []
    assert store.faults(PLACE) == []
    assert len(store.timings(other)) == 1


def test_reading_makes_no_file(path: Path) -> None:
    assert not Store(path).there
    assert not path.parent.exists()
    store = Store(path)
    store.add([timing()])
    assert store.there
    assert Store(path).there
    assert Store(None).there


def test_it_is_a_database_in_wal_mode_with_a_version(path: Path) -> None:
    Store(path).add([timing()])
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone() == ("1",)
    db.close()


@pytest.mark.parametrize("version", ["0", "2", "seven"])
def test_another_schema_is_built_anew(path: Path, version: str) -> None:
    store = Store(path)
    store.add([timing()])
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = ?", (version,))
        db.execute("CREATE TABLE other (x)")
    db.close()
    again = Store(path)
    assert again.all_timings() == []
    assert again.add([timing()]) == 1
    again.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT value FROM meta").fetchall() == [("1",)]
        assert db.execute("SELECT name FROM sqlite_master WHERE name = 'other'").fetchall() == []
    db.close()


# -- files that cannot serve -------------------------------------------------------------------------
def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database, and it is long enough to be looked at\n" * 100)
    store = Store(path)
    with pytest.warns(AutotuneWarning, match=r"not a database; it is autotune.sqlite.damaged-1 now; a new file"):
        assert store.timings(PLACE) == []
    assert store.add([timing()]) == 1
    assert not store.in_memory
    assert path.with_name(f"{FILE}.damaged-1").read_bytes().startswith(b"this is no")
    store.close()
    assert len(Store(path).timings(PLACE)) == 1


def test_a_second_damaged_file_does_not_replace_the_first(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.with_name(f"{FILE}.damaged-1").write_bytes(b"older")
    path.write_bytes(b"junk" * 1000)
    with pytest.warns(AutotuneWarning, match="damaged-2"):
        Store(path).add([timing()])
    assert path.with_name(f"{FILE}.damaged-1").read_bytes() == b"older"


def test_damage_inside_a_database_is_moved_aside(path: Path) -> None:
    store = Store(path)
    store.add([timing(f"block={n}") for n in range(2000)])
    store.close()
    data = bytearray(path.read_bytes())
    data[8192 : len(data) - 4096] = b"\xff" * (len(data) - 12288)
    path.write_bytes(bytes(data))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    broken = Store(path)
    with pytest.warns(AutotuneWarning, match="damaged-1"):
        broken.all_timings()
    assert broken.add([timing()]) == 1
    assert len(broken.timings(PLACE)) == 1


@pytest.mark.parametrize("config", ['{"block": "64"}', "[1]", "{", '{"block": 1.5}', '{"block": true}'])
def test_a_row_of_another_program_is_damage(path: Path, config: str) -> None:
    store = Store(path)
    store.add([timing()])
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE timings SET config = ?", (config,))
    db.close()
    with pytest.warns(AutotuneWarning, match="damaged-1"):
        assert Store(path).timings(PLACE) == []


@pytest.mark.parametrize("field", ["samples_ms", "median_ms"])
@pytest.mark.parametrize("ms", [math.nan, math.inf, -1.0, 1e300])
def test_a_timing_that_is_no_time_does_not_cost_the_file(path: Path, field: str, ms: float) -> None:
    store = Store(path)
    store.add([timing()])
    wrong = replace(timing("block=128"), **{field: (1.0, ms) if field == "samples_ms" else ms})
    with pytest.warns(AutotuneWarning, match="timings that are no times are not kept, 1 of 2: block=128 of softmax"):
        assert store.add([wrong, timing("block=256")], [fault()]) == 2
    store.close()
    assert [row.candidate for row in Store(path).timings(PLACE)] == ["block=256", "block=64"]
    assert not list(path.parent.glob("*damaged*"))


@pytest.mark.parametrize(
    ("column", "value"),
    [("samples_ms", "[" * 50_000), ("config", '{"block": 1' + "0" * 5000 + "}"), ("measured_at", b"\x00"),
     ("median_ms", "fast"), ("samples_ms", "[1e999]")],
)  # fmt: skip
def test_a_row_that_no_version_wrote_is_damage(path: Path, column: str, value: Any) -> None:
    store = Store(path)
    store.add([timing()])
    store.close()
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE timings SET {column} = ?", (value,))
    db.close()
    with pytest.warns(AutotuneWarning, match="damaged-1"):
        assert Store(path).timings(PLACE) == []


@pytest.mark.parametrize("kind", ["below a file", "a folder", "no such device"])
def test_a_place_that_cannot_be_opened_leaves_memory_and_one_warning(tmp_path: Path, kind: str) -> None:
    if kind == "below a file":
        (tmp_path / "file").write_text("x", encoding="utf-8")
        path = tmp_path / "file" / FILE
    elif kind == "a folder":
        path = tmp_path / FILE
        path.mkdir()
    else:
        path = Path("/proc/no-such-process") / FILE
    store = Store(path)
    with pytest.warns(AutotuneWarning, match=r"the store cannot be used: .*stay in memory.*BURN_KERNELS_CACHE"):
        assert store.add([timing()]) == 1
    assert store.add([timing()], [fault()]) == 1  # and no second warning, which would be an error here
    assert len(store.timings(PLACE)) == 1
    assert store.in_memory


def read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)


def test_a_file_that_cannot_be_written_is_read_and_new_rows_stay_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).add([timing("block=64")])
    before = path.read_bytes()
    monkeypatch.setattr(stores, "_connect", read_only)
    store = Store(path)
    assert len(store.timings(PLACE)) == 1
    with pytest.warns(AutotuneWarning, match="readonly database; timings stay in memory"):
        assert store.add([timing("block=128")]) == 1
    assert {row.candidate for row in store.timings(PLACE)} == {"block=64", "block=128"}
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_read_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Store(path)
    first.add([timing()])
    first.close()  # and the WAL is in the file now

    def refuse(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(stores, "_connect", refuse)
    store = Store(path)
    with pytest.warns(AutotuneWarning, match="unable to open database file"):
        assert len(store.timings(PLACE)) == 1


def test_a_lock_that_is_never_freed_leaves_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BUSY_S", 0.1)
    store = Store(path)
    store.add([timing("block=64")])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.warns(AutotuneWarning, match="database is locked"):
        store.add([timing("block=128")])
    assert len(store.timings(PLACE)) == 2
    other.close()


# -- where it lies -----------------------------------------------------------------------------------
def test_the_variable_names_the_folder(own_cache: Path) -> None:
    assert cache_folder() == own_cache


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "{set}/burn_kernels"),
        ("linux", None, "{home}/.cache/burn_kernels"),
        ("darwin", None, "{home}/Library/Caches/burn_kernels"),
        ("win32", "LOCALAPPDATA", "{set}/burn_kernels"),
    ],
)
def test_each_platform_has_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, expected: str
) -> None:
    monkeypatch.delenv("BURN_KERNELS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", platform)
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "set"))
    assert str(cache_folder()) == expected.format(set=tmp_path / "set", home=tmp_path / "home")


# -- together ----------------------------------------------------------------------------------------
HAMMER = """
import sys, types
for name in ("burn_kernels", "burn_kernels.autotune"):  # without the package's own import of torch, which takes seconds
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
import warnings
warnings.simplefilter("error")
from pathlib import Path
from burn_kernels.autotune.store import Fault, Place, Store, Timing
store, me = Store(Path(sys.argv[2])), sys.argv[3]
for n in range(int(sys.argv[4])):
    own, shared = Place("k", f"own {me} {n}", "d", "s"), Place("k", f"shared {n}", "d", "s")
    row = lambda place: Timing(place, "a", {"block": n}, (float(me),), float(me))
    store.add([row(own)], [Fault(own, "b", "disqualified", me)])
    store.add([row(shared)])
    assert store.timings(shared)[0].config == {"block": n}
assert not store.in_memory
"""


def started(path: Path, count: int, rows: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(KERNELS), str(path), str(me), str(rows)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for me in range(count)
    ]


def test_eight_processes_lose_no_row_and_see_no_lock_error(path: Path) -> None:
    # none of them finds a file: creating it, the tables and the first rows is part of the race
    rows = 40
    for process in started(path, 8, rows):
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    store = Store(path)
    timings, faults = store.all_timings(), store.all_faults()
    assert {t.place.key for t in timings} == {f"own {m} {n}" for m in range(8) for n in range(rows)} | {
        f"shared {n}" for n in range(rows)
    }
    assert len(timings) == 9 * rows
    assert len(faults) == 8 * rows
    assert all(t.samples_ms == (t.median_ms,) for t in timings)  # each row is one process's, whole


def test_eight_processes_that_find_a_damaged_file_keep_every_row(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"junk" * 5000)
    failed = 0
    for process in started(path, 8, 5):
        _, said = process.communicate(timeout=300)
        if process.returncode:
            assert "damaged-1 now" in said  # the one that moved it aside says so, here as an error
            failed += 1
    assert failed == 1
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    assert len([t for t in Store(path).all_timings() if t.place.key.startswith("own")]) == 7 * 5


def test_threads_share_a_store(path: Path) -> None:
    store, failed = Store(path), list[BaseException]()

    def work(me: int) -> None:
        try:
            for n in range(25):
                store.add([timing(f"{me} {n}")])
                store.timings(PLACE)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(store.timings(PLACE)) == 8 * 25


def in_child(store: Store, out: Any) -> None:
    store.add([timing("child")])
    out.put(sorted(row.candidate for row in store.timings(PLACE)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_connection_does_not_cross_a_fork(path: Path) -> None:
    store = Store(path)
    store.add([timing("parent")])
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    child = context.Process(target=in_child, args=(store, out))
    child.start()
    assert out.get() == ["child", "parent"]
    child.join()
    store.add([timing("after")])
    assert {row.candidate for row in store.timings(PLACE)} == {"parent", "child", "after"}


_ENDLESS = "SELECT 1 UNION ALL SELECT i FROM n"


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE timings", f"CREATE VIEW timings AS WITH RECURSIVE n(i) AS ({_ENDLESS}) SELECT i FROM n"),
        ("CREATE TRIGGER t BEFORE INSERT ON timings BEGIN DELETE FROM timings; END",),
        ("CREATE INDEX i ON timings (key)",),
        ("UPDATE timings SET config = CAST(x'7B22FF' AS TEXT)",),
        ("UPDATE timings SET median_ms = 'slow'",),
        ("UPDATE timings SET candidate = x'61'",),
    ],
    ids=["a view without end", "a trigger", "an index", "no UTF-8", "no number", "no text"],
)  # fmt: skip
def test_a_file_of_another_schema_under_our_version_is_moved_aside(path: Path, statements: tuple[str, ...]) -> None:
    """The first ran for ever, the fourth was SQLite's own error."""
    store = Store(path)
    store.add([timing()])
    store.close()
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()
    store = Store(path)
    with pytest.warns(AutotuneWarning, match="a new file is begun"):
        assert store.all_timings() == []
    store.add([timing("new")])
    assert [row.candidate for row in Store(path).all_timings()] == ["new"]


def test_a_header_that_forbids_writing_costs_the_timings_and_not_the_call(tmp_path: Path) -> None:
    path = tmp_path / FILE
    store = Store(path)
    store.add([timing()])
    store.close()
    header = bytearray(path.read_bytes())
    header[18] = 9  # the version of the format for writing; those above 2 may only be read
    path.write_bytes(header)
    store = Store(path)
    with pytest.warns(AutotuneWarning, match="readonly database; timings stay in memory"):
        assert store.add([timing("block=128")]) == 1
    store.close()
