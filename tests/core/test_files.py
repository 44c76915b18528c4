"""Writing files whole or not at all."""

import os
import stat

import pytest

from burn_torch.core.files import replacing_file, write_atomic


def test_the_file_has_the_new_bytes_and_no_neighbour(tmp_path):
    path = tmp_path / "a.bin"
    write_atomic(path, b"one")
    write_atomic(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError("stop"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_bytes(tmp_path, error):
    path = tmp_path / "a.bin"
    write_atomic(path, b"old")
    with pytest.raises(type(error)), replacing_file(path) as file:  # noqa: PT012  (the block is what is tested)
        file.write(b"half of the n")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_system_call_leaves_the_old_bytes(tmp_path, monkeypatch, step):
    path = tmp_path / "a.bin"
    write_atomic(path, b"old")

    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_atomic(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_reach_the_disk_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        fsync(descriptor)

    def note_replace(source, target):
        steps.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_atomic(tmp_path / "a.bin", b"data")
    assert steps == ["bytes", "name", "folder"]


def test_a_new_file_has_the_permissions_that_open_would_give(tmp_path):
    write_atomic(tmp_path / "a", b"")
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        write_atomic(tmp_path / "none" / "a", b"")


def test_what_can_be_made_again_is_not_flushed(tmp_path, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_atomic(tmp_path / "cached", b"bytes", durable=False)
    assert (tmp_path / "cached").read_bytes() == b"bytes"
    assert [path.name for path in tmp_path.iterdir()] == ["cached"]
    assert flushed == []


def test_devices_and_pipes_are_not_replaced_by_files(tmp_path):
    """As root a rename puts a file in the place of /dev/null, for everybody on the machine."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match="a device, pipe or socket is there, no file"):
            write_atomic(path, b"content")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]
