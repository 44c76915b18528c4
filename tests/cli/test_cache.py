"""`burn-torch cache`: what is counted, what is removed, and what is not."""

from __future__ import annotations

import argparse
import io
import json
import sqlite3
from contextlib import closing

import pytest

from burn_kernels.autotune.store import FILE, Place, Store, Timing
from burn_torch.cli.commands import cache

PROGRAM = f"{'0a' * 10}.py"
TRITON = "A2" * 26


@pytest.fixture
def folders(tmp_path):
    """Caches with things in them, of ours and of others, and the variables that name them."""
    for name, size in (
        (f"bt/programs/{PROGRAM}", 5),
        ("bt/programs/notes.py", 7),
        ("bt/kernels/fused_0f.c", 11),
        ("bt/kernels/fused_0f-1e.so", 13),
        ("bt/kernels/mine.so", 17),
        (f"triton/{TRITON}/a.cubin", 19),
        ("triton/other/a.cubin", 23),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "bk").mkdir()
    store = Store(tmp_path / "bk" / FILE)
    assert store.add([Timing(Place("k", "f32 8", "cpu", "s"), "a", {}, (1.0,), 1.0)]) == 1
    store.close()
    (tmp_path / "tmp").mkdir()  # else kernels of another run may lie among temporary files
    names = {"BURN_TORCH_CACHE": "bt", "BURN_KERNELS_CACHE": "bk", "TRITON_CACHE_DIR": "triton", "TMPDIR": "tmp"}
    return {name: str(tmp_path / folder) for name, folder in names.items()}


def listed(burn, tmp_path, folders):
    done = burn("cache", "--json", cwd=tmp_path, **folders)
    assert (done.code, done.err) == (0, "")
    return {entry["name"]: entry for entry in json.loads(done.out)}


def test_the_list_has_places_numbers_and_sizes(burn, tmp_path, folders):
    facts = listed(burn, tmp_path, folders)
    counts = {name: (entry["entries"], entry["bytes"]) for name, entry in facts.items() if name != "timings"}
    assert counts == {"programs": (1, 5), "kernels": (2, 24), "triton": (1, 19)}
    assert facts["timings"]["entries"] == 1
    assert facts["timings"]["bytes"] > 1000
    assert facts["kernels"]["folders"] == [str(tmp_path / "bt" / "kernels")]
    lines = burn("cache", cwd=tmp_path, **folders).out.splitlines()
    assert lines[0].split() == ["CACHE", "ENTRIES", "SIZE", "FOLDER"]
    assert lines[2].split() == ["kernels", "2", "24", "B", str(tmp_path / "bt" / "kernels")]


def test_clearing_keeps_timings_triton_and_files_of_others(burn, tmp_path, folders):
    done = burn("cache", "clear", "--yes", cwd=tmp_path, **folders)
    assert (done.code, done.out, done.err) == (0, "removed 1 of programs and 2 of kernels, 29 B\n", "")
    facts = listed(burn, tmp_path, folders)
    assert {name: entry["entries"] for name, entry in facts.items()} == {
        "programs": 0, "kernels": 0, "timings": 1, "triton": 1,
    }  # fmt: skip
    assert (tmp_path / "bt/programs/notes.py").exists()
    assert (tmp_path / "bt/kernels/mine.so").exists()


def test_named_caches_are_cleared(burn, tmp_path, folders):
    done = burn("cache", "clear", "timings", "triton", "timings", "--yes", "--json", cwd=tmp_path, **folders)
    assert (done.code, done.err) == (0, "")
    assert [entry["entries"] for entry in json.loads(done.out)] == [1, 1]
    facts = listed(burn, tmp_path, folders)
    assert [entry["entries"] for entry in facts.values()] == [1, 2, 0, 0]
    assert (tmp_path / "triton/other/a.cubin").exists()


def test_without_a_yes_nothing_is_removed(burn, tmp_path, folders):
    done = burn("cache", "clear", cwd=tmp_path, **folders)
    assert done.code == 2
    assert "nothing is removed without a yes" in done.err
    assert listed(burn, tmp_path, folders)["programs"]["entries"] == 1


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_a_terminal_is_asked(answer, left, folders, tmp_path, monkeypatch, capsys):
    for name, folder in folders.items():
        monkeypatch.setenv(name, folder)
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    parser = argparse.ArgumentParser()
    cache.configure(parser)
    assert cache.run(parser.parse_args(["clear", "programs"])) == left
    assert "remove 1 of programs, 5 B? [y/N]" in capsys.readouterr().err
    assert (tmp_path / "bt/programs" / PROGRAM).exists() == bool(left)


def test_caches_that_are_not_there_are_empty_and_are_not_made(burn, tmp_path, tree):
    names = ("BURN_TORCH_CACHE", "BURN_KERNELS_CACHE", "TRITON_CACHE_DIR", "TMPDIR")
    nowhere = {name: str(tmp_path / name / "x") for name in names}
    assert [entry["entries"] for entry in listed(burn, tmp_path, nowhere).values()] == [0, 0, 0, 0]
    assert burn("cache", "clear", "timings", "--yes", cwd=tmp_path, **nowhere).code == 0
    assert tree(tmp_path) == {}


def test_only_files_are_files_and_only_folders_are_folders(burn, tmp_path, folders):
    """A folder with the name of a kernel went with all that was in it, and a file with the name of Triton's folders."""
    precious = tmp_path / "bt/kernels/fused_0e.py/precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    text = tmp_path / "triton" / ("B2" * 26)
    text.write_text("mine")
    linked = tmp_path / "triton" / ("C2" * 26)
    linked.symlink_to(precious.parent)
    done = burn("cache", "clear", "kernels", "triton", "--yes", cwd=tmp_path, **folders)
    assert (done.code, done.out) == (0, "removed 2 of kernels and 1 of triton, 43 B\n")
    assert precious.exists()
    assert text.exists()
    assert linked.is_symlink()


@pytest.mark.parametrize("what", ["damaged", "of another version"])
def test_a_list_changes_no_timings(what, burn, tmp_path, folders):
    """It moved a damaged file aside, and emptied one that another version had written."""
    file = tmp_path / "bk" / FILE
    if what == "damaged":
        file.write_bytes(b"garbage")
    else:
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    before = file.read_bytes()
    facts = listed(burn, tmp_path, folders)
    assert facts["timings"]["entries"] == 0
    assert file.read_bytes() == before
    assert list(file.parent.glob("*damaged*")) == []


def test_timings_that_a_run_has_not_checkpointed_count(burn, tmp_path, folders):
    with closing(Store(tmp_path / "bk" / FILE)) as store:
        assert store.add([Timing(Place("k", "f32 9", "cpu", "s"), "a", {}, (1.0,), 1.0)]) == 1
        assert listed(burn, tmp_path, folders)["timings"]["entries"] == 2
