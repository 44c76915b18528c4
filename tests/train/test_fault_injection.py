"""A fault at every operation on files of a small run: it can always be resumed, and ends with the same bits.

The disk here remembers what was flushed.  After a crash at the n-th operation the folder is built again as a file
system may leave it: with all that was done (the process was killed), with what was flushed alone, with the names but
without data that was not flushed, with the data under the names that were flushed.  Torn writes, a full disk and I/O
errors are single operations that go wrong.
"""

import itertools
import json
import shutil
import threading
from pathlib import Path

import pytest

from burn_torch import ArtifactError
from burn_torch.core import files
from burn_torch.train.artifact import ArtifactDir
from burn_torch.train.checkpoint import FileCheckpointer
from burn_torch.train.event import CheckpointSaved

EPOCHS = 2
STATES = ("all", "flushed", "names", "data")
ERRORS = {"full": OSError(28, "No space left on device"), "broken": OSError(5, "Input/output error")}


class Crash(BaseException):
    """The machine stops here."""


class Inode:
    """A file, whatever its names are."""

    def __init__(self, path: Path) -> None:
        self.path, self.flushed = path, b""


class Writing:
    """An open file whose writes are operations of the disk."""

    def __init__(self, disk, file, inode) -> None:
        self._disk, self._file, self.inode = disk, file, inode

    def write(self, data):
        half = data[: len(data) // 2]
        self._disk.operation("write", self.inode.path, torn=lambda: self._file.write(half))
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()


class FaultyDisk(files.Disk):
    """Counts operations; at number `at` the fault happens."""

    def __init__(self, root: Path, fault: str = "none", at: int = -1) -> None:
        self.root, self.fault, self.at = root, fault, at
        self.count, self.dead, self.log, self.hit = 0, False, [], ("", "")
        self.lock = threading.Lock()
        self.names: dict[Path, Inode | None] = {}
        """As they are now; None for a folder."""
        self.flushed_names: dict[Path, Inode | None] = {}

    def operation(self, name: str, path: Path, torn=lambda: None) -> None:
        with self.lock:
            if self.dead:
                raise Crash
            self.count += 1
            self.log.append(name)
            hit = self.count == self.at
            if self.count < self.at or self.fault == "none":
                return
            if hit:
                self.hit = (name, path.name)
            self.dead = self.fault not in ERRORS
        if self.fault in ERRORS:  # a full disk stays full, but lets files be removed and flushed
            if hit or (self.fault == "full" and name in ("create", "append", "write", "folder")):
                raise ERRORS[self.fault]
            return
        if self.fault == "torn":
            torn()
        raise Crash

    def create(self, path):
        self.operation("create", path)
        inode = self.names[path] = Inode(path)
        return Writing(self, super().create(path), inode)

    def append(self, path):
        self.operation("append", path)
        self.names.setdefault(path, Inode(path))
        return Writing(self, super().append(path), self.names[path])

    def flush(self, file):
        self.operation("flush", file.inode.path)
        super().flush(file)
        file.inode.flushed = file.inode.path.read_bytes()

    def rename(self, old, new):
        self.operation("rename", new)
        super().rename(old, new)
        inode = self.names.pop(old)
        inode.path = new
        self.names[new] = inode

    def remove(self, path):
        self.operation("remove", path)
        super().remove(path)
        self.names.pop(path, None)

    def make_folder(self, path):
        self.operation("folder", path)
        super().make_folder(path)
        self.names[path] = None

    def flush_folder(self, path):
        self.operation("flush folder", path)
        super().flush_folder(path)
        for name in [name for name in self.flushed_names if name.parent == path and name not in self.names]:
            del self.flushed_names[name]
        self.flushed_names.update((name, inode) for name, inode in self.names.items() if name.parent == path)

    def after_the_crash(self, state: str, target: Path) -> None:
        """Builds in `target` what a file system may have kept of `root`."""
        if state == "all":
            if self.root.exists():
                shutil.copytree(self.root, target, ignore=shutil.ignore_patterns("*.sock"))
            return
        names = self.names if state == "names" else self.flushed_names
        for name, inode in sorted(names.items()):
            place = target / name.relative_to(self.root)
            if not (name == self.root or place.parent.exists()):
                continue  # its folder was lost
            if inode is None:
                place.mkdir()
            else:
                kept = inode.path if inode.path.exists() else name
                place.write_bytes(kept.read_bytes() if state == "data" and kept.exists() else inode.flushed)


class Acknowledged:
    """Keeps which checkpoint the run said is on the disk."""

    def __init__(self) -> None:
        self.newest = None

    def handle(self, event):
        if isinstance(event, CheckpointSaved):
            self.newest = Path(event.path).name

    def close(self):
        pass


def make(program, folder, background=False):
    loaders = program.make_loaders(train=21)
    training = program.make_training(folder, EPOCHS).with_loaders(*loaders).compile(False)
    return training.checkpoint_every(steps=2).async_checkpoints(background)


def tree(folder: Path) -> dict[str, str]:
    paths = [path for split in ("train", "valid") for path in sorted((folder / split).rglob("*.log"))]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    """The run that nobody disturbed, and how many operations it takes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    disk = FaultyDisk(folder)
    with files.using(disk):
        result = make(program, folder).launch(program.make_learner())
    report = json.loads((folder / "result.json").read_text())
    return program.digest(result.model), tree(folder), report, disk


def go_on(program, folder, whole, acknowledged):
    """Resumes what a crash has left; a folder in which no run has begun is started anew."""
    checkpoints = FileCheckpointer(folder / "checkpoint")
    newest = checkpoints.newest(lambda line: None)
    if acknowledged is not None:
        assert newest is not None
        there = [file.path.name for file in checkpoints.files()]
        order = [file.key for file in checkpoints.files()]
        said = type(checkpoints.files()[0]).of(Path(acknowledged)).key
        assert max(order) >= said, f"{acknowledged} was said to be on the disk, there is {there}"
    begun = (folder / ".lock").exists() or ArtifactDir(folder).has_run()
    if not begun:
        assert newest is None
        with pytest.raises(ArtifactError, match="there is no run to resume"):
            make(program, folder).resume().launch(program.make_learner())
    result = make(program, folder).resume(begun).launch(program.make_learner())
    assert result.status == "completed"
    assert program.digest(result.model) == whole[0]
    assert tree(folder) == whole[1]
    report = json.loads((folder / "result.json").read_text())
    assert report == whole[2]
    assert not list((folder / "checkpoint").glob(".*.part"))


def crashed(program, folder, fault, at, background=False):
    """A run in which the fault happens: its disk, and the checkpoint that it said was safe before."""
    disk, saved = FaultyDisk(folder, fault, at), Acknowledged()
    with files.using(disk):
        try:
            make(program, folder, background).renderer(saved).launch(program.make_learner())
        except (Crash, ArtifactError):
            return disk, saved.newest, True
    return disk, saved.newest, False


def inject(program, tmp_path, whole, numbers, background=False):
    """Faults at these operations, with every state that they may leave; how many there were."""
    counts = dict.fromkeys(("crash", "torn", *ERRORS), 0)
    for at in numbers:
        for fault in ("crash", "torn"):
            folder = tmp_path / f"{fault}-{at}"
            disk, said, failed = crashed(program, folder, fault, at, background)
            assert failed
            for state in STATES if fault == "crash" else ("all",):
                left = tmp_path / f"{fault}-{at}-{state}"
                disk.after_the_crash(state, left)
                go_on(program, left, whole, said)
                counts[fault] += 1
                shutil.rmtree(left)
            shutil.rmtree(folder, ignore_errors=True)
        for fault in ERRORS:
            folder = tmp_path / f"{fault}-{at}"
            disk, said, failed = crashed(program, folder, fault, at, background)
            assert failed or disk.hit[0] == "remove" or "control.json" in disk.hit[1], disk.hit
            if failed:
                go_on(program, folder, whole, said)
            else:  # a file too many, or nobody can reach the run: it ended as it should
                assert tree(folder) == whole[1]
            counts[fault] += 1
            shutil.rmtree(folder)
    return counts


def test_the_small_run_uses_every_operation(whole):
    assert set(whole[3].log) == {"create", "append", "write", "flush", "rename", "remove", "folder", "flush folder"}
    assert 100 < whole[3].count < 400


def test_faults_at_some_operations(program, tmp_path, whole):
    total = whole[3].count
    counts = inject(program, tmp_path, whole, range(17, total, total // 2))
    assert counts["crash"] == 4 * counts["torn"] >= 8


def test_faults_while_checkpoints_are_written_beside_the_training(program, tmp_path, whole):
    log = whole[3].log
    middle = [at for at, name in enumerate(log, 1) if name in ("flush", "rename")][4:5]
    counts = inject(program, tmp_path, whole, middle, background=True)
    assert counts["crash"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_faults_at_every_operation(program, tmp_path, whole, background, capsys):
    counts = inject(program, tmp_path, whole, range(1, whole[3].count + 1), background)
    with capsys.disabled():
        print(f"\n{whole[3].count} operations, background {background}: {counts}, all resumed with the same bits")
    assert all(counts.values())


def test_the_simulation_loses_what_was_not_flushed(tmp_path):
    """Without it the tests above would pass for a writer that flushes nothing."""
    lost = {}
    for durable, state in itertools.product((True, False), STATES):
        root = tmp_path / f"{durable}-{state}"
        disk = FaultyDisk(root)
        with files.using(disk):
            files.make_folder(root)
            files.write_atomic(root / "a", b"data", durable=durable)
        left = tmp_path / f"{durable}-{state}-left"
        disk.after_the_crash(state, left)
        lost[durable, state] = (left / "a").read_bytes() if (left / "a").exists() else None
    assert {lost[True, state] for state in STATES} == {b"data"}
    assert [lost[False, state] for state in STATES] == [b"data", None, b"", None]
